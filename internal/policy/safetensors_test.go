package policy

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/model"
)

// withHeader is a file of that header and that many bytes of data.
func withHeader(header string, data int) []byte {
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(file, header...), make([]byte, data)...)
}

func read(file []byte) ([]model.Tensor, map[string]string, error) {
	return ReadSafetensors(bytes.NewReader(file), int64(len(file)))
}

func TestFloat32TensorsSurviveWithEveryBit(t *testing.T) {
	tensors := []model.Tensor{
		{Name: "b", Shape: []int{2, 3}, Data: []float32{1, -0.5, float32(math.Inf(1)), float32(math.Copysign(0, -1)), 1e-45, math.MaxFloat32}},
		{Name: "a", Shape: []int{}, Data: []float32{3}},
		{Name: "empty", Shape: []int{0, 7}, Data: []float32{}},
	}
	var file, again bytes.Buffer
	if err := WriteSafetensors(&file, tensors, Float32, map[string]string{"format": "pt", "a": "b"}); err != nil {
		t.Fatal(err)
	}
	got, metadata, err := read(file.Bytes())
	if err != nil || !reflect.DeepEqual(got, tensors) || !reflect.DeepEqual(metadata, map[string]string{"format": "pt", "a": "b"}) {
		t.Errorf("read %v, %v, error %v", got, metadata, err)
	}
	if n := binary.LittleEndian.Uint64(file.Bytes()); n%8 != 0 {
		t.Errorf("header of %d bytes leaves the data unaligned", n)
	}
	if err := WriteSafetensors(&again, tensors, Float32, map[string]string{"a": "b", "format": "pt"}); err != nil || !bytes.Equal(file.Bytes(), again.Bytes()) {
		t.Error("the same tensors give other bytes")
	}
}

// TestFileHasTheReferenceLayout holds a file written out by hand.
func TestFileHasTheReferenceLayout(t *testing.T) {
	var file bytes.Buffer
	if err := WriteSafetensors(&file, []model.Tensor{{Name: "x", Shape: []int{2}, Data: []float32{1, -2}}}, BFloat16, nil); err != nil {
		t.Fatal(err)
	}
	header := `{"x":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}} `
	want := append(withHeader(header, 0), 0x80, 0x3f, 0x00, 0xc0)
	if !bytes.Equal(file.Bytes(), want) {
		t.Errorf("%q, want %q", file.Bytes(), want)
	}
}

func TestBFloat16RoundsToNearestEven(t *testing.T) {
	for bits, want := range map[uint32]uint16{
		0x3f800000: 0x3f80, // 1
		0x3f807fff: 0x3f80, // below half
		0x3f808000: 0x3f80, // half, even below
		0x3f808001: 0x3f81, // above half
		0x3f818000: 0x3f82, // half, even above
		0x7f7fffff: 0x7f80, // the largest rounds to infinity
		0xff800000: 0xff80,
		0x80000000: 0x8000,
		0x7fc00000: 0x7fc0,
		0x7f800001: 0x7fc0, // a NaN that the upper half would make infinite
	} {
		if got := toBFloat16(math.Float32frombits(bits)); got != want {
			t.Errorf("%08x gives %04x, want %04x", bits, got, want)
		}
	}
}

func TestHalvesAreWidenedExactly(t *testing.T) {
	for half, want := range map[uint16]float64{
		0x0000: 0, 0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 0x0400: math.Pow(2, -14),
		0x0001: math.Pow(2, -24), 0x83ff: -1023 * math.Pow(2, -24), 0x7c00: math.Inf(1), 0xfc00: math.Inf(-1), 0x3555: 0.333251953125,
	} {
		if got := fromFloat16(half); float64(got) != want {
			t.Errorf("%04x is %v, want %v", half, got, want)
		}
	}
	if x := fromFloat16(0x7e01); x == x {
		t.Errorf("7e01 is %v, want NaN", x)
	}
	file := append(withHeader(`{"x":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}`, 0), 0x00, 0x3c)
	if got, _, err := read(file); err != nil || got[0].Data[0] != 1 {
		t.Errorf("read %v, error %v", got, err)
	}
}

func TestTensorsComeInTheOrderOfTheirData(t *testing.T) {
	file := withHeader(`{"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"n":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}}`, 8)
	got, _, err := read(file)
	if err != nil || len(got) != 3 || got[0].Name != "a" || got[1].Name != "n" || got[2].Name != "b" {
		t.Errorf("read %v, error %v", got, err)
	}
}

func TestMalformedHeadersAreRefusedByName(t *testing.T) {
	const good = `"dtype":"F32","shape":[2],"data_offsets":[0,8]`
	for _, c := range []struct {
		file []byte
		want string
	}{
		{nil, "0 bytes is too short"},
		{withHeader("", 0)[:7], "7 bytes is too short"},
		{binary.LittleEndian.AppendUint64(nil, 1<<40), "header of 1099511627776 bytes in a file of 8"},
		{binary.LittleEndian.AppendUint64(nil, 1<<63), "header of 9223372036854775808 bytes"},
		{binary.LittleEndian.AppendUint64(nil, 1), "header of 1 bytes in a file of 8"},
		{withHeader("", 0), "does not begin with {"},
		{withHeader("[]", 0), "does not begin with {"},
		{withHeader(`{"a":`, 0), "EOF"},
		{withHeader(`{"a":1}`, 0), "tensor a"},
		{withHeader(`{}x`, 0), "goes on after its object"},
		{withHeader(`{}`, 4), "tensors end at 0 of 4"},
		{withHeader(`{"a":{`+good+`},"a":{`+good+`}}`, 8), `"a" occurs twice`},
		{withHeader(`{"__metadata__":{"a":1}}`, 0), "__metadata__"},
		{withHeader(`{"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}`, 8), `tensor a: type "I64"`},
		{withHeader(`{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, 8), "needs 12 bytes, data_offsets give 8"},
		{withHeader(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}}`, 8), "needs 4 bytes, data_offsets give 8"},
		{withHeader(`{"a":{"dtype":"F32","shape":[-2,-1],"data_offsets":[0,8]}}`, 8), "shape [-2 -1]"},
		{withHeader(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}`, 8), "shape [4294967296"},
		{withHeader(`{"a":{"dtype":"F32","shape":[4611686018427387904,2,2],"data_offsets":[0,0]}}`, 0), "shape [4611686018427387904"},
		{withHeader(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,16]}}`, 8), "data_offsets [0 16] in 8"},
		{withHeader(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}`, 8), "data_offsets [8 0]"},
		{withHeader(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}}`, 8), "data_offsets [0]"},
		{withHeader(`{"a":{"dtype":"F32","data_offsets":[0,4]}}`, 4), "no shape"},
		{withHeader(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, 12), "tensor a begins at 4, the one before ends at 0"},
		{withHeader(`{"a":{`+good+`},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), "tensor b begins at 4, the one before ends at 8"},
		{withHeader(`{"a":{`+good+`}}`, 9), "tensors end at 8 of 9"},
	} {
		if _, _, err := read(c.file); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "safetensors: ") {
			t.Errorf("%q: error %v, want %q", c.file, err, c.want)
		}
	}
}

func TestTensorsThatNoFileCanHoldAreNotWritten(t *testing.T) {
	one := model.Tensor{Name: "a", Shape: []int{1}, Data: []float32{1}}
	for want, tensors := range map[string][]model.Tensor{
		`"a" occurs twice`: {one, one},
		"has not 1":        {{Name: "a", Shape: []int{2}, Data: []float32{1}}},
	} {
		if err := WriteSafetensors(&bytes.Buffer{}, tensors, Float32, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := WriteSafetensors(&bytes.Buffer{}, nil, "F16", nil); err == nil {
		t.Error("F16 was written")
	}
}

func FuzzReadSafetensors(f *testing.F) {
	f.Add(withHeader(`{"a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]},"__metadata__":{"x":"y"}}`, 8))
	f.Add(withHeader(`{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}  `, 4))
	f.Fuzz(func(t *testing.T, file []byte) {
		tensors, metadata, err := read(file)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := WriteSafetensors(&out, tensors, Float32, metadata); err != nil {
			t.Fatal(err)
		}
		again, _, err := read(out.Bytes())
		if err != nil || len(again) != len(tensors) {
			t.Fatalf("written and read again: %d tensors of %d, error %v", len(again), len(tensors), err)
		}
		for i, tensor := range tensors {
			for j, x := range tensor.Data {
				if math.Float32bits(x) != math.Float32bits(again[i].Data[j]) {
					t.Fatalf("tensor %s changed", tensor.Name)
				}
			}
		}
	})
}
