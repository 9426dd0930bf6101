// Package model is the transformer: forward, backward, sampling and optimizer
// over a kernel.Backend.
//
// Rollout, scoring and training run the same forward pass, and every sum in it
// has one order (see package kernel), so a log-probability has the same bits
// wherever it is computed: batch, chunk, cache and thread count cannot matter.
//
// model.go holds the weights in the form the backend multiplies by, cache.go the
// key-value cache, forward.go the layers, extend.go decoding, accumulate.go
// scoring and training, backward.go the derivatives.
package model

import (
	"github.com/odyssey-rl/odyssey/internal/kernel"
)

// Model is a Qwen3-architecture decoder with its weights. It is used by one
// goroutine at a time, as is its backend.
type Model struct {
	config  Config
	backend kernel.Backend
	weights Weights
	shape   kernel.AttentionShape

	embedding []float32
	layers    []layerWeights
	finalNorm []float32
	head      linear

	rope       ropeTable
	free       []*block // released cache blocks
	pages      []*kernel.Page
	scratch    scratch
	training   scratch
	rowsAtOnce int // of Accumulate
	generation int // of the weights; packed copies of an older one are stale
}

// layerWeights are the weights of one layer.
type layerWeights struct {
	inputNorm, queryNorm, keyNorm, innerNorm  []float32
	query, key, value, output, gate, up, down linear
}

// linear is a matrix stored [out][in] and its packed forms, made when first
// needed after a change.
type linear struct {
	data    []float32
	in, out int

	forward, backward                     kernel.Packed // operands of x W^T and of dy W
	forwardGeneration, backwardGeneration int
}

// New makes a model of shape config over backend. It keeps weights, arranged in
// file order, and refuses a missing, unknown or misshapen tensor by name. An
// optimizer step changes the data of weights in place.
func New(config Config, weights Weights, backend kernel.Backend) (*Model, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	m := &Model{
		config:  config,
		backend: backend,
		shape: kernel.AttentionShape{
			Heads: config.NumAttentionHeads, KVHeads: config.NumKeyValueHeads, HeadDim: config.HeadDim,
			Scale: kernel.Rsqrt(float32(config.HeadDim)),
		},
		layers:     make([]layerWeights, config.NumHiddenLayers),
		rowsAtOnce: accumulateRows,
	}
	if err := m.SetWeights(weights); err != nil {
		return nil, err
	}
	return m, nil
}

// SetWeights replaces the weights by others of the same shape. Sequences made
// before hold the keys and values of the old ones; release them.
func (m *Model) SetWeights(weights Weights) error {
	arranged, err := m.config.Arrange(weights)
	if err != nil {
		return err
	}
	m.weights = arranged
	next := 0
	vector := func() []float32 {
		next++
		return arranged[next-1].Data
	}
	matrix := func(l *linear) {
		shape := arranged[next].Shape
		l.out, l.in, l.data = shape[0], shape[1], vector()
	}
	m.embedding = vector()
	for i := range m.layers {
		l := &m.layers[i]
		l.inputNorm = vector()
		matrix(&l.query)
		matrix(&l.key)
		matrix(&l.value)
		l.queryNorm = vector()
		l.keyNorm = vector()
		matrix(&l.output)
		l.innerNorm = vector()
		matrix(&l.gate)
		matrix(&l.up)
		matrix(&l.down)
	}
	m.finalNorm = vector()
	if m.config.TieWordEmbeddings {
		m.head.data, m.head.in = m.embedding, m.config.HiddenSize
	} else {
		matrix(&m.head)
	}
	m.head.out = m.Vocab() // undefined ids have no column of logits
	m.Changed()
	return nil
}

// Config is the shape of the model.
func (m *Model) Config() Config { return m.config }

// Weights are the tensors in file order. Call Changed after writing to them.
func (m *Model) Weights() Weights { return m.weights }

// Changed says that the data of the weights was written to: what was derived
// from them is derived again when next needed.
func (m *Model) Changed() { m.generation++ }

// Vocab is the width of a row of logits: the ids that can be sampled.
func (m *Model) Vocab() int { return m.config.Vocab() }

// multiply sets y[rows][out] = x[rows][in] W^T.
func (m *Model) multiply(y, x []float32, rows int, l *linear) {
	if l.forwardGeneration != m.generation {
		m.backend.Pack(&l.forward, l.data, l.in, l.out, true)
		l.forwardGeneration = m.generation
	}
	m.backend.MatMul(y, x, false, rows, &l.forward, false)
}

// multiplyBack sets dx[rows][in] = dy[rows][out] W, or adds it (continuing each
// element's chain) if more.
func (m *Model) multiplyBack(dx, dy []float32, rows int, l *linear, more bool) {
	if l.backwardGeneration != m.generation {
		m.backend.Pack(&l.backward, l.data, l.out, l.in, false)
		l.backwardGeneration = m.generation
	}
	m.backend.MatMul(dx, dy, false, rows, &l.backward, more)
}

// grow gives a slice of n elements with the memory of *buffer, which it
// replaces by a larger one if needed. The contents are undefined.
func grow[T any](buffer *[]T, n int) []T {
	if cap(*buffer) < n {
		*buffer = make([]T, n+n/4)
	}
	return (*buffer)[:n]
}
