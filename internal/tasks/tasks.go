// Package tasks is the third stage of environment synthesis: questions over an
// environment's tools, each with a solution that was run and an independent
// verifier that accepted it.
package tasks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/designer"
	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/sandbox"
	"github.com/odyssey-rl/odyssey/internal/toolcheck"
)

// Stage is this stage's name in Environment.Audit.
const Stage = "tasks"

// GateDesign is the gate whose verdict tells in which round a task's solution
// and verifier first agreed.
const GateDesign = "design"

// Options say what tasks are made.
type Options struct {
	Per    int    // tasks per environment, at most
	Levels []int  // of the tasks
	Seed   uint64 // of all draws
	Rounds int    // designs tried per task before it is given up
}

// draws is the number of draws of one operation before another is tried.
const draws = 25

// Make gives an environment its tasks; those that it has are replaced. It
// returns the number of designs that were made and did not hold. An
// environment can end with fewer tasks than asked for, where its tables give no
// more.
func Make(ctx context.Context, pool *sandbox.Pool, e *episode.Environment, o Options) (failed int, err error) {
	database, err := designer.Read(e)
	if err != nil {
		return 0, err
	}
	if len(e.Tools) == 0 {
		return 0, fmt.Errorf("environment %s has no tools; odyssey-tools makes them", e.EnvironmentID)
	}
	session, err := pool.Open(ctx, toolcheck.Program(e))
	if err != nil {
		return 0, fmt.Errorf("environment %s: %w", e.EnvironmentID, err)
	}
	m := &maker{ctx: ctx, session: session, environment: e, database: database, o: o, queries: map[string]bool{}, answers: map[string]int{}}
	e.Tasks = []episode.Task{}
	order := database.Operations(designer.NewRandom("operations", o.Seed, e.EnvironmentID), o.Levels)
	rounds := 0
	for slot := range o.Per {
		for round := range o.Rounds {
			p, ok := m.propose(order, slot, round)
			if !ok {
				break
			}
			rounds++
			task, held, err := m.try(p, round)
			if err != nil {
				return failed, fmt.Errorf("environment %s: %w", e.EnvironmentID, err)
			}
			if !held {
				failed++
				continue
			}
			m.queries[p.Query] = true
			m.answers[folded(p.Answer)]++
			e.Tasks = append(e.Tasks, task)
			break
		}
	}
	e.Audit = slices.DeleteFunc(e.Audit, func(a episode.Audit) bool { return a.Stage == Stage && a.Model == designer.Builtin }) // of an earlier run
	e.Audit = append(e.Audit, episode.Audit{Stage: Stage, Model: designer.Builtin, Rounds: rounds})
	return failed, nil
}

type maker struct {
	ctx         context.Context
	session     *sandbox.Session
	environment *episode.Environment
	database    *designer.Database
	o           Options
	queries     map[string]bool
	answers     map[string]int // folded answer -> tasks that have it
}

// propose draws a task for a slot: of the slot's operation if the tables give
// one that is new, else of the next that they do.
func (m *maker) propose(order []designer.Operation, slot, round int) (designer.Proposal, bool) {
	for shift := range order {
		op := order[(slot+shift)%len(order)]
		r := designer.NewRandom("task", m.o.Seed, m.environment.EnvironmentID, slot, round, shift)
		for range draws {
			p, ok := m.database.Propose(r, op)
			if ok && !m.queries[p.Query] && m.answers[folded(p.Answer)] < SameAnswer(m.o.Per) {
				return p, true
			}
		}
	}
	return designer.Proposal{}, false
}

// SameAnswer is the number of tasks, of n in an environment, that may have one
// answer: more would reward one who always gives it.
func SameAnswer(n int) int { return max(1, n/20) }

// try runs a design: its solution must reach the expected answer, and its
// verifier accept it.
func (m *maker) try(p designer.Proposal, round int) (task episode.Task, held bool, err error) {
	solved := m.session.Run(m.ctx, sandbox.WithTools, p.Solution, "solve", "{}")
	if solved.Status == sandbox.Infrastructure {
		return task, false, fmt.Errorf("sandbox: %s", solved.Error)
	}
	var submission struct{ Answer string }
	if solved.Status != sandbox.OK || json.Unmarshal([]byte(solved.Value), &submission) != nil {
		return task, false, nil
	}
	judged := m.session.Run(m.ctx, sandbox.DataOnly, p.Verifier, "verify", solved.Value)
	if judged.Status == sandbox.Infrastructure {
		return task, false, fmt.Errorf("sandbox: %s", judged.Error)
	}
	expected, err := json.Marshal(map[string]string{"answer": p.Answer})
	if err != nil {
		return task, false, err
	}
	meant := m.session.Run(m.ctx, sandbox.DataOnly, p.Verifier, "verify", string(expected))
	if judged.Value != "true" || meant.Value != "true" {
		return task, false, nil
	}
	task = episode.Task{
		TaskID:       id(m.environment.EnvironmentID, p),
		Query:        p.Query,
		Level:        p.Level,
		Operation:    string(p.Operation),
		SubmitSchema: designer.SubmitSchema,
		Solution:     episode.Solution{Language: "starlark", Source: p.Solution, Answer: solved.Value, Calls: []episode.SolutionCall{}},
		Verifier:     episode.Verifier{Language: "starlark", Source: p.Verifier},
		Verdicts:     []episode.Verdict{{Gate: GateDesign, Outcome: episode.OutcomePass, Round: round}},
	}
	for _, call := range solved.Calls {
		task.Solution.Calls = append(task.Solution.Calls, episode.SolutionCall{Name: call.Name, Arguments: call.Arguments})
	}
	return task, true, nil
}

// id is a digest of what makes a task: its environment, its question and how
// it is judged.
func id(environment string, p designer.Proposal) string {
	h := sha256.New()
	for _, part := range []string{environment, p.Query, p.Verifier} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func folded(answer string) string { return strings.Join(strings.Fields(strings.ToLower(answer)), " ") }
