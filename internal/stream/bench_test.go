package stream

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// benchmarkRecords are credit rows of the size that rollouts have: 2,000
// tokens, half of them sampled, in groups of 8.
func benchmarkRecords() []any {
	random := rand.New(rand.NewPCG(3, 4))
	var records []any
	for i := range 64 {
		t := &episode.Trajectory{TrajectoryID: fmt.Sprint(i), GroupID: fmt.Sprint(i / 8), GroupSize: 8, Credit: &episode.Credit{}}
		for range 2000 {
			b := uint8(random.IntN(2))
			t.TokenIDs = append(t.TokenIDs, int32(random.IntN(150000)))
			t.LossMask = append(t.LossMask, b)
			t.RolloutLogprobs = append(t.RolloutLogprobs, -random.Float32()*float32(b))
			t.Credit.CreditMask = append(t.Credit.CreditMask, b)
		}
		for j := range 10 {
			t.Turns = append(t.Turns, episode.Turn{Role: "assistant", TokenStart: j * 200, TokenEnd: j*200 + 100, StopReason: "stop",
				Calls: []episode.Call{{Name: "get_country", Arguments: `{"name": "Chad"}`, TokenEnd: 20, Outcome: "ok"}}})
		}
		records = append(records, t)
	}
	return records
}

// BenchmarkWrite and BenchmarkRead report two rates: MB/s of the encoded
// bytes, and tokens/s, which compares the encodings.
func BenchmarkWrite(b *testing.B) {
	records := benchmarkRecords()
	for _, format := range formats {
		b.Run(format.String(), func(b *testing.B) {
			size := len(encode(b, Header{Kind: KindCredit}, format, records))
			b.SetBytes(int64(size))
			for b.Loop() {
				w, err := NewWriter(io.Discard, Header{Kind: KindCredit}, format)
				if err != nil {
					b.Fatal(err)
				}
				for _, record := range records {
					if err := write(w, record); err != nil {
						b.Fatal(err)
					}
				}
				if err := w.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(records)*2000*b.N)/b.Elapsed().Seconds()/1e6, "Mtokens/s")
		})
	}
}

func BenchmarkRead(b *testing.B) {
	records := benchmarkRecords()
	for _, format := range formats {
		b.Run(format.String(), func(b *testing.B) {
			data := encode(b, Header{Kind: KindCredit}, format, records)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				r, err := NewReader(bytes.NewReader(data), "bench")
				if err != nil {
					b.Fatal(err)
				}
				for {
					if _, err := r.Trajectory(); err == io.EOF {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
				r.Close()
			}
			b.ReportMetric(float64(len(records)*2000*b.N)/b.Elapsed().Seconds()/1e6, "Mtokens/s")
		})
	}
}
