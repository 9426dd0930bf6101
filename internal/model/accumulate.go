package model

import (
	"fmt"

	"github.com/odyssey-rl/odyssey/internal/kernel"
)

// accumulateRows is the number of rows that Accumulate runs at once, unless one
// example alone has more.
const accumulateRows = 512

// headElements bounds the logits that exist at once in Accumulate, if a part of
// the head has more than headRows rows.
const (
	headElements = 1 << 18
	headRows     = 64
)

// Example is one sequence for Accumulate. The arrays run over its tokens; that
// of token i is about ids[i] given ids[:i], so index 0 means nothing.
type Example struct {
	IDs     []int32
	Mask    []uint8   // not 0 where log-probability and entropy are wanted; nil: where Weights is not 0
	Weights []float32 // derivative of the objective by the token's log-probability; nil: all 0
}

// weight is the weight of token i.
func (e *Example) weight(i int) float32 {
	if e.Weights == nil {
		return 0
	}
	return e.Weights[i]
}

// asked says whether the log-probability of token i is wanted.
func (e *Example) asked(i int) bool {
	return i > 0 && (e.Mask != nil && e.Mask[i] != 0 || e.weight(i) != 0)
}

// rows is the number of ids that have to be run: those before the last one that
// is asked for.
func (e *Example) rows() int {
	for i := len(e.IDs) - 1; i > 0; i-- {
		if e.asked(i) {
			return i
		}
	}
	return 0
}

// trained says whether any token has a weight.
func (e *Example) trained() bool {
	for i := 1; i < len(e.Weights); i++ {
		if e.Weights[i] != 0 {
			return true
		}
	}
	return false
}

// Measure is what the training forward found for one example, per token and 0
// where it was not asked for, in nats.
type Measure struct {
	Logprobs  []float32
	Entropies []float32
}

// Score is the log-probability of ids[i] given ids[:i], temperature applied,
// for each i with mask[i] != 0, and 0 elsewhere and at i = 0. A temperature of
// 0 counts as 1, as in Sample.
func (m *Model) Score(ids []int32, mask []uint8, temperature float32) ([]float32, error) {
	measures, err := m.Accumulate(nil, []Example{{IDs: ids, Mask: mask}}, temperature)
	if err != nil {
		return nil, err
	}
	return measures[0].Logprobs, nil
}

// Accumulate adds to g the gradient of
//
//	objective = sum over examples and tokens of Weights[i] * logprob[i]
//
// (which an optimizer step increases) and returns the log-probabilities and
// entropies of the forward pass, temperature applied (0 counts as 1). With g
// nil, and for examples whose weights are all 0, only the forward pass runs.
// Sums over tokens are chains in the order of examples that continue from call
// to call, so neither the number of rows run at once nor splitting examples
// over calls changes a bit.
func (m *Model) Accumulate(g *Gradient, examples []Example, temperature float32) ([]Measure, error) {
	measures := make([]Measure, len(examples))
	var trained, measured []int
	for i := range examples {
		e := &examples[i]
		if err := m.checkExample(e); err != nil {
			return nil, fmt.Errorf("example %d: %w", i, err)
		}
		both := make([]float32, 2*len(e.IDs))
		measures[i] = Measure{both[:len(e.IDs):len(e.IDs)], both[len(e.IDs):]}
		switch {
		case e.rows() == 0:
		case g != nil && e.trained():
			trained = append(trained, i)
		default:
			measured = append(measured, i)
		}
	}
	invTemp := float32(1)
	if temperature > 0 {
		invTemp = 1 / temperature
	}
	m.inParts(examples, trained, func(part []int) { m.train(g, examples, measures, part, invTemp) })
	m.inParts(examples, measured, func(part []int) { m.measure(examples, measures, part, invTemp) })
	return measures, nil
}

func (m *Model) checkExample(e *Example) error {
	if len(e.IDs) > m.config.MaxPositionEmbeddings {
		return fmt.Errorf("%d ids, more than max_position_embeddings %d", len(e.IDs), m.config.MaxPositionEmbeddings)
	}
	if e.Mask != nil && len(e.Mask) != len(e.IDs) {
		return fmt.Errorf("%d ids but a mask of %d", len(e.IDs), len(e.Mask))
	}
	if e.Weights != nil && len(e.Weights) != len(e.IDs) {
		return fmt.Errorf("%d ids but %d weights", len(e.IDs), len(e.Weights))
	}
	return m.checkIDs(e.IDs)
}

// inParts calls run for consecutive parts of list, each of at most
// m.rowsAtOnce rows or one example.
func (m *Model) inParts(examples []Example, list []int, run func(part []int)) {
	for len(list) > 0 {
		n, rows := 0, 0
		for n < len(list) {
			rows += examples[list[n]].rows()
			if n > 0 && rows > m.rowsAtOnce {
				break
			}
			n++
		}
		run(list[:n])
		list = list[n:]
	}
}

// target is a row of the head: what its log-probability is about, and where
// that goes.
type target struct {
	id             int32
	weight         float32
	example, token int32
}

// pack makes a batch of the examples of part, and the targets of its kept rows.
// The sequences get pages of one layer, used again in each.
func (m *Model) pack(s *scratch, examples []Example, part []int) (batch, []target) {
	b := batch{ids: s.ids[:0], positions: s.positions[:0], kept: s.kept[:0], sequences: s.sequencesFor(len(m.layers))}
	targets := s.targets[:0]
	pages := 0
	for _, i := range part {
		pages += pagesFor(examples[i].rows())
	}
	free := m.layerPages(pages)
	for _, i := range part {
		e := &examples[i]
		first, rows := len(b.ids), e.rows()
		b.ids = append(b.ids, e.IDs[:rows]...)
		for position := range rows {
			b.positions = append(b.positions, int32(position))
			if e.asked(position + 1) {
				b.kept = append(b.kept, int32(first+position))
				targets = append(targets, target{e.IDs[position+1], e.weight(position + 1), int32(i), int32(position + 1)})
			}
		}
		sequence := kernel.Sequence{Row: first, N: rows, Pages: free[:pagesFor(rows)]}
		free = free[pagesFor(rows):]
		for layer := range b.sequences {
			b.sequences[layer] = append(b.sequences[layer], sequence)
		}
	}
	s.ids, s.positions, s.kept, s.targets = b.ids, b.positions, b.kept, targets
	return b, targets
}

// pagesFor is the number of pages that hold n positions.
func pagesFor(n int) int { return (n + kernel.PageKeys - 1) / kernel.PageKeys }

// measure runs the forward pass of the examples of part.
func (m *Model) measure(examples []Example, measures []Measure, part []int, invTemp float32) {
	s := &m.scratch
	b, targets := m.pack(s, examples, part)
	final := m.forward(s, &b, false)
	m.inHeadParts(len(targets), func(from, to int) {
		hidden := final[from*m.config.HiddenSize : to*m.config.HiddenSize]
		m.headForward(s, measures, hidden, targets[from:to], invTemp)
	})
}

// inHeadParts calls run for consecutive parts of n rows of the head.
func (m *Model) inHeadParts(n int, run func(from, to int)) {
	step := max(headRows, headElements/m.Vocab())
	for from := 0; from < n; from += step {
		run(from, min(n, from+step))
	}
}

// headForward measures the targets of consecutive final hidden states. It returns
// their logits and ids, valid until the next call.
func (m *Model) headForward(s *scratch, measures []Measure, hidden []float32, targets []target, invTemp float32) (logits []float32, ids []int32) {
	n := len(targets)
	logits = grow(&s.logits, n*m.Vocab())
	m.multiply(logits, hidden, n, &m.head)
	ids = grow(&s.targetIDs, n)
	for i, t := range targets {
		ids[i] = t.id
	}
	logprobs, entropies := grow(&s.logprobs, n), grow(&s.entropies, n)
	m.backend.Logprob(logprobs, entropies, logits, n, m.Vocab(), ids, invTemp)
	for i, t := range targets {
		measures[t.example].Logprobs[t.token] = logprobs[i]
		measures[t.example].Entropies[t.token] = entropies[i]
	}
	return logits, ids
}
