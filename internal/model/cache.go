package model

import "github.com/odyssey-rl/odyssey/internal/kernel"

// block holds the keys and values of kernel.PageKeys consecutive positions in
// all layers. References counts the sequences it is part of.
type block struct {
	pages      []kernel.Page // per layer
	data       []float32     // their memory
	references int
}

// Sequence is the key-value cache of one growing row of ids.
type Sequence struct {
	model  *Model
	length int
	blocks []*block
	pages  [][]*kernel.Page // per layer, the pages of blocks
}

// NewSequence is an empty sequence.
func (m *Model) NewSequence() *Sequence {
	return &Sequence{model: m, pages: make([][]*kernel.Page, len(m.layers))}
}

// Len is the number of ids in the cache.
func (s *Sequence) Len() int { return s.length }

// Fork is a copy that shares every full page with s; both may be extended.
func (s *Sequence) Fork() *Sequence {
	fork := s.model.NewSequence()
	full := s.length / kernel.PageKeys
	for _, b := range s.blocks[:full] {
		b.references++
		fork.attach(b)
	}
	if full < len(s.blocks) {
		b := s.model.takeBlock()
		copy(b.data, s.blocks[full].data)
		fork.attach(b)
	}
	fork.length = s.length
	return fork
}

// Release gives the pages back for reuse. s must not be used again.
func (s *Sequence) Release() {
	for _, b := range s.blocks {
		b.references--
		if b.references == 0 {
			s.model.free = append(s.model.free, b)
		}
	}
	*s = Sequence{}
}

// reserve makes room for length positions.
func (s *Sequence) reserve(length int) {
	for len(s.blocks)*kernel.PageKeys < length {
		b := s.model.takeBlock()
		clear(b.data) // positions not yet written must be zero
		s.attach(b)
	}
}

func (s *Sequence) attach(b *block) {
	s.blocks = append(s.blocks, b)
	for i := range s.pages {
		s.pages[i] = append(s.pages[i], &b.pages[i])
	}
}

// takeBlock is a block with one reference and undefined contents.
func (m *Model) takeBlock() *block {
	if n := len(m.free); n > 0 {
		b := m.free[n-1]
		m.free = m.free[:n-1]
		b.references = 1
		return b
	}
	size := m.shape.KVHeads * m.shape.HeadDim * kernel.PageKeys
	b := &block{
		pages:      make([]kernel.Page, len(m.layers)),
		data:       make([]float32, 2*size*len(m.layers)),
		references: 1,
	}
	for i := range b.pages {
		at := 2 * size * i
		b.pages[i] = kernel.Page{K: b.data[at : at+size], V: b.data[at+size : at+2*size]}
	}
	return b
}

// layerPages are n zeroed pages of one layer, valid until the next call: the
// training forward, which keeps plain rows for the backward, uses the same ones
// in each layer.
func (m *Model) layerPages(n int) []*kernel.Page {
	size := m.shape.KVHeads * m.shape.HeadDim * kernel.PageKeys
	for len(m.pages) < n {
		m.pages = append(m.pages, &kernel.Page{K: make([]float32, size), V: make([]float32, size)})
	}
	for _, page := range m.pages[:n] {
		clear(page.K)
		clear(page.V)
	}
	return m.pages[:n]
}
