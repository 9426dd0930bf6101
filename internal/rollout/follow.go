package rollout

import (
	"context"
	"fmt"

	"github.com/odyssey-rl/odyssey/internal/policy"
	"github.com/odyssey-rl/odyssey/internal/sampler"
)

// Follow samples steps [From, Until) of a training run: step s with the
// weights of version max(0, s-Staleness), exactly that version.
type Follow struct {
	Policy    *policy.Policy
	Sampler   *sampler.Sampler
	Groups    int // per step
	From      int
	Until     int
	Staleness int

	// Waiting, if set, is told before a wait for a version.
	Waiting func(version int)
}

// Run waits for each version, samples its step and emits its rows.
func (f Follow) Run(ctx context.Context, local *Local, emit Emit) error {
	loaded := -1
	for s := f.From; s < f.Until; s++ {
		version := max(0, s-f.Staleness)
		if f.Policy.Path() == policy.Builtin {
			version = 0 // it never learns
		}
		if version != loaded {
			if f.Waiting != nil {
				f.Waiting(version)
			}
			if err := f.Policy.Wait(ctx, version); err != nil {
				return err
			}
			snapshot, err := f.Policy.Load(version)
			if err != nil {
				return fmt.Errorf("step %d needs version %d of the policy: %w", s, version, err)
			}
			if err := local.Model.SetWeights(snapshot.Weights); err != nil {
				return err
			}
			loaded = version
		}
		if err := local.Run(ctx, ChooseStep(f.Sampler, s, f.Groups, version), emit); err != nil {
			return err
		}
	}
	return nil
}

// ChooseStep is step number s of a run, its tasks dealt by the sampler.
func ChooseStep(from *sampler.Sampler, s, groups, version int) Step {
	step := Step{Number: s, DrawAs: s, PolicyVersion: version}
	for g := range groups {
		step.Groups = append(step.Groups, from.Choose(s, g, groups))
	}
	return step
}
