// Package kernel lists the operations that the model is made of. The doc
// comment of each operation is its definition: the loop, its order and its
// rounding. kernel/ref is that loop in plain Go; every other backend must give
// the same bits.
//
// All matrices are row-major float32. fma(a, b, c) is the correctly rounded
// fused a*b+c of float32. A "chain" is a sequence of fma in a stated order.
//
// The row rule reduces a row x[0:n]: 32 lanes, lane l sums x[l], x[l+32], ...
// ascending from +0; then the butterfly l += l^16, l^8, l^4, l^2, l^1. Lanes
// past the end stay +0.
package kernel

// PageKeys is the number of key positions that a Page holds. It is also the
// number of lanes of the row rule.
const PageKeys = 32

// Packed is the right operand of MatMul in the layout its backend prefers.
// Only the backend that packed it may read Data.
type Packed struct {
	K, N int
	Data []float32
}

// Page holds the keys and values of PageKeys consecutive positions of one
// sequence in one layer. Positions not yet written must be zero. A page that is
// full is never written again, so sequences that share a prefix share pages.
type Page struct {
	K []float32 // [kvHeads][headDim][PageKeys]
	V []float32 // [kvHeads][PageKeys][headDim]
}

// Sequence says which rows of a batch belong to one sequence: rows
// [Row, Row+N) stand at positions [Pos, Pos+N). Pages cover positions
// [0, Pos+N).
type Sequence struct {
	Row, N, Pos int
	Pages       []*Page
}

// AttentionShape gives the sizes of an attention operation. Query head h reads
// key-value head h / (Heads/KVHeads). Scale multiplies the scores.
type AttentionShape struct {
	Heads, KVHeads, HeadDim int
	Scale                   float32
}

// Backend computes the operations. Methods split their work over Threads
// workers by output element, so the bits do not depend on the number. A
// Backend is used by one goroutine at a time.
type Backend interface {
	Name() string
	Threads() int

	// Pack lays out b for MatMul: element (i, j) of the K x N operand is
	// src[i*n+j], or src[j*k+i] if trans (a weight stored out x in). It reuses
	// dst.Data when large enough.
	Pack(dst *Packed, src []float32, k, n int, trans bool)

	// MatMul computes C[m,N] = A[m,K] B: for every i, j one chain
	// c = fma(A[i,k], B[k,j], c), k ascending, from +0, or from C[i,j] if acc.
	// If transA, A is stored K x m.
	MatMul(c, a []float32, transA bool, m int, b *Packed, acc bool)

	// RMSNorm: for each row, s = row rule over x[i]*x[i] where lane sums are
	// chains fma(x, x, lane); r = rsqrt(s/dim + eps); y = (x*r)*w, each
	// product rounded. rstd[row] = r if rstd is not nil.
	RMSNorm(y, rstd, x, w []float32, rows, dim int, eps float32)
	// RMSNormBackward adds to dw (one chain over rows ascending per column)
	// and sets dx, or adds to dx if accDX.
	RMSNormBackward(dx, dw, dy, x, w, rstd []float32, rows, dim int, accDX bool)

	// Rope rotates pairs (i, i+headDim/2) of each head of x[rows][heads*headDim]
	// by the angle of pos[row]; cos and sin are tables [maxPos][headDim/2].
	// inverse rotates back (the gradient).
	Rope(x []float32, rows, heads, headDim int, pos []int32, cos, sin []float32, inverse bool)

	// StoreKV writes rows k, v [rows][kvHeads*headDim] into the pages of their
	// sequences.
	StoreKV(k, v []float32, seqs []Sequence, sh AttentionShape)
	// Attention: for each row and head, over the visible keys j = 0..position:
	// s_j = (chain over headDim ascending from +0 of q*k) * Scale; m = max;
	// e_j = exp(s_j - m); d = row rule over e_j; p_j = e_j * (1/d);
	// out = one chain over j ascending from +0 of p_j*v_j per element.
	// stats[row][head] = {m, 1/d} if stats is not nil ([rows][heads][2]).
	Attention(out, q []float32, seqs []Sequence, sh AttentionShape, stats []float32)
	// AttentionBackward sets dq, dk, dv from dout; k and v are the pages' rows
	// in plain layout [rows][kvHeads*headDim] and every sequence starts at
	// position 0. The chains of dk and dv run over query rows ascending, heads
	// of the group ascending within a row or as the reference states.
	AttentionBackward(dq, dk, dv, dout, out, q, k, v, stats []float32, seqs []Sequence, sh AttentionShape)

	// SwiGLU: y = (gate * sigmoid(gate)) * up.
	SwiGLU(y, gate, up []float32)
	// SwiGLUBackward sets dgate and dup from dy.
	SwiGLUBackward(dgate, dup, dy, gate, up []float32)

	// Add: y += x.
	Add(y, x []float32)

	// Logprob reduces rows of logits [rows][vocab] (undefined ids are masked by
	// the caller through vocab): z = logits*invTemp, m = max z, d = row rule
	// over exp(z-m), lse = m + log d. logprob[row] = z[target[row]] - lse and
	// entropy[row] = lse - (row rule over exp(z-m)*z)/d, each if not nil.
	Logprob(logprob, entropy, logits []float32, rows, vocab int, target []int32, invTemp float32)
	// LogprobBackward turns logits into the gradient of
	// sum_row weight[row]*logprob[row]: weight*(onehot - softmax)*invTemp, in
	// place. Same reductions as Logprob.
	LogprobBackward(logits []float32, rows, vocab int, target []int32, weight []float32, invTemp float32)
	// Sample draws one id per row: the lowest id whose running sum of
	// exp(z-m), ids ascending, exceeds u[row] times the total of that same
	// running sum; u in [0,1). invTemp <= 0 takes the first maximum, and the
	// logprob is then that of invTemp 1.
	Sample(ids []int32, logprob, logits []float32, rows, vocab int, u []float32, invTemp float32)

	// SumSquares is the row rule over x with lane chains fma(x, x, lane).
	SumSquares(x []float32) float32
	// AdamW: g = grad*gradScale; m = b1*m + (1-b1)*g; v = b2*v + (1-b2)*g*g;
	// w -= lr*((m/c1)/(sqrt(v/c2)+eps) + decay*w), c1 and c2 the bias
	// corrections 1-b^t.
	AdamW(w, grad, m, v []float32, p AdamWParams)
}

// AdamWParams are the scalars of one AdamW update.
type AdamWParams struct {
	LR, Beta1, Beta2, Eps, Decay, GradScale, C1, C2 float32
}
