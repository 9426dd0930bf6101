package ref_test

import (
	"testing"

	"github.com/odyssey-rl/odyssey/internal/kernel"
	"github.com/odyssey-rl/odyssey/internal/kernel/kerneltest"
	"github.com/odyssey-rl/odyssey/internal/kernel/ref"
)

func TestTheReferencePassesTheSuite(t *testing.T) {
	kerneltest.Test(t, func(int) kernel.Backend { return ref.New() })
}
