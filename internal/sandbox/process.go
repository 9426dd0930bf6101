// One worker process, seen from the parent, which owns the clock.
package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// process is a running worker. It is used by one goroutine at a time.
type process struct {
	options Options
	cmd     *exec.Cmd
	stdin   *os.File
	stdout  *os.File
	in      *bufio.Reader
	stderr  *cappedBuffer
	frame   []byte
	body    []byte
	loaded  map[string]bool // digests sent; the worker may have let some go
	dead    bool
	waited  chan struct{}
}

// maxStderr bounds what is kept of a worker's last words.
const maxStderr = 8 << 10

// cappedBuffer keeps the first maxStderr bytes written to it.
type cappedBuffer struct {
	mutex sync.Mutex
	buf   bytes.Buffer
}

func (c *cappedBuffer) Write(p []byte) (int, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if room := maxStderr - c.buf.Len(); room > 0 {
		c.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (c *cappedBuffer) String() string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.buf.String()
}

func startProcess(ctx context.Context, options Options) (*process, error) {
	if !maybeWorkerCalled {
		return nil, errors.New("sandbox.MaybeWorker must be the first line of main (and of TestMain)")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	childIn, stdin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stdout, childOut, err := os.Pipe()
	if err != nil {
		childIn.Close()
		stdin.Close()
		return nil, err
	}
	p := &process{
		options: options,
		stdin:   stdin,
		stdout:  stdout,
		in:      bufio.NewReaderSize(stdout, 1<<16),
		stderr:  &cappedBuffer{},
		frame:   make([]byte, 4, 1<<12),
		loaded:  map[string]bool{},
		waited:  make(chan struct{}),
	}
	p.cmd = &exec.Cmd{
		Path: selfPath,
		Args: []string{workerName},
		// Without containermaxprocs=0 the runtime holds files of the control group.
		Env:    []string{"GOMAXPROCS=1", "GOTRACEBACK=none", "GODEBUG=containermaxprocs=0"},
		Dir:    "/",
		Stdin:  childIn,
		Stdout: childOut,
		Stderr: p.stderr,
	}
	dieWithParent(p.cmd)
	err = p.cmd.Start()
	childIn.Close()
	childOut.Close()
	if err != nil {
		stdin.Close()
		stdout.Close()
		return nil, fmt.Errorf("start sandbox worker: %w", err)
	}
	go func() {
		p.cmd.Wait()
		close(p.waited)
	}()
	hello := helloRequest{
		Steps:       options.Steps,
		MemoryBytes: options.MemoryBytes,
		ResultBytes: uint64(options.ResultBytes),
		CacheBytes:  uint64(options.CacheBytes),
		Unprotected: options.Unprotected,
	}
	r := p.roundTrip(ctx, hello, options.LoadTime)
	if r.Status == OK {
		return p, nil
	}
	p.kill()
	if strings.Contains(r.Error, ErrUnprotected.Error()) {
		return nil, fmt.Errorf("%w (worker says: %s)", ErrUnprotected, r.Error)
	}
	return nil, fmt.Errorf("start sandbox worker: %s", r.Error)
}

// kill ends the process. It may be called twice.
func (p *process) kill() {
	p.dead = true
	p.cmd.Process.Kill()
	p.stdin.Close()
	p.stdout.Close()
	<-p.waited
}

// ensureLoaded loads a program unless the worker was given it before.
func (p *process) ensureLoaded(ctx context.Context, load *loadRequest) Result {
	if p.loaded[load.Digest] {
		return Result{Status: OK}
	}
	r := p.roundTrip(ctx, load, p.options.LoadTime)
	if r.Status == OK {
		p.loaded[load.Digest] = true
	}
	return r
}

// perform loads the program if need be and sends the request.
func (p *process) perform(ctx context.Context, load *loadRequest, req request) Result {
	if r := p.ensureLoaded(ctx, load); r.Status != OK {
		return r
	}
	r := p.roundTrip(ctx, req, p.options.Time)
	if r.Status == absent {
		delete(p.loaded, load.Digest)
		if r := p.ensureLoaded(ctx, load); r.Status != OK {
			return r
		}
		r = p.roundTrip(ctx, req, p.options.Time)
	}
	if r.Status == absent {
		return Result{Status: Infrastructure, Error: "worker lost its program"}
	}
	return r
}

// roundTrip sends one request and reads its answer. Whatever goes wrong ends
// the process, so that no late answer can be taken for another call's.
func (p *process) roundTrip(ctx context.Context, req request, limit time.Duration) Result {
	if p.dead {
		return Result{Status: Infrastructure, Error: "worker died"}
	}
	deadline := time.Now().Add(limit)
	p.stdin.SetWriteDeadline(deadline)
	p.stdout.SetReadDeadline(deadline)
	stop := context.AfterFunc(ctx, func() {
		past := time.Unix(1, 0)
		p.stdin.SetWriteDeadline(past)
		p.stdout.SetReadDeadline(past)
	})
	defer func() {
		if !stop() {
			p.kill() // the deadlines may still be about to change
		}
	}()
	p.frame = finishFrame(req.append(p.frame[:4]))
	_, err := p.stdin.Write(p.frame)
	if cap(p.frame) > 1<<20 {
		p.frame = make([]byte, 4, 1<<12)
	}
	if err == nil {
		p.body, err = readFrame(p.in, p.body, maxAnswer(p.options.ResultBytes))
	}
	if err == nil {
		var r Result
		if r, err = parseResult(p.body); err == nil {
			if cap(p.body) > 1<<20 {
				p.body = nil
			}
			return r
		}
	}
	p.kill()
	switch {
	case ctx.Err() != nil:
		return Result{Status: Infrastructure, Error: ctx.Err().Error()}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Result{Status: Limit, Code: CodeTime, Error: "limit:time"}
	case errors.Is(err, errFrame):
		return Result{Status: Infrastructure, Error: "worker broke the protocol"}
	}
	said := p.stderr.String()
	for _, sign := range []string{"out of memory", "cannot allocate memory", "stack exceeds", "stack overflow"} {
		if strings.Contains(said, sign) {
			return Result{Status: Limit, Code: CodeMemory, Error: "limit:memory"}
		}
	}
	return Result{Status: Infrastructure, Error: "worker died"}
}
