// The protocol between the trainer, the stream and the policy directory: steps
// only on complete steps, a commit per step, and a start that continues whatever
// was committed.
package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/kernel"
	"github.com/odyssey-rl/odyssey/internal/policy"
)

// Check says which option has a value that cannot be.
func (o *Options) Check() error {
	switch {
	case o.Objective != ObjectivePolicy && o.Objective != ObjectiveSFT:
		return fmt.Errorf("unknown objective %q (%s or %s)", o.Objective, ObjectivePolicy, ObjectiveSFT)
	case o.GroupsPerStep < 1 || o.GroupSize < 1:
		return fmt.Errorf("the stream's header does not say how large a step is (groups_per_step %d, group_size %d)", o.GroupsPerStep, o.GroupSize)
	case o.Staleness < 0:
		return fmt.Errorf("staleness %d", o.Staleness)
	case (o.DecayShare > 0 || o.Drill > 0) && o.Steps < 1:
		return errors.New("the stream's header does not say how many steps are planned, which the schedule needs")
	}
	return nil
}

// settings are what a run on one policy directory must keep: a step is a
// function of them, the stream and the version before.
func (o *Options) settings(stream []policy.Setting) []policy.Setting {
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	settings := append([]policy.Setting{
		{Name: "objective", Value: o.Objective},
		{Name: "learning-rate", Value: number(o.LearningRate)},
		{Name: "warmup", Value: strconv.Itoa(o.Warmup)},
		{Name: "decay-share", Value: number(o.DecayShare)},
		{Name: "max-grad-norm", Value: number(o.MaxGradNorm)},
		{Name: "beta1", Value: number(o.Beta1)},
		{Name: "beta2", Value: number(o.Beta2)},
		{Name: "weight-decay", Value: number(o.WeightDecay)},
		{Name: "muon-rate", Value: number(o.Muon)},
		{Name: "groups_per_step", Value: strconv.Itoa(o.GroupsPerStep)},
		{Name: "group_size", Value: strconv.Itoa(o.GroupSize)},
		{Name: "staleness", Value: strconv.Itoa(o.Staleness)},
	}, stream...)
	if o.Staleness > 0 && o.Objective == ObjectivePolicy {
		settings = append(settings,
			policy.Setting{Name: "clip-low", Value: number(o.Ratio.Low)},
			policy.Setting{Name: "clip-high", Value: number(o.Ratio.High)},
			policy.Setting{Name: "dual-clip", Value: number(o.Ratio.Dual)})
	}
	if o.Objective == ObjectiveSFT {
		settings = append(settings,
			policy.Setting{Name: "context-weight", Value: number(o.ContextWeight)},
			policy.Setting{Name: "drill", Value: number(o.Drill)},
			policy.Setting{Name: "seed", Value: strconv.FormatUint(o.Seed, 10)})
	}
	if o.DecayShare > 0 || o.Drill > 0 {
		settings = append(settings, policy.Setting{Name: "steps", Value: strconv.Itoa(o.Steps)})
	}
	return settings
}

// Run trains p on the rows that next gives until io.EOF, which next must return
// only after a whole stream. stream are further settings that the directory must
// keep, such as the estimator of the credits.
//
// It first emits the metric rows of the steps that p holds, and passes over rows
// of those steps. It steps on complete steps only; whatever ends the stream
// early, the steps that were complete are committed and the error returned.
func Run(ctx context.Context, p *policy.Policy, backend kernel.Backend, o Options, stream []policy.Setting, next func() (*episode.Trajectory, error)) (err error) {
	if err := o.Check(); err != nil {
		return err
	}
	release, err := p.LockTrainer()
	if err != nil {
		return err
	}
	defer release()
	if err := p.Agree("train", o.settings(stream)); err != nil {
		return err
	}
	r := &runner{options: &o, policy: p}
	if err := r.open(backend); err != nil {
		return err
	}
	if err := r.replay(); err != nil {
		return err
	}
	err = r.follow(ctx, next)
	if commit := r.commit(); commit != nil {
		return commit
	}
	return err
}

// runner is one run of the trainer on a policy directory.
type runner struct {
	options  *Options
	policy   *policy.Policy
	learner  *learner
	snapshot *policy.Snapshot // of the latest version; its weights are the learner's

	step    int              // the next step, which is the version trained so far
	taken   int              // steps taken by this run
	pending []episode.Metric // rows of steps after the latest commit
}

// open loads the latest version and the state of its optimizer.
func (r *runner) open(backend kernel.Backend) error {
	version, err := r.policy.Latest()
	if err != nil {
		return err
	}
	if r.snapshot, err = r.policy.Load(version); err != nil {
		return err
	}
	r.step = version
	if r.learner, err = newLearner(r.options, r.snapshot.Config, r.snapshot.Weights, backend); err != nil {
		return err
	}
	r.snapshot.Weights = r.learner.model.Weights()
	state, err := r.policy.ReadFile(version, policy.OptimizerFile)
	if errors.Is(err, fs.ErrNotExist) && version == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	tensors, _, err := policy.ReadSafetensors(bytes.NewReader(state), int64(len(state)))
	if err != nil {
		return fmt.Errorf("version %d: %s: %w", version, policy.OptimizerFile, err)
	}
	if err := r.learner.optimizer.SetState(tensors); err != nil {
		return fmt.Errorf("version %d: %s: %w", version, policy.OptimizerFile, err)
	}
	return nil
}

// replay emits the metric rows of steps 1 to n from the policy directory, so
// that the output is whole after any crash.
func (r *runner) replay() error {
	rows, err := Metrics(r.policy, r.step)
	if err != nil {
		return err
	}
	for _, m := range rows {
		if err := r.options.Emit(m); err != nil {
			return err
		}
	}
	return nil
}

// Metrics reads the metric rows of steps 1 to n from p. Where steps were
// committed several at a time, one version holds the rows of all of them.
func Metrics(p *policy.Policy, n int) ([]episode.Metric, error) {
	var rows []episode.Metric
	for version := 1; version <= n; version++ {
		text, err := p.ReadFile(version, policy.MetricsFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		for {
			var m episode.Metric
			if err := decoder.Decode(&m); err == io.EOF {
				break
			} else if err != nil {
				return nil, fmt.Errorf("version %d: %s: %w", version, policy.MetricsFile, err)
			}
			rows = append(rows, m)
		}
	}
	for i, m := range rows {
		if m.Step != i+1 {
			return nil, fmt.Errorf("the metric rows of the policy directory go from step %d to step %d", i, m.Step)
		}
	}
	if len(rows) != n {
		return nil, fmt.Errorf("the policy directory holds %d metric rows for %d steps", len(rows), n)
	}
	return rows, nil
}

// follow takes a step whenever one is complete, until the stream ends.
func (r *runner) follow(ctx context.Context, next func() (*episode.Trajectory, error)) error {
	o := r.options
	var rows []*episode.Trajectory
	began := r.now()
	for ctx.Err() == nil {
		tr, err := next()
		if err == io.EOF && len(rows) == 0 {
			return nil
		}
		if err != nil {
			if len(rows) > 0 {
				if err == io.EOF {
					err = errors.New("the stream ends")
				}
				return fmt.Errorf("step %d: %d of %d rows discarded: %w", r.step, len(rows), o.rowsPerStep(), err)
			}
			return err
		}
		if tr.Step < r.step && len(rows) == 0 && !r.trained() {
			continue // a step that the policy directory already holds
		}
		if err := r.admit(tr, rows); err != nil {
			return err
		}
		rows = append(rows, tr)
		if len(rows) < o.rowsPerStep() {
			continue
		}
		metric, err := r.learner.step(r.step, rows)
		if err != nil {
			return err
		}
		if o.Seconds != nil {
			now := r.now()
			seconds := now - began
			rate := 0.0
			if seconds > 0 {
				rate = float64(metric.Tokens) / seconds
			}
			metric.Seconds, metric.TokensPerS, began = &seconds, &rate, now
		}
		rows = nil
		r.step++
		r.taken++
		r.pending = append(r.pending, metric)
		if r.step%max(1, o.CommitEvery) == 0 || r.step == o.Steps {
			if err := r.commit(); err != nil {
				return err
			}
		}
		if err := o.Emit(metric); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// trained tells whether this run has taken a step.
func (r *runner) trained() bool { return r.taken > 0 }

// admit refuses a row that is not the next one of the step in work.
func (r *runner) admit(tr *episode.Trajectory, rows []*episode.Trajectory) error {
	o := r.options
	if tr.Step != r.step {
		return fmt.Errorf("trajectory %s: a row of step %d where step %d is due", tr.TrajectoryID, tr.Step, r.step)
	}
	if tr.GroupSize != o.GroupSize {
		return fmt.Errorf("trajectory %s: group_size %d, but the header says %d", tr.TrajectoryID, tr.GroupSize, o.GroupSize)
	}
	if i := len(rows) % o.GroupSize; i > 0 && rows[len(rows)-1].GroupID != tr.GroupID {
		return fmt.Errorf("group %s: %d of its %d rows are missing", rows[len(rows)-1].GroupID, o.GroupSize-i, o.GroupSize)
	}
	if o.Objective == ObjectivePolicy {
		if want := max(0, tr.Step-o.Staleness); tr.PolicyVersion != want {
			return fmt.Errorf("trajectory %s: step %d was sampled by policy version %d; version %d was due", tr.TrajectoryID, tr.Step, tr.PolicyVersion, want)
		}
	}
	return nil
}

// commit makes the trained steps the next version, and removes the weights that
// no step needs any more.
func (r *runner) commit() error {
	if len(r.pending) == 0 {
		return nil
	}
	files := r.snapshot.Files(policy.Float32)
	files[policy.OptimizerFile] = func(w io.Writer) error {
		return policy.WriteSafetensors(w, r.learner.optimizer.State(), policy.Float32, nil)
	}
	pending := r.pending
	files[policy.MetricsFile] = func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		for _, m := range pending {
			if err := encoder.Encode(m); err != nil {
				return err
			}
		}
		return nil
	}
	if err := r.policy.Commit(r.step, files); err != nil {
		return err
	}
	r.snapshot.Version = r.step
	r.pending = nil
	return r.policy.Prune(r.step - r.options.Staleness)
}

func (r *runner) now() float64 {
	if r.options.Seconds == nil {
		return 0
	}
	return r.options.Seconds()
}
