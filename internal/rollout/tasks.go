package rollout

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/sandbox"
	"github.com/odyssey-rl/odyssey/internal/token"
	"github.com/odyssey-rl/odyssey/internal/toolcall"
)

// Tasks are environments made ready to run: tools compiled, prompts rendered,
// programs loaded into the sandbox when first needed.
type Tasks struct {
	settings     Settings
	renderer     *token.Renderer
	pool         *sandbox.Pool
	environments []*environment
	choosable    [][]bool // [environment][task]
	left         Left
	retries      atomic.Int64
}

// Left counts the tasks that cannot be chosen.
type Left struct {
	OtherSplit int // environments of the other split
	OtherLevel int
	Rejected   int // by odyssey-verify
	TooLong    int // the prompt and one turn do not fit into the context
}

// environment is one environment with what its episodes share.
type environment struct {
	row     *episode.Environment
	toolset *toolcall.Toolset
	prompts []prompt // per task; empty where the task cannot be chosen

	open    sync.Once
	session *sandbox.Session
	failure error
}

type prompt struct {
	ids      []int32
	messages []token.Message
}

// Selection says which tasks may be chosen. Empty fields select everything.
type Selection struct {
	Split  string
	Levels []int
}

// NewTasks prepares environments for settings, on threads goroutines. Programs
// run in pool, which stays the caller's to close.
func NewTasks(environments []*episode.Environment, selection Selection, settings Settings, renderer *token.Renderer, pool *sandbox.Pool, threads int) (*Tasks, error) {
	if err := settings.Check(); err != nil {
		return nil, err
	}
	t := &Tasks{settings: settings, renderer: renderer, pool: pool}
	t.environments = make([]*environment, len(environments))
	t.choosable = make([][]bool, len(environments))
	left := make([]Left, len(environments))
	failures := make([]error, len(environments))
	forEach(len(environments), threads, func(i int) {
		t.environments[i], t.choosable[i], failures[i] = t.prepare(environments[i], selection, &left[i])
	})
	for i, err := range failures {
		if err != nil {
			return nil, fmt.Errorf("environment %s: %w", environments[i].EnvironmentID, err)
		}
		t.left.OtherSplit += left[i].OtherSplit
		t.left.OtherLevel += left[i].OtherLevel
		t.left.Rejected += left[i].Rejected
		t.left.TooLong += left[i].TooLong
	}
	return t, nil
}

func (t *Tasks) prepare(row *episode.Environment, selection Selection, left *Left) (*environment, []bool, error) {
	e := &environment{row: row, prompts: make([]prompt, len(row.Tasks))}
	choosable := make([]bool, len(row.Tasks))
	if selection.Split != "" && row.Split != selection.Split {
		left.OtherSplit++
		return e, choosable, nil
	}
	var err error
	if e.toolset, err = toolcall.NewToolset(row.Tools, row.SubmitTool); err != nil {
		return nil, nil, err
	}
	for i := range row.Tasks {
		task := &row.Tasks[i]
		if task.Status == episode.StatusRejected {
			left.Rejected++
			continue
		}
		if len(selection.Levels) > 0 && !slices.Contains(selection.Levels, task.Level) {
			left.OtherLevel++
			continue
		}
		ids, messages, err := t.renderer.Prompt(row.Tools, nil, task.Query)
		if err != nil {
			return nil, nil, err
		}
		if len(ids)+t.settings.TurnTokens > t.settings.MaxContext {
			left.TooLong++
			continue
		}
		e.prompts[i] = prompt{ids, messages}
		choosable[i] = true
	}
	return e, choosable, nil
}

// Choosable says whether the task may be given to a policy: it is of the
// selected split and level, was not rejected, and its prompt fits.
func (t *Tasks) Choosable(environment, task int) bool { return t.choosable[environment][task] }

// Left counts what cannot be chosen and why.
func (t *Tasks) Left() Left { return t.left }

// Retries counts the attempts so far that ended by a fault of another side and
// were made again.
func (t *Tasks) Retries() int { return int(t.retries.Load()) }

// session is the program of an environment in the shared pool.
func (t *Tasks) session(ctx context.Context, e *environment) (*sandbox.Session, error) {
	e.open.Do(func() {
		e.session, e.failure = t.pool.Open(ctx, program(e.row))
	})
	return e.session, e.failure
}

func program(row *episode.Environment) sandbox.Program {
	return sandbox.Program{Files: row.Files, Tools: row.Tools}
}

// Digest identifies environments by everything that an episode can depend on.
func Digest(environments []*episode.Environment) (string, error) {
	h := sha256.New()
	for _, e := range environments {
		text, err := json.Marshal(e)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%d:", len(text))
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// forEach calls do for each index in [0, n), on threads goroutines.
func forEach(n, threads int, do func(int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range max(1, min(threads, n)) {
		wg.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}
