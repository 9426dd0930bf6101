package simd

import (
	"testing"

	"github.com/odyssey-rl/odyssey/internal/kernel"
	"github.com/odyssey-rl/odyssey/internal/kernel/kerneltest"
)

func TestVariantsAreTheReference(t *testing.T) {
	for _, variant := range Variants() {
		t.Run(variant, func(t *testing.T) {
			kerneltest.Test(t, func(threads int) kernel.Backend {
				b, err := Open(variant, threads)
				if err != nil {
					t.Fatal(err)
				}
				return b
			})
		})
	}
}
