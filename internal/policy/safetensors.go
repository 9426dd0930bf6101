package policy

// Safetensors: eight bytes with the length of a JSON header, the header (name ->
// dtype, shape, data offsets; and string metadata), then the data, little-endian.

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"

	"github.com/odyssey-rl/odyssey/internal/model"
)

// Dtype is the type in which tensors are stored.
type Dtype string

// The types that WriteSafetensors writes. Reading also takes F16.
const (
	Float32  Dtype = "F32"
	BFloat16 Dtype = "BF16"

	float16 Dtype = "F16"
)

// width is the number of bytes of an element, 0 for a type not read here.
func (d Dtype) width() int64 {
	switch d {
	case Float32:
		return 4
	case BFloat16, float16:
		return 2
	}
	return 0
}

// configName is the torch_dtype of config.json.
func (d Dtype) configName() string {
	if d == BFloat16 {
		return "bfloat16"
	}
	return "float32"
}

// maxHeader is the longest header read, the limit of the reference
// implementation.
const maxHeader = 100_000_000

// entry is what the header says about one tensor.
type entry struct {
	name    string
	Dtype   Dtype   `json:"dtype"`
	Shape   []int   `json:"shape"`
	Offsets []int64 `json:"data_offsets"` // [start, end) after the header
}

// ReadSafetensors reads a whole file of size bytes into float32 tensors, in the
// order of their data, and its metadata. It refuses by name a header that does
// not describe exactly the bytes that follow it, and allocates no more than the
// file's size warrants.
func ReadSafetensors(r io.ReaderAt, size int64) (tensors []model.Tensor, metadata map[string]string, err error) {
	header, start, err := readHeader(r, size)
	if err != nil {
		return nil, nil, fmt.Errorf("safetensors: %w", err)
	}
	entries, metadata, err := parseHeader(header)
	if err != nil {
		return nil, nil, fmt.Errorf("safetensors: header: %w", err)
	}
	if err := checkEntries(entries, size-start); err != nil {
		return nil, nil, fmt.Errorf("safetensors: header: %w", err)
	}
	for _, e := range entries {
		section := io.NewSectionReader(r, start+e.Offsets[0], e.Offsets[1]-e.Offsets[0])
		data, err := readElements(section, e.Dtype, (e.Offsets[1]-e.Offsets[0])/e.Dtype.width())
		if err != nil {
			return nil, nil, fmt.Errorf("safetensors: tensor %s: %w", e.name, err)
		}
		tensors = append(tensors, model.Tensor{Name: e.name, Shape: e.Shape, Data: data})
	}
	return tensors, metadata, nil
}

// readHeader returns the JSON header and where the data starts.
func readHeader(r io.ReaderAt, size int64) (header []byte, start int64, err error) {
	if size < 8 {
		return nil, 0, fmt.Errorf("file of %d bytes is too short", size)
	}
	var length [8]byte
	if _, err := r.ReadAt(length[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader || int64(n) > size-8 {
		return nil, 0, fmt.Errorf("header of %d bytes in a file of %d", n, size)
	}
	header = make([]byte, n)
	if _, err := io.ReadFull(io.NewSectionReader(r, 8, int64(n)), header); err != nil {
		return nil, 0, err
	}
	return header, 8 + int64(n), nil
}

// parseHeader reads the header's members in their order. A name that occurs
// twice is an error.
func parseHeader(header []byte) (entries []entry, metadata map[string]string, err error) {
	if !bytes.HasPrefix(header, []byte("{")) {
		return nil, nil, errors.New("does not begin with {")
	}
	decoder := json.NewDecoder(bytes.NewReader(header))
	if _, err := decoder.Token(); err != nil {
		return nil, nil, err
	}
	seen := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, nil, err
		}
		name := token.(string) // a key, or Token had failed
		if seen[name] {
			return nil, nil, fmt.Errorf("%q occurs twice", name)
		}
		seen[name] = true
		if name == "__metadata__" {
			if err := decoder.Decode(&metadata); err != nil {
				return nil, nil, fmt.Errorf("__metadata__: %w", err)
			}
			continue
		}
		e := entry{name: name}
		if err := decoder.Decode(&e); err != nil {
			return nil, nil, fmt.Errorf("tensor %s: %w", name, err)
		}
		entries = append(entries, e)
	}
	if _, err := decoder.Token(); err != nil {
		return nil, nil, err
	}
	if rest := bytes.Trim(header[decoder.InputOffset():], " "); len(rest) > 0 {
		return nil, nil, errors.New("goes on after its object")
	}
	return entries, metadata, nil
}

// checkEntries puts entries into the order of their data and refuses them unless
// they fill size bytes without gap or overlap and each is as long as its shape
// says.
func checkEntries(entries []entry, size int64) error {
	for _, e := range entries {
		width := e.Dtype.width()
		if width == 0 {
			return fmt.Errorf("tensor %s: type %q is not read here (F32, F16 and BF16 are)", e.name, e.Dtype)
		}
		if len(e.Offsets) != 2 || e.Offsets[0] < 0 || e.Offsets[0] > e.Offsets[1] || e.Offsets[1] > size {
			return fmt.Errorf("tensor %s: data_offsets %v in %d bytes of data", e.name, e.Offsets, size)
		}
		if e.Shape == nil {
			return fmt.Errorf("tensor %s: no shape", e.name)
		}
		elements := int64(1)
		for _, dim := range e.Shape {
			if dim < 0 || dim > 0 && elements > size/int64(dim) {
				return fmt.Errorf("tensor %s: shape %v in %d bytes of data", e.name, e.Shape, size)
			}
			elements *= int64(dim)
		}
		if length := e.Offsets[1] - e.Offsets[0]; length != elements*width {
			return fmt.Errorf("tensor %s: shape %v of %s needs %d bytes, data_offsets give %d", e.name, e.Shape, e.Dtype, elements*width, length)
		}
	}
	sort.SliceStable(entries, func(i, j int) bool {
		a, b := entries[i].Offsets, entries[j].Offsets
		return a[0] < b[0] || a[0] == b[0] && a[1] < b[1]
	})
	end := int64(0)
	for _, e := range entries {
		if e.Offsets[0] != end {
			return fmt.Errorf("tensor %s begins at %d, the one before ends at %d", e.name, e.Offsets[0], end)
		}
		end = e.Offsets[1]
	}
	if end != size {
		return fmt.Errorf("tensors end at %d of %d bytes of data", end, size)
	}
	return nil
}

// readElements reads n elements as float32.
func readElements(r io.Reader, dtype Dtype, n int64) ([]float32, error) {
	data := make([]float32, n)
	buffer := make([]byte, min(n*dtype.width(), 1<<16))
	for rest := data; len(rest) > 0; {
		count := min(len(rest), len(buffer)/int(dtype.width()))
		part := buffer[:count*int(dtype.width())]
		if _, err := io.ReadFull(r, part); err != nil {
			return nil, err
		}
		for i := range rest[:count] {
			switch dtype {
			case Float32:
				rest[i] = math.Float32frombits(binary.LittleEndian.Uint32(part[4*i:]))
			case BFloat16:
				rest[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(part[2*i:])) << 16)
			case float16:
				rest[i] = fromFloat16(binary.LittleEndian.Uint16(part[2*i:]))
			}
		}
		rest = rest[count:]
	}
	return data, nil
}

// fromFloat16 widens an IEEE half, exactly.
func fromFloat16(half uint16) float32 {
	sign := uint32(half>>15) << 31
	exponent, fraction := uint32(half>>10)&31, uint32(half)&1023
	switch exponent {
	case 0: // zero and subnormal: fraction * 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)/(1<<24)))
	case 31:
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	default:
		return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
	}
}

// toBFloat16 rounds to nearest, ties to even. A NaN stays one.
func toBFloat16(x float32) uint16 {
	bits := math.Float32bits(x)
	if x != x {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// WriteSafetensors writes tensors in their order. BFloat16 rounds to nearest,
// ties to even. Equal input gives equal bytes.
func WriteSafetensors(w io.Writer, tensors []model.Tensor, dtype Dtype, metadata map[string]string) error {
	if dtype != Float32 && dtype != BFloat16 {
		return fmt.Errorf("safetensors: type %q is not written here", dtype)
	}
	var header bytes.Buffer
	header.WriteByte('{')
	member := func(name string, value any) error {
		if header.Len() > 1 {
			header.WriteByte(',')
		}
		key, err := json.Marshal(name)
		if err != nil {
			return err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		header.Write(key)
		header.WriteByte(':')
		header.Write(text)
		return nil
	}
	if len(metadata) > 0 {
		if err := member("__metadata__", metadata); err != nil {
			return err
		}
	}
	seen := map[string]bool{"__metadata__": true}
	offset := int64(0)
	for _, tensor := range tensors {
		if seen[tensor.Name] {
			return fmt.Errorf("safetensors: %q occurs twice", tensor.Name)
		}
		seen[tensor.Name] = true
		elements := 1
		for _, dim := range tensor.Shape {
			elements *= dim
		}
		if elements != len(tensor.Data) {
			return fmt.Errorf("safetensors: tensor %s: shape %v has not %d elements", tensor.Name, tensor.Shape, len(tensor.Data))
		}
		shape := tensor.Shape
		if shape == nil {
			shape = []int{}
		}
		end := offset + int64(elements)*dtype.width()
		if err := member(tensor.Name, entry{Dtype: dtype, Shape: shape, Offsets: []int64{offset, end}}); err != nil {
			return err
		}
		offset = end
	}
	header.WriteByte('}')
	for header.Len()%8 != 0 { // so that the data is aligned
		header.WriteByte(' ')
	}
	if _, err := w.Write(binary.LittleEndian.AppendUint64(nil, uint64(header.Len()))); err != nil {
		return err
	}
	if _, err := w.Write(header.Bytes()); err != nil {
		return err
	}
	buffer := make([]byte, 0, 1<<16)
	for _, tensor := range tensors {
		for rest := tensor.Data; len(rest) > 0; {
			count := min(len(rest), cap(buffer)/4)
			buffer = buffer[:0]
			for _, x := range rest[:count] {
				if dtype == BFloat16 {
					buffer = binary.LittleEndian.AppendUint16(buffer, toBFloat16(x))
				} else {
					buffer = binary.LittleEndian.AppendUint32(buffer, math.Float32bits(x))
				}
			}
			if _, err := w.Write(buffer); err != nil {
				return err
			}
			rest = rest[count:]
		}
	}
	return nil
}
