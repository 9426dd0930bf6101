// A pool of workers: each serves one call at a time, and a call goes where its
// program is loaded already, if such a worker is free.
package sandbox

import (
	"context"
	"errors"
	"sync"
)

// Pool starts workers on demand, up to Options.Workers, and replaces those
// that die. It may be used by several goroutines.
type Pool struct {
	options Options
	slots   chan struct{} // one token per worker in use

	mutex  sync.Mutex
	idle   []*process // most recently used last
	closed bool
}

// NewPool makes a pool; it starts no process yet.
func NewPool(options Options) *Pool {
	options = options.withDefaults()
	return &Pool{options: options, slots: make(chan struct{}, options.Workers)}
}

var errClosed = errors.New("sandbox pool is closed")

// acquire takes a worker that is nobody else's.
func (p *Pool) acquire(ctx context.Context, digest string) (*process, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.mutex.Lock()
	if p.closed {
		p.mutex.Unlock()
		<-p.slots
		return nil, errClosed
	}
	chosen := -1
	for i := len(p.idle) - 1; i >= 0; i-- {
		if p.idle[i].loaded[digest] {
			chosen = i
			break
		}
	}
	if chosen < 0 && len(p.idle) > 0 && len(p.idle)+len(p.slots) > p.options.Workers {
		chosen = 0 // the one unused for longest; none may be started
	}
	if chosen >= 0 {
		worker := p.idle[chosen]
		p.idle = append(p.idle[:chosen], p.idle[chosen+1:]...)
		p.mutex.Unlock()
		return worker, nil
	}
	p.mutex.Unlock()
	worker, err := startProcess(ctx, p.options)
	if err != nil {
		<-p.slots
		return nil, err
	}
	return worker, nil
}

func (p *Pool) release(worker *process) {
	p.mutex.Lock()
	closed := p.closed
	if !worker.dead && !closed {
		p.idle = append(p.idle, worker)
	}
	p.mutex.Unlock()
	if closed && !worker.dead {
		worker.kill()
	}
	<-p.slots
}

// loadCheck loads a program into some worker, so that its faults are known.
func (p *Pool) loadCheck(ctx context.Context, load *loadRequest) error {
	worker, err := p.acquire(ctx, load.Digest)
	if err != nil {
		return err
	}
	defer p.release(worker)
	if r := worker.ensureLoaded(ctx, load); r.Status != OK {
		return loadFailure(r)
	}
	return nil
}

// Close ends all idle workers, and those in use when their call is over.
func (p *Pool) Close() {
	p.mutex.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mutex.Unlock()
	for _, worker := range idle {
		worker.kill()
	}
}
