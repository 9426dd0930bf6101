package model

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/kernel"
	"github.com/odyssey-rl/odyssey/internal/kernel/ref"
	"github.com/odyssey-rl/odyssey/internal/kernel/simd"
)

// backends are those that every test of bits runs on.
func backends() []kernel.Backend {
	return []kernel.Backend{ref.New(), simd.New(1), simd.New(2)}
}

// onBackends runs test once per backend.
func onBackends(t *testing.T, test func(t *testing.T, backend kernel.Backend)) {
	for _, backend := range backends() {
		t.Run(fmt.Sprintf("%s-%d", backend.Name(), backend.Threads()), func(t *testing.T) { test(t, backend) })
	}
}

// tinyConfig has every feature at the smallest size: more than one layer, heads
// that share keys and values, and widths that are no multiple of a vector.
func tinyConfig() Config {
	return Config{
		HiddenSize: 10, IntermediateSize: 14, NumHiddenLayers: 2,
		NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 6,
		VocabSize: 23, MaxPositionEmbeddings: 160,
		RMSNormEps: 1e-6, RopeTheta: 10000, TieWordEmbeddings: true,
	}
}

// newTestModel has weights large enough that every path through it matters.
func newTestModel(t testing.TB, c Config, backend kernel.Backend) *Model {
	t.Helper()
	weights := RandomWeights(c, 7)
	for i, tensor := range weights {
		for j := range tensor.Data {
			if len(tensor.Shape) == 1 {
				tensor.Data[j] += float32(0.2 * normal(8, uint64(i), uint64(j)))
			} else {
				tensor.Data[j] *= 2
			}
			if strings.HasSuffix(tensor.Name, "embed_tokens.weight") {
				tensor.Data[j] *= 10
			}
		}
	}
	m, err := New(c, weights, backend)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// randomIDs are n ids below vocab.
func randomIDs(vocab, n int, key uint64) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(mix(key, uint64(i)) % uint64(vocab))
	}
	return ids
}

func everywhere(n int) []uint8 {
	mask := make([]uint8, n)
	for i := range mask {
		mask[i] = 1
	}
	return mask
}

func sameBits(a, b []float32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return true
}

func TestForwardIsTheDecoder(t *testing.T) {
	for _, change := range []func(*Config){
		func(*Config) {},
		func(c *Config) { c.TieWordEmbeddings = false },
		func(c *Config) { c.DefinedVocab = 19 },
		func(c *Config) { c.NumHiddenLayers, c.NumKeyValueHeads = 1, 4 },
	} {
		c := tinyConfig()
		change(&c)
		m := newTestModel(t, c, ref.New())
		exact := newExactModel(c, m.Weights())
		ids := randomIDs(c.Vocab(), 45, 1)
		for _, temperature := range []float32{1, 0.7} {
			measures, err := m.Accumulate(nil, []Example{{IDs: ids, Mask: everywhere(len(ids))}}, temperature)
			if err != nil {
				t.Fatal(err)
			}
			logprobs, entropies := exact.measure(ids, float64(temperature))
			for i := range ids {
				if math.Abs(logprobs[i]-float64(measures[0].Logprobs[i])) > 1e-4 {
					t.Errorf("%+v: token %d: log-probability %v, want %v", c, i, measures[0].Logprobs[i], logprobs[i])
				}
				if math.Abs(entropies[i]-float64(measures[0].Entropies[i])) > 1e-4 {
					t.Errorf("%+v: token %d: entropy %v, want %v", c, i, measures[0].Entropies[i], entropies[i])
				}
			}
		}
	}
}

func TestGradientIsThatOfTheObjective(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"tied":      func(*Config) {},
		"untied":    func(c *Config) { c.TieWordEmbeddings = false },
		"undefined": func(c *Config) { c.DefinedVocab = 19 },
	} {
		t.Run(name, func(t *testing.T) {
			c := tinyConfig()
			change(&c)
			m := newTestModel(t, c, ref.New())
			var examples []Example
			for k, n := range []int{9, 2, 14} {
				e := Example{IDs: randomIDs(c.Vocab(), n, uint64(k)), Weights: make([]float32, n)}
				for i := range e.Weights {
					if mix(uint64(k), uint64(i), 5)%3 != 0 { // some tokens have none
						e.Weights[i] = float32(normal(uint64(k), uint64(i)))
					}
				}
				e.Weights[0] = 0
				examples = append(examples, e)
			}
			examples[1].Weights[1] = 1.5
			g := m.NewGradient()
			if _, err := m.Accumulate(g, examples, 0.8); err != nil {
				t.Fatal(err)
			}
			exact := newExactModel(c, m.Weights())
			const temperature, step = float64(float32(0.8)), 1e-5
			for _, tensor := range g.Tensors() {
				w := exact.weights[tensor.Name]
				for i, got := range tensor.Data {
					if len(w) > 60 && mix(uint64(i))%4 != 0 {
						continue
					}
					was := w[i]
					w[i] = was + step
					up := exact.objective(examples, temperature)
					w[i] = was - step
					down := exact.objective(examples, temperature)
					w[i] = was
					want := (up - down) / (2 * step)
					if math.Abs(want-float64(got)) > 2e-5*(1+math.Abs(want)) {
						t.Errorf("%s[%d]: derivative %v, by differences %v", tensor.Name, i, got, want)
					}
				}
			}
		})
	}
}

// TestSampledScoredAndTrainedBitsAgree is parity: what Sample records is what
// Score and Accumulate find, whatever shared the batch, however the prompt was
// cut, and whether sequences were forked.
func TestSampledScoredAndTrainedBitsAgree(t *testing.T) {
	onBackends(t, func(t *testing.T, backend kernel.Backend) {
		m := newTestModel(t, tinyConfig(), backend)
		vocab := m.Vocab()
		const prompt, sampled = 37, 30
		for _, c := range []struct {
			batch, chunk int
			fork         bool
			temperature  float32
		}{
			{1, 1, false, 1}, {1, prompt, false, 0.6}, {7, 5, false, 1}, {7, prompt, true, 1},
			{64, 13, true, 1}, {64, prompt, false, 1}, {7, 9, true, 0},
		} {
			sequences := make([]*Sequence, c.batch)
			ids := make([][]int32, c.batch)
			recorded := make([][]float32, c.batch)
			logits := make([]float32, c.batch*vocab)
			first := randomIDs(vocab, prompt, 3)
			for i := range sequences {
				recorded[i] = make([]float32, prompt)
				ids[i] = append([]int32(nil), first...)
				if c.fork && i > 0 {
					continue
				}
				sequences[i] = m.NewSequence()
				if !c.fork {
					ids[i][i%prompt] = int32(i % vocab)
				}
			}
			for from := 0; from < prompt; from += c.chunk {
				var rows []Append
				for i, s := range sequences {
					if s != nil {
						rows = append(rows, Append{s, ids[i][from:min(prompt, from+c.chunk)]})
					}
				}
				if err := m.Extend(rows, logits); err != nil {
					t.Fatal(err)
				}
			}
			for i := range sequences {
				if sequences[i] == nil {
					sequences[i] = sequences[0].Fork()
					copy(logits[i*vocab:(i+1)*vocab], logits)
				}
			}
			// Sequences end at different lengths, so the batch shrinks.
			active := make([]int, c.batch)
			for i := range active {
				active[i] = i
			}
			for token := prompt; len(active) > 0; token++ {
				keys := make([]SampleKey, len(active))
				for r, i := range active {
					keys[r] = SampleKey{Seed: 11, Trajectory: uint64(i), Token: token}
				}
				drawn, logprobs := m.Sample(logits, len(active), keys, c.temperature)
				var rows []Append
				var still []int
				for r, i := range active {
					ids[i] = append(ids[i], drawn[r])
					recorded[i] = append(recorded[i], logprobs[r])
					if len(ids[i]) < prompt+sampled-i%11 {
						rows = append(rows, Append{sequences[i], drawn[r : r+1]})
						still = append(still, i)
					}
				}
				active = still
				if err := m.Extend(rows, logits); err != nil {
					t.Fatal(err)
				}
			}
			examples := make([]Example, c.batch)
			for i := range examples {
				mask, weights := make([]uint8, len(ids[i])), make([]float32, len(ids[i]))
				for j := prompt; j < len(mask); j++ {
					mask[j] = 1
					weights[j] = float32(j%3) - 1
				}
				examples[i] = Example{IDs: ids[i], Mask: mask, Weights: weights}
			}
			trained, err := m.Accumulate(m.NewGradient(), examples, c.temperature)
			if err != nil {
				t.Fatal(err)
			}
			for i := range examples {
				if !sameBits(trained[i].Logprobs, recorded[i]) {
					t.Fatalf("%+v: trajectory %d: trained %v, sampled %v", c, i, trained[i].Logprobs, recorded[i])
				}
				scored, err := m.Score(ids[i], examples[i].Mask, c.temperature)
				if err != nil {
					t.Fatal(err)
				}
				if !sameBits(scored, recorded[i]) {
					t.Fatalf("%+v: trajectory %d: scored %v, sampled %v", c, i, scored, recorded[i])
				}
			}
			for _, s := range sequences {
				s.Release()
			}
		}
	})
}

func TestSplittingExamplesChangesNoBitOfTheGradient(t *testing.T) {
	onBackends(t, func(t *testing.T, backend kernel.Backend) {
		for _, tied := range []bool{true, false} {
			c := tinyConfig()
			c.TieWordEmbeddings = tied
			m := newTestModel(t, c, backend)
			var examples []Example
			for k := range 9 {
				n := 2 + 17*k%41
				e := Example{IDs: randomIDs(c.Vocab(), n, uint64(k)), Mask: everywhere(n), Weights: make([]float32, n)}
				for i := range e.Weights {
					if k != 4 && mix(uint64(k), uint64(i))%2 == 0 {
						e.Weights[i] = float32(normal(uint64(k), uint64(i)))
					}
				}
				examples = append(examples, e)
			}
			whole := m.NewGradient()
			m.rowsAtOnce = 1 << 20
			want, err := m.Accumulate(whole, examples, 1)
			if err != nil {
				t.Fatal(err)
			}
			for _, rows := range []int{1, 30, 77} {
				m.rowsAtOnce = rows
				for calls := range 3 {
					g := m.NewGradient()
					var got []Measure
					for from := 0; from < len(examples); {
						to := len(examples)
						if calls > 0 {
							to = min(to, from+calls)
						}
						part, err := m.Accumulate(g, examples[from:to], 1)
						if err != nil {
							t.Fatal(err)
						}
						got = append(got, part...)
						from = to
					}
					for i, tensor := range g.Tensors() {
						if !sameBits(tensor.Data, whole.Tensors()[i].Data) {
							t.Errorf("%d rows at once, split %d: %s differs", rows, calls, tensor.Name)
						}
					}
					for i := range got {
						if !sameBits(got[i].Logprobs, want[i].Logprobs) || !sameBits(got[i].Entropies, want[i].Entropies) {
							t.Errorf("%d rows at once, split %d: measures of example %d differ", rows, calls, i)
						}
					}
				}
			}
		}
	})
}

// TestEveryBackendTrainsTheSameWeights takes optimizer steps on each backend and
// thread count, in a shape for their fast paths and in one for their tails.
func TestEveryBackendTrainsTheSameWeights(t *testing.T) {
	wide := Config{
		HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 2,
		NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 32,
		VocabSize: 96, MaxPositionEmbeddings: 128, RMSNormEps: 1e-6, RopeTheta: 10000, TieWordEmbeddings: true,
	}
	for _, c := range []Config{wide, tinyConfig()} {
		var want Weights
		var measured []Measure
		for _, backend := range backends() {
			m := newTestModel(t, c, backend)
			var examples []Example
			for k, n := range []int{70, 3, 41} {
				e := Example{IDs: randomIDs(c.Vocab(), n, uint64(k)), Weights: make([]float32, n)}
				for i := range e.Weights {
					e.Weights[i] = max(0, float32(normal(uint64(k), uint64(i)))) / 40
				}
				examples = append(examples, e)
			}
			g, optimizer := m.NewGradient(), NewOptimizer(m, OptimizerOptions{Muon: 3})
			var measures []Measure
			for range 2 {
				g.Zero()
				var err error
				if measures, err = m.Accumulate(g, examples, 1); err != nil {
					t.Fatal(err)
				}
				optimizer.Step(m, g, 0.01, 1)
			}
			if want == nil {
				want, measured = m.Weights(), measures
				continue
			}
			for i, tensor := range m.Weights() {
				if !sameBits(tensor.Data, want[i].Data) {
					t.Errorf("%s of %d threads, hidden size %d: %s differs from the reference", backend.Name(), backend.Threads(), c.HiddenSize, tensor.Name)
				}
			}
			for i := range measures {
				if !sameBits(measures[i].Logprobs, measured[i].Logprobs) || !sameBits(measures[i].Entropies, measured[i].Entropies) {
					t.Errorf("%s of %d threads, hidden size %d: measures of example %d differ from the reference", backend.Name(), backend.Threads(), c.HiddenSize, i)
				}
			}
		}
	}
}

func TestForksAreIndependent(t *testing.T) {
	m := newTestModel(t, tinyConfig(), ref.New())
	prompt := randomIDs(m.Vocab(), 40, 1) // one full page and a part
	logits := make([]float32, 2*m.Vocab())
	a := m.NewSequence()
	if err := m.Extend([]Append{{a, prompt}}, logits); err != nil {
		t.Fatal(err)
	}
	b := a.Fork()
	if a.blocks[0] != b.blocks[0] || a.blocks[1] == b.blocks[1] {
		t.Error("a fork should share the full page and copy the other")
	}
	left, right := randomIDs(m.Vocab(), 30, 2), randomIDs(m.Vocab(), 30, 3)
	if err := m.Extend([]Append{{a, left}, {b, right}}, logits); err != nil {
		t.Fatal(err)
	}
	a.Release()
	for i, tail := range [][]int32{left, right} {
		alone, want := m.NewSequence(), make([]float32, m.Vocab())
		if err := m.Extend([]Append{{alone, append(append([]int32(nil), prompt...), tail...)}}, want); err != nil {
			t.Fatal(err)
		}
		if !sameBits(want, logits[i*m.Vocab():(i+1)*m.Vocab()]) {
			t.Errorf("fork %d differs from a sequence of its own", i)
		}
	}
	if b.Len() != 70 {
		t.Errorf("Len() = %d, want 70", b.Len())
	}
}

func TestExtendRefusesAndChangesNothing(t *testing.T) {
	m := newTestModel(t, tinyConfig(), ref.New())
	logits := make([]float32, 2*m.Vocab())
	s, other := m.NewSequence(), m.NewSequence()
	for _, c := range []struct {
		ids  []int32
		want string
	}{
		{nil, "no ids"},
		{[]int32{1, 23}, "id 23 at 1 is outside the vocabulary of 23"},
		{[]int32{-1}, "id -1"},
		{make([]int32, 161), "max_position_embeddings"},
	} {
		err := m.Extend([]Append{{s, []int32{1}}, {other, c.ids}}, logits)
		if err == nil || !strings.Contains(err.Error(), c.want) || s.Len() != 0 {
			t.Errorf("error %v and length %d, want %q and 0", err, s.Len(), c.want)
		}
	}
	if err := m.Extend([]Append{{s, []int32{1}}, {other, []int32{2}}}, logits[1:]); err == nil {
		t.Error("short logits were accepted")
	}
}

func TestSampleFollowsTheDistributionAndItsKeys(t *testing.T) {
	m := newTestModel(t, tinyConfig(), ref.New())
	logits := make([]float32, m.Vocab())
	for i := range logits {
		logits[i] = float32(normal(9, uint64(i)))
	}
	logits[4], logits[9] = 3, 3
	const draws = 4000
	counts := make([]int, len(logits))
	probability := make([]float64, len(logits))
	for i := range draws {
		ids, logprobs := m.Sample(logits, 1, []SampleKey{{Seed: 1, Trajectory: 2, Token: i}}, 1)
		counts[ids[0]]++
		probability[ids[0]] = math.Exp(float64(logprobs[0]))
	}
	for id, n := range counts {
		p := probability[id]
		if deviation := math.Sqrt(draws * p * (1 - p)); math.Abs(float64(n)-draws*p) > 4*deviation+1 {
			t.Errorf("id %d drawn %d times, expected %.0f", id, n, draws*p)
		}
	}
	keys := []SampleKey{{1, 2, 3}, {1, 2, 4}, {1, 3, 3}, {2, 2, 3}}
	rows := make([]float32, 0, 4*len(logits))
	for range keys {
		rows = append(rows, logits...)
	}
	together, _ := m.Sample(rows, 4, keys, 1)
	seen := map[float32]bool{}
	for i, key := range keys {
		alone, _ := m.Sample(logits, 1, []SampleKey{key}, 1)
		if alone[0] != together[i] {
			t.Errorf("key %v draws %d alone and %d in a batch", key, alone[0], together[i])
		}
		seen[key.uniform()] = true
	}
	if len(seen) != len(keys) {
		t.Error("different keys draw the same number")
	}
	if ids, logprobs := m.Sample(logits, 1, keys, 0); ids[0] != 4 || math.Abs(float64(logprobs[0])-math.Log(probability[4])) > 1e-5 {
		t.Errorf("temperature 0 gives id %d with %v, want the lowest of the most likely, 4, with %v", ids[0], logprobs[0], math.Log(probability[4]))
	}
}

func TestUndefinedIDsAreNeverSeen(t *testing.T) {
	c := tinyConfig()
	c.DefinedVocab = 17
	m := newTestModel(t, c, ref.New())
	for id := 17; id < c.VocabSize; id++ {
		for j := range c.HiddenSize {
			m.Weights()[0].Data[id*c.HiddenSize+j] = float32(math.NaN())
		}
	}
	m.Changed()
	ids := randomIDs(17, 20, 1)
	logprobs, err := m.Score(ids, everywhere(20), 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range logprobs[1:] {
		if !(x < 0) {
			t.Errorf("token %d: log-probability %v", i+1, x)
		}
	}
	if _, err := m.Score([]int32{1, 17}, everywhere(2), 1); err == nil {
		t.Error("an undefined id was accepted")
	}
}

func TestAccumulateRefusesByExample(t *testing.T) {
	m := newTestModel(t, tinyConfig(), ref.New())
	for want, e := range map[string]Example{
		"example 1: id 99":                 {IDs: []int32{99}},
		"example 1: 2 ids but a mask of 1": {IDs: []int32{1, 2}, Mask: []uint8{1}},
		"example 1: 2 ids but 3 weights":   {IDs: []int32{1, 2}, Weights: make([]float32, 3)},
		"example 1: 161 ids, more than":    {IDs: make([]int32, 161)},
	} {
		if _, err := m.Accumulate(nil, []Example{{}, e}, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestDecodingOneTokenAllocatesLittle(t *testing.T) {
	m := newTestModel(t, tinyConfig(), ref.New())
	rows := make([]Append, 8)
	logits := make([]float32, len(rows)*m.Vocab())
	for i := range rows {
		rows[i] = Append{m.NewSequence(), []int32{int32(i)}}
	}
	step := func() {
		if err := m.Extend(rows, logits); err != nil {
			t.Fatal(err)
		}
	}
	step()
	if n := testing.AllocsPerRun(20, step); n > 100 { // the reference backend makes one per head and row
		t.Errorf("%v allocations per step of 8 sequences", n)
	}
}
