package model

import (
	"fmt"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/kernel"
	"github.com/odyssey-rl/odyssey/internal/kernel/simd"
)

func benchmarkThreads(b *testing.B, run func(b *testing.B, backend kernel.Backend)) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads-%d", threads), func(b *testing.B) { run(b, simd.New(threads)) })
	}
}

func newPico(b *testing.B, backend kernel.Backend) *Model {
	m, err := New(PicoConfig(), RandomWeights(PicoConfig(), 1), backend)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// BenchmarkTrain is one optimizer step of the demo's size: 60 episodes of about
// 220 ids, of which asked share the log-probability of one token in four
// ("rl"), or of every token ("sft").
func BenchmarkTrain(b *testing.B) {
	for name, every := range map[string]int{"sft": 1, "rl": 4} {
		b.Run(name, func(b *testing.B) {
			benchmarkThreads(b, func(b *testing.B, backend kernel.Backend) {
				m := newPico(b, backend)
				var examples []Example
				tokens := 0
				for k := range 16 {
					n := 150 + 37*k%140
					e := Example{IDs: randomIDs(m.Vocab(), n, uint64(k)), Weights: make([]float32, n)}
					for i := range e.Weights {
						if i/20%every == 0 {
							e.Weights[i] = 0.001
						}
					}
					examples = append(examples, e)
					tokens += n
				}
				g, optimizer := m.NewGradient(), NewOptimizer(m, OptimizerOptions{})
				b.ReportAllocs()
				for b.Loop() {
					g.Zero()
					if _, err := m.Accumulate(g, examples, 1); err != nil {
						b.Fatal(err)
					}
					optimizer.Step(m, g, 1e-4, 1)
				}
				b.ReportMetric(float64(tokens*b.N)/b.Elapsed().Seconds(), "tokens/s")
			})
		})
	}
}

func BenchmarkMuonStep(b *testing.B) {
	benchmarkThreads(b, func(b *testing.B, backend kernel.Backend) {
		m := newPico(b, backend)
		g, optimizer := m.NewGradient(), NewOptimizer(m, OptimizerOptions{Muon: 6})
		for i := range g.embedding {
			g.embedding[i] = 1e-3
		}
		for b.Loop() {
			optimizer.Step(m, g, 1e-4, 1)
		}
	})
}

// BenchmarkDecode extends 64 sequences, from 100 ids on, by a token each.
func BenchmarkDecode(b *testing.B) {
	for _, batch := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("batch-%d", batch), func(b *testing.B) {
			benchmarkThreads(b, func(b *testing.B, backend kernel.Backend) {
				m := newPico(b, backend)
				logits := make([]float32, batch*m.Vocab())
				rows, keys := make([]Append, batch), make([]SampleKey, batch)
				prompt := randomIDs(m.Vocab(), 100, 1)
				token := 0
				start := func() {
					for i := range rows {
						if rows[i].Sequence != nil {
							rows[i].Sequence.Release()
						}
						rows[i] = Append{m.NewSequence(), prompt}
					}
					if err := m.Extend(rows, logits); err != nil {
						b.Fatal(err)
					}
				}
				start()
				b.ReportAllocs()
				for b.Loop() {
					if token++; token%120 == 0 {
						b.StopTimer()
						start()
						b.StartTimer()
					}
					for i := range keys {
						keys[i] = SampleKey{1, uint64(i), token}
					}
					ids, _ := m.Sample(logits, batch, keys, 1)
					for i := range rows {
						rows[i].IDs = ids[i : i+1]
					}
					if err := m.Extend(rows, logits); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(batch*b.N)/b.Elapsed().Seconds(), "tokens/s")
			})
		})
	}
}

func BenchmarkPrefill(b *testing.B) {
	benchmarkThreads(b, func(b *testing.B, backend kernel.Backend) {
		m := newPico(b, backend)
		prompt := randomIDs(m.Vocab(), 512, 1)
		logits := make([]float32, m.Vocab())
		for b.Loop() {
			s := m.NewSequence()
			if err := m.Extend([]Append{{s, prompt}}, logits); err != nil {
				b.Fatal(err)
			}
			s.Release()
		}
		b.ReportMetric(float64(512*b.N)/b.Elapsed().Seconds(), "tokens/s")
	})
}
