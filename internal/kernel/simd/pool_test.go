//go:build amd64 && !noasm

package simd

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

func TestEveryPieceRunsOnce(t *testing.T) {
	p := newPool(4)
	defer p.close()
	for pieces := range 200 {
		ran := make([]atomic.Int32, pieces)
		var at [4]atomic.Int32
		p.each(pieces, func(worker, piece int) {
			if at[worker].Add(1) != 1 {
				t.Error("two pieces at once have the same worker")
			}
			ran[piece].Add(1)
			at[worker].Add(-1)
		})
		for i := range ran {
			if n := ran[i].Load(); n != 1 {
				t.Fatalf("piece %d of %d ran %d times", i, pieces, n)
			}
		}
	}
}

func TestIdleWorkersSleepAndWake(t *testing.T) {
	p := newPool(3)
	defer p.close()
	for range 3 {
		for start := time.Now(); p.asleep.Load() != 2; time.Sleep(time.Millisecond) {
			if time.Since(start) > 10*time.Second {
				t.Fatalf("%d of 2 workers sleep after ten seconds without work", p.asleep.Load())
			}
		}
		// Both workers are needed: no piece ends before all three have begun.
		var begun atomic.Int32
		p.each(3, func(_, _ int) {
			for begun.Add(1); begun.Load() < 3; {
				time.Sleep(time.Millisecond)
			}
		})
	}
}

func TestClosedPoolsLeaveNothingBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		p := newPool(4)
		p.each(10, func(_, _ int) {})
		p.close()
	}
	for start := time.Now(); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatalf("%d goroutines more than before", runtime.NumGoroutine()-before)
		}
	}
}
