// Package kernel lists the operations that the model is made of. The doc
// comment of each operation is its definition: the loop, its order and its
// rounding. kernel/ref is that loop in plain Go; every other backend must give
// the same bits.
//
// All matrices are row-major float32. fma(a, b, c) is the correctly rounded
// fused a*b+c of float32. A "chain" is a sequence of fma in a stated order; all
// other arithmetic is rounded operation by operation. exp, log, sqrt and rsqrt
// are Exp, Log, Sqrt and Rsqrt of this package. A NaN is a NaN: sign and payload
// are not defined.
//
// The row rule reduces a row x[0:n]: 32 lanes, lane l sums x[l], x[l+32], ...
// ascending from +0; then the butterfly l += l^16, l^8, l^4, l^2, l^1. Lanes
// past the end stay +0. A maximum passes over NaN, is -Inf of nothing, and a
// maximum of zero is +0.
//
// Slices longer than an operation needs are allowed: their rest is untouched.
// An output may be the same slice as an input only where that is said.
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
	// product rounded. rstd[row] = r if rstd is not nil. y may be x.
	RMSNorm(y, rstd, x, w []float32, rows, dim int, eps float32)
	// RMSNormBackward adds to dw, per column one chain over rows ascending of
	// fma(dy, x*r, dw), r = rstd[row]; and sets dx, or adds to dx if accDX: per
	// row g = dy*w, s = row rule over g*x with lane chains fma(g, x, lane),
	// t = ((s*r)*r)/dim, dx = r*fma(-t, x, g). dx may be dy unless accDX.
	RMSNormBackward(dx, dw, dy, x, w, rstd []float32, rows, dim int, accDX bool)

	// Rope rotates pairs (i, i+headDim/2) of each head of x[rows][heads*headDim]
	// by the angle of pos[row]; cos and sin are tables [maxPos][headDim/2]
	// (RopeTables): (a, b) becomes (fma(a, cos, -(b*sin)), fma(b, cos, a*sin)).
	// inverse rotates back (the gradient): it takes -sin.
	Rope(x []float32, rows, heads, headDim int, pos []int32, cos, sin []float32, inverse bool)

	// StoreKV writes rows k, v [rows][kvHeads*headDim] into the pages of their
	// sequences: key and value of position pos in page pos/PageKeys, at
	// pos%PageKeys.
	StoreKV(k, v []float32, seqs []Sequence, sh AttentionShape)
	// Attention: for each row and head, over the visible keys j = 0..position:
	// s_j = (chain over headDim ascending from +0 of q*k) * Scale; m = max;
	// e_j = exp(s_j - m); d = row rule over e_j; p_j = e_j * (1/d);
	// out = one chain over j ascending from +0 of p_j*v_j per element.
	// stats[row][head] = {m, 1/d} if stats is not nil ([rows][heads][2]).
	Attention(out, q []float32, seqs []Sequence, sh AttentionShape, stats []float32)
	// AttentionBackward sets dq, dk, dv from dout, out and stats; k and v are
	// the pages' rows in plain layout [rows][kvHeads*headDim], every sequence
	// starts at position 0, and its Pages are not read. For row i, head h and
	// each visible key j: s_j and m as in Attention, p = exp(s_j - m)*(1/d),
	// dp = chain over headDim of dout*v_j, delta = row rule over headDim with
	// lane chains fma(dout, out, lane), ds = (p*(dp - delta))*Scale. Then
	// dq_i = chain over j ascending of ds*k_j; dk_j and dv_j are chains of
	// ds*q_i and p*dout_i over the heads of the group ascending and, within a
	// head, query rows ascending; all from +0.
	AttentionBackward(dq, dk, dv, dout, out, q, k, v, stats []float32, seqs []Sequence, sh AttentionShape)

	// SwiGLU: y = (gate*sigmoid(gate))*up, sigmoid(g) = 1/(1 + exp(-g)). The
	// length is that of y, which may be gate or up.
	SwiGLU(y, gate, up []float32)
	// SwiGLUBackward sets dgate and dup from dy: with s = sigmoid(gate) and
	// a = gate*s, dup = dy*a and dgate = (dy*up)*fma(a, 1-s, s). The length is
	// that of dy. dgate and dup may be any of the inputs.
	SwiGLUBackward(dgate, dup, dy, gate, up []float32)

	// Add: y += x over the length of y.
	Add(y, x []float32)

	// Logprob reduces rows of logits [rows][vocab] (undefined ids are masked by
	// the caller through vocab): z = logits*invTemp, m = max z, d = row rule
	// over exp(z-m), lse = m + log d. logprob[row] = z[target[row]] - lse and
	// entropy[row] = lse - (row rule with lane chains fma(exp(z-m), z, lane))/d,
	// each if not nil. target may be nil if logprob is.
	Logprob(logprob, entropy, logits []float32, rows, vocab int, target []int32, invTemp float32)
	// LogprobBackward turns logits into the gradient of
	// sum_row weight[row]*logprob[row], in place, with the reductions of
	// Logprob: (onehot - exp(z-m)*(1/d)) * (weight*invTemp). A row of weight
	// zero becomes +0 whatever its logits.
	LogprobBackward(logits []float32, rows, vocab int, target []int32, weight []float32, invTemp float32)
	// Sample draws one id per row: the lowest id whose running sum of
	// exp(z-m), ids ascending, exceeds u[row] times the total of that same
	// running sum; u in [0,1). If rounding leaves none, it is the highest id
	// of a positive exponential, and 0 if there is none. invTemp <= 0 takes the
	// first maximum of the logits, and the logprob is then that of invTemp 1.
	// logprob may be nil.
	Sample(ids []int32, logprob, logits []float32, rows, vocab int, u []float32, invTemp float32)

	// SumSquares is the row rule over x with lane chains fma(x, x, lane).
	SumSquares(x []float32) float32
	// AdamW over the length of w: g = grad*GradScale;
	// m = fma(Beta1, m, (1-Beta1)*g); v = fma(Beta2, v, ((1-Beta2)*g)*g);
	// w = fma(-LR, fma(Decay, w, (m/C1)/(sqrt(v/C2)+Eps)), w).
	AdamW(w, grad, m, v []float32, p AdamWParams)
}

// AdamWParams are the scalars of one AdamW update; C1 and C2 are the bias
// corrections 1-Beta^t.
type AdamWParams struct {
	LR, Beta1, Beta2, Eps, Decay, GradScale, C1, C2 float32
}
