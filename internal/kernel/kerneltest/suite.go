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
		if b.Threads() < threads {
			break
		}
		if _, itself := b.(*ref.Backend); !itself {
			t.Run(fmt.Sprintf("equal/threads=%d", threads), func(t *testing.T) { equal(t, b) })
		}
		for _, p := range properties {
			t.Run(fmt.Sprintf("%s/threads=%d", p.name, threads), func(t *testing.T) { p.test(t, b) })
		}
	}
	t.Run("golden", func(t *testing.T) { golden(t, open(2)) })
}

// equal holds every operation against the reference: all buffers the same by
// bits afterwards, inputs and guards included.
func equal(t *testing.T, b kernel.Backend) {
	rounds := 24
	if testing.Short() {
		rounds = 9
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

// golden holds every operation against a recorded hash, so that a change of the
// definition, of the suite's cases or of the shared functions shows, on any
// platform. A changed definition changes published policies' bits: record new
// hashes only on purpose.
func golden(t *testing.T, b kernel.Backend) {
	for _, op := range operations {
		a := newArena(12345, false)
		for range 3 {
			op.run(a, b)
		}
		if got := a.digest(); got != goldens[op.name] {
			t.Errorf("%q: %q,", op.name, got)
		}
	}
}

var goldens = map[string]string{
	"MatMul":            "977fcd601911edf1",
	"MatMul/wide":       "cfd296c3db6ede5e",
	"MatMul/tall":       "c11d1883bb600e2b",
	"MatMul/deep":       "5f1c8fd78c0354a6",
	"RMSNorm":           "43aa96d485fcb2f2",
	"RMSNorm/long":      "c0168c81637ac160",
	"RMSNormBackward":   "a01cb1b17819389a",
	"Rope":              "d71b84fc2a2c4182",
	"StoreKV":           "44d48c8b19af1610",
	"Attention":         "2d40942684fba4fa",
	"Attention/decode":  "d2766a26381b9784",
	"AttentionBackward": "1dd89392770bf9c7",
	"SwiGLU":            "a6052f29b7d3759d",
	"SwiGLUBackward":    "34acd537bc3f24f2",
	"Add":               "f63b529ccc3a47a2",
	"Logprob":           "7d56eac9fd906ef6",
	"LogprobBackward":   "02abb891c114af93",
	"Sample":            "5eabd726011e352a",
	"SumSquares":        "0de9b302142c2a5b",
	"AdamW":             "489a66350517aa8a",
}
