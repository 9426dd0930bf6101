// Environments through a stage, several at once, in the order they came.

package cmdline

import (
	"context"
	"io"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/stream"
)

// EachEnvironment reads the environments of in that are this invocation's
// work (Skip), applies work to up to Threads of them at a time, and hands them
// to emit one by one in the order of the input, so that the output does not
// depend on Threads. What work returns beside the error goes to emit with its
// environment.
//
// The first error in that order ends it, save that with --keep-going an error
// of work is reported and its environment left out.
func EachEnvironment[T any](ctx context.Context, inv *Invocation, in *stream.Reader,
	work func(context.Context, *episode.Environment) (T, error), emit func(*episode.Environment, T) error) error {
	type job struct {
		environment *episode.Environment
		result      T
		err         error
		done        chan struct{}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// queue holds jobs in input order; its capacity bounds what is in memory.
	queue := make(chan *job, 2*inv.Threads)
	slots := make(chan struct{}, inv.Threads)
	var readError error
	go func() {
		defer close(queue)
		for {
			environment, err := in.Environment()
			if err != nil {
				if err != io.EOF {
					readError = err
				}
				return
			}
			if inv.Skip(environment.EnvironmentID) {
				continue
			}
			j := &job{environment: environment, done: make(chan struct{})}
			select {
			case queue <- j:
			case <-ctx.Done():
				return
			}
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			go func() {
				defer func() { <-slots; close(j.done) }()
				j.result, j.err = work(ctx, j.environment)
			}()
		}
	}()
	for j := range queue {
		select {
		case <-j.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if j.err != nil && inv.KeepGoing && ctx.Err() == nil {
			inv.Warnf("%v: left out", j.err)
			continue
		}
		if j.err != nil {
			return j.err
		}
		if err := emit(j.environment, j.result); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return readError
}
