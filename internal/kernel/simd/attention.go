//go:build amd64 && !noasm

package simd

import "github.com/odyssey-rl/odyssey/internal/kernel"

func (b *avx2) StoreKV(k, v []float32, seqs []kernel.Sequence, sh kernel.AttentionShape) {
	b.ref.StoreKV(k, v, seqs, sh)
}
func (b *avx2) Attention(out, q []float32, seqs []kernel.Sequence, sh kernel.AttentionShape, stats []float32) {
	b.ref.Attention(out, q, seqs, sh, stats)
}
func (b *avx2) AttentionBackward(dq, dk, dv, dout, out, q, k, v, stats []float32, seqs []kernel.Sequence, sh kernel.AttentionShape) {
	b.ref.AttentionBackward(dq, dk, dv, dout, out, q, k, v, stats, seqs, sh)
}
