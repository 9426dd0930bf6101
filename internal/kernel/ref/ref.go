// Package ref is the definition of every operation of kernel.Backend in plain
// Go: one loop after another in the stated order, no build tags, one thread.
// It is slow on purpose; any faster backend must give its bits.
package ref

import (
	"math"

	"github.com/odyssey-rl/odyssey/internal/kernel"
)

// Backend computes the operations one element after another.
type Backend struct{}

// New returns the reference backend.
func New() *Backend { return &Backend{} }

var _ kernel.Backend = (*Backend)(nil)

// Name returns "ref".
func (*Backend) Name() string { return "ref" }

// Threads returns 1.
func (*Backend) Threads() int { return 1 }

const lanes = kernel.PageKeys

// fma is the float32 fused multiply-add.
func fma(a, b, c float32) float32 { return kernel.FMA32(a, b, c) }

// sumRow applies the row rule to term(i), i < n: term gives the lane's next
// value from its last one.
func sumRow(n int, term func(lane float32, i int) float32) float32 {
	var sums [lanes]float32
	for i := range n {
		sums[i%lanes] = term(sums[i%lanes], i)
	}
	return butterfly(&sums)
}

// butterfly adds lanes l and l^16, l^8, l^4, l^2, l^1 in turn.
func butterfly(sums *[lanes]float32) float32 {
	for half := lanes / 2; half > 0; half /= 2 {
		for l := range half {
			sums[l] += sums[l+half]
		}
	}
	return sums[0]
}

// maximum returns the largest of x(0..n-1), passing over NaN, -Inf if there is
// none; a zero is +0.
func maximum(n int, x func(i int) float32) float32 {
	m := float32(math.Inf(-1))
	for i := range n {
		if v := x(i); v > m {
			m = v
		}
	}
	return m + 0
}

// Pack copies src as K x N, row-major.
func (*Backend) Pack(dst *kernel.Packed, src []float32, k, n int, trans bool) {
	if cap(dst.Data) < k*n {
		dst.Data = make([]float32, k*n)
	}
	dst.K, dst.N, dst.Data = k, n, dst.Data[:k*n]
	if !trans {
		copy(dst.Data, src[:k*n])
		return
	}
	for i := range k {
		for j := range n {
			dst.Data[i*n+j] = src[j*k+i]
		}
	}
}

// MatMul computes one chain per element of C.
func (*Backend) MatMul(c, a []float32, transA bool, m int, b *kernel.Packed, acc bool) {
	rowStep, innerStep := b.K, 1
	if transA {
		rowStep, innerStep = 1, m
	}
	for i := range m {
		row := c[i*b.N : (i+1)*b.N]
		if !acc {
			clear(row)
		}
		for k := range b.K {
			x := a[i*rowStep+k*innerStep]
			for j, w := range b.Data[k*b.N : (k+1)*b.N] {
				row[j] = fma(x, w, row[j])
			}
		}
	}
}

// RMSNorm normalises each row by its root mean square.
func (*Backend) RMSNorm(y, rstd, x, w []float32, rows, dim int, eps float32) {
	for row := range rows {
		in, out := x[row*dim:(row+1)*dim], y[row*dim:(row+1)*dim]
		sum := sumRow(dim, func(lane float32, i int) float32 { return fma(in[i], in[i], lane) })
		r := kernel.Rsqrt(sum/float32(dim) + eps)
		for i := range in {
			out[i] = float32(in[i]*r) * w[i]
		}
		if rstd != nil {
			rstd[row] = r
		}
	}
}

// RMSNormBackward adds the weights' gradient to dw and sets or adds to dx.
func (*Backend) RMSNormBackward(dx, dw, dy, x, w, rstd []float32, rows, dim int, accDX bool) {
	for i := range dim {
		for row := range rows {
			dw[i] = fma(dy[row*dim+i], float32(x[row*dim+i]*rstd[row]), dw[i])
		}
	}
	for row := range rows {
		in, grad, out := x[row*dim:(row+1)*dim], dy[row*dim:(row+1)*dim], dx[row*dim:(row+1)*dim]
		r := rstd[row]
		sum := sumRow(dim, func(lane float32, i int) float32 { return fma(float32(grad[i]*w[i]), in[i], lane) })
		t := float32(float32(sum*r)*r) / float32(dim)
		for i := range in {
			d := float32(r * fma(-t, in[i], float32(grad[i]*w[i])))
			if accDX {
				d = out[i] + d
			}
			out[i] = d
		}
	}
}

// Rope rotates the halves of each head.
func (*Backend) Rope(x []float32, rows, heads, headDim int, pos []int32, cos, sin []float32, inverse bool) {
	half := headDim / 2
	for row := range rows {
		c := cos[int(pos[row])*half : (int(pos[row])+1)*half]
		s := sin[int(pos[row])*half : (int(pos[row])+1)*half]
		for head := range heads {
			v := x[(row*heads+head)*headDim : (row*heads+head+1)*headDim]
			for i := range half {
				a, b, si := v[i], v[i+half], s[i]
				if inverse {
					si = -si
				}
				v[i] = fma(a, c[i], -float32(b*si))
				v[i+half] = fma(b, c[i], float32(a*si))
			}
		}
	}
}

// StoreKV writes keys across and values along the pages.
func (*Backend) StoreKV(k, v []float32, seqs []kernel.Sequence, sh kernel.AttentionShape) {
	hd := sh.HeadDim
	for _, seq := range seqs {
		for n := range seq.N {
			page := seq.Pages[(seq.Pos+n)/kernel.PageKeys]
			slot := (seq.Pos + n) % kernel.PageKeys
			for head := range sh.KVHeads {
				from := ((seq.Row+n)*sh.KVHeads + head) * hd
				for i := range hd {
					page.K[(head*hd+i)*kernel.PageKeys+slot] = k[from+i]
				}
				copy(page.V[(head*kernel.PageKeys+slot)*hd:][:hd], v[from:from+hd])
			}
		}
	}
}

// Attention computes one row and head after another.
func (*Backend) Attention(out, q []float32, seqs []kernel.Sequence, sh kernel.AttentionShape, stats []float32) {
	hd, group := sh.HeadDim, sh.Heads/sh.KVHeads
	var p []float32
	for _, seq := range seqs {
		for n := range seq.N {
			row, visible := seq.Row+n, seq.Pos+n+1
			p = append(p[:0], make([]float32, visible)...)
			for head := range sh.Heads {
				at := (row*sh.Heads + head) * hd
				query, result, kv := q[at:at+hd], out[at:at+hd], head/group
				for j := range p {
					page, slot := seq.Pages[j/kernel.PageKeys], j%kernel.PageKeys
					s := float32(0)
					for i := range query {
						s = fma(query[i], page.K[(kv*hd+i)*kernel.PageKeys+slot], s)
					}
					p[j] = float32(s * sh.Scale)
				}
				m := maximum(visible, func(j int) float32 { return p[j] })
				for j := range p {
					p[j] = kernel.Exp(p[j] - m)
				}
				inv := 1 / sumRow(visible, func(lane float32, j int) float32 { return lane + p[j] })
				for j := range p {
					p[j] = float32(p[j] * inv)
				}
				for i := range result {
					o := float32(0)
					for j := range p {
						page, slot := seq.Pages[j/kernel.PageKeys], j%kernel.PageKeys
						o = fma(p[j], page.V[(kv*kernel.PageKeys+slot)*hd+i], o)
					}
					result[i] = o
				}
				if stats != nil {
					stats[(row*sh.Heads+head)*2] = m
					stats[(row*sh.Heads+head)*2+1] = inv
				}
			}
		}
	}
}

// AttentionBackward takes key-value heads, the heads of each group and query
// rows in ascending order, which is the order of the chains of dk and dv.
func (*Backend) AttentionBackward(dq, dk, dv, dout, out, q, k, v, stats []float32, seqs []kernel.Sequence, sh kernel.AttentionShape) {
	hd, group := sh.HeadDim, sh.Heads/sh.KVHeads
	for _, seq := range seqs {
		for kv := range sh.KVHeads {
			at := func(j int) int { return ((seq.Row+j)*sh.KVHeads + kv) * hd }
			for j := range seq.N {
				clear(dk[at(j):][:hd])
				clear(dv[at(j):][:hd])
			}
			for head := kv * group; head < (kv+1)*group; head++ {
				for n := range seq.N {
					row := seq.Row + n
					from := (row*sh.Heads + head) * hd
					query, grad, result := q[from:from+hd], dout[from:from+hd], out[from:from+hd]
					dquery := dq[from : from+hd]
					clear(dquery)
					m, inv := stats[(row*sh.Heads+head)*2], stats[(row*sh.Heads+head)*2+1]
					delta := sumRow(hd, func(lane float32, i int) float32 { return fma(grad[i], result[i], lane) })
					for j := range n + 1 {
						key, value := k[at(j):at(j)+hd], v[at(j):at(j)+hd]
						dkey, dvalue := dk[at(j):at(j)+hd], dv[at(j):at(j)+hd]
						s, dp := float32(0), float32(0)
						for i := range hd {
							s = fma(query[i], key[i], s)
							dp = fma(grad[i], value[i], dp)
						}
						p := float32(kernel.Exp(float32(s*sh.Scale)-m) * inv)
						ds := float32(float32(p*float32(dp-delta)) * sh.Scale)
						for i := range hd {
							dquery[i] = fma(ds, key[i], dquery[i])
							dkey[i] = fma(ds, query[i], dkey[i])
							dvalue[i] = fma(p, grad[i], dvalue[i])
						}
					}
				}
			}
		}
	}
}

// SwiGLU computes y = (gate*sigmoid(gate))*up.
func (*Backend) SwiGLU(y, gate, up []float32) {
	for i := range y {
		y[i] = float32(gate[i]*kernel.Sigmoid(gate[i])) * up[i]
	}
}

// SwiGLUBackward sets dgate and dup.
func (*Backend) SwiGLUBackward(dgate, dup, dy, gate, up []float32) {
	for i := range dy {
		g, u, d := gate[i], up[i], dy[i]
		s := kernel.Sigmoid(g)
		silu := float32(g * s)
		dup[i] = d * silu
		dgate[i] = float32(d*u) * fma(silu, float32(1-s), s)
	}
}

// Add adds x to y.
func (*Backend) Add(y, x []float32) {
	for i := range y {
		y[i] += x[i]
	}
}

// softmaxRow returns maximum and denominator of logits*invTemp.
func softmaxRow(logits []float32, invTemp float32) (m, d float32) {
	m = maximum(len(logits), func(i int) float32 { return float32(logits[i] * invTemp) })
	d = sumRow(len(logits), func(lane float32, i int) float32 {
		return lane + kernel.Exp(float32(logits[i]*invTemp)-m)
	})
	return m, d
}

// Logprob computes log-probability and entropy of each row.
func (*Backend) Logprob(logprob, entropy, logits []float32, rows, vocab int, target []int32, invTemp float32) {
	for row := range rows {
		x := logits[row*vocab : (row+1)*vocab]
		m, d := softmaxRow(x, invTemp)
		lse := m + kernel.Log(d)
		if logprob != nil {
			logprob[row] = float32(x[target[row]]*invTemp) - lse
		}
		if entropy != nil {
			sum := sumRow(vocab, func(lane float32, i int) float32 {
				z := float32(x[i] * invTemp)
				return fma(kernel.Exp(z-m), z, lane)
			})
			entropy[row] = lse - float32(sum/d)
		}
	}
}

// LogprobBackward replaces logits by their gradient.
func (*Backend) LogprobBackward(logits []float32, rows, vocab int, target []int32, weight []float32, invTemp float32) {
	for row := range rows {
		x := logits[row*vocab : (row+1)*vocab]
		if weight[row] == 0 {
			clear(x)
			continue
		}
		m, d := softmaxRow(x, invTemp)
		inv, scale := 1/d, float32(weight[row]*invTemp)
		for i := range x {
			p := float32(kernel.Exp(float32(x[i]*invTemp)-m) * inv)
			one := float32(0)
			if int32(i) == target[row] {
				one = 1
			}
			x[i] = float32(one-p) * scale
		}
	}
}

// Sample draws one id per row.
func (b *Backend) Sample(ids []int32, logprob, logits []float32, rows, vocab int, u []float32, invTemp float32) {
	for row := range rows {
		x := logits[row*vocab : (row+1)*vocab]
		ids[row] = draw(x, u[row], invTemp)
	}
	if logprob != nil {
		if invTemp <= 0 {
			invTemp = 1
		}
		b.Logprob(logprob, nil, logits, rows, vocab, ids, invTemp)
	}
}

func draw(x []float32, u, invTemp float32) int32 {
	if invTemp <= 0 {
		best, id := float32(math.Inf(-1)), 0
		for i, v := range x {
			if v > best {
				best, id = v, i
			}
		}
		return int32(id)
	}
	m := maximum(len(x), func(i int) float32 { return float32(x[i] * invTemp) })
	total, last := float32(0), 0
	for i := range x {
		e := kernel.Exp(float32(x[i]*invTemp) - m)
		total += e
		if e > 0 {
			last = i
		}
	}
	limit, sum := float32(u*total), float32(0)
	for i := range x {
		sum += kernel.Exp(float32(x[i]*invTemp) - m)
		if sum > limit {
			return int32(i)
		}
	}
	return int32(last)
}

// SumSquares applies the row rule to the squares.
func (*Backend) SumSquares(x []float32) float32 {
	return sumRow(len(x), func(lane float32, i int) float32 { return fma(x[i], x[i], lane) })
}

// AdamW updates w, m and v in place.
func (*Backend) AdamW(w, grad, m, v []float32, p kernel.AdamWParams) {
	for i := range w {
		g := float32(grad[i] * p.GradScale)
		m[i] = fma(p.Beta1, m[i], float32((1-p.Beta1)*g))
		v[i] = fma(p.Beta2, v[i], float32(float32((1-p.Beta2)*g)*g))
		update := float32(m[i]/p.C1) / (kernel.Sqrt(float32(v[i]/p.C2)) + p.Eps)
		w[i] = fma(-p.LR, fma(p.Decay, w[i], update), w[i])
	}
}
