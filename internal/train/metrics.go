// Metrics of a set of trajectories: what can be told from the rows alone, and
// what the training forward adds.
package train

import (
	"math"
	"slices"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/model"
)

// malformedKinds are the failures of a call's form: malformed, unknown or with
// wrong arguments.
var malformedKinds = map[string]bool{
	episode.KindMalformedJSON: true, episode.KindUnclosedCall: true, episode.KindArgumentsNotObject: true,
	episode.KindUnknownTool: true, episode.KindMissingArgument: true, episode.KindUnexpectedArgument: true,
	episode.KindArgumentType: true, episode.KindArgumentValue: true,
}

// leftOut tells whether a row is another side's fault or was cancelled.
func leftOut(tr *episode.Trajectory) bool {
	if len(tr.Failures) > 0 && tr.Failures[0].Fault != episode.FaultAgent {
		return true
	}
	return tr.FinishReason == episode.FinishFault || tr.FinishReason == episode.FinishCancelled
}

// Summary accumulates the metrics that rows alone hold.
type Summary struct {
	metric                                               episode.Metric
	live, turns, malformed, sampled, submitted, abnormal float64
}

// Add counts one row.
func (s *Summary) Add(tr *episode.Trajectory) {
	m := &s.metric
	if m.Trajectories == 0 {
		m.Split, m.Temperature = tr.Split, tr.Temperature
	}
	m.Trajectories++
	m.Tokens += len(tr.TokenIDs)
	if leftOut(tr) {
		return
	}
	s.live++
	m.Reward += tr.Reward
	for _, b := range tr.LossMask {
		s.sampled += float64(b)
	}
	if tr.FinishReason == episode.FinishSubmitted {
		s.submitted++
	}
	if len(tr.Failures) > 0 && tr.Failures[0].Kind != episode.KindBudgetExhausted {
		s.abnormal++
	}
	bad := map[int]bool{}
	for _, f := range tr.Failures {
		if f.Fault == episode.FaultAgent && malformedKinds[f.Kind] {
			bad[f.Turn] = true
		}
	}
	s.malformed += float64(len(bad))
	for _, turn := range tr.Turns {
		if turn.Role == episode.RoleAssistant {
			s.turns++
		}
	}
}

// Metric gives means over the rows that are not left out by the fault of
// another side. Trajectories and Tokens count all rows. Step is 0, and what a
// model or a training step measures is nil.
func (s *Summary) Metric() episode.Metric {
	m := s.metric
	if s.live > 0 {
		m.Reward /= s.live
		m.CompletionRate = s.submitted / s.live
		m.AbnormalRate = s.abnormal / s.live
		m.Turns = s.turns / s.live
		m.ResponseTokens = s.sampled / s.live
	}
	if s.turns > 0 {
		m.MalformedRate = s.malformed / s.turns
	}
	return m
}

// Difference accumulates the distance between the log-probabilities of the
// rollout and those of another forward pass, over tokens with b = 1.
type Difference struct {
	Tokens int
	Exact  int // equal by bits
	Max    float64
	sum    float64
}

// Add compares one row. mask is b.
func (d *Difference) Add(mask []uint8, rollout, measured []float32) {
	for j, b := range mask {
		if b == 0 {
			continue
		}
		d.Tokens++
		if math.Float32bits(rollout[j]) == math.Float32bits(measured[j]) {
			d.Exact++
			continue
		}
		distance := math.Abs(float64(rollout[j]) - float64(measured[j]))
		if math.IsNaN(distance) {
			distance = math.Inf(1)
		}
		d.sum += distance
		d.Max = max(d.Max, distance)
	}
}

// Into writes what was measured into m; without a token nothing was.
func (d *Difference) Into(m *episode.Metric) {
	if d.Tokens > 0 {
		most, mean := d.Max, d.Mean()
		m.LogprobAbsDiffMax, m.LogprobAbsDiffMean = &most, &mean
	}
}

// Mean is the mean absolute difference.
func (d *Difference) Mean() float64 {
	if d.Tokens == 0 {
		return 0
	}
	return d.sum / float64(d.Tokens)
}

// largestTokenWeight is the largest weight times advantage, as a magnitude, of
// a trained token.
func largestTokenWeight(rows []*episode.Trajectory) float64 {
	largest := 0.0
	for _, tr := range rows {
		if c := tr.Credit; c != nil && c.Advantage != nil && slices.Contains(c.CreditMask, 1) {
			largest = max(largest, math.Abs(c.Weight**c.Advantage))
		}
	}
	return largest
}

// meanEntropy is over the tokens with b = 1, in nats; nil without such a token.
func meanEntropy(rows []*episode.Trajectory, measures []model.Measure) *float64 {
	sum, n := 0.0, 0
	for i, tr := range rows {
		for j, b := range tr.LossMask {
			if b == 1 {
				sum += float64(measures[i].Entropies[j])
				n++
			}
		}
	}
	if n == 0 {
		return nil
	}
	sum /= float64(n)
	return &sum
}
