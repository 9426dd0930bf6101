// Package model is the transformer: forward, backward, sampling and optimizer
// over a kernel.Backend.
//
// Rollout, scoring and training run the same forward pass, and every sum in it
// has one order (see package kernel), so a log-probability has the same bits
// wherever it is computed: batch, chunk, cache and thread count cannot matter.
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
}

// New makes a model of shape config over backend. It keeps weights, arranged in
// file order, and refuses a missing, unknown or misshapen tensor by name. An
// optimizer step changes the data of weights in place.
func New(config Config, weights Weights, backend kernel.Backend) (*Model, error) {
	panic("not yet")
}

// SetWeights replaces the weights by others of the same shape. Sequences made
// before hold the keys and values of the old ones; release them.
func (m *Model) SetWeights(weights Weights) error { panic("not yet") }

// Config is the shape of the model.
func (m *Model) Config() Config { return m.config }

// Weights are the tensors in file order. Call Changed after writing to them.
func (m *Model) Weights() Weights { return m.weights }

// Changed says that the data of the weights was written to: what was derived
// from them is derived again when next needed.
func (m *Model) Changed() { panic("not yet") }

// Vocab is the width of a row of logits: the ids that can be sampled.
func (m *Model) Vocab() int { return m.config.Vocab() }

// Sequence is the key-value cache of one growing row of ids.
type Sequence struct{}

// NewSequence is an empty sequence.
func (m *Model) NewSequence() *Sequence { panic("not yet") }

// Len is the number of ids in the cache.
func (s *Sequence) Len() int { panic("not yet") }

// Fork is a copy that shares every full page with s; both may be extended.
func (s *Sequence) Fork() *Sequence { panic("not yet") }

// Release gives the pages back for reuse. s must not be used again.
func (s *Sequence) Release() { panic("not yet") }

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
func (m *Model) Extend(batch []Append, logits []float32) error { panic("not yet") }

// SampleKey names one draw. Equal keys draw equal numbers, in whatever batch
// and order they are drawn.
type SampleKey struct {
	Seed       uint64
	Trajectory uint64 // which trajectory, such as a digest of step, group and sample
	Token      int    // index of the sampled token in the trajectory
}

// Sample draws one id for each of the rows of logits [rows][Vocab()], and gives
// its log-probability, temperature applied. Temperature 0 takes the most likely
// id (the lowest of equals); the log-probability is then that of temperature 1.
func (m *Model) Sample(logits []float32, rows int, keys []SampleKey, temperature float32) (ids []int32, logprobs []float32) {
	panic("not yet")
}

// Score is the log-probability of ids[i] given ids[:i], temperature applied,
// for each i with mask[i] != 0, and 0 elsewhere and at i = 0.
func (m *Model) Score(ids []int32, mask []uint8, temperature float32) ([]float32, error) {
	panic("not yet")
}

// Example is one sequence for Accumulate. The arrays run over its tokens; that
// of token i is about ids[i] given ids[:i], so index 0 means nothing.
type Example struct {
	IDs     []int32
	Mask    []uint8   // not 0 where log-probability and entropy are wanted; nil: where Weights is not 0
	Weights []float32 // derivative of the objective by the token's log-probability; nil: all 0
}

// Measure is what the training forward found for one example, per token and 0
// where it was not asked for, in nats.
type Measure struct {
	Logprobs  []float32
	Entropies []float32
}

// Gradient holds the sums of the derivatives of the objective by each weight.
type Gradient struct{}

// NewGradient is a gradient of zeros.
func (m *Model) NewGradient() *Gradient { panic("not yet") }

// Zero sets g to zeros.
func (g *Gradient) Zero() { panic("not yet") }

// Tensors are the derivatives in the order of Weights.
func (g *Gradient) Tensors() Weights { panic("not yet") }

// Accumulate adds to g the gradient of
//
//	objective = sum over examples and tokens of Weights[i] * logprob[i]
//
// (which an optimizer step increases) and returns the log-probabilities and
// entropies of the forward pass, temperature applied. With g nil, and for
// examples whose weights are all 0, only the forward pass runs. Sums over
// tokens are chains in the order of examples that continue from call to call,
// so neither the token budget nor splitting examples over calls changes a bit.
func (m *Model) Accumulate(g *Gradient, examples []Example, temperature float32) ([]Measure, error) {
	panic("not yet")
}
