// Package kerneltest is the suite that every kernel backend passes: the bits of
// the reference over random shapes and values, nothing touched beside the
// buffers, and no dependence on batch, chunk or thread count.
package kerneltest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/odyssey-rl/odyssey/internal/kernel"
)

const (
	guardLength = 16
	guardBits   = 0x7fa5c3e1 // a NaN that no operation makes
)

// arena hands out the buffers of one case: random values between guards. Two
// arenas of one seed hand out the same, so that after an operation they must
// still be the same in everything.
type arena struct {
	random  *rand.Rand
	wild    bool
	buffers [][]float32 // with guards
	ids     [][]int32
}

func newArena(seed uint64, wild bool) *arena {
	return &arena{random: rand.New(rand.NewPCG(seed, 0x0d155e7)), wild: wild}
}

// between returns a number in [low, high].
func (a *arena) between(low, high int) int { return low + a.random.IntN(high-low+1) }

// pick returns one of the numbers.
func (a *arena) pick(of ...int) int { return of[a.random.IntN(len(of))] }

// flip returns true half of the time.
func (a *arena) flip() bool { return a.random.IntN(2) == 0 }

// value is about normal; in a wild arena one in twenty is a zero, a subnormal,
// an extreme, an infinity or a NaN.
func (a *arena) value() float32 {
	if a.wild && a.random.IntN(20) == 0 {
		negative := uint32(a.random.IntN(2)) << 31
		switch a.random.IntN(8) {
		case 0, 1:
			return math.Float32frombits(negative)
		case 2, 3:
			return math.Float32frombits(negative | a.random.Uint32N(1<<23))
		case 4:
			return math.Float32frombits(negative | (a.random.Uint32N(0x7f800000)))
		case 5:
			return math.Float32frombits(negative | (0x60000000 + a.random.Uint32N(0x1f000000)))
		case 6:
			return math.Float32frombits(negative | 0x7f800000)
		}
		return math.Float32frombits(negative | 0x7fc00001 + a.random.Uint32N(1<<20))
	}
	sum := int32(0)
	for range 4 {
		sum += a.random.Int32N(1<<16) - 1<<15
	}
	return float32(sum) / (1 << 15)
}

// blank returns n elements, all the guard, which an operation has to set.
func (a *arena) blank(n int) []float32 {
	x := make([]float32, n+2*guardLength)
	for i := range x {
		x[i] = math.Float32frombits(guardBits)
	}
	a.buffers = append(a.buffers, x)
	return x[guardLength : guardLength+n : guardLength+n]
}

// zeros returns n zeros.
func (a *arena) zeros(n int) []float32 {
	x := a.blank(n)
	clear(x)
	return x
}

// values returns n random values.
func (a *arena) values(n int) []float32 {
	x := a.blank(n)
	for i := range x {
		x[i] = a.value()
	}
	return x
}

// positives returns n values in (0, 1).
func (a *arena) positives(n int) []float32 {
	x := a.blank(n)
	for i := range x {
		x[i] = (float32(a.random.Uint32N(1<<23)) + 0.5) / (1 << 23)
	}
	return x
}

// indices returns n ids below limit.
func (a *arena) indices(n, limit int) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = a.random.Int32N(int32(limit))
	}
	a.ids = append(a.ids, x)
	return x
}

// page returns an empty page.
func (a *arena) page(sh kernel.AttentionShape) *kernel.Page {
	n := sh.KVHeads * sh.HeadDim * kernel.PageKeys
	return &kernel.Page{K: a.zeros(n), V: a.zeros(n)}
}

// same tells whether x and y have the same bits or are both NaN (the guard's
// NaN is like itself only).
func same(x, y float32) bool {
	p, q := math.Float32bits(x), math.Float32bits(y)
	return p == q || x != x && y != y && p != guardBits && q != guardBits
}

// differs describes the first difference from another arena, or is empty.
func (a *arena) differs(from *arena) string {
	for i, x := range a.buffers {
		for j := range x {
			if y := from.buffers[i][j]; !same(x[j], y) {
				return fmt.Sprintf("buffer %d of length %d, element %d: %v (%08x), want %v (%08x)", i, len(x)-2*guardLength, j-guardLength,
					x[j], math.Float32bits(x[j]), y, math.Float32bits(y))
			}
		}
	}
	for i, x := range a.ids {
		for j := range x {
			if y := from.ids[i][j]; x[j] != y {
				return fmt.Sprintf("ids %d, element %d: %d, want %d", i, j, x[j], y)
			}
		}
	}
	return ""
}

// digest hashes everything, with one NaN for all.
func (a *arena) digest() string {
	h := sha256.New()
	var word [4]byte
	for _, x := range a.buffers {
		for _, v := range x {
			bits := math.Float32bits(v)
			if v != v {
				bits = guardBits
			}
			binary.LittleEndian.PutUint32(word[:], bits)
			h.Write(word[:])
		}
	}
	for _, x := range a.ids {
		for _, v := range x {
			binary.LittleEndian.PutUint32(word[:], uint32(v))
			h.Write(word[:])
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
