//go:build !amd64 || noasm

package simd

import "github.com/odyssey-rl/odyssey/internal/kernel"

// variants is empty where there is no assembly.
func variants() []string { return nil }

func open(string, int) kernel.Backend { panic("simd: no variant but ref") }
