package seed

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

// random is a stream of numbers fixed by a key, so that what is drawn for one
// table does not depend on what was drawn for another.
type random struct{ state uint64 }

func newRandom(key ...any) *random {
	h := sha256.New()
	for _, part := range key {
		text := fmt.Sprint(part)
		fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	return &random{binary.LittleEndian.Uint64(h.Sum(nil)[:8])}
}

// next is splitmix64 (Steele, Lea, Flood 2014).
func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below draws from [0, n). Its bias, n in 2^64, does not matter here.
func (r *random) below(n int) int {
	high, _ := bits.Mul64(r.next(), uint64(n))
	return int(high)
}

// chance is true with probability p.
func (r *random) chance(p float64) bool { return float64(r.next()>>11)/(1<<53) < p }

func pick[T any](r *random, from []T) T { return from[r.below(len(from))] }

func shuffle[T any](r *random, s []T) {
	for i := len(s) - 1; i > 0; i-- {
		j := r.below(i + 1)
		s[i], s[j] = s[j], s[i]
	}
}

// choose draws k of the numbers, in ascending order.
func (r *random) choose(from []int, k int) []int {
	s := slices.Clone(from)
	shuffle(r, s)
	s = s[:k]
	slices.Sort(s)
	return s
}
