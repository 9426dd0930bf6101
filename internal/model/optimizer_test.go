package model

import (
	"math"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/kernel"
	"github.com/odyssey-rl/odyssey/internal/kernel/ref"
)

// lesson is a sequence with weight 1 on every token but the first.
func lesson(c Config, n int) []Example {
	e := Example{IDs: randomIDs(c.Vocab(), n, 4), Weights: make([]float32, n)}
	for i := range e.Weights[1:] {
		e.Weights[i+1] = 1 / float32(n-1)
	}
	return []Example{e}
}

func TestOptimizersLearnASequence(t *testing.T) {
	for name, options := range map[string]OptimizerOptions{
		"adamw": {Decay: 0.01},
		"muon":  {Muon: 4},
	} {
		t.Run(name, func(t *testing.T) {
			c := tinyConfig()
			m, err := New(c, RandomWeights(c, 1), ref.New())
			if err != nil {
				t.Fatal(err)
			}
			examples, g, optimizer := lesson(c, 12), m.NewGradient(), NewOptimizer(m, options)
			mean := func() float64 {
				g.Zero()
				measures, err := m.Accumulate(g, examples, 1)
				if err != nil {
					t.Fatal(err)
				}
				sum := 0.0
				for _, x := range measures[0].Logprobs {
					sum += float64(x)
				}
				return sum / 11
			}
			if before := mean(); math.Abs(before+math.Log(float64(c.VocabSize))) > 0.5 {
				t.Errorf("mean log-probability %v before, want about that of chance", before)
			}
			for range 60 {
				mean()
				optimizer.Step(m, g, 0.01, 1)
			}
			if after := mean(); after < -0.1 {
				t.Errorf("mean log-probability %v after 60 steps", after)
			}
			if optimizer.Steps() != 60 {
				t.Errorf("Steps() = %d", optimizer.Steps())
			}
		})
	}
}

func TestRestoredOptimizerContinuesWithTheSameBits(t *testing.T) {
	onBackends(t, func(t *testing.T, backend kernel.Backend) {
		for _, options := range []OptimizerOptions{{}, {Muon: 6, Decay: 0.1}} {
			c := tinyConfig()
			steps := func(m *Model, o *Optimizer, n int) {
				g := m.NewGradient()
				for range n {
					g.Zero()
					if _, err := m.Accumulate(g, lesson(c, 9), 1); err != nil {
						t.Fatal(err)
					}
					if norm := o.Step(m, g, 0.003, 0.5); !(norm > 0) {
						t.Fatalf("gradient norm %v", norm)
					}
				}
			}
			straight, err := New(c, RandomWeights(c, 2), backend)
			if err != nil {
				t.Fatal(err)
			}
			o := NewOptimizer(straight, options)
			steps(straight, o, 3)

			resumed, err := New(c, straight.Weights().Clone(), backend)
			if err != nil {
				t.Fatal(err)
			}
			again := NewOptimizer(resumed, options)
			if err := again.SetState(Weights(o.State()).Clone()); err != nil {
				t.Fatal(err)
			}
			steps(straight, o, 3)
			steps(resumed, again, 3)
			for i, tensor := range straight.Weights() {
				if !sameBits(tensor.Data, resumed.Weights()[i].Data) {
					t.Errorf("%s differs after resuming", tensor.Name)
				}
			}
			if again.Steps() != 6 {
				t.Errorf("Steps() = %d, want 6", again.Steps())
			}
		}
	})
}

func TestOptimizerStateOfAnotherKindIsRefused(t *testing.T) {
	m := newTestModel(t, tinyConfig(), ref.New())
	adamw, muon := NewOptimizer(m, OptimizerOptions{}), NewOptimizer(m, OptimizerOptions{Muon: 1})
	if err := adamw.SetState(muon.State()); err == nil || !strings.Contains(err.Error(), "first_moment.model.layers.0.self_attn.q_proj.weight is missing") {
		t.Errorf("error %v", err)
	}
	state := adamw.State()
	state[2].Shape = []int{1}
	if err := adamw.SetState(state); err == nil || !strings.Contains(err.Error(), "shape") {
		t.Errorf("error %v", err)
	}
}

func TestClippingScalesTheGradientAndReportsItsNorm(t *testing.T) {
	c := tinyConfig()
	m := newTestModel(t, c, ref.New())
	g := m.NewGradient()
	if _, err := m.Accumulate(g, lesson(c, 12), 1); err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, tensor := range g.Tensors() {
		for _, x := range tensor.Data {
			sum += float64(x) * float64(x)
		}
	}
	o := NewOptimizer(m, OptimizerOptions{})
	norm := o.Step(m, g, 0, 0.01)
	if math.Abs(float64(norm)-math.Sqrt(sum)) > 1e-4*math.Sqrt(sum) {
		t.Errorf("norm %v, want %v", norm, math.Sqrt(sum))
	}
	first, clipped := o.slots[1].first[0], g.Tensors()[1].Data[0]*0.01/norm
	if want := -0.1 * clipped; math.Abs(float64(first-want)) > 1e-6*math.Abs(float64(want)) {
		t.Errorf("first moment %v, want %v", first, want)
	}
}

func TestGradientThatIsNotFiniteChangesNothing(t *testing.T) {
	m := newTestModel(t, tinyConfig(), ref.New())
	before := m.Weights().Clone()
	g, o := m.NewGradient(), NewOptimizer(m, OptimizerOptions{})
	g.tensors[3].Data[2] = float32(math.Inf(1))
	if norm := o.Step(m, g, 1, 1); !math.IsInf(float64(norm), 0) {
		t.Errorf("norm %v", norm)
	}
	for i, tensor := range m.Weights() {
		if !sameBits(tensor.Data, before[i].Data) {
			t.Errorf("%s changed", tensor.Name)
		}
	}
	if o.Steps() != 0 {
		t.Errorf("Steps() = %d", o.Steps())
	}
}

// TestMuonMovesAllDirectionsAlike checks what the iteration is for: the singular
// values of the update are near 1, whichever side is longer.
func TestMuonMovesAllDirectionsAlike(t *testing.T) {
	for _, shape := range [][]int{{6, 15}, {15, 6}, {8, 8}} {
		out, in := shape[0], shape[1]
		s := slot{shape: shape, first: make([]float32, out*in)}
		weights, gradient := make([]float32, out*in), make([]float32, out*in)
		for i := range gradient {
			gradient[i] = float32(normal(3, uint64(i)))
		}
		var mu muonScratch
		mu.step(ref.New(), &s, weights, gradient, 1, 0.95, 1)
		rows, columns := min(out, in), max(out, in)
		if out > in {
			flipped := make([]float32, len(weights))
			transpose(flipped, weights, out, in)
			weights = flipped
			for i := range weights {
				weights[i] /= float32(math.Sqrt(float64(out) / float64(in)))
			}
		}
		// The mean of the squared singular values is the trace over the rank.
		trace, alignment := 0.0, 0.0
		for i := range rows {
			for j := range columns {
				trace += float64(weights[i*columns+j]) * float64(weights[i*columns+j])
			}
		}
		if mean := trace / float64(rows); mean < 0.5 || mean > 1.4 {
			t.Errorf("%v: mean squared singular value %v", shape, mean)
		}
		for i := range rows {
			for j := range i {
				dot := 0.0
				for k := range columns {
					dot += float64(weights[i*columns+k]) * float64(weights[j*columns+k])
				}
				alignment = max(alignment, math.Abs(dot))
			}
		}
		if alignment > 0.5 {
			t.Errorf("%v: rows of the update overlap by %v", shape, alignment)
		}
	}
}
