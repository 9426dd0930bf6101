//go:build amd64 && !noasm

package simd

// The worker pool. A job is a number of independent pieces, claimed one by one
// by whoever is free, the caller included: if the other programs of a pipe hold
// the second core, the caller does the work alone and waits for nobody who has
// not begun. Workers spin briefly for the next job, then sleep, so an idle
// process burns no core.

import (
	"runtime"
	"sync/atomic"
	"time"
)

// spinFor is how long a worker looks for the next job before it sleeps: longer
// than the gaps between the operations of a layer, short against a scheduler's
// time slice.
const spinFor = 50 * time.Microsecond

type pool struct {
	threads int
	current atomic.Pointer[job]
	asleep  atomic.Int32
	wake    chan struct{}
	quit    chan struct{} // closed to end the workers
}

type job struct {
	run    func(worker, piece int)
	pieces int64
	_      [64]byte
	next   atomic.Int64
	_      [64]byte
	done   atomic.Int64
}

func newPool(threads int) *pool {
	p := &pool{threads: threads, wake: make(chan struct{}, threads), quit: make(chan struct{})}
	p.current.Store(&job{})
	for worker := 1; worker < threads; worker++ {
		go p.work(worker, p.current.Load())
	}
	return p
}

// close lets the workers end. No job may be running or follow.
func (p *pool) close() { close(p.quit) }

// each runs the pieces 0..pieces-1, in any order on any worker, and returns when
// all are done. worker is less than threads and unique among those at work.
func (p *pool) each(pieces int, run func(worker, piece int)) {
	if p.threads == 1 || pieces <= 1 {
		for piece := range pieces {
			run(0, piece)
		}
		return
	}
	j := &job{run: run, pieces: int64(pieces)}
	p.current.Store(j)
	for n := min(p.asleep.Load(), int32(pieces-1)); n > 0; n-- {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
	j.help(0)
	j.wait()
}

// wait returns when all pieces are done. A worker that does not finish soon may
// have lost its core to another program, or be queued for the caller's: past a
// while the caller gives its own away.
func (j *job) wait() {
	for spins := 0; j.done.Load() != j.pieces; spins++ {
		switch {
		case spins < 1<<10:
			pause()
		case spins < 1<<11:
			runtime.Gosched()
		default:
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// help claims pieces until none is left.
func (j *job) help(worker int) {
	for {
		piece := j.next.Add(1) - 1
		if piece >= j.pieces {
			return
		}
		j.run(worker, int(piece))
		j.done.Add(1)
	}
}

func (p *pool) work(worker int, last *job) {
	for {
		j := p.await(last)
		if j == nil {
			return
		}
		j.help(worker)
		last = j
	}
}

// await returns the current job as soon as it is not last, nil when the pool is
// closed.
func (p *pool) await(last *job) *job {
	for {
		for start := time.Now(); time.Since(start) < spinFor; {
			for range 32 {
				if j := p.current.Load(); j != last {
					return j
				}
				pause()
			}
		}
		// Announce the sleep, then look once more: either the caller of each sees the
		// sleeper or the sleeper sees its job.
		p.asleep.Add(1)
		if p.current.Load() == last {
			select {
			case <-p.wake:
			case <-p.quit:
				p.asleep.Add(-1)
				return nil
			}
		}
		p.asleep.Add(-1)
	}
}
