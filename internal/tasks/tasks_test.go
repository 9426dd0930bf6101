package tasks_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/sandbox"
	"github.com/odyssey-rl/odyssey/internal/tasks"
	"github.com/odyssey-rl/odyssey/internal/tools"
)

func TestMain(m *testing.M) {
	sandbox.MaybeWorker()
	os.Exit(m.Run())
}

// cheeses is an environment of one small table with its tools.
func cheeses(t *testing.T, pool *sandbox.Pool) *episode.Environment {
	t.Helper()
	e := &episode.Environment{
		EnvironmentID: "cheeses",
		Schema: `{"tables": [{"path": "cheese.json", "noun": "cheese", "key": "name", "rows": 9, "columns": [
			{"name": "name", "type": "key", "distinct": 9}, {"name": "milk", "type": "category", "distinct": 4},
			{"name": "town", "type": "text", "distinct": 9}, {"name": "months", "type": "integer", "distinct": 9}]}]}`,
		Files: []episode.File{{Path: "cheese.json", MediaType: "application/json", Content: `[
			{"name": "Brie", "milk": "cow", "town": "Meaux", "months": 2}, {"name": "Feta", "milk": "sheep", "town": "Larissa", "months": 3},
			{"name": "Comté", "milk": "cow", "town": "Poligny", "months": 12}, {"name": "Gruyère", "milk": "cow", "town": "Bulle", "months": 10},
			{"name": "Manchego", "milk": "sheep", "town": "Toledo", "months": 6}, {"name": "Roquefort", "milk": "sheep", "town": "Millau", "months": 5},
			{"name": "Chabichou", "milk": "goat", "town": "Poitiers", "months": 4}, {"name": "Valençay", "milk": "goat", "town": "Tours", "months": 1},
			{"name": "Mozzarella", "milk": "buffalo", "town": "Caserta", "months": 0}]`}},
	}
	if err := tools.Make(context.Background(), pool, e); err != nil {
		t.Fatal(err)
	}
	return e
}

func made(t *testing.T, pool *sandbox.Pool, o tasks.Options) *episode.Environment {
	t.Helper()
	e := cheeses(t, pool)
	failed, err := tasks.Make(context.Background(), pool, e, o)
	if err != nil || failed > 0 {
		t.Fatalf("%d designs did not hold, %v", failed, err)
	}
	return e
}

func newPool(t *testing.T) *sandbox.Pool {
	pool := sandbox.NewPool(sandbox.Options{Workers: 1})
	t.Cleanup(pool.Close)
	return pool
}

func TestTasksAreThoseOfTheSeed(t *testing.T) {
	pool := newPool(t)
	text := func(seed uint64) string {
		b, err := json.Marshal(made(t, pool, tasks.Options{Per: 8, Levels: []int{1, 2, 3}, Seed: seed, Rounds: 3}).Tasks)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first, again := text(1), text(1)
	if first != again {
		t.Error("the same seed gives other tasks")
	}
	if first == text(2) {
		t.Error("another seed gives the same tasks")
	}
}

func TestTasksHaveTheLevelsAskedForAndDifferentQuestions(t *testing.T) {
	pool := newPool(t)
	for _, levels := range [][]int{{1}, {2}, {3}, {1, 3}} {
		e := made(t, pool, tasks.Options{Per: 6, Levels: levels, Seed: 1, Rounds: 3})
		if len(e.Tasks) < 5 {
			t.Errorf("levels %v: %d tasks", levels, len(e.Tasks))
		}
		queries, answers, ids := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, task := range e.Tasks {
			if !slices.Contains(levels, task.Level) {
				t.Errorf("levels %v: %q has level %d", levels, task.Query, task.Level)
			}
			if queries[task.Query] || answers[strings.ToLower(task.Solution.Answer)] || ids[task.TaskID] {
				t.Errorf("%q is asked, answered or named like another", task.Query)
			}
			queries[task.Query], answers[strings.ToLower(task.Solution.Answer)], ids[task.TaskID] = true, true, true
			if task.Level > 1 && len(task.Solution.Calls) < 2 {
				t.Errorf("%q of level %d has %d calls", task.Query, task.Level, len(task.Solution.Calls))
			}
		}
	}
}

func TestASmallTableGivesFewerTasks(t *testing.T) {
	pool := newPool(t)
	e := made(t, pool, tasks.Options{Per: 500, Levels: []int{1, 2, 3}, Seed: 1, Rounds: 2})
	if n := len(e.Tasks); n < 20 || n >= 500 {
		t.Errorf("%d tasks of nine rows", n)
	}
}

func TestSolutionAndVerifierRanBeforeTheTaskIsWritten(t *testing.T) {
	pool := newPool(t)
	e := made(t, pool, tasks.Options{Per: 8, Levels: []int{1, 2, 3}, Seed: 3, Rounds: 3})
	for _, task := range e.Tasks {
		if len(task.Verdicts) != 1 || task.Verdicts[0] != (episode.Verdict{Gate: tasks.GateDesign, Outcome: episode.OutcomePass}) {
			t.Errorf("verdicts %+v", task.Verdicts)
		}
	}
	// A tool that lies makes the designs fail, and they are given up.
	lying := cheeses(t, pool)
	for i := range lying.Tools {
		if lying.Tools[i].Name == "get_cheese" {
			lying.Tools[i].Source = strings.Replace(lying.Tools[i].Source, "return row", `return {k: "?" for k in row}`, 1)
		}
	}
	failed, err := tasks.Make(context.Background(), pool, lying, tasks.Options{Per: 4, Levels: []int{3}, Seed: 1, Rounds: 2})
	if err != nil || failed != 8 || len(lying.Tasks) != 0 {
		t.Errorf("%d designs failed, %d tasks, %v", failed, len(lying.Tasks), err)
	}
}

func TestAnEnvironmentWithoutToolsIsRefused(t *testing.T) {
	pool := newPool(t)
	e := cheeses(t, pool)
	e.Tools = nil
	if _, err := tasks.Make(context.Background(), pool, e, tasks.Options{Per: 1, Levels: []int{1}, Rounds: 1}); err == nil || !strings.Contains(err.Error(), "odyssey-tools") {
		t.Errorf("error %v", err)
	}
}
