package model

import "github.com/odyssey-rl/odyssey/internal/kernel"

// batch is what one forward pass runs over: rows of ids packed without padding.
type batch struct {
	ids       []int32
	positions []int32
	sequences [][]kernel.Sequence // per layer; their rows and positions are the same in all

	// kept are the rows, ascending, whose final hidden state is wanted. In the
	// last layer the others need keys and values only.
	kept []int32
}

// all says that every row is kept.
func (b *batch) all() bool { return len(b.kept) == len(b.ids) }

// activations are what one layer computes, all row-major with a row per id. In
// the last layer those after attended have a row per kept id.
type activations struct {
	x                        []float32 // input, [hidden]
	inputScale               []float32 // reciprocal root mean square of x
	normed                   []float32 // [hidden]
	query, key, value        []float32 // projections, [heads*headDim], [kvHeads*headDim] twice
	queryScale, keyScale     []float32 // reciprocal root mean squares, per head
	queryRotated, keyRotated []float32 // after QK-norm and RoPE
	attended                 []float32 // [heads*headDim]
	stats                    []float32 // softmax maximum and 1/denominator, [heads][2]
	attendedKept             []float32 // attended, kept rows
	residual                 []float32 // x, kept rows
	middle                   []float32 // after attention, [hidden]
	middleScale              []float32
	middleNormed             []float32 // [hidden]
	gate, up, inner          []float32 // [intermediate]
}

// scratch holds the activations of a pass, one set per layer if a backward is to
// follow and one for all otherwise, and the buffers around them. It is reused.
type scratch struct {
	layers     []activations
	ids        []int32
	positions  []int32
	kept       []int32
	sequences  [][]kernel.Sequence
	output     []float32 // after the last layer, kept rows
	final      []float32 // output after the last norm
	finalScale []float32

	targets, picked     []target
	weighted, plain     []int32
	targetIDs           []int32
	logits              []float32 // of a part of the head
	logprobs, entropies []float32
	back                gradients
}

// forward runs the layers over b and returns the final hidden states of the kept
// rows, after the last norm, [len(kept)][hidden]. If remember, s keeps what the
// backward needs.
func (m *Model) forward(s *scratch, b *batch, remember bool) []float32 {
	c, be := m.config, m.backend
	hidden, inner := c.HiddenSize, c.IntermediateSize
	queries, keys := c.NumAttentionHeads*c.HeadDim, c.NumKeyValueHeads*c.HeadDim
	eps := float32(c.RMSNormEps)
	rows, kept := len(b.ids), len(b.kept)

	sets := 1
	if remember {
		sets = len(m.layers)
	}
	if len(s.layers) < sets {
		s.layers = append(s.layers, make([]activations, sets-len(s.layers))...)
	}
	highest := int32(0)
	for _, position := range b.positions {
		highest = max(highest, position)
	}
	m.rope.reach(int(highest)+1, c)

	x := grow(&s.layers[0].x, rows*hidden)
	for i, id := range b.ids {
		copy(x[i*hidden:(i+1)*hidden], m.embedding[int(id)*hidden:])
	}
	for i := range m.layers {
		w, a, last := &m.layers[i], &s.layers[i%sets], i == len(m.layers)-1
		normed := grow(&a.normed, rows*hidden)
		be.RMSNorm(normed, grow(&a.inputScale, rows), x, w.inputNorm, rows, hidden, eps)

		key, value := grow(&a.key, rows*keys), grow(&a.value, rows*keys)
		m.multiply(key, normed, rows, &w.key)
		m.multiply(value, normed, rows, &w.value)
		keyRotated := grow(&a.keyRotated, rows*keys)
		be.RMSNorm(keyRotated, grow(&a.keyScale, rows*c.NumKeyValueHeads), key, w.keyNorm, rows*c.NumKeyValueHeads, c.HeadDim, eps)
		be.Rope(keyRotated, rows, c.NumKeyValueHeads, c.HeadDim, b.positions, m.rope.cos, m.rope.sin, false)
		be.StoreKV(keyRotated, value, b.sequences[i], m.shape)
		if last && kept == 0 {
			return nil
		}

		query := grow(&a.query, rows*queries)
		m.multiply(query, normed, rows, &w.query)
		queryRotated := grow(&a.queryRotated, rows*queries)
		be.RMSNorm(queryRotated, grow(&a.queryScale, rows*c.NumAttentionHeads), query, w.queryNorm, rows*c.NumAttentionHeads, c.HeadDim, eps)
		be.Rope(queryRotated, rows, c.NumAttentionHeads, c.HeadDim, b.positions, m.rope.cos, m.rope.sin, false)
		attended := grow(&a.attended, rows*queries)
		var stats []float32
		if remember {
			stats = grow(&a.stats, rows*c.NumAttentionHeads*2)
		}
		be.Attention(attended, queryRotated, b.sequences[i], m.shape, stats)

		residual, n := x, rows
		if last && !b.all() {
			n = kept
			attended = gather(grow(&a.attendedKept, n*queries), attended, b.kept, queries)
			residual = gather(grow(&a.residual, n*hidden), x, b.kept, hidden)
		}
		middle := grow(&a.middle, n*hidden)
		m.multiply(middle, attended, n, &w.output)
		be.Add(middle, residual)

		middleNormed := grow(&a.middleNormed, n*hidden)
		be.RMSNorm(middleNormed, grow(&a.middleScale, n), middle, w.innerNorm, n, hidden, eps)
		gate, up, product := grow(&a.gate, n*inner), grow(&a.up, n*inner), grow(&a.inner, n*inner)
		m.multiply(gate, middleNormed, n, &w.gate)
		m.multiply(up, middleNormed, n, &w.up)
		be.SwiGLU(product, gate, up)
		if last {
			x = grow(&s.output, n*hidden)
		} else {
			x = grow(&s.layers[(i+1)%sets].x, n*hidden)
		}
		m.multiply(x, product, n, &w.down)
		be.Add(x, middle)
	}
	final := grow(&s.final, kept*hidden)
	be.RMSNorm(final, grow(&s.finalScale, kept), x, m.finalNorm, kept, hidden, eps)
	return final
}

// gather copies rows of src, width wide, to dst one after another.
func gather(dst, src []float32, rows []int32, width int) []float32 {
	for i, row := range rows {
		copy(dst[i*width:(i+1)*width], src[int(row)*width:])
	}
	return dst
}

// scatter copies the rows of src, width wide, to those rows of dst.
func scatter(dst, src []float32, rows []int32, width int) {
	for i, row := range rows {
		copy(dst[int(row)*width:(int(row)+1)*width], src[i*width:])
	}
}
