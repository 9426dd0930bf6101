// Package train turns groups with credit into optimizer steps: the objective
// exactly as hca.md states it, one update per complete step, a commit into the
// policy directory, a row of metrics.
package train

import (
	"fmt"
	"math"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/model"
)

// Objectives.
const (
	// ObjectivePolicy maximises the sum over tokens of
	// weight * m * logprob * advantage.
	ObjectivePolicy = "policy"
	// ObjectiveSFT maximises the log-probability of the tokens with b = 1, and
	// with a smaller weight that of the context.
	ObjectiveSFT = "sft"
)

// policyExample gives the derivative of the objective by the log-probability of
// each token. All tokens with b = 1 are measured; a row without signal has nil
// Weights and only runs forward. Its denominators were fixed before: they stand
// in Credit.Weight, so splitting a step into batches cannot change them.
func policyExample(tr *episode.Trajectory) (model.Example, error) {
	example := model.Example{IDs: tr.TokenIDs, Mask: tr.LossMask}
	c := tr.Credit
	if c == nil {
		return example, fmt.Errorf("trajectory %s: no credit; the objective policy needs the output of odyssey-hca", tr.TrajectoryID)
	}
	if len(c.CreditMask) != len(tr.TokenIDs) {
		return example, fmt.Errorf("trajectory %s: credit_mask has %d values for %d tokens", tr.TrajectoryID, len(c.CreditMask), len(tr.TokenIDs))
	}
	if c.Advantage == nil || *c.Advantage == 0 {
		return example, nil
	}
	value := c.Weight * *c.Advantage
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return example, fmt.Errorf("trajectory %s: weight %v times advantage %v is not finite", tr.TrajectoryID, c.Weight, *c.Advantage)
	}
	for j, m := range c.CreditMask {
		if m == 0 {
			continue
		}
		if m > tr.LossMask[j] || j == 0 {
			return example, fmt.Errorf("trajectory %s: credit_mask is 1 at token %d, which the policy did not sample", tr.TrajectoryID, j)
		}
		if example.Weights == nil {
			example.Weights = make([]float32, len(tr.TokenIDs))
		}
		example.Weights[j] = float32(value)
	}
	return example, nil
}

// Ratio clips the importance ratio of steps that were sampled by an older
// version. With positive advantage a ratio above 1+High has no gradient; with
// negative advantage one below 1-Low or above Dual has none.
type Ratio struct {
	Low, High, Dual float64
}

// correct multiplies each weight by the importance ratio of its token, the
// training over the rollout probability, or by 0 where the ratio is clipped. It
// returns how many of the tokens with b = 1 have a ratio outside the clip range.
// Ratios run over b and never over m: error tokens are improbable by nature.
func (r Ratio) correct(example model.Example, measured, rollout []float32) (outside int) {
	for j, b := range example.Mask {
		if b == 0 {
			continue
		}
		// Rounded to float32, so that no last bit of exp can matter.
		ratio := float64(float32(math.Exp(float64(measured[j] - rollout[j]))))
		if ratio < 1-r.Low || ratio > 1+r.High {
			outside++
		}
		if example.Weights == nil || example.Weights[j] == 0 {
			continue
		}
		a := example.Weights[j]
		if a > 0 && ratio > 1+r.High || a < 0 && (ratio < 1-r.Low || ratio > r.Dual) {
			ratio = 0
		}
		example.Weights[j] = float32(float64(a) * ratio)
	}
	return outside
}

// sftExample weighs tokens with b = 1 by 1 and all others by context. The first
// token has no log-probability.
func sftExample(tr *episode.Trajectory, context float64) model.Example {
	example := model.Example{IDs: tr.TokenIDs, Weights: make([]float32, len(tr.TokenIDs))}
	for j := 1; j < len(tr.TokenIDs); j++ {
		if tr.LossMask[j] == 1 {
			example.Weights[j] = 1
		} else {
			example.Weights[j] = float32(context)
		}
	}
	return example
}

// Lengths of one round of the copy drill, in tokens, and the weight of its
// second and third rounds.
const (
	drillLeast  = 8
	drillMost   = 40
	drillWeight = 0.5
)

// drillExample is random ids repeated three times: the second and third round
// can only be foretold by copying. It depends on its key alone.
func drillExample(key uint64, vocab int) model.Example {
	n := drillLeast + int(draw(key, 0)%(drillMost-drillLeast+1))
	example := model.Example{IDs: make([]int32, 3*n), Weights: make([]float32, 3*n)}
	for j := range example.IDs {
		if j < n {
			example.IDs[j] = int32(draw(key, uint64(j)+1) % uint64(vocab))
		} else {
			example.IDs[j] = example.IDs[j-n]
			example.Weights[j] = drillWeight
		}
	}
	return example
}

// normalize divides the weights of a step by their sum, so that the objective
// is a weighted mean of log-probabilities.
func normalize(examples []model.Example) {
	sum := 0.0
	for _, e := range examples {
		for _, w := range e.Weights {
			sum += float64(w)
		}
	}
	if sum == 0 {
		return
	}
	for _, e := range examples {
		for j, w := range e.Weights {
			e.Weights[j] = float32(float64(w) / sum)
		}
	}
}

// draw is the counter-th number of the generator that key names: splitmix64,
// evaluated at a place instead of advanced.
func draw(key, counter uint64) uint64 {
	z := key + (counter+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// key names a generator by numbers.
func key(numbers ...uint64) uint64 {
	k := uint64(0)
	for _, n := range numbers {
		k = draw(k^n, 0)
	}
	return k
}

// unit maps a draw to [0, 1).
func unit(x uint64) float64 { return float64(x>>11) / (1 << 53) }
