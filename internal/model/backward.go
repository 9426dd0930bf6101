package model

import "github.com/odyssey-rl/odyssey/internal/kernel"

// Gradient holds the sums of the derivatives of the objective by each weight.
type Gradient struct {
	tensors   Weights
	embedding []float32 // of the embedding as input, part of tensors[0]
	head      []float32 // of the output head; with a tied head kept apart until asked for
	tied      bool
	layers    []layerGradient
	finalNorm []float32
	add       func(y, x []float32)
}

// layerGradient are the derivatives by the weights of one layer.
type layerGradient struct {
	inputNorm, query, key, value, queryNorm, keyNorm, output, innerNorm, gate, up, down []float32
}

// gradients are the derivatives by activations, of one layer at a time.
type gradients struct {
	x, attended, attendedKept              []float32
	normed                                 []float32
	query, key, value                      []float32
	queryNormed, keyNormed                 []float32
	gate, up, inner                        []float32
	final, hidden, hiddenGradient, weights []float32

	packed kernel.Packed // right operand of weight gradients
}

// NewGradient is a gradient of zeros.
func (m *Model) NewGradient() *Gradient {
	g := &Gradient{tensors: m.weights.Zeros(), tied: m.config.TieWordEmbeddings, add: m.backend.Add}
	next := 0
	data := func() []float32 {
		next++
		return g.tensors[next-1].Data
	}
	g.embedding = data()
	for range m.layers {
		var l layerGradient
		for _, tensor := range []*[]float32{
			&l.inputNorm, &l.query, &l.key, &l.value, &l.queryNorm, &l.keyNorm, &l.output,
			&l.innerNorm, &l.gate, &l.up, &l.down,
		} {
			*tensor = data()
		}
		g.layers = append(g.layers, l)
	}
	g.finalNorm = data()
	if g.tied {
		g.embedding = make([]float32, len(g.embedding))
		g.head = make([]float32, len(g.embedding))
	} else {
		g.head = data()
	}
	return g
}

// Zero sets g to zeros.
func (g *Gradient) Zero() {
	for _, tensor := range g.tensors {
		clear(tensor.Data)
	}
	clear(g.embedding)
	clear(g.head)
}

// Tensors are the derivatives in the order of Weights. They share g's memory.
func (g *Gradient) Tensors() Weights {
	if g.tied {
		// Two chains, each in token order, added once: the order of the
		// examples' parts cannot show.
		copy(g.tensors[0].Data, g.embedding)
		g.add(g.tensors[0].Data, g.head)
	}
	return g.tensors
}

// train runs forward and backward of the examples of part.
func (m *Model) train(g *Gradient, examples []Example, measures []Measure, part []int, invTemp float32) {
	s, width := &m.training, m.config.HiddenSize
	b, targets := m.pack(s, examples, part)
	final := m.forward(s, &b, true)

	// Rows of the head without weight have no derivative: they are measured only.
	finalGradient := grow(&s.back.final, len(targets)*width)
	clear(finalGradient)
	weighted, plain := s.split(targets)
	m.inHeadParts(len(plain), func(from, to int) {
		rows := plain[from:to]
		hidden := gather(grow(&s.back.hidden, len(rows)*width), final, rows, width)
		m.headForward(s, measures, hidden, s.pick(targets, rows), invTemp)
	})
	m.inHeadParts(len(weighted), func(from, to int) {
		rows := weighted[from:to]
		hidden := gather(grow(&s.back.hidden, len(rows)*width), final, rows, width)
		picked := s.pick(targets, rows)
		logits, ids := m.headForward(s, measures, hidden, picked, invTemp)
		weights := grow(&s.back.weights, len(rows))
		for i, t := range picked {
			weights[i] = t.weight
		}
		m.backend.LogprobBackward(logits, len(rows), m.Vocab(), ids, weights, invTemp)
		m.weightGradient(&s.back, g.head, logits, hidden, len(rows), m.Vocab(), width, true)
		hiddenGradient := grow(&s.back.hiddenGradient, len(rows)*width)
		m.multiplyBack(hiddenGradient, logits, len(rows), &m.head, false)
		scatter(finalGradient, hiddenGradient, rows, width)
	})
	m.backward(g, s, &b, finalGradient)
}

// split gives the rows of targets that have a weight and those that have none.
func (s *scratch) split(targets []target) (weighted, plain []int32) {
	weighted, plain = s.weighted[:0], s.plain[:0]
	for i, t := range targets {
		if t.weight != 0 {
			weighted = append(weighted, int32(i))
		} else {
			plain = append(plain, int32(i))
		}
	}
	s.weighted, s.plain = weighted, plain
	return weighted, plain
}

// pick gives those targets.
func (s *scratch) pick(targets []target, rows []int32) []target {
	picked := s.picked[:0]
	for _, row := range rows {
		picked = append(picked, targets[row])
	}
	s.picked = picked
	return picked
}

// weightGradient adds dy^T x to dw[out][in], one chain over the rows of dy
// [rows][out] and x [rows][in]. x is packed if fresh, and otherwise the same as in
// the last call.
func (m *Model) weightGradient(back *gradients, dw, dy, x []float32, rows, out, in int, fresh bool) {
	if fresh {
		m.backend.Pack(&back.packed, x, rows, in, false)
	}
	m.backend.MatMul(dw, dy, true, out, &back.packed, true)
}

// backward adds to g the derivatives that follow from dfinal, those by the final
// hidden states of the kept rows. It mirrors forward from its end.
func (m *Model) backward(g *Gradient, s *scratch, b *batch, dfinal []float32) {
	c, be, back := m.config, m.backend, &s.back
	hidden, inner := c.HiddenSize, c.IntermediateSize
	queries, keys := c.NumAttentionHeads*c.HeadDim, c.NumKeyValueHeads*c.HeadDim
	rows := len(b.ids)

	n := len(b.kept) // rows of x in the upper half of the layer
	dx := grow(&back.x, rows*hidden)
	be.RMSNormBackward(dx[:n*hidden], g.finalNorm, dfinal, s.output[:n*hidden], m.finalNorm, s.finalScale[:n], n, hidden, false)
	for i := len(m.layers) - 1; i >= 0; i-- {
		w, a, dw := &m.layers[i], &s.layers[i], &g.layers[i]
		compact := i == len(m.layers)-1 && !b.all()
		n = rows
		if compact {
			n = len(b.kept)
		}

		dinner := grow(&back.inner, n*inner)
		m.multiplyBack(dinner, dx, n, &w.down, false)
		m.weightGradient(back, dw.down, dx, a.inner, n, hidden, inner, true)
		dgate, dup := grow(&back.gate, n*inner), grow(&back.up, n*inner)
		be.SwiGLUBackward(dgate, dup, dinner, a.gate[:n*inner], a.up[:n*inner])
		m.weightGradient(back, dw.gate, dgate, a.middleNormed, n, inner, hidden, true)
		m.weightGradient(back, dw.up, dup, a.middleNormed, n, inner, hidden, false)
		dnormed := grow(&back.normed, rows*hidden)
		m.multiplyBack(dnormed, dgate, n, &w.gate, false)
		m.multiplyBack(dnormed, dup, n, &w.up, true)
		be.RMSNormBackward(dx, dw.innerNorm, dnormed, a.middle, w.innerNorm, a.middleScale, n, hidden, true)

		dattended := grow(&back.attended, rows*queries)
		if compact {
			kept := grow(&back.attendedKept, n*queries)
			m.multiplyBack(kept, dx, n, &w.output, false)
			m.weightGradient(back, dw.output, dx, a.attendedKept, n, hidden, queries, true)
			clear(dattended)
			scatter(dattended, kept, b.kept, queries)
			dkept := dnormed[:n*hidden] // free by now
			copy(dkept, dx)
			clear(dx)
			scatter(dx, dkept, b.kept, hidden)
		} else {
			m.multiplyBack(dattended, dx, n, &w.output, false)
			m.weightGradient(back, dw.output, dx, a.attended, n, hidden, queries, true)
		}
		dquery, dkey, dvalue := grow(&back.query, rows*queries), grow(&back.key, rows*keys), grow(&back.value, rows*keys)
		be.AttentionBackward(dquery, dkey, dvalue, dattended, a.attended, a.queryRotated, a.keyRotated, a.value, a.stats, b.sequences[i], m.shape)
		be.Rope(dquery, rows, c.NumAttentionHeads, c.HeadDim, b.positions, m.rope.cos, m.rope.sin, true)
		be.Rope(dkey, rows, c.NumKeyValueHeads, c.HeadDim, b.positions, m.rope.cos, m.rope.sin, true)
		dqueryIn, dkeyIn := grow(&back.queryNormed, rows*queries), grow(&back.keyNormed, rows*keys)
		be.RMSNormBackward(dqueryIn, dw.queryNorm, dquery, a.query, w.queryNorm, a.queryScale, rows*c.NumAttentionHeads, c.HeadDim, false)
		be.RMSNormBackward(dkeyIn, dw.keyNorm, dkey, a.key, w.keyNorm, a.keyScale, rows*c.NumKeyValueHeads, c.HeadDim, false)
		m.weightGradient(back, dw.query, dqueryIn, a.normed, rows, queries, hidden, true)
		m.weightGradient(back, dw.key, dkeyIn, a.normed, rows, keys, hidden, false)
		m.weightGradient(back, dw.value, dvalue, a.normed, rows, keys, hidden, false)
		m.multiplyBack(dnormed, dqueryIn, rows, &w.query, false)
		m.multiplyBack(dnormed, dkeyIn, rows, &w.key, true)
		m.multiplyBack(dnormed, dvalue, rows, &w.value, true)
		be.RMSNormBackward(dx, dw.inputNorm, dnormed, a.x, w.inputNorm, a.inputScale, rows, hidden, true)
	}
	for i, id := range b.ids {
		into := g.embedding[int(id)*hidden : (int(id)+1)*hidden]
		for j, d := range dx[i*hidden : (i+1)*hidden] {
			into[j] += d
		}
	}
}
