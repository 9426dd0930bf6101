// Rescoring recorded trajectories with the policy that made them.
package train

import (
	"context"
	"fmt"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/kernel"
	"github.com/odyssey-rl/odyssey/internal/model"
	"github.com/odyssey-rl/odyssey/internal/policy"
)

// Rescorer compares recorded log-probabilities with those of the version that
// each row names.
type Rescorer struct {
	Score    Difference // against scoring, over a key-value cache
	Training Difference // against the training forward
	Entropy  float64    // sum over tokens with b = 1, in nats
	Rows     int
	Sampled  int // tokens with b = 1 whose recorded log-probability is not 0

	policy  *policy.Policy
	backend kernel.Backend
	model   *model.Model
	version int
}

// NewRescorer rescores with the versions of p.
func NewRescorer(p *policy.Policy, backend kernel.Backend) *Rescorer {
	return &Rescorer{policy: p, backend: backend}
}

// Add rescores one row: the training forward always, scoring if score is set.
func (r *Rescorer) Add(ctx context.Context, tr *episode.Trajectory, score bool) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if len(tr.RolloutLogprobs) != len(tr.TokenIDs) || len(tr.LossMask) != len(tr.TokenIDs) {
		return fmt.Errorf("trajectory %s: %d tokens, %d of loss_mask, %d of rollout_logprobs", tr.TrajectoryID, len(tr.TokenIDs), len(tr.LossMask), len(tr.RolloutLogprobs))
	}
	if err := r.load(tr.PolicyVersion); err != nil {
		return err
	}
	temperature := recordedTemperature(tr)
	measures, err := r.model.Accumulate(nil, []model.Example{{IDs: tr.TokenIDs, Mask: tr.LossMask}}, temperature)
	if err != nil {
		return fmt.Errorf("trajectory %s: %w", tr.TrajectoryID, err)
	}
	r.Rows++
	r.Training.Add(tr.LossMask, tr.RolloutLogprobs, measures[0].Logprobs)
	for j, b := range tr.LossMask {
		if b == 1 {
			if tr.RolloutLogprobs[j] != 0 {
				r.Sampled++
			}
			r.Entropy += float64(measures[0].Entropies[j])
		}
	}
	if !score {
		return nil
	}
	scored, err := r.model.Score(tr.TokenIDs, tr.LossMask, temperature)
	if err != nil {
		return fmt.Errorf("trajectory %s: %w", tr.TrajectoryID, err)
	}
	r.Score.Add(tr.LossMask, tr.RolloutLogprobs, scored)
	return nil
}

func (r *Rescorer) load(version int) error {
	if r.model != nil && r.version == version {
		return nil
	}
	snapshot, err := r.policy.Load(version)
	if err != nil {
		return err
	}
	if r.model == nil {
		r.model, err = model.New(snapshot.Config, snapshot.Weights, r.backend)
	} else {
		err = r.model.SetWeights(snapshot.Weights)
	}
	r.version = version
	return err
}
