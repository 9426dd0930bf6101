package kerneltest

import (
	"math"
	"slices"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/kernel"
)

// properties are what the model relies on, stated without the reference.
var properties = []struct {
	name string
	test func(t *testing.T, b kernel.Backend)
}{
	{"a row of MatMul does not depend on the other rows", rowsAlone},
	{"MatMul may stop and go on between k", splitInner},
	{"attention does not depend on chunks, order or company", chunks},
	{"attention reads nothing after the row's position", future},
	{"Sample draws the lowest id past u and takes the lowest of equals", draws},
	{"the log-probability of a sampled id is that of Logprob", sampledLogprob},
	{"backward passes are the derivatives of the forward passes", derivatives},
}

func sameAll(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if !same(got[i], want[i]) {
			t.Fatalf("%s: element %d is %v (%08x), want %v (%08x)", what, i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

func rowsAlone(t *testing.T, b kernel.Backend) {
	a := newArena(1, false)
	const rows, k, n = 131, 128, 97
	x, w, all := a.values(rows*k), a.values(k*n), a.blank(rows*n)
	var packed kernel.Packed
	b.Pack(&packed, w, k, n, false)
	b.MatMul(all, x, false, rows, &packed, false)
	for m := 1; m <= 40; m++ {
		first := a.between(0, rows-m)
		part := a.blank(m * n)
		b.MatMul(part, x[first*k:(first+m)*k], false, m, &packed, false)
		sameAll(t, "rows of a smaller product", part, all[first*n:(first+m)*n])
	}
}

func splitInner(t *testing.T, b kernel.Backend) {
	a := newArena(2, false)
	const m, k, n = 30, 900, 40
	x, w, all := a.values(k*m), a.values(k*n), a.blank(m*n)
	var packed kernel.Packed
	b.Pack(&packed, w, k, n, false)
	b.MatMul(all, x, true, m, &packed, false)
	parts := a.zeros(m * n)
	for from := 0; from < k; {
		to := min(k, from+a.between(1, 400))
		b.Pack(&packed, w[from*n:to*n], to-from, n, false)
		b.MatMul(parts, x[from*m:to*m], true, m, &packed, true)
		from = to
	}
	sameAll(t, "a product in parts of k", parts, all)
}

var propertyShape = kernel.AttentionShape{Heads: 4, KVHeads: 2, HeadDim: 32, Scale: 0.2}

// conversation is a sequence with its queries, keys and values.
type conversation struct {
	n       int
	q, k, v []float32
	out     []float32 // of the sequence alone, in one piece
}

func newConversation(a *arena, b kernel.Backend, n int) *conversation {
	sh := propertyShape
	c := &conversation{n: n, q: a.values(n * sh.Heads * sh.HeadDim), k: a.values(n * sh.KVHeads * sh.HeadDim), v: a.values(n * sh.KVHeads * sh.HeadDim)}
	rows := 0
	seqs := []kernel.Sequence{sequence(a, sh, &rows, 0, n)}
	b.StoreKV(c.k, c.v, seqs, sh)
	c.out = a.blank(len(c.q))
	b.Attention(c.out, c.q, seqs, sh, nil)
	return c
}

func chunks(t *testing.T, b kernel.Backend) {
	a, sh := newArena(3, false), propertyShape
	width, kvWidth := sh.Heads*sh.HeadDim, sh.KVHeads*sh.HeadDim
	var all []*conversation
	var pages [][]*kernel.Page
	var done []int
	for _, n := range []int{1, 30, 33, 64, 90, 131} {
		all = append(all, newConversation(a, b, n))
		rows := 0
		pages, done = append(pages, sequence(a, sh, &rows, 0, n).Pages), append(done, 0)
	}
	for {
		// The next chunks of some conversations, in any order, are one batch.
		var batch []int
		for i, c := range all {
			if done[i] < c.n && a.random.IntN(3) > 0 {
				batch = append(batch, i)
			}
		}
		a.random.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
		var seqs []kernel.Sequence
		var q, k, v []float32
		rows := 0
		for _, i := range batch {
			c, from := all[i], done[i]
			n := min(c.n-from, a.pick(1, 1, 2, 7, 40))
			seqs = append(seqs, kernel.Sequence{Row: rows, N: n, Pos: from, Pages: pages[i]})
			rows += n
			q = append(q, c.q[from*width:(from+n)*width]...)
			k = append(k, c.k[from*kvWidth:(from+n)*kvWidth]...)
			v = append(v, c.v[from*kvWidth:(from+n)*kvWidth]...)
		}
		b.StoreKV(k, v, seqs, sh)
		out := make([]float32, len(q))
		b.Attention(out, q, seqs, sh, nil)
		for j, i := range batch {
			s := seqs[j]
			sameAll(t, "a chunk", out[s.Row*width:(s.Row+s.N)*width], all[i].out[s.Pos*width:(s.Pos+s.N)*width])
			done[i] += s.N
		}
		if !slices.ContainsFunc(all, func(c *conversation) bool { return done[slices.Index(all, c)] < c.n }) {
			return
		}
	}
}

func future(t *testing.T, b kernel.Backend) {
	a, sh := newArena(4, false), propertyShape
	width, kvWidth := sh.Heads*sh.HeadDim, sh.KVHeads*sh.HeadDim
	const n, cut = 100, 41
	c := newConversation(a, b, n)
	for _, x := range []([]float32){c.k[cut*kvWidth:], c.v[cut*kvWidth:]} {
		for i := range x {
			x[i] = float32(math.NaN())
		}
	}
	rows := 0
	seqs := []kernel.Sequence{sequence(a, sh, &rows, 0, n)}
	b.StoreKV(c.k, c.v, seqs, sh)
	out := a.blank(n * width)
	b.Attention(out, c.q, seqs, sh, nil)
	sameAll(t, "rows before a poisoned position", out[:cut*width], c.out[:cut*width])
}

func draws(t *testing.T, b kernel.Backend) {
	logits := []float32{1, 3, 3, 0, float32(math.Inf(-1)), 2}
	ids := make([]int32, 1)
	sample := func(u, invTemp float32) int32 {
		b.Sample(ids, nil, slices.Clone(logits), 1, len(logits), []float32{u}, invTemp)
		return ids[0]
	}
	if got := sample(0.999, 0); got != 1 {
		t.Errorf("greedy takes %d, want 1", got)
	}
	total, e := 0.0, make([]float64, len(logits))
	for i, x := range logits {
		e[i] = math.Exp(float64(x))
		total += e[i]
	}
	running := 0.0
	for i := range logits {
		if e[i] == 0 {
			continue
		}
		if got := sample(float32(running/total)+1e-5, 1); got != int32(i) {
			t.Errorf("just past the sum before %d: drew %d", i, got)
		}
		running += e[i]
		if got := sample(float32(running/total)-1e-5, 1); got != int32(i) {
			t.Errorf("just before the sum at %d: drew %d", i, got)
		}
	}
	if got := sample(math.Nextafter32(1, 0), 1); got != 5 {
		t.Errorf("u next to 1 drew %d, want 5", got)
	}
}

func sampledLogprob(t *testing.T, b kernel.Backend) {
	a := newArena(5, false)
	const rows, vocab = 33, 1024
	logits, u := a.values(rows*vocab), a.positives(rows)
	ids, got, want := make([]int32, rows), a.blank(rows), a.blank(rows)
	for _, invTemp := range []float32{1, 0.7, 0} {
		b.Sample(ids, got, logits, rows, vocab, u, invTemp)
		if invTemp == 0 {
			invTemp = 1
		}
		b.Logprob(want, nil, logits, rows, vocab, ids, invTemp)
		sameAll(t, "log-probability", got, want)
	}
}

// derivatives holds every backward operation against central differences.
func derivatives(t *testing.T, b kernel.Backend) {
	a := newArena(6, false)
	// check compares the gradient of sum(weights*f()) by each element of x.
	check := func(name string, x, gradient []float32, weights []float32, f func() []float32) {
		t.Helper()
		loss := func() float64 {
			sum := 0.0
			for i, y := range f() {
				sum += float64(y) * float64(weights[i])
			}
			return sum
		}
		scale := 0.0
		for _, g := range gradient {
			scale = max(scale, math.Abs(float64(g)))
		}
		for range 24 {
			i := a.random.IntN(len(x))
			old := x[i]
			const step = 1.0 / 64
			x[i] = old + step
			above := loss()
			x[i] = old - step
			below := loss()
			x[i] = old
			want := (above - below) / (2 * step)
			if math.Abs(float64(gradient[i])-want) > 2e-3*(scale+1) {
				t.Fatalf("%s: derivative by element %d is %v, differences give %v", name, i, gradient[i], want)
			}
		}
	}

	{
		const m, k, n = 5, 7, 18
		x, w, dc := a.values(m*k), a.values(k*n), a.values(m*n)
		product := func() []float32 {
			var p kernel.Packed
			b.Pack(&p, w, k, n, false)
			c := make([]float32, m*n)
			b.MatMul(c, x, false, m, &p, false)
			return c
		}
		var p kernel.Packed
		dx, dw := make([]float32, m*k), make([]float32, k*n)
		b.Pack(&p, w, n, k, true)
		b.MatMul(dx, dc, false, m, &p, false)
		b.Pack(&p, dc, m, n, false)
		b.MatMul(dw, x, true, k, &p, false)
		check("MatMul by A", x, dx, dc, product)
		check("MatMul by B", w, dw, dc, product)
	}
	{
		const rows, dim = 3, 32
		x, w, dy, rstd := a.values(rows*dim), a.values(dim), a.values(rows*dim), a.blank(rows)
		norm := func() []float32 {
			y := make([]float32, rows*dim)
			b.RMSNorm(y, rstd, x, w, rows, dim, 1e-6)
			return y
		}
		norm()
		dx, dw := make([]float32, rows*dim), make([]float32, dim)
		b.RMSNormBackward(dx, dw, dy, x, w, rstd, rows, dim, false)
		check("RMSNorm by x", x, dx, dy, norm)
		check("RMSNorm by w", w, dw, dy, norm)
	}
	{
		const rows, heads, dim = 3, 2, 16
		cos, sin := kernel.RopeTables(9, dim, 100)
		pos := []int32{0, 3, 8}
		x, dy := a.values(rows*heads*dim), a.values(rows*heads*dim)
		rotate := func() []float32 {
			y := slices.Clone(x)
			b.Rope(y, rows, heads, dim, pos, cos, sin, false)
			return y
		}
		dx := slices.Clone(dy)
		b.Rope(dx, rows, heads, dim, pos, cos, sin, true)
		check("Rope", x, dx, dy, rotate)
	}
	{
		sh := kernel.AttentionShape{Heads: 4, KVHeads: 2, HeadDim: 16, Scale: 0.25}
		const rows = 50
		seqs := []kernel.Sequence{{Row: 0, N: 37}, {Row: 37, N: 13}}
		for i := range seqs {
			taken := 0
			seqs[i].Pages = sequence(a, sh, &taken, 0, seqs[i].N).Pages
		}
		q, k, v, dout := a.values(rows*64), a.values(rows*32), a.values(rows*32), a.values(rows*64)
		stats := a.blank(rows * sh.Heads * 2)
		attend := func() []float32 {
			out := make([]float32, rows*64)
			b.StoreKV(k, v, seqs, sh)
			b.Attention(out, q, seqs, sh, stats)
			return out
		}
		out := attend()
		dq, dk, dv := make([]float32, rows*64), make([]float32, rows*32), make([]float32, rows*32)
		b.AttentionBackward(dq, dk, dv, dout, out, q, k, v, stats, seqs, sh)
		check("Attention by q", q, dq, dout, attend)
		check("Attention by k", k, dk, dout, attend)
		check("Attention by v", v, dv, dout, attend)
	}
	{
		const n = 40
		gate, up, dy := a.values(n), a.values(n), a.values(n)
		activate := func() []float32 {
			y := make([]float32, n)
			b.SwiGLU(y, gate, up)
			return y
		}
		dgate, dup := make([]float32, n), make([]float32, n)
		b.SwiGLUBackward(dgate, dup, dy, gate, up)
		check("SwiGLU by gate", gate, dgate, dy, activate)
		check("SwiGLU by up", up, dup, dy, activate)
	}
	{
		const rows, vocab = 4, 45
		logits, weight := a.values(rows*vocab), a.values(rows)
		weight[2] = 0
		target := a.indices(rows, vocab)
		score := func() []float32 {
			y := make([]float32, rows)
			b.Logprob(y, nil, logits, rows, vocab, target, 0.8)
			return y
		}
		gradient := slices.Clone(logits)
		b.LogprobBackward(gradient, rows, vocab, target, weight, 0.8)
		check("Logprob", logits, gradient, weight, score)
	}
}
