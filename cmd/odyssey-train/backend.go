package main

import (
	"github.com/odyssey-rl/odyssey/internal/kernel"
	"github.com/odyssey-rl/odyssey/internal/kernel/simd"
)

// newBackend is what computes the model.
func newBackend(threads int) kernel.Backend { return simd.New(threads) }
