package rollout

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/model"
	"github.com/odyssey-rl/odyssey/internal/policy"
	"github.com/odyssey-rl/odyssey/internal/sampler"
)

// Each step waits for its version and samples from exactly its weights.
func TestFollowSamplesEachStepFromItsOwnVersion(t *testing.T) {
	p, err := policy.Create(filepath.Join(t.TempDir(), "P"))
	if err != nil {
		t.Fatal(err)
	}
	versions := map[int]*model.Model{}
	commit := func(version int) {
		m := tiny(t, uint64(version+10))
		versions[version] = m
		s := &policy.Snapshot{Config: m.Config(), Weights: m.Weights(), Template: "pico", Tokenizer: tokenizerFile}
		if err := p.Commit(version, s.Files(policy.Float32)); err != nil {
			t.Fatal(err)
		}
	}
	s := settings()
	s.GroupSize, s.TurnTokens, s.MaxContext = 2, 20, 300
	environments := []*episode.Environment{country("verified")}
	deal, err := sampler.New(environments, s.Seed, func(int, int) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	const staleness, until = 1, 4
	follow := Follow{Policy: p, Sampler: deal, Groups: 1, Until: until, Staleness: staleness}
	rows := make(chan *episode.Trajectory, 100)
	failed := make(chan error, 1)
	commit(0)
	go func() {
		failed <- follow.Run(context.Background(), &Local{Tasks: tasks(t, s, environments...), Model: tiny(t, 99), Batch: 8}, func(row *episode.Trajectory) error {
			rows <- row
			return nil
		})
	}()
	for step := range until {
		if version := max(0, step-staleness); version > 0 {
			select {
			case row := <-rows:
				t.Fatalf("step %d sampled from version %d before version %d was there", row.Step, row.PolicyVersion, version)
			case <-time.After(50 * time.Millisecond):
			}
			commit(version)
		}
		for sample := range 2 {
			row := <-rows
			if row.Step != step || row.Sample != sample || row.PolicyVersion != max(0, step-staleness) {
				t.Errorf("step %d sample %d of version %d, want step %d sample %d", row.Step, row.Sample, row.PolicyVersion, step, sample)
			}
			scored, err := versions[row.PolicyVersion].Score(row.TokenIDs, row.LossMask, 1)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(scored, row.RolloutLogprobs) {
				t.Errorf("step %d was not sampled from version %d", step, row.PolicyVersion)
			}
		}
	}
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	p, err := policy.Create(filepath.Join(t.TempDir(), "P"))
	if err != nil {
		t.Fatal(err)
	}
	m := tiny(t, 1)
	s := &policy.Snapshot{Config: m.Config(), Weights: m.Weights(), Template: "pico", Tokenizer: tokenizerFile}
	if err := p.Commit(0, s.Files(policy.Float32)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	err = Follow{Policy: p, From: 5, Until: 6}.Run(ctx, &Local{Tasks: tasks(t, settings(), country("verified")), Model: m, Batch: 8}, nil)
	if err == nil {
		t.Error("a wait for a version that never comes ended well")
	}
}
