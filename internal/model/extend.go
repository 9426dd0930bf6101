package model

import (
	"fmt"

	"github.com/odyssey-rl/odyssey/internal/kernel"
)

// extendRows is the number of rows that Extend runs at once: enough for the
// matrix products, few enough that the activations of a small model stay in the
// cache.
const extendRows = 256

// Append asks Extend to put IDs at the end of Sequence.
type Append struct {
	Sequence *Sequence
	IDs      []int32
}

// Extend runs all rows as one batch: any number of ids for any number of
// sequences, each at most once, so prefill in chunks and batched decode are the
// same call. If logits is not nil it receives for each element of batch the
// logits after its last id, [len(batch)][Vocab()]. It fails, changing nothing,
// on an id outside the vocabulary, on an element without ids, and where a
// sequence would grow beyond max_position_embeddings.
func (m *Model) Extend(rows []Append, logits []float32) error {
	for i, row := range rows {
		if len(row.IDs) == 0 {
			return fmt.Errorf("extend: element %d has no ids", i)
		}
		if length := row.Sequence.length + len(row.IDs); length > m.config.MaxPositionEmbeddings {
			return fmt.Errorf("extend: element %d: %d ids, more than max_position_embeddings %d", i, length, m.config.MaxPositionEmbeddings)
		}
		if err := m.checkIDs(row.IDs); err != nil {
			return fmt.Errorf("extend: element %d: %w", i, err)
		}
	}
	vocab := m.Vocab()
	if logits != nil && len(logits) < len(rows)*vocab {
		return fmt.Errorf("extend: room for %d logits, want %d x %d", len(logits), len(rows), vocab)
	}
	done := 0 // ids of rows[0] that have been run
	finished := 0
	for len(rows) > 0 {
		s := &m.scratch
		b := batch{ids: s.ids[:0], positions: s.positions[:0], kept: s.kept[:0], sequences: s.sequencesFor(len(m.layers))}
		ended := 0
		for len(rows) > 0 && len(b.ids) < extendRows {
			row := rows[0]
			ids := row.IDs[done:]
			ids = ids[:min(len(ids), extendRows-len(b.ids))]
			b.append(row.Sequence, ids)
			done += len(ids)
			if done == len(row.IDs) {
				if logits != nil {
					b.kept = append(b.kept, int32(len(b.ids)-1))
				}
				rows, done = rows[1:], 0
				ended++
			}
		}
		s.ids, s.positions, s.kept = b.ids, b.positions, b.kept
		hidden := m.forward(s, &b, false)
		if len(b.kept) > 0 {
			m.multiply(logits[finished*vocab:(finished+ended)*vocab], hidden, ended, &m.head)
		}
		finished += ended
	}
	return nil
}

// sequencesFor is an empty list of sequences for each layer.
func (s *scratch) sequencesFor(layers int) [][]kernel.Sequence {
	if len(s.sequences) != layers {
		s.sequences = make([][]kernel.Sequence, layers)
	}
	for i := range s.sequences {
		s.sequences[i] = s.sequences[i][:0]
	}
	return s.sequences
}

// append adds ids, which continue sequence, to b.
func (b *batch) append(sequence *Sequence, ids []int32) {
	start, end := sequence.length, sequence.length+len(ids)
	sequence.reserve(end)
	for i, pages := range sequence.pages {
		b.sequences[i] = append(b.sequences[i], kernel.Sequence{
			Row: len(b.ids), N: len(ids), Pos: start,
			Pages: pages[:(end+kernel.PageKeys-1)/kernel.PageKeys],
		})
	}
	b.ids = append(b.ids, ids...)
	for position := start; position < end; position++ {
		b.positions = append(b.positions, int32(position))
	}
	sequence.length = end
}

func (m *Model) checkIDs(ids []int32) error {
	for i, id := range ids {
		if id < 0 || int(id) >= m.Vocab() {
			return fmt.Errorf("id %d at %d is outside the vocabulary of %d", id, i, m.Vocab())
		}
	}
	return nil
}

// SampleKey names one draw. Equal keys draw equal numbers, in whatever batch
// and order they are drawn.
type SampleKey struct {
	Seed       uint64
	Trajectory uint64 // which trajectory, such as a digest of step, group and sample
	Token      int    // index of the sampled token in the trajectory
}

// uniform is the key's number in [0, 1): a multiple of 2^-24.
func (k SampleKey) uniform() float32 {
	return float32(mix(k.Seed, k.Trajectory, uint64(k.Token))>>40) / (1 << 24)
}

// Sample draws one id for each of the rows of logits [rows][Vocab()], and gives
// its log-probability, temperature applied. Temperature 0 takes the most likely
// id (the lowest of equals); the log-probability is then that of temperature 1.
func (m *Model) Sample(logits []float32, rows int, keys []SampleKey, temperature float32) (ids []int32, logprobs []float32) {
	u := make([]float32, rows)
	for i, key := range keys[:rows] {
		u[i] = key.uniform()
	}
	invTemp := float32(0)
	if temperature > 0 {
		invTemp = 1 / temperature
	}
	ids, logprobs = make([]int32, rows), make([]float32, rows)
	m.backend.Sample(ids, logprobs, logits, rows, m.Vocab(), u, invTemp)
	return ids, logprobs
}
