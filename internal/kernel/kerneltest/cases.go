package kerneltest

import "github.com/odyssey-rl/odyssey/internal/kernel"

// operation runs one operation of a backend once, on random buffers of an arena.
type operation struct {
	name string
	run  func(a *arena, b kernel.Backend)
}

var operations = []operation{
	{"MatMul", func(a *arena, b kernel.Backend) {
		m, k, n := a.between(1, 40), a.pick(1, 2, 3, 4, 5, 16, 31, 33, 64, 128, 200, 385, 800), a.between(1, 70)
		matMul(a, b, m, k, n)
	}},
	{"MatMul/wide", func(a *arena, b kernel.Backend) {
		matMul(a, b, a.between(1, 12), a.pick(32, 128), a.between(100, 400))
	}},
	{"MatMul/tall", func(a *arena, b kernel.Backend) {
		matMul(a, b, a.between(100, 420), a.between(1, 40), a.between(1, 40))
	}},
	{"MatMul/deep", func(a *arena, b kernel.Backend) {
		matMul(a, b, a.between(1, 30), a.between(700, 1300), a.between(1, 40))
	}},
	{"RMSNorm", func(a *arena, b kernel.Backend) {
		rows, dim := a.between(0, 40), a.pick(32, 64, 128, 192, 8, 33, 100)
		x, w := a.values(rows*dim), a.values(dim)
		var rstd []float32
		if a.flip() {
			rstd = a.blank(rows)
		}
		y := x
		if a.flip() {
			y = a.blank(rows * dim)
		}
		b.RMSNorm(y, rstd, x, w, rows, dim, 1e-6)
	}},
	{"RMSNorm/long", func(a *arena, b kernel.Backend) {
		rows, dim := a.between(200, 700), 32
		b.RMSNorm(a.blank(rows*dim), a.blank(rows), a.values(rows*dim), a.values(dim), rows, dim, 1e-5)
	}},
	{"RMSNormBackward", func(a *arena, b kernel.Backend) {
		rows, dim := a.pick(0, 1, 2, 7, 40, 300), a.pick(32, 64, 128, 8, 33)
		dx, dw, dy, x := a.values(rows*dim), a.values(dim), a.values(rows*dim), a.values(rows*dim)
		w, rstd := a.values(dim), a.positives(rows)
		acc := a.flip()
		if !acc && a.flip() {
			dx = dy
		}
		b.RMSNormBackward(dx, dw, dy, x, w, rstd, rows, dim, acc)
	}},
	{"Rope", func(a *arena, b kernel.Backend) {
		rows, heads, dim, limit := a.between(0, 40), a.between(1, 6), a.pick(16, 32, 64, 128, 4, 12), 50
		cos, sin := kernel.RopeTables(limit, dim, 1e4)
		b.Rope(a.values(rows*heads*dim), rows, heads, dim, a.indices(rows, limit), cos, sin, a.flip())
	}},
	{"StoreKV", func(a *arena, b kernel.Backend) {
		sh := shape(a)
		rows, seqs := sequences(a, sh, a.between(1, 6), false)
		width := sh.KVHeads * sh.HeadDim
		b.StoreKV(a.values(rows*width), a.values(rows*width), seqs, sh)
	}},
	{"Attention", func(a *arena, b kernel.Backend) {
		attention(a, b, shape(a), a.between(1, 5))
	}},
	{"Attention/decode", func(a *arena, b kernel.Backend) {
		sh := shape(a)
		rows, seqs := 0, []kernel.Sequence(nil)
		for range a.between(1, 20) {
			seqs = append(seqs, sequence(a, sh, &rows, a.between(0, 150), 1))
		}
		fill(a, b, seqs, sh)
		b.Attention(a.blank(rows*sh.Heads*sh.HeadDim), a.values(rows*sh.Heads*sh.HeadDim), seqs, sh, nil)
	}},
	{"AttentionBackward", func(a *arena, b kernel.Backend) {
		attentionBackward(a, b, shape(a), a.between(1, 4))
	}},
	{"SwiGLU", func(a *arena, b kernel.Backend) {
		n := a.pick(0, 1, 7, 8, 9, 100, 20000)
		gate, up := a.values(n), a.values(n)
		y := [][]float32{a.blank(n), gate, up}[a.between(0, 2)]
		b.SwiGLU(y, gate, up)
	}},
	{"SwiGLUBackward", func(a *arena, b kernel.Backend) {
		n := a.pick(0, 1, 7, 8, 9, 100, 20000)
		dy, gate, up := a.values(n), a.values(n), a.values(n)
		dgate, dup := a.blank(n), a.blank(n)
		if a.flip() {
			dgate, dup = gate, up
		}
		b.SwiGLUBackward(dgate, dup, dy, gate, up)
	}},
	{"Add", func(a *arena, b kernel.Backend) {
		n := a.pick(0, 1, 7, 8, 9, 100, 20000)
		b.Add(a.values(n), a.values(n))
	}},
	{"Logprob", func(a *arena, b kernel.Backend) {
		rows, vocab := a.between(0, 40), a.pick(1, 7, 32, 100, 1024)
		logprob, entropy := a.blank(rows), a.blank(rows)
		if a.flip() {
			entropy = nil
		}
		b.Logprob(logprob, entropy, a.values(rows*vocab), rows, vocab, a.indices(rows, vocab), a.positives(1)[0]*2)
	}},
	{"LogprobBackward", func(a *arena, b kernel.Backend) {
		rows, vocab := a.between(0, 40), a.pick(1, 7, 32, 100, 1024)
		weight := a.values(rows)
		for i := range weight {
			if a.flip() {
				weight[i] = 0
			}
		}
		b.LogprobBackward(a.values(rows*vocab), rows, vocab, a.indices(rows, vocab), weight, a.positives(1)[0]*2)
	}},
	{"Sample", func(a *arena, b kernel.Backend) {
		rows, vocab := a.between(0, 40), a.pick(1, 7, 32, 100, 1024)
		invTemp := a.positives(1)[0] * 2
		if a.random.IntN(3) == 0 {
			invTemp = 0
		}
		var logprob []float32
		if a.flip() {
			logprob = a.blank(rows)
		}
		b.Sample(a.indices(rows, vocab), logprob, a.values(rows*vocab), rows, vocab, a.positives(rows), invTemp)
	}},
	{"SumSquares", func(a *arena, b kernel.Backend) {
		x := a.values(a.pick(0, 1, 31, 32, 33, 1000, 1024))
		a.zeros(1)[0] = b.SumSquares(x)
	}},
	{"AdamW", func(a *arena, b kernel.Backend) {
		n := a.pick(0, 1, 7, 8, 9, 100, 20000)
		w, grad, m, v := a.values(n), a.values(n), a.values(n), a.values(n)
		for i := range v {
			if v[i] < 0 {
				v[i] = -v[i]
			}
		}
		b.AdamW(w, grad, m, v, kernel.AdamWParams{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, GradScale: a.positives(1)[0], C1: 0.19, C2: 0.0975})
	}},
}

func matMul(a *arena, b kernel.Backend, m, k, n int) {
	transA, transB, acc := a.flip(), a.flip(), a.flip()
	x, w, c := a.values(m*k), a.values(k*n), a.blank(m*n)
	if acc {
		c = a.values(m * n)
	}
	var packed kernel.Packed
	if a.flip() { // memory of an earlier, larger use
		b.Pack(&packed, a.values(k*n+40*k), k, n+40, false)
	}
	b.Pack(&packed, w, k, n, transB)
	b.MatMul(c, x, transA, m, &packed, acc)
}

func shape(a *arena) kernel.AttentionShape {
	kvHeads, group := a.between(1, 3), a.between(1, 3)
	return kernel.AttentionShape{Heads: kvHeads * group, KVHeads: kvHeads, HeadDim: a.pick(16, 32, 32, 64, 4, 12), Scale: 0.25}
}

// sequence appends one of n rows from pos, with pages of its own.
func sequence(a *arena, sh kernel.AttentionShape, rows *int, pos, n int) kernel.Sequence {
	s := kernel.Sequence{Row: *rows, N: n, Pos: pos}
	*rows += n
	for len(s.Pages)*kernel.PageKeys < pos+n {
		s.Pages = append(s.Pages, a.page(sh))
	}
	return s
}

func sequences(a *arena, sh kernel.AttentionShape, count int, fromZero bool) (rows int, seqs []kernel.Sequence) {
	for range count {
		pos := 0
		if !fromZero && a.flip() {
			pos = a.between(0, 70)
		}
		seqs = append(seqs, sequence(a, sh, &rows, pos, a.pick(1, 2, 3, 5, 6, 7, 13, 32, 33, 70)))
	}
	return rows, seqs
}

// fill writes keys and values at all positions of the sequences.
func fill(a *arena, b kernel.Backend, seqs []kernel.Sequence, sh kernel.AttentionShape) {
	width := sh.KVHeads * sh.HeadDim
	for _, s := range seqs {
		n := s.Pos + s.N
		b.StoreKV(a.values(n*width), a.values(n*width), []kernel.Sequence{{N: n, Pages: s.Pages}}, sh)
	}
}

func attention(a *arena, b kernel.Backend, sh kernel.AttentionShape, count int) {
	rows, seqs := sequences(a, sh, count, false)
	fill(a, b, seqs, sh)
	var stats []float32
	if a.flip() {
		stats = a.blank(rows * sh.Heads * 2)
	}
	b.Attention(a.blank(rows*sh.Heads*sh.HeadDim), a.values(rows*sh.Heads*sh.HeadDim), seqs, sh, stats)
}

func attentionBackward(a *arena, b kernel.Backend, sh kernel.AttentionShape, count int) {
	rows, seqs := sequences(a, sh, count, true)
	width, kvWidth := sh.Heads*sh.HeadDim, sh.KVHeads*sh.HeadDim
	q, k, v, dout := a.values(rows*width), a.values(rows*kvWidth), a.values(rows*kvWidth), a.values(rows*width)
	out, stats := a.blank(rows*width), a.blank(rows*sh.Heads*2)
	b.StoreKV(k, v, seqs, sh)
	b.Attention(out, q, seqs, sh, stats)
	b.AttentionBackward(a.blank(rows*width), a.blank(rows*kvWidth), a.blank(rows*kvWidth), dout, out, q, k, v, stats, seqs, sh)
}
