package kerneltest

import (
	"fmt"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/kernel"
	"github.com/odyssey-rl/odyssey/internal/kernel/ref"
)

// Test runs the suite on the backend that open returns for a thread count.
func Test(t *testing.T, open func(threads int) kernel.Backend) {
	for threads := 1; threads <= 3; threads++ {
		b := open(threads)
		t.Run(fmt.Sprintf("equal/threads=%d", threads), func(t *testing.T) { equal(t, b) })
	}
}

// equal holds every operation against the reference: all buffers the same by
// bits afterwards, inputs and guards included.
func equal(t *testing.T, b kernel.Backend) {
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for _, op := range operations {
		t.Run(op.name, func(t *testing.T) {
			for round := range rounds {
				seed, wild := uint64(round), round%3 == 2
				want, got := newArena(seed, wild), newArena(seed, wild)
				op.run(want, ref.New())
				op.run(got, b)
				if difference := got.differs(want); difference != "" {
					t.Fatalf("round %d: %s", round, difference)
				}
			}
		})
	}
}
