package rollout

import (
	"context"
	"slices"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/sandbox"
	"github.com/odyssey-rl/odyssey/internal/toolcall"
)

// attempt is one episode in progress. An engine feeds it ids, closes each turn
// with endTurn, and puts what that returns behind them.
type attempt struct {
	tasks       *Tasks
	environment *environment
	task        *episode.Task
	session     *sandbox.Session
	fresh       bool // the session is this attempt's own
	detector    *toolcall.Detector
	row         *episode.Trajectory
	turnStart   int // first id of the turn being written
	turns       int // assistant turns closed
}

// newAttempt begins the episode of a slot: the row holds the prompt, nothing is
// sampled. From the first retry on it has a sandbox of its own. If its program
// cannot be loaded, the attempt comes back already finished.
func (t *Tasks) newAttempt(ctx context.Context, step Step, s *slot) (*attempt, error) {
	choice := step.Groups[s.group]
	e := t.environments[choice.Environment]
	task := &e.row.Tasks[choice.Task]
	p := e.prompts[choice.Task]
	row := &episode.Trajectory{
		TrajectoryID:  identity("trajectory", t.settings.Seed, step.Number, s.group, s.sample, e.row.EnvironmentID, task.TaskID),
		Step:          step.Number,
		GroupID:       identity("group", t.settings.Seed, step.Number, s.group, e.row.EnvironmentID, task.TaskID),
		GroupSize:     t.settings.GroupSize,
		Sample:        s.sample,
		EnvironmentID: e.row.EnvironmentID,
		TaskID:        task.TaskID,
		Domain:        e.row.Domain,
		Family:        e.row.Family,
		Level:         task.Level,
		Split:         e.row.Split,
		Policy:        t.settings.Policy,
		PolicyVersion: step.PolicyVersion,
		Seed:          t.settings.Seed,
		Temperature:   t.settings.Temperature,
		Tools:         e.toolset.JSON(),
		SubmitTool:    e.row.SubmitTool,
		RequiresTool:  e.row.RequiresTool,
		Failures:      []episode.Failure{},
	}
	a := &attempt{
		tasks: t, environment: e, task: task, row: row,
		detector: toolcall.NewDetector(toolcall.Settings{
			Family:       e.row.Family,
			RequiresTool: e.row.RequiresTool,
			MaxTurns:     t.settings.MaxTurns,
			Off:          t.settings.Off,
		}, t.renderer.Tokenizer(), e.toolset),
	}
	a.appendContext(p.ids)
	for _, m := range p.messages {
		row.Turns = append(row.Turns, episode.Turn{Role: m.Role, TokenStart: m.Start, TokenEnd: m.End, Calls: []episode.Call{}})
	}
	a.turnStart = len(row.TokenIDs)
	var err error
	if s.retry > 0 {
		a.session, err = t.pool.OpenFresh(ctx, program(e.row))
		a.fresh = err == nil
	} else {
		a.session, err = t.session(ctx, e)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		a.openFault(err)
	}
	return a, nil
}

// close ends what the attempt alone holds.
func (a *attempt) close() {
	if a.fresh {
		a.session.Close()
	}
	if n := len(a.row.TokenIDs); a.row.Segments == nil {
		a.row.Segments = []episode.Segment{{TokenStart: 0, TokenEnd: n}}
	}
}

// finished says that the episode is over.
func (a *attempt) finished() bool { return a.row.FinishReason != "" }

// appendContext puts ids behind the history that no policy sampled.
func (a *attempt) appendContext(ids []int32) {
	row := a.row
	row.TokenIDs = append(row.TokenIDs, ids...)
	row.LossMask = append(row.LossMask, make([]uint8, len(ids))...)
	row.RolloutLogprobs = append(row.RolloutLogprobs, make([]float32, len(ids))...)
}

// appendSampled puts one sampled id behind the history. It returns why the turn
// is over, or "".
func (a *attempt) appendSampled(id int32, logprob float32) (stop string) {
	row, s := a.row, a.tasks.settings
	row.TokenIDs = append(row.TokenIDs, id)
	row.LossMask = append(row.LossMask, 1)
	row.RolloutLogprobs = append(row.RolloutLogprobs, logprob)
	switch {
	case id == a.tasks.renderer.EndToken():
		return episode.StopEnd
	case len(row.TokenIDs)-a.turnStart >= s.TurnTokens:
		return episode.StopLength
	case len(row.TokenIDs) >= s.MaxContext:
		return episode.StopContext
	}
	return ""
}

// endTurn closes the turn just written: it looks for failures, runs the calls
// or the verifier, and either finishes the episode and returns nil, or returns
// the ids of the observation, which it has already put behind the history.
func (a *attempt) endTurn(ctx context.Context, stop string) ([]int32, error) {
	row := a.row
	index := len(row.Turns)
	out := a.detector.Turn(row.TokenIDs[a.turnStart:], stop, index, a.turnStart)
	turn := episode.Turn{
		Role: episode.RoleAssistant, TokenStart: a.turnStart, TokenEnd: len(row.TokenIDs),
		StopReason: stop, Calls: make([]episode.Call, len(out.Calls)),
	}
	for i, c := range out.Calls {
		turn.Calls[i] = c.Call
		if turn.Calls[i].Outcome == "" {
			turn.Calls[i].Outcome = episode.CallNotRun
		}
	}
	row.Turns = append(row.Turns, turn)
	a.turns++
	calls := row.Turns[index].Calls
	switch {
	case len(out.Failures) > 0:
		a.fail(out.Failures)
		return nil, nil
	case out.Submission != "":
		row.Submission = out.Submission
		return nil, a.verify(ctx)
	case stop != episode.StopEnd || a.turns >= a.tasks.settings.MaxTurns:
		row.FinishReason = episode.FinishBudget // undetected, by request
		return nil, nil
	}
	results := make([]string, len(out.Calls))
	outcomes := make([]string, len(out.Calls))
	failed := make([]bool, len(out.Calls))
	for i, c := range out.Calls {
		r, err := a.execute(ctx, i, c)
		if err != nil || a.finished() {
			calls[i].Outcome = r.outcome
			return nil, err
		}
		results[i], outcomes[i], failed[i] = r.text, r.outcome, r.isError
		calls[i].Outcome = r.outcome
	}
	a.detector.Observed(outcomes)
	return a.observe(results, failed), nil
}

// observe puts the results of a turn's calls behind the history, if another
// turn still fits behind them.
func (a *attempt) observe(results []string, failed []bool) []int32 {
	row := a.row
	ids, messages := a.tasks.renderer.Observation(results)
	if len(row.TokenIDs)+len(ids) >= a.tasks.settings.MaxContext {
		if slices.Contains(a.tasks.settings.Off, episode.KindBudgetExhausted) {
			row.FinishReason = episode.FinishBudget
		} else {
			a.fail([]episode.Failure{a.detector.BudgetExhausted(toolcall.LimitContext)})
		}
		return nil
	}
	base := len(row.TokenIDs)
	for i, m := range messages {
		row.Turns = append(row.Turns, episode.Turn{
			Role: m.Role, TokenStart: base + m.Start, TokenEnd: base + m.End,
			Calls: []episode.Call{}, ObservationError: failed[i],
		})
	}
	a.appendContext(ids)
	a.turnStart = len(row.TokenIDs)
	return ids
}

// fail ends the episode with failures of a turn, the charged one first.
func (a *attempt) fail(failures []episode.Failure) {
	row := a.row
	row.Failures = append(row.Failures, failures...)
	switch charged := failures[0]; {
	case charged.Fault != episode.FaultAgent:
		row.FinishReason = episode.FinishFault
	case charged.Kind == episode.KindBudgetExhausted:
		row.FinishReason = episode.FinishBudget
	default:
		row.FinishReason = episode.FinishAbnormal
	}
}

// slot is one place in a step: a group's sample, with its attempts.
type slot struct {
	group, sample int
	attempt       *attempt // the latest
	retry         int      // attempts before it
	lasting       int      // of those, ended by a fault that does not depend on the machine
}

// again says whether the slot's finished attempt ended by another side's fault
// and may be tried once more, and counts it.
//
// The row tells of every attempt only if the last one failed too. A fault of the
// machine that a retry made good leaves no trace in it: the same draws give the
// same row, and whether there was such a fault depends on the machine's load.
func (s *slot) again(t *Tasks) bool {
	row := s.attempt.row
	if row.FinishReason != episode.FinishFault {
		row.Retries = s.lasting
		return false
	}
	if s.retry == t.settings.FaultRetries {
		row.Retries = s.retry
		return false
	}
	s.retry++
	if row.Failures[0].Fault != episode.FaultInfrastructure {
		s.lasting++
	}
	t.retries.Add(1)
	return true
}
