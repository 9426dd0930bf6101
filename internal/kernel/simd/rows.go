//go:build amd64 && !noasm

package simd

// Operations on rows and elements on AVX2 and FMA.

import (
	"math"

	"github.com/odyssey-rl/odyssey/internal/kernel"
)

const (
	lanes  = kernel.PageKeys
	vector = 8
	// elementPiece and rowPiece are the elements of one piece of work: some
	// microseconds.
	elementPiece = 1 << 13
)

// rowsOf runs f over pieces of rows of dim elements.
func (b *avx2) rowsOf(rows, dim int, f func(worker, first, last int)) {
	size := max(1, elementPiece/max(1, dim))
	if perThread := (rows + 4*b.threads - 1) / (4 * b.threads); perThread > size {
		size = perThread
	}
	b.each((rows+size-1)/size, func(worker, piece int) {
		f(worker, piece*size, min(rows, (piece+1)*size))
	})
}

// elementsOf runs f over pieces of n elements, all but the last whole vectors.
func (b *avx2) elementsOf(n int, f func(first, last int)) {
	size := elementPiece
	if perThread := (n/(4*b.threads) + vector) &^ (vector - 1); perThread > size {
		size = perThread
	}
	b.each((n+size-1)/size, func(_, piece int) {
		f(piece*size, min(n, (piece+1)*size))
	})
}

// first returns a pointer to the start of x, which may be empty.
func first(x []float32) *float32 {
	if len(x) == 0 {
		return nil
	}
	return &x[0]
}

func (b *avx2) RMSNorm(y, rstd, x, w []float32, rows, dim int, eps float32) {
	if dim%lanes != 0 || dim == 0 {
		b.ref.RMSNorm(y, rstd, x, w, rows, dim, eps)
		return
	}
	y, x, w = y[:rows*dim], x[:rows*dim], w[:dim]
	b.rowsOf(rows, dim, func(_, from, to int) {
		var r *float32
		if rstd != nil {
			r = &rstd[from:to][0]
		}
		rmsNorm(&y[from*dim], r, &x[from*dim], &w[0], to-from, dim/lanes, float32(dim), eps)
	})
}

func (b *avx2) RMSNormBackward(dx, dw, dy, x, w, rstd []float32, rows, dim int, accDX bool) {
	if dim%lanes != 0 || dim == 0 {
		b.ref.RMSNormBackward(dx, dw, dy, x, w, rstd, rows, dim, accDX)
		return
	}
	if rows == 0 {
		return
	}
	dx, dy, x = dx[:rows*dim], dy[:rows*dim], x[:rows*dim]
	dw, w, rstd = dw[:dim], w[:dim], rstd[:rows]
	columns := func(_, piece int) {
		rmsNormWeight(&dw[piece*lanes], &dy[piece*lanes], &x[piece*lanes], &rstd[0], rows, 4*dim)
	}
	if rows*dim < elementPiece {
		for piece := range dim / lanes {
			columns(0, piece)
		}
	} else {
		b.each(dim/lanes, columns)
	}
	acc := 0
	if accDX {
		acc = 1
	}
	b.rowsOf(rows, dim, func(_, from, to int) {
		rmsNormInput(&dx[from*dim], &dy[from*dim], &x[from*dim], &w[0], &rstd[from], to-from, dim/lanes, float32(dim), acc)
	})
}

func (b *avx2) Rope(x []float32, rows, heads, headDim int, pos []int32, cos, sin []float32, inverse bool) {
	half := headDim / 2
	if headDim%(2*vector) != 0 || headDim == 0 || heads == 0 {
		b.ref.Rope(x, rows, heads, headDim, pos, cos, sin, inverse)
		return
	}
	sign := uint32(0)
	if inverse {
		sign = 1 << 31
	}
	x, pos = x[:rows*heads*headDim], pos[:rows]
	b.rowsOf(rows, heads*headDim, func(_, from, to int) {
		for row := from; row < to; row++ {
			at := int(pos[row]) * half
			rope(&x[row*heads*headDim], heads, half/vector, &cos[at : at+half][0], &sin[at : at+half][0], sign)
		}
	})
}

func (b *avx2) SwiGLU(y, gate, up []float32) {
	gate, up = gate[:len(y)], up[:len(y)]
	b.elementsOf(len(y), func(from, to int) {
		whole := from + (to-from)&^(vector-1)
		swiGLU(first(y[from:]), first(gate[from:]), first(up[from:]), (whole-from)/vector)
		b.ref.SwiGLU(y[whole:to], gate[whole:to], up[whole:to])
	})
}

func (b *avx2) SwiGLUBackward(dgate, dup, dy, gate, up []float32) {
	n := len(dy)
	dgate, dup, gate, up = dgate[:n], dup[:n], gate[:n], up[:n]
	b.elementsOf(n, func(from, to int) {
		whole := from + (to-from)&^(vector-1)
		swiGLUBackward(first(dgate[from:]), first(dup[from:]), first(dy[from:]), first(gate[from:]), first(up[from:]), (whole-from)/vector)
		b.ref.SwiGLUBackward(dgate[whole:to], dup[whole:to], dy[whole:to], gate[whole:to], up[whole:to])
	})
}

func (b *avx2) Add(y, x []float32) {
	x = x[:len(y)]
	b.elementsOf(len(y), func(from, to int) {
		whole := from + (to-from)&^(vector-1)
		add(first(y[from:]), first(x[from:]), (whole-from)/vector)
		b.ref.Add(y[whole:to], x[whole:to])
	})
}

// butterfly reduces 32 lanes by the row rule.
func butterfly(sums *[lanes]float32) float32 {
	for half := lanes / 2; half > 0; half /= 2 {
		for l := range half {
			sums[l] += sums[l+half]
		}
	}
	return sums[0]
}

// maximum returns the maximum of x*scale.
func maximum(x []float32, scale float32) float32 {
	m := rowMax(first(x), len(x)/lanes, scale)
	for _, v := range x[len(x)&^(lanes-1):] {
		if z := float32(v * scale); z > m {
			m = z
		}
	}
	return m + 0
}

// denominator returns the row rule over exp(x*scale - m).
func denominator(x []float32, scale, m float32) float32 {
	var sums [lanes]float32
	rowExpSum(&sums, first(x), len(x)/lanes, scale, m)
	for l, v := range x[len(x)&^(lanes-1):] {
		sums[l] += kernel.Exp(float32(v*scale) - m)
	}
	return butterfly(&sums)
}

// entropySums returns denominator and the row rule over exp(z-m)*z.
func entropySums(x []float32, scale, m float32) (d, products float32) {
	var sums, chains [lanes]float32
	rowExpEntropy(&sums, &chains, first(x), len(x)/lanes, scale, m)
	for l, v := range x[len(x)&^(lanes-1):] {
		z := float32(v * scale)
		e := kernel.Exp(z - m)
		sums[l] += e
		chains[l] = kernel.FMA32(e, z, chains[l])
	}
	return butterfly(&sums), butterfly(&chains)
}

func (b *avx2) Logprob(logprob, entropy, logits []float32, rows, vocab int, target []int32, invTemp float32) {
	b.rowsOf(rows, 4*vocab, func(_, from, to int) {
		for row := from; row < to; row++ {
			x := logits[row*vocab : (row+1)*vocab]
			m := maximum(x, invTemp)
			var d, products float32
			if entropy != nil {
				d, products = entropySums(x, invTemp, m)
			} else {
				d = denominator(x, invTemp, m)
			}
			lse := m + kernel.Log(d)
			if logprob != nil {
				logprob[row] = float32(x[target[row]]*invTemp) - lse
			}
			if entropy != nil {
				entropy[row] = lse - float32(products/d)
			}
		}
	})
}

func (b *avx2) LogprobBackward(logits []float32, rows, vocab int, target []int32, weight []float32, invTemp float32) {
	b.rowsOf(rows, 4*vocab, func(_, from, to int) {
		for row := from; row < to; row++ {
			x := logits[row*vocab : (row+1)*vocab]
			if weight[row] == 0 {
				clear(x)
				continue
			}
			m := maximum(x, invTemp)
			inv, scale := 1/denominator(x, invTemp, m), float32(weight[row]*invTemp)
			probability := func(v float32) float32 { return float32(kernel.Exp(float32(v*invTemp)-m) * inv) }
			id := target[row]
			atTarget := float32(float32(1-probability(x[id])) * scale)
			rowGradient(first(x), vocab/vector, invTemp, m, inv, scale)
			for i := vocab &^ (vector - 1); i < vocab; i++ {
				x[i] = float32(0-probability(x[i])) * scale
			}
			x[id] = atTarget
		}
	})
}

func (b *avx2) Sample(ids []int32, logprob, logits []float32, rows, vocab int, u []float32, invTemp float32) {
	b.rowsOf(rows, 8*vocab, func(worker, from, to int) {
		s := &b.scratch[worker]
		s.p = grow(s.p, vocab)
		for row := from; row < to; row++ {
			x := logits[row*vocab : (row+1)*vocab]
			temp := invTemp
			if invTemp <= 0 {
				temp = 1
				ids[row] = greedy(x)
			} else {
				ids[row] = draw(s.p, x, u[row], invTemp)
			}
			if logprob != nil {
				m := maximum(x, temp)
				logprob[row] = float32(x[ids[row]]*temp) - (m + kernel.Log(denominator(x, temp, m)))
			}
		}
	})
}

// greedy returns the first maximum.
func greedy(x []float32) int32 {
	best, id := float32(math.Inf(-1)), 0
	for i, v := range x {
		if v > best {
			best, id = v, i
		}
	}
	return int32(id)
}

// draw samples an id; sums is scratch of the row's length.
func draw(sums, x []float32, u, scale float32) int32 {
	m := maximum(x, scale)
	rowExp(first(sums), first(x), len(x)/vector, scale, m)
	for i := len(x) &^ (vector - 1); i < len(x); i++ {
		sums[i] = kernel.Exp(float32(x[i]*scale) - m)
	}
	total, last := float32(0), 0
	for i, e := range sums {
		total += e
		if e > 0 {
			last = i
		}
		sums[i] = total
	}
	limit := float32(u * total)
	for i, sum := range sums {
		if sum > limit {
			return int32(i)
		}
	}
	return int32(last)
}

func (b *avx2) SumSquares(x []float32) float32 {
	var sums [lanes]float32
	sumSquares(&sums, first(x), len(x)/lanes)
	for l, v := range x[len(x)&^(lanes-1):] {
		sums[l] = kernel.FMA32(v, v, sums[l])
	}
	return butterfly(&sums)
}

func (b *avx2) AdamW(w, grad, m, v []float32, p kernel.AdamWParams) {
	n := len(w)
	grad, m, v = grad[:n], m[:n], v[:n]
	scalars := [10]float32{p.GradScale, p.Beta1, 1 - p.Beta1, p.Beta2, 1 - p.Beta2, p.C1, p.C2, p.Eps, p.Decay, -p.LR}
	b.elementsOf(n, func(from, to int) {
		whole := from + (to-from)&^(vector-1)
		adamW(first(w[from:]), first(grad[from:]), first(m[from:]), first(v[from:]), (whole-from)/vector, &scalars)
		b.ref.AdamW(w[whole:to], grad[whole:to], m[whole:to], v[whole:to], p)
	})
}
