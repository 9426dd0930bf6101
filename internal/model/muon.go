package model

import "github.com/odyssey-rl/odyssey/internal/kernel"

// muonScratch holds the matrices of one Muon update.
type muonScratch struct {
	x, square, polynomial, product []float32
	packed                         kernel.Packed
}

// The quintic iteration X <- aX + (bXX' + c(XX')^2)X drives the singular values
// of X, at most 1, towards 1 (Jordan et al., Muon, 2024).
const (
	newtonSchulzSteps = 5
	newtonSchulzA     = 3.4445
	newtonSchulzB     = -4.7750
	newtonSchulzC     = 2.0315
)

// step moves weights [out][in] along the orthogonalised momentum of gradient:
//
//	M = momentum M + (1-momentum) G
//	U = orthogonalise((1-momentum) G + momentum M)
//	W = W + rate sqrt(max(1, out/in)) U
func (mu *muonScratch) step(be kernel.Backend, s *slot, weights, gradient []float32, scale, momentum, rate float32) {
	out, in := s.shape[0], s.shape[1]
	wide := out <= in
	rows, columns := out, in
	if !wide {
		rows, columns = in, out
	}
	x := grow(&mu.x, out*in)
	for i, g := range gradient {
		g = float32(g * scale)
		s.first[i] = float32(momentum*s.first[i]) + float32((1-momentum)*g)
		x[i] = g + float32(momentum*(s.first[i]-g))
	}
	norm := 1 / (kernel.Sqrt(be.SumSquares(x)) + 1e-7)
	for i := range x {
		x[i] *= norm
	}
	product := grow(&mu.product, out*in)
	if !wide { // work on the transpose: the square is then the smaller one
		transpose(product, x, out, in)
		x, product = product, x
	}
	square, polynomial := grow(&mu.square, rows*rows), grow(&mu.polynomial, rows*rows)
	for range newtonSchulzSteps {
		be.Pack(&mu.packed, x, columns, rows, true)
		be.MatMul(square, x, false, rows, &mu.packed, false)
		be.Pack(&mu.packed, square, rows, rows, false)
		be.MatMul(polynomial, square, false, rows, &mu.packed, false)
		for i, y := range square {
			polynomial[i] = float32(newtonSchulzB*y) + float32(newtonSchulzC*polynomial[i])
		}
		be.Pack(&mu.packed, x, rows, columns, false)
		be.MatMul(product, polynomial, false, rows, &mu.packed, false)
		for i, y := range product {
			x[i] = float32(newtonSchulzA*x[i]) + y
		}
	}
	if !wide {
		transpose(product, x, in, out)
		x = product
		rate = float32(rate * kernel.Sqrt(float32(out)/float32(in)))
	}
	for i, u := range x {
		weights[i] += float32(rate * u)
	}
}

// transpose sets dst[columns][rows] to the transpose of src[rows][columns].
func transpose(dst, src []float32, rows, columns int) {
	for i := range rows {
		for j := range columns {
			dst[j*rows+i] = src[i*columns+j]
		}
	}
}
