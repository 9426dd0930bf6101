//go:build amd64 && !noasm

package simd

import (
	"testing"
	"time"

	"github.com/odyssey-rl/odyssey/internal/kernel"
	"github.com/odyssey-rl/odyssey/internal/kernel/kerneltest"
)

// peakRate returns the multiply-add rate of one thread with 256-bit vectors in
// GFLOP/s, the best of several short runs.
func peakRate() float64 {
	best := time.Duration(1 << 62)
	const iterations = 100000
	for range 10 {
		start := time.Now()
		peak(iterations)
		best = min(best, time.Since(start))
	}
	return 2 * 4 * 12 * 8 * iterations / float64(best.Nanoseconds())
}

func BenchmarkKernels(b *testing.B) {
	kerneltest.Bench(b, func(threads int) kernel.Backend { return New(threads) }, peakRate)
}
