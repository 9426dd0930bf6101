package verify_test

// The environment half end to end, in one process: tables in the binary and
// disguised variants of them become tools and tasks, and every task passes
// every gate.

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/sandbox"
	"github.com/odyssey-rl/odyssey/internal/seed"
	"github.com/odyssey-rl/odyssey/internal/tasks"
	"github.com/odyssey-rl/odyssey/internal/tools"
	"github.com/odyssey-rl/odyssey/internal/verify"
)

func TestMain(m *testing.M) {
	sandbox.MaybeWorker()
	os.Exit(m.Run())
}

// seeded makes the environments of the tables in the binary, with n disguised
// variants of each train table.
func seeded(t testing.TB, n int) []*episode.Environment {
	t.Helper()
	groups, err := seed.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	var out []*episode.Environment
	for e, err := range seed.Environments(groups, seed.Options{Seed: 1, Rows: 40, PerGroup: 1, Variants: n}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

func newPool(t testing.TB) *sandbox.Pool {
	pool := sandbox.NewPool(sandbox.Options{Workers: 2})
	t.Cleanup(pool.Close)
	return pool
}

func synthesise(t testing.TB, pool *sandbox.Pool, e *episode.Environment, o tasks.Options) {
	t.Helper()
	if err := tools.Make(context.Background(), pool, e); err != nil {
		t.Fatal(err)
	}
	if failed, err := tasks.Make(context.Background(), pool, e, o); err != nil || failed > 0 {
		t.Fatalf("%d designs did not hold, %v", failed, err)
	}
}

var options = tasks.Options{Per: 12, Levels: []int{1, 2, 3}, Seed: 1, Rounds: 3}

func TestTasksOfBuiltinTablesAndTheirDisguisesPassEveryGateAndAgreeWithTheSlowEvaluator(t *testing.T) {
	pool := newPool(t)
	proposed, rejected, operations := 0, 0, map[string]int{}
	for _, e := range append(seeded(t, 1), lakes(t)) {
		synthesise(t, pool, e, options)
		if _, err := verify.Check(context.Background(), pool, e); err != nil {
			t.Fatal(err)
		}
		if len(e.Tasks) < options.Per/2 {
			t.Errorf("%s has only %d tasks", e.Files[0].Path, len(e.Tasks))
		}
		ref := newReference(t, e)
		for _, task := range e.Tasks {
			proposed++
			operations[task.Operation]++
			answer, err := ref.answer(task.Query)
			if recorded := submitted(t, task.Solution.Answer); err != nil || recorded != answer {
				t.Errorf("%s: %s: recorded %q, read from the rows %q %v", task.Operation, task.Query, recorded, answer, err)
			}
			if task.Status != episode.StatusVerified {
				rejected++
				text, _ := json.Marshal(task.Verdicts[len(task.Verdicts)-1])
				t.Logf("%s: %s %s: %s", task.Operation, task.Query, task.Solution.Answer, text)
			}
		}
	}
	if rejected*200 > proposed {
		t.Errorf("%d of %d tasks rejected", rejected, proposed)
	}
	for _, op := range []string{"lookup", "count", "argmax", "search-get", "argmax-get", "compare", "join"} {
		if operations[op] == 0 {
			t.Errorf("no task of operation %s", op)
		}
	}
}

func submitted(t testing.TB, answer string) string {
	t.Helper()
	var v struct{ Answer string }
	if err := json.Unmarshal([]byte(answer), &v); err != nil {
		t.Fatal(err)
	}
	return v.Answer
}

func BenchmarkSynthesis(b *testing.B) {
	pool := newPool(b)
	environments := seeded(b, 2)
	for _, stage := range []struct {
		name string
		run  func(*episode.Environment) error
	}{
		{"tools", func(e *episode.Environment) error { return tools.Make(context.Background(), pool, e) }},
		{"tasks", func(e *episode.Environment) error {
			_, err := tasks.Make(context.Background(), pool, e, options)
			return err
		}},
		{"verify", func(e *episode.Environment) error {
			_, err := verify.Check(context.Background(), pool, e)
			return err
		}},
	} {
		b.Run(stage.name, func(b *testing.B) {
			n := 0
			for i := range b.N {
				e := environments[i%len(environments)]
				if stage.name == "tasks" && len(e.Tools) == 0 || stage.name == "verify" && len(e.Tasks) == 0 {
					synthesise(b, pool, e, options)
				}
				if err := stage.run(e); err != nil {
					b.Fatal(err)
				}
				n += len(e.Tasks)
			}
			if n > 0 {
				b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(n), "ms/task")
			}
		})
	}
}
