// One optimizer step over the rows of one step of the stream.
package train

import (
	"fmt"
	"math"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/kernel"
	"github.com/odyssey-rl/odyssey/internal/model"
)

// Options are the choices of a training run.
type Options struct {
	Objective string // ObjectivePolicy or ObjectiveSFT

	LearningRate float64
	Warmup       int     // steps over which the learning rate rises from 0
	DecayShare   float64 // last share of Steps over which it falls linearly; 0: constant
	MaxGradNorm  float64 // 0: no clipping of the gradient
	Beta1, Beta2 float64
	WeightDecay  float64
	Muon         float64 // learning rate of the matrices under Muon; 0: AdamW for all

	Ratio         Ratio   // used when Staleness > 0
	ContextWeight float64 // sft: weight of tokens with b = 0
	Drill         float64 // sft: share of the sequences of the first DrillSteps replaced by copy drills
	Seed          uint64  // of the drills

	// The shape of the stream, from its header.
	GroupsPerStep int // groups of one step
	GroupSize     int // rows of one group
	Staleness     int // K: step s was sampled by version max(0, s-K)
	Steps         int // the planned number of steps

	CommitEvery int                          // steps from one version to the next; 0 counts as 1
	Seconds     func() float64               // a clock for tokens_per_s and seconds; nil leaves them out
	Emit        func(m episode.Metric) error // receives each metric row
}

// drillShare is the first share of the steps in which drills occur.
const drillShare = 0.3

// leastDecay is the part of the learning rate that the last steps keep.
const leastDecay = 0.03

// rows of one step.
func (o *Options) rowsPerStep() int { return o.GroupsPerStep * o.GroupSize }

// rate is the factor on the learning rate in step s, from 0.
func (o *Options) rate(s int) float64 {
	factor := 1.0
	if o.Warmup > 0 {
		factor = min(1, float64(s+1)/float64(o.Warmup))
	}
	if o.DecayShare > 0 && o.Steps > 0 {
		left := 1 - float64(s)/float64(o.Steps)
		factor *= min(1, max(leastDecay, left/o.DecayShare))
	}
	return factor
}

// learner is a model with its optimizer.
type learner struct {
	options   *Options
	model     *model.Model
	optimizer *model.Optimizer
	gradient  *model.Gradient
}

func newLearner(o *Options, config model.Config, weights model.Weights, backend kernel.Backend) (*learner, error) {
	m, err := model.New(config, weights, backend)
	if err != nil {
		return nil, err
	}
	options := model.OptimizerOptions{Beta1: float32(o.Beta1), Beta2: float32(o.Beta2), Decay: float32(o.WeightDecay)}
	if o.Muon > 0 {
		options.Muon = float32(o.Muon / o.LearningRate)
	}
	return &learner{options: o, model: m, optimizer: model.NewOptimizer(m, options), gradient: m.NewGradient()}, nil
}

// step takes one optimizer step on the rows of step s and returns its metrics.
func (l *learner) step(s int, rows []*episode.Trajectory) (episode.Metric, error) {
	var summary Summary
	for _, tr := range rows {
		summary.Add(tr)
	}
	metric := summary.Metric()
	metric.Step = s + 1
	temperature, err := temperatureOf(rows)
	if err != nil {
		return metric, err
	}
	l.gradient.Zero()
	largest := largestTokenWeight(rows)
	var examples []model.Example
	if l.options.Objective == ObjectiveSFT {
		examples = l.sftExamples(s, rows)
		temperature = 1
		for _, e := range examples {
			for _, w := range e.Weights {
				largest = max(largest, float64(w))
			}
		}
	} else if examples, err = l.policyExamples(rows, temperature); err != nil {
		return metric, err
	}

	measures, err := l.model.Accumulate(l.gradient, examples, temperature)
	if err != nil {
		return metric, err
	}
	signal := false
	objective := 0.0
	for i, e := range examples {
		for j, w := range e.Weights {
			if w != 0 {
				signal = true
				objective += float64(w) * float64(measures[i].Logprobs[j])
			}
		}
	}
	loss, norm := 0-objective, 0.0
	metric.Loss, metric.GradNorm, metric.MaxTokenWeight = &loss, &norm, &largest
	if l.options.Objective == ObjectivePolicy {
		var d Difference
		for i, tr := range rows {
			d.Add(tr.LossMask, tr.RolloutLogprobs, measures[i].Logprobs)
		}
		d.Into(&metric)
		metric.Entropy = meanEntropy(rows, measures)
	}
	if !signal {
		return metric, nil // no gradient: momentum alone must not move the weights
	}
	if math.IsNaN(objective) || math.IsInf(objective, 0) {
		return metric, fmt.Errorf("step %d: loss %v is not finite", s, loss)
	}
	norm = float64(l.optimizer.Step(l.model, l.gradient, float32(l.options.LearningRate*l.options.rate(s)), float32(l.options.MaxGradNorm)))
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return metric, fmt.Errorf("step %d: gradient norm %v is not finite", s, norm)
	}
	return metric, nil
}

func (l *learner) policyExamples(rows []*episode.Trajectory, temperature float32) ([]model.Example, error) {
	examples := make([]model.Example, len(rows))
	for i, tr := range rows {
		if len(tr.RolloutLogprobs) != len(tr.TokenIDs) || len(tr.LossMask) != len(tr.TokenIDs) {
			return nil, fmt.Errorf("trajectory %s: %d tokens, %d of loss_mask, %d of rollout_logprobs", tr.TrajectoryID, len(tr.TokenIDs), len(tr.LossMask), len(tr.RolloutLogprobs))
		}
		for j, logprob := range tr.RolloutLogprobs {
			if tr.LossMask[j] == 1 && !(logprob <= 0 && logprob >= -math.MaxFloat32) { // also refuses NaN
				return nil, fmt.Errorf("trajectory %s: log-probability %v at token %d", tr.TrajectoryID, logprob, j)
			}
		}
		var err error
		if examples[i], err = policyExample(tr); err != nil {
			return nil, err
		}
	}
	if l.options.Staleness == 0 {
		return examples, nil // one update on the policy that sampled: every ratio is 1
	}
	measures, err := l.model.Accumulate(nil, examples, temperature)
	if err != nil {
		return nil, err
	}
	for i, tr := range rows {
		l.options.Ratio.correct(examples[i], measures[i].Logprobs, tr.RolloutLogprobs)
	}
	return examples, nil
}

func (l *learner) sftExamples(s int, rows []*episode.Trajectory) []model.Example {
	o := l.options
	examples := make([]model.Example, len(rows))
	drilling := o.Drill > 0 && float64(s) < drillShare*float64(o.Steps)
	for i, tr := range rows {
		k := key(o.Seed, uint64(s), uint64(i))
		if drilling && unit(draw(k, 1<<32)) < o.Drill {
			examples[i] = drillExample(k, l.model.Vocab())
		} else {
			examples[i] = sftExample(tr, o.ContextWeight)
		}
	}
	normalize(examples)
	return examples
}

// temperatureOf is the temperature that all rows were sampled with. Greedy
// rows have no distribution to train; their log-probabilities are recorded at
// temperature 1.
func temperatureOf(rows []*episode.Trajectory) (float32, error) {
	for _, tr := range rows {
		if tr.Temperature != rows[0].Temperature {
			return 0, fmt.Errorf("trajectory %s: temperature %v among rows of temperature %v", tr.TrajectoryID, tr.Temperature, rows[0].Temperature)
		}
	}
	return recordedTemperature(rows[0]), nil
}

// recordedTemperature is the temperature that the row's log-probabilities
// refer to.
func recordedTemperature(tr *episode.Trajectory) float32 {
	if tr.Temperature == 0 {
		return 1
	}
	return float32(tr.Temperature)
}
