package designer

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Random is a stream of numbers fixed by a key, so that what is drawn for one
// task does not depend on what was drawn for another.
type Random struct{ state uint64 }

// NewRandom makes the stream of a key; any values may be its parts.
func NewRandom(key ...any) *Random {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%q", key)))
	return &Random{binary.LittleEndian.Uint64(sum[:8])}
}

// next is splitmix64 (Steele, Lea, Flood 2014).
func (r *Random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below draws from [0, n). Its bias, n in 2^64, does not matter here.
func (r *Random) below(n int) int {
	high, _ := bits.Mul64(r.next(), uint64(n))
	return int(high)
}

// chance is true with probability p.
func (r *Random) chance(p float64) bool { return float64(r.next()>>11)/(1<<53) < p }

func pick[T any](r *Random, from []T) T { return from[r.below(len(from))] }

func shuffle[T any](r *Random, s []T) {
	for i := len(s) - 1; i > 0; i-- {
		j := r.below(i + 1)
		s[i], s[j] = s[j], s[i]
	}
}
