package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/kernel/ref"
	"github.com/odyssey-rl/odyssey/internal/model"
	"github.com/odyssey-rl/odyssey/internal/policy"
	"github.com/odyssey-rl/odyssey/internal/token"
)

func tinyPolicy(t *testing.T) *policy.Policy {
	t.Helper()
	file, err := token.Train(slices.Values([]string{"abc"}), token.TrainOptions{VocabSize: 256 + len(token.ControlTokens()), ControlTokens: token.ControlTokens()})
	if err != nil {
		t.Fatal(err)
	}
	vocab := 256 + len(token.ControlTokens())
	config := model.Config{HiddenSize: 16, IntermediateSize: 24, NumHiddenLayers: 1, NumAttentionHeads: 2, NumKeyValueHeads: 1, HeadDim: 8,
		VocabSize: vocab, DefinedVocab: vocab, MaxPositionEmbeddings: 128, RMSNormEps: 1e-6, RopeTheta: 10000, TieWordEmbeddings: true}
	snapshot := &policy.Snapshot{Config: config, Weights: model.RandomWeights(config, 3), Tokenizer: file, Template: string(token.TemplatePico)}
	p, err := policy.Create(filepath.Join(t.TempDir(), "policy"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Commit(0, snapshot.Files(policy.Float32)); err != nil {
		t.Fatal(err)
	}
	return p
}

// rollout stands for the other end of the pipe: it samples the rows of step s
// from exactly the version that the protocol names, when they are asked for.
type rollout struct {
	policy    *policy.Policy
	options   Options
	step, end int
	failAfter int   // rows until fail; 0: never
	fail      error // what then ends the stream
	silent    bool  // give no row an advantage

	rows []*episode.Trajectory
	sent int
}

func (r *rollout) next() (*episode.Trajectory, error) {
	if r.failAfter > 0 && r.sent == r.failAfter {
		return nil, r.fail
	}
	if len(r.rows) == 0 {
		if r.step == r.end {
			return nil, io.EOF
		}
		if err := r.sample(); err != nil {
			return nil, err
		}
		r.step++
	}
	row := r.rows[0]
	r.rows = r.rows[1:]
	r.sent++
	return row, nil
}

func (r *rollout) sample() error {
	version := max(0, r.step-r.options.Staleness)
	if r.options.Objective == ObjectiveSFT { // as solutions, rows do not depend on the policy
		version, _ = r.policy.Latest()
	}
	snapshot, err := r.policy.Load(version)
	if err != nil {
		return err
	}
	m, err := model.New(snapshot.Config, snapshot.Weights, ref.New())
	if err != nil {
		return err
	}
	for g := range r.options.GroupsPerStep {
		for i := range r.options.GroupSize {
			tr := &episode.Trajectory{TrajectoryID: fmt.Sprintf("s%dg%di%d", r.step, g, i), Step: r.step, GroupID: fmt.Sprintf("s%dg%d", r.step, g),
				GroupSize: r.options.GroupSize, Sample: i, PolicyVersion: version, Temperature: 1, FinishReason: episode.FinishSubmitted, Split: episode.SplitTrain}
			sequence := m.NewSequence()
			extend := func(ids []int32, sampled uint8, logprob float32) []float32 {
				logits := make([]float32, m.Vocab())
				if err = m.Extend([]model.Append{{Sequence: sequence, IDs: ids}}, logits); err != nil {
					return nil
				}
				for _, id := range ids {
					tr.TokenIDs = append(tr.TokenIDs, id)
					tr.LossMask = append(tr.LossMask, sampled)
					tr.RolloutLogprobs = append(tr.RolloutLogprobs, logprob*float32(sampled))
				}
				return logits
			}
			for turn := range 2 {
				logits := extend([]int32{int32(10 + g), 20, int32(30 + turn)}, 0, 0)
				start := len(tr.TokenIDs)
				for range 5 {
					if err != nil {
						return err
					}
					ids, logprobs := m.Sample(logits, 1, []model.SampleKey{{Seed: 9, Trajectory: uint64(r.step*100 + g*10 + i), Token: len(tr.TokenIDs)}}, 1)
					if r.options.Objective == ObjectiveSFT {
						ids = []int32{int32(40 + len(tr.TokenIDs))}
					}
					logits = extend(ids, 1, logprobs[0])
				}
				tr.Turns = append(tr.Turns, episode.Turn{Role: episode.RoleAssistant, TokenStart: start, TokenEnd: len(tr.TokenIDs)})
			}
			sequence.Release()
			tr.Reward = float64(tr.TokenIDs[3] % 2)
			advantage := 2*tr.Reward - 1
			if r.silent {
				advantage = 0
			}
			tr.Credit = &episode.Credit{CreditMask: tr.LossMask, Advantage: &advantage, Return: tr.Reward, ResponsibleTurn: -1,
				Weight: 1 / float64(r.options.GroupsPerStep*r.options.GroupSize*10)}
			r.rows = append(r.rows, tr)
		}
	}
	return nil
}

func policyOptions() Options {
	return Options{Objective: ObjectivePolicy, LearningRate: 3e-3, MaxGradNorm: 1, Beta1: 0.9, Beta2: 0.95,
		Ratio: Ratio{Low: 0.2, High: 0.2, Dual: 3}, GroupsPerStep: 2, GroupSize: 3}
}

// run runs the trainer against a rollout and returns the metric rows.
func run(t *testing.T, p *policy.Policy, o Options, source *rollout) ([]episode.Metric, error) {
	t.Helper()
	var rows []episode.Metric
	o.Emit = func(m episode.Metric) error { rows = append(rows, m); return nil }
	source.policy, source.options = p, o
	err := Run(context.Background(), p, ref.New(), o, []policy.Setting{{Name: "tokenizer", Value: "abc"}}, source.next)
	return rows, err
}

func latest(t *testing.T, p *policy.Policy) int {
	t.Helper()
	version, err := p.Latest()
	if err != nil {
		t.Fatal(err)
	}
	return version
}

func sameVersion(t *testing.T, a, b *policy.Policy, version int) {
	t.Helper()
	for _, name := range []string{policy.WeightsFile, policy.OptimizerFile, policy.MetricsFile, "config.json", "tokenizer.json"} {
		x, err := a.ReadFile(version, name)
		if err != nil {
			t.Fatal(err)
		}
		y, err := b.ReadFile(version, name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(x, y) {
			t.Errorf("%s of version %d differs", name, version)
		}
	}
}

func TestEachStepIsAVersionAndParityIsExact(t *testing.T) {
	p := tinyPolicy(t)
	rows, err := run(t, p, policyOptions(), &rollout{end: 4})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 4 || latest(t, p) != 4 {
		t.Fatalf("%d metric rows, version %d; want 4 and 4", len(rows), latest(t, p))
	}
	for i, m := range rows {
		if m.Step != i+1 || m.Trajectories != 6 || m.ResponseTokens != 10 || m.Turns != 2 {
			t.Errorf("row %d: %+v", i, m)
		}
		if *m.LogprobAbsDiffMax != 0 || *m.LogprobAbsDiffMean != 0 {
			t.Errorf("step %d: log-probabilities differ by up to %v", m.Step, *m.LogprobAbsDiffMax)
		}
		if *m.GradNorm <= 0 || *m.Entropy <= 0 || m.Seconds != nil {
			t.Errorf("step %d: gradient norm %v, entropy %v, seconds %v", m.Step, *m.GradNorm, *m.Entropy, m.Seconds)
		}
	}
}

func TestPolicyLearns(t *testing.T) {
	p := tinyPolicy(t)
	o := policyOptions()
	o.GroupsPerStep, o.GroupSize, o.LearningRate = 1, 16, 2e-2
	rows, err := run(t, p, o, &rollout{end: 24})
	if err != nil {
		t.Fatal(err)
	}
	mean := func(rows []episode.Metric) (sum float64) {
		for _, m := range rows {
			sum += m.Reward / float64(len(rows))
		}
		return sum
	}
	if before, after := mean(rows[:4]), mean(rows[20:]); after < before+0.15 {
		t.Errorf("reward %.2f in steps 1-4, %.2f in steps 21-24", before, after)
	}
}

func TestACutRunContinuesWithTheBytesOfAWholeOne(t *testing.T) {
	whole, cut := tinyPolicy(t), tinyPolicy(t)
	want, err := run(t, whole, policyOptions(), &rollout{end: 5})
	if err != nil {
		t.Fatal(err)
	}
	// Cut inside step 2, at the boundary after step 3, and inside step 3 again.
	for _, after := range []int{2*6 + 4, 6, 5} {
		rows, err := run(t, cut, policyOptions(), &rollout{step: latest(t, cut), end: 5, failAfter: after, fail: errCut})
		if !errors.Is(err, errCut) {
			t.Fatalf("a cut stream gave %v", err)
		}
		if len(rows) != latest(t, cut) {
			t.Fatalf("%d metric rows at version %d", len(rows), latest(t, cut))
		}
	}
	if latest(t, cut) != 3 {
		t.Fatalf("version %d after the cuts, want 3", latest(t, cut))
	}
	got, err := run(t, cut, policyOptions(), &rollout{step: 3, end: 5})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d metric rows, want %d", len(got), len(want))
	}
	for i := range got {
		if text(t, got[i]) != text(t, want[i]) {
			t.Errorf("metric row %d differs:\n%s\n%s", i, text(t, got[i]), text(t, want[i]))
		}
	}
	sameVersion(t, whole, cut, 5)
}

// text is metric rows as the directory keeps them.
func text(t *testing.T, rows any) string {
	t.Helper()
	row, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	return string(row)
}

var errCut = errors.New("cut")

func TestStepsThatTheDirectoryHoldsArePassedOver(t *testing.T) {
	// A stream that was kept in a file is trained again: nothing happens twice.
	p := tinyPolicy(t)
	o := policyOptions()
	var kept []*episode.Trajectory
	source := &rollout{policy: p, options: o, end: 3}
	keep := func() (*episode.Trajectory, error) {
		tr, err := source.next()
		if err == nil {
			kept = append(kept, tr)
		}
		return tr, err
	}
	o.Emit = func(episode.Metric) error { return nil }
	if err := Run(context.Background(), p, ref.New(), o, nil, keep); err != nil {
		t.Fatal(err)
	}
	before, err := p.ReadFile(3, policy.WeightsFile)
	if err != nil {
		t.Fatal(err)
	}
	again := slices.Clone(kept)
	next := func() (*episode.Trajectory, error) {
		if len(again) == 0 {
			return nil, io.EOF
		}
		tr := again[0]
		again = again[1:]
		return tr, nil
	}
	steps := 0
	o.Emit = func(episode.Metric) error { steps++; return nil }
	if err := Run(context.Background(), p, ref.New(), o, nil, next); err != nil {
		t.Fatal(err)
	}
	after, err := p.ReadFile(3, policy.WeightsFile)
	if err != nil {
		t.Fatal(err)
	}
	if latest(t, p) != 3 || steps != 3 || !bytes.Equal(before, after) {
		t.Errorf("version %d, %d metric rows", latest(t, p), steps)
	}
	// Out of order they are not the past but a broken stream.
	again = append(slices.Clone(kept[:6]), kept[12:]...)
	q := tinyPolicy(t)
	if err := Run(context.Background(), q, ref.New(), o, nil, next); err == nil || !strings.Contains(err.Error(), "a row of step 2 where step 1 is due") {
		t.Errorf("a missing step gave %v", err)
	}
}

func TestAnUnfinishedStepIsDiscarded(t *testing.T) {
	for name, end := range map[string]error{"a whole stream": io.EOF, "a cut one": errCut} {
		p := tinyPolicy(t)
		rows, err := run(t, p, policyOptions(), &rollout{end: 3, failAfter: 6 + 2, fail: end})
		if err == nil || !strings.Contains(err.Error(), "step 1: 2 of 6 rows discarded") {
			t.Errorf("%s: error %v", name, err)
		}
		if len(rows) != 1 || latest(t, p) != 1 {
			t.Errorf("%s: %d metric rows, version %d", name, len(rows), latest(t, p))
		}
	}
}

func TestOtherSettingsOnTheSameDirectoryAreRefused(t *testing.T) {
	p := tinyPolicy(t)
	if _, err := run(t, p, policyOptions(), &rollout{end: 1}); err != nil {
		t.Fatal(err)
	}
	o := policyOptions()
	o.LearningRate = 1e-3
	_, err := run(t, p, o, &rollout{step: 1, end: 2})
	var difference *policy.Difference
	if !errors.As(err, &difference) || difference.Name != "learning-rate" {
		t.Errorf("another learning rate gave %v", err)
	}
	if latest(t, p) != 1 {
		t.Error("the refused run trained")
	}
}

func TestALogprobThatIsNoneIsRefused(t *testing.T) {
	p := tinyPolicy(t)
	o := policyOptions()
	source := &rollout{policy: p, options: o, end: 1}
	o.Emit = func(episode.Metric) error { return nil }
	next := func() (*episode.Trajectory, error) {
		tr, err := source.next()
		if err == nil && tr.Sample == 1 {
			tr.RolloutLogprobs[4] = float32(math.NaN())
		}
		return tr, err
	}
	if err := Run(context.Background(), p, ref.New(), o, nil, next); err == nil || !strings.Contains(err.Error(), "log-probability NaN at token 4") {
		t.Errorf("NaN gave %v", err)
	}
}

func TestOneTrainerAtATime(t *testing.T) {
	p := tinyPolicy(t)
	release, err := p.LockTrainer()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, p, policyOptions(), &rollout{end: 1}); err == nil {
		t.Error("two trainers on one directory")
	}
	release()
	if _, err := run(t, p, policyOptions(), &rollout{end: 1}); err != nil {
		t.Error(err)
	}
}

func TestStaleStepsUseTheVersionOfTheProtocol(t *testing.T) {
	p := tinyPolicy(t)
	o := policyOptions()
	o.Staleness, o.LearningRate = 2, 1e-2
	rows, err := run(t, p, o, &rollout{end: 4})
	if err != nil {
		t.Fatal(err)
	}
	if *rows[0].LogprobAbsDiffMax != 0 || *rows[3].LogprobAbsDiffMax == 0 {
		t.Errorf("differences %v and %v: step 0 is on policy, step 3 is not", *rows[0].LogprobAbsDiffMax, *rows[3].LogprobAbsDiffMax)
	}
	// A row of another version is no silent approximation but an error.
	q := tinyPolicy(t)
	wrong := &rollout{end: 2}
	o = policyOptions()
	next := func() (*episode.Trajectory, error) {
		tr, err := wrong.next()
		if err == nil && tr.Step == 1 {
			tr.PolicyVersion = 0
		}
		return tr, err
	}
	wrong.policy, wrong.options = q, o
	o.Emit = func(episode.Metric) error { return nil }
	if err := Run(context.Background(), q, ref.New(), o, nil, next); err == nil || !strings.Contains(err.Error(), "version 1 was due") {
		t.Errorf("a row of version 0 in step 1 gave %v", err)
	}
}

func TestAStepWithoutSignalLeavesTheWeights(t *testing.T) {
	p := tinyPolicy(t)
	rows, err := run(t, p, policyOptions(), &rollout{end: 1, silent: true})
	if err != nil {
		t.Fatal(err)
	}
	if *rows[0].GradNorm != 0 || *rows[0].Loss != 0 || *rows[0].Entropy == 0 {
		t.Errorf("%+v", rows[0])
	}
	snapshot, err := p.Load(1)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range model.RandomWeights(snapshot.Config, 3) {
		if !slices.Equal(w.Data, snapshot.Weights[i].Data) {
			t.Fatalf("%s changed", w.Name)
		}
	}
}

func TestSFTCommitsEveryFewStepsAndContinues(t *testing.T) {
	options := func() Options {
		o := policyOptions()
		o.Objective, o.Steps, o.CommitEvery = ObjectiveSFT, 8, 3
		o.LearningRate, o.Muon, o.Warmup, o.DecayShare = 1e-2, 2e-2, 2, 0.4
		o.ContextWeight, o.Drill, o.Seed = 0.2, 0.5, 11
		return o
	}
	whole, cut := tinyPolicy(t), tinyPolicy(t)
	want, err := run(t, whole, options(), &rollout{end: 8})
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != 8 || latest(t, whole) != 8 {
		t.Fatalf("%d rows, version %d", len(want), latest(t, whole))
	}
	if *want[7].Loss >= *want[3].Loss {
		t.Errorf("loss %v at step 4, %v at step 8", *want[3].Loss, *want[7].Loss)
	}
	if want[0].LogprobAbsDiffMax != nil || want[0].Entropy != nil {
		t.Error("solutions have no rollout log-probabilities to differ from")
	}
	if _, err := run(t, cut, options(), &rollout{end: 8, failAfter: 4*6 + 1, fail: errCut}); err == nil {
		t.Fatal("a cut stream is no error")
	}
	if latest(t, cut) != 4 { // whole steps are kept even between the planned commits
		t.Fatalf("version %d after a cut in step 4", latest(t, cut))
	}
	got, err := run(t, cut, options(), &rollout{step: 4, end: 8})
	if err != nil {
		t.Fatal(err)
	}
	if text(t, got) != text(t, want) {
		t.Errorf("metric rows differ:\n%v\n%v", got, want)
	}
	for _, name := range []string{policy.WeightsFile, policy.OptimizerFile} {
		a, err := whole.ReadFile(8, name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := cut.ReadFile(8, name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs after a cut", name)
		}
	}
}

func TestRescorerFindsEqualBitsAndAChangedWeight(t *testing.T) {
	p := tinyPolicy(t)
	source := &rollout{policy: p, options: policyOptions(), end: 1}
	r := NewRescorer(p, ref.New())
	for range 6 {
		tr, err := source.next()
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Add(context.Background(), tr, true); err != nil {
			t.Fatal(err)
		}
	}
	if r.Score.Tokens != 60 || r.Score.Exact != 60 || r.Training.Exact != 60 {
		t.Errorf("%d tokens, %d equal when scored, %d when trained", r.Score.Tokens, r.Score.Exact, r.Training.Exact)
	}
	source = &rollout{policy: p, options: policyOptions(), end: 1}
	tr, err := source.next()
	if err != nil {
		t.Fatal(err)
	}
	tr.RolloutLogprobs[4] += 1e-6
	if err := r.Add(context.Background(), tr, true); err != nil {
		t.Fatal(err)
	}
	if r.Score.Tokens-r.Score.Exact != 1 || r.Training.Max == 0 {
		t.Error("a log-probability that is off by one bit was not seen")
	}
}
