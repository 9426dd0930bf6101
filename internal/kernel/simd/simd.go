// Package simd is the fast CPU backend: assembly written by the generator in
// _generate where the processor has the instructions, the reference elsewhere.
// Its bits are those of kernel/ref at any number of threads.
package simd

//go:generate sh -c "cd _generate && go run . -out ../avx2_amd64.s -stubs ../avx2_amd64.go -pkg simd"

import (
	"fmt"
	"os"

	"github.com/odyssey-rl/odyssey/internal/kernel"
	"github.com/odyssey-rl/odyssey/internal/kernel/ref"
)

// Variable names the environment variable that forces a variant: one of
// Variants, of those that this machine has.
const Variable = "ODYSSEY_KERNEL"

// New returns the backend for this machine with the given number of threads
// (at least 1): the variant that the environment names if this machine has it,
// else the fastest. Name tells which.
func New(threads int) kernel.Backend {
	if backend, err := Open(os.Getenv(Variable), threads); err == nil {
		return backend
	}
	backend, _ := Open(Variants()[0], threads)
	return backend
}

// Variants lists what this machine can run, fastest first; "ref" is always the
// last.
func Variants() []string { return append(variants(), "ref") }

// Open returns the named variant. It fails if this machine or this build lacks
// it.
func Open(variant string, threads int) (kernel.Backend, error) {
	for _, name := range Variants() {
		if name != variant {
			continue
		}
		if name == "ref" {
			return ref.New(), nil
		}
		return open(name, max(1, threads)), nil
	}
	return nil, fmt.Errorf("kernel variant %q is not available here (%v are)", variant, Variants())
}
