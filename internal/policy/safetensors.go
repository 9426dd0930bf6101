package policy

import (
	"io"

	"github.com/odyssey-rl/odyssey/internal/model"
)

// Dtype is the type in which tensors are stored.
type Dtype string

// The types that WriteSafetensors writes. Reading also takes F16.
const (
	Float32  Dtype = "F32"
	BFloat16 Dtype = "BF16"
)

// ReadSafetensors reads a whole file of size bytes into float32 tensors, in the
// order of their data, and its metadata.
func ReadSafetensors(r io.ReaderAt, size int64) (tensors []model.Tensor, metadata map[string]string, err error) {
	panic("not yet")
}

// WriteSafetensors writes tensors in their order. BFloat16 rounds to nearest,
// ties to even. Equal input gives equal bytes.
func WriteSafetensors(w io.Writer, tensors []model.Tensor, dtype Dtype, metadata map[string]string) error {
	panic("not yet")
}
