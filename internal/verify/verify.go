// Package verify is the last stage of environment synthesis: it trusts nothing
// that the stages before it wrote and puts every task through gates. Each gate
// leaves a verdict; the first that fails ends the task's way and its verdict
// holds the counterexample.
package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/designer"
	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/sandbox"
	"github.com/odyssey-rl/odyssey/internal/toolcall"
	"github.com/odyssey-rl/odyssey/internal/toolcheck"
)

// Stage is this stage's name in Environment.Audit.
const Stage = "verify"

// The gates of a task, in the order in which they are tried, after those of
// the tools (toolcheck.Gates).
const (
	GateQuery           = "query"            // there is a question, and it names no tool
	GateSolutionRuns    = "solution_runs"    // the solution makes the recorded calls and gives the recorded answer
	GateAnswerSchema    = "answer_schema"    // the answer fits the schema of the submission
	GateVerifierAccepts = "verifier_accepts" // the verifier accepts the answer
	GateVerifierRejects = "verifier_rejects" // the verifier rejects every wrong answer: kill score 1
	GateVerifierReads   = "verifier_reads"   // without data the verifier no longer accepts the answer
	GateDeterministic   = "deterministic"    // a second run agrees, and so does one over rows in another order
	GateNeedsTools      = "needs_tools"      // the answer is neither in the query nor one of the guesses
	GateCalls           = "calls"            // above level 1, no single call shows the answer
)

// Gates lists all gates in order.
var Gates = append(slices.Clone(toolcheck.Gates), GateQuery, GateSolutionRuns, GateAnswerSchema, GateVerifierAccepts,
	GateVerifierRejects, GateVerifierReads, GateDeterministic, GateNeedsTools, GateCalls)

// Check puts the tasks of an environment through the gates. It sets their
// verdicts and status and returns the number of tool calls made. The error
// speaks of the sandbox; whatever an environment holds is a matter of verdicts.
func Check(ctx context.Context, pool *sandbox.Pool, e *episode.Environment) (toolCalls int, err error) {
	checked, err := toolcheck.Check(ctx, pool, e)
	if err != nil {
		return 0, fmt.Errorf("environment %s: %w", e.EnvironmentID, err)
	}
	c := &checker{ctx: ctx, environment: e, calls: checked.Calls, answers: map[string]int{}}
	if checked.Fault == nil {
		c.session, c.tools = checked.Session, checked.Parameters
		if err := c.open(pool); err != nil {
			return 0, fmt.Errorf("environment %s: %w", e.EnvironmentID, err)
		}
	}
	for i := range e.Tasks {
		task := &e.Tasks[i]
		c.begin(task)
		if checked.Fault != nil {
			c.failTools(task, checked.Fault)
		} else if err := c.check(task); err != nil {
			return 0, fmt.Errorf("environment %s: task %s: %w", e.EnvironmentID, task.TaskID, err)
		}
	}
	e.Audit = slices.DeleteFunc(e.Audit, func(a episode.Audit) bool { return a.Stage == Stage && a.Model == designer.Builtin }) // of an earlier run
	e.Audit = append(e.Audit, episode.Audit{Stage: Stage, Model: designer.Builtin, Rounds: 1})
	return c.calls, nil
}

// DropRejected takes the rejected tasks out of an environment.
func DropRejected(e *episode.Environment) {
	e.Tasks = slices.DeleteFunc(e.Tasks, func(t episode.Task) bool { return t.Status == episode.StatusRejected })
}

type checker struct {
	ctx         context.Context
	environment *episode.Environment
	session     *sandbox.Session // the environment as it is
	permuted    *sandbox.Session // its rows in reverse order
	emptied     *sandbox.Session // without rows
	tools       map[string]*toolcall.Schema
	submit      string // the submit tool's parameters
	cells       []column
	answers     map[string]int // how many tasks passed with this answer, by normal form
	calls       int
	round       int // of the task at hand
}

func (c *checker) open(pool *sandbox.Pool) error {
	var permuted, emptied []episode.File
	for _, f := range c.environment.Files {
		p, m := f, f
		var rows []json.RawMessage
		if strings.HasSuffix(f.Path, ".json") && json.Unmarshal([]byte(f.Content), &rows) == nil {
			slices.Reverse(rows)
			reversed, err := json.Marshal(rows)
			if err != nil {
				return err
			}
			p.Content, m.Content = string(reversed), "[]"
		}
		permuted, emptied = append(permuted, p), append(emptied, m)
	}
	var err error
	if c.permuted, err = pool.Open(c.ctx, sandbox.Program{Files: permuted, Tools: c.environment.Tools}); err != nil {
		return err
	}
	if c.emptied, err = pool.Open(c.ctx, sandbox.Program{Files: emptied}); err != nil {
		return err
	}
	for _, t := range c.environment.Tools {
		if t.Name == c.environment.SubmitTool {
			c.submit = t.Parameters
		}
	}
	c.cells = readCells(c.environment)
	return nil
}

// begin drops the verdicts of an earlier check and keeps those of the design.
func (c *checker) begin(task *episode.Task) {
	task.Verdicts = slices.DeleteFunc(task.Verdicts, func(v episode.Verdict) bool { return slices.Contains(Gates, v.Gate) })
	task.Status = ""
	c.round = 0
	for _, v := range task.Verdicts {
		c.round = max(c.round, v.Round)
	}
}

func (c *checker) pass(task *episode.Task, gate, detail string) {
	task.Verdicts = append(task.Verdicts, episode.Verdict{Gate: gate, Outcome: episode.OutcomePass, Detail: detail, Round: c.round})
}

func (c *checker) fail(task *episode.Task, gate, detail string) {
	task.Verdicts = append(task.Verdicts, episode.Verdict{Gate: gate, Outcome: episode.OutcomeFail, Detail: detail, Round: c.round})
	task.Status = episode.StatusRejected
}

func (c *checker) failTools(task *episode.Task, fault *toolcheck.Fault) {
	for _, gate := range toolcheck.Gates {
		if gate == fault.Gate {
			detail := fault.Detail
			if fault.Tool != "" {
				detail = fault.Tool + ": " + detail
			}
			c.fail(task, gate, detail)
			return
		}
		c.pass(task, gate, "")
	}
}

// rejection is a gate's no, with its counterexample.
type rejection struct{ detail string }

func (r *rejection) Error() string { return r.detail }

func reject(format string, arguments ...any) error {
	return &rejection{fmt.Sprintf(format, arguments...)}
}

// trial is a task on its way through the gates.
type trial struct {
	*checker
	task   *episode.Task
	solved sandbox.Result
	answer map[string]any // the submission, decoded
	text   string         // the submission's only text, or its JSON
}

func (c *checker) check(task *episode.Task) error {
	for _, gate := range toolcheck.Gates {
		c.pass(task, gate, "")
	}
	t := &trial{checker: c, task: task}
	for _, gate := range []struct {
		name string
		try  func() (string, error)
	}{
		{GateQuery, t.query},
		{GateSolutionRuns, t.solutionRuns},
		{GateAnswerSchema, t.answerSchema},
		{GateVerifierAccepts, t.verifierAccepts},
		{GateVerifierRejects, t.verifierRejects},
		{GateVerifierReads, t.verifierReads},
		{GateDeterministic, t.deterministic},
		{GateNeedsTools, t.needsTools},
		{GateCalls, t.callsNeeded},
	} {
		detail, err := gate.try()
		var no *rejection
		if errors.As(err, &no) {
			c.fail(task, gate.name, no.detail)
			return nil
		}
		if err != nil {
			return err
		}
		c.pass(task, gate.name, detail)
	}
	task.Status = episode.StatusVerified
	c.answers[normal(t.text)]++
	return nil
}

func (t *trial) query() (string, error) {
	if strings.TrimSpace(t.task.Query) == "" {
		return "", reject("the query is empty")
	}
	for _, tool := range t.environment.Tools {
		// A tool called by one plain word, such as submit, may share it with
		// the question.
		if strings.Contains(tool.Name, "_") && designer.Mentions(t.task.Query, tool.Name) {
			return "", reject("the query names the tool %s", tool.Name)
		}
	}
	return "", nil
}

// run runs the solution in a session.
func (t *trial) run(session *sandbox.Session) (sandbox.Result, error) {
	if t.task.Solution.Language != "starlark" {
		return sandbox.Result{}, reject("language %q is not one that can be run", t.task.Solution.Language)
	}
	res := session.Run(t.ctx, sandbox.WithTools, t.task.Solution.Source, "solve", "{}")
	t.calls += len(res.Calls)
	return res, broken(res)
}

// broken turns a result that says nothing about the script into an error.
func broken(res sandbox.Result) error {
	if res.Status == sandbox.Infrastructure || res.Status == sandbox.Limit && res.Code == sandbox.CodeTime {
		return fmt.Errorf("sandbox: %s", res.Error)
	}
	return nil
}

func (t *trial) solutionRuns() (string, error) {
	var err error
	if t.solved, err = t.run(t.session); err != nil {
		return "", err
	}
	if t.solved.Status != sandbox.OK {
		return "", reject("%s", t.solved.Describe())
	}
	recorded := t.task.Solution
	if !sameJSON(t.solved.Value, recorded.Answer) {
		return "", reject("gives %s, recorded is %s", clip(t.solved.Value), clip(recorded.Answer))
	}
	if len(t.solved.Calls) != len(recorded.Calls) {
		return "", reject("makes %d calls, recorded are %d", len(t.solved.Calls), len(recorded.Calls))
	}
	for i, call := range t.solved.Calls {
		if call.Name != recorded.Calls[i].Name || call.Arguments != recorded.Calls[i].Arguments {
			return "", reject("call %d is %s %s, recorded is %s %s", i+1, call.Name, clip(call.Arguments), recorded.Calls[i].Name, clip(recorded.Calls[i].Arguments))
		}
		if call.Name == t.environment.SubmitTool {
			return "", reject("call %d is the submission", i+1)
		}
		if v := t.tools[call.Name].Validate(call.Arguments); len(v) > 0 {
			return "", reject("call %d, %s %s, does not fit the parameters: %s", i+1, call.Name, clip(call.Arguments), v[0].Detail)
		}
	}
	return fmt.Sprintf("%d calls", len(t.solved.Calls)), nil
}

func (t *trial) answerSchema() (string, error) {
	if !sameJSON(t.task.SubmitSchema, t.submit) {
		return "", reject("the task's schema is not that of the submit tool")
	}
	if v := t.submission().Validate(t.task.Solution.Answer); len(v) > 0 {
		return "", reject("%s: %s", clip(t.task.Solution.Answer), v[0].Detail)
	}
	if err := json.Unmarshal([]byte(t.task.Solution.Answer), &t.answer); err != nil || t.answer == nil {
		return "", reject("%s is not an object", clip(t.task.Solution.Answer))
	}
	t.text = t.task.Solution.Answer
	if len(t.answer) == 1 {
		for _, v := range t.answer {
			if s, ok := v.(string); ok {
				t.text = s
			}
		}
	}
	return "", nil
}

// submission is the schema of a submission: the task's, which is that of the
// submit tool.
func (t *trial) submission() *toolcall.Schema { return t.tools[t.environment.SubmitTool] }

// verify asks the verifier, on the data of a session, about a submission.
func (t *trial) verify(session *sandbox.Session, submission string) (sandbox.Result, error) {
	if t.task.Verifier.Language != "starlark" {
		return sandbox.Result{}, reject("language %q is not one that can be run", t.task.Verifier.Language)
	}
	res := session.Run(t.ctx, sandbox.DataOnly, t.task.Verifier.Source, "verify", submission)
	return res, broken(res)
}

func (t *trial) verifierAccepts() (string, error) {
	res, err := t.verify(t.session, t.task.Solution.Answer)
	if err != nil {
		return "", err
	}
	if res.Status != sandbox.OK || res.Value != "true" {
		return "", reject("%s: %s", clip(t.task.Solution.Answer), verdict(res))
	}
	return "", nil
}

func verdict(res sandbox.Result) string {
	if res.Status == sandbox.OK {
		return "the verifier says " + clip(res.Value)
	}
	return "the verifier ended with " + res.Describe()
}

// judgeScript, put behind a verifier, asks it about many submissions in one
// trip to the worker.
const judgeScript = "\n\ndef judge_each_of(submissions):\n    return [verify(**submission) for submission in submissions]\n"

// judge asks the verifier about submissions. What it says of each must be true
// or false.
func (t *trial) judge(submissions []string) ([]bool, error) {
	res := t.session.Run(t.ctx, sandbox.DataOnly, t.task.Verifier.Source+judgeScript, "judge_each_of",
		`{"submissions": [`+strings.Join(submissions, ", ")+`]}`)
	if err := broken(res); err != nil {
		return nil, err
	}
	var said []any
	if res.Status == sandbox.OK && json.Unmarshal([]byte(res.Value), &said) == nil && len(said) == len(submissions) {
		out := make([]bool, len(said))
		for i, v := range said {
			accepted, ok := v.(bool)
			if !ok {
				return nil, reject("%s: the verifier says %v", clip(submissions[i]), v)
			}
			out[i] = accepted
		}
		return out, nil
	}
	out := make([]bool, len(submissions)) // one by one: which of them is it?
	for i, s := range submissions {
		res, err := t.verify(t.session, s)
		if err != nil {
			return nil, err
		}
		if res.Status != sandbox.OK || res.Value != "true" && res.Value != "false" {
			return nil, reject("%s: %s", clip(s), verdict(res))
		}
		out[i] = res.Value == "true"
	}
	return out, nil
}

func (t *trial) verifierRejects() (string, error) {
	var ask []string
	wrong := t.wrongAnswers()
	for _, w := range wrong {
		if len(t.submission().Validate(w)) == 0 { // others never reach the verifier
			ask = append(ask, w)
		}
	}
	accepted, err := t.judge(ask)
	if err != nil {
		return "", err
	}
	killed := len(wrong)
	example := ""
	for i, yes := range accepted {
		if yes {
			killed--
			if example == "" {
				example = ask[i]
			}
		}
	}
	score := fmt.Sprintf("kill score %d/%d", killed, len(wrong))
	if killed < len(wrong) {
		return "", reject("%s; it accepts %s", score, clip(example))
	}
	return score, nil
}

func (t *trial) verifierReads() (string, error) {
	res, err := t.verify(t.emptied, t.task.Solution.Answer)
	if err != nil {
		return "", err
	}
	if res.Status == sandbox.OK && res.Value == "true" {
		return "", reject("without any rows it still accepts %s", clip(t.task.Solution.Answer))
	}
	return "", nil
}

func (t *trial) deterministic() (string, error) {
	again, err := t.run(t.session)
	if err != nil {
		return "", err
	}
	if again.Status != sandbox.OK || again.Value != t.solved.Value || again.Steps != t.solved.Steps {
		return "", reject("the solution gives %s in %d steps, and then %s in %d", clip(t.solved.Value), t.solved.Steps, clip(again.Value), again.Steps)
	}
	turned, err := t.run(t.permuted)
	if err != nil {
		return "", err
	}
	if turned.Status != sandbox.OK || !sameJSON(turned.Value, t.solved.Value) {
		return "", reject("with the rows in reverse order the solution gives %s", clip(outcome(turned)))
	}
	res, err := t.verify(t.permuted, t.task.Solution.Answer)
	if err != nil {
		return "", err
	}
	if res.Status != sandbox.OK || res.Value != "true" {
		return "", reject("with the rows in reverse order %s", verdict(res))
	}
	return "", nil
}

func outcome(res sandbox.Result) string {
	if res.Status == sandbox.OK {
		return res.Value
	}
	return res.Describe()
}

func (t *trial) needsTools() (string, error) {
	if designer.Mentions(t.task.Query, t.text) {
		return "", reject("the answer stands in the query")
	}
	if n := t.answers[normal(t.text)]; n+1 > max(1, len(t.environment.Tasks)/20) {
		return "", reject("it is the answer of %d tasks before it in this environment", n)
	}
	var ask []string
	for _, g := range t.guesses() {
		if len(t.submission().Validate(g)) == 0 {
			ask = append(ask, g)
		}
	}
	accepted, err := t.judge(ask)
	if err != nil {
		return "", err
	}
	for i, yes := range accepted {
		if yes {
			return "", reject("the guess %s is right", clip(ask[i]))
		}
	}
	return fmt.Sprintf("0 of %d guesses", len(ask)), nil
}

// callsNeeded asks, above level 1, for two calls of which none that can be
// made from the query alone shows the answer; where several calls of one tool
// are to be compared, one may, as long as another does not.
func (t *trial) callsNeeded() (string, error) {
	if t.task.Level <= 1 {
		return "", nil
	}
	if n := len(t.solved.Calls); n < 2 {
		return "", reject("level %d with %d calls", t.task.Level, n)
	}
	shows := func(call sandbox.Call) bool { return holds(call.Value, t.text) }
	for _, call := range t.solved.Calls {
		if !t.issuable(call) || !shows(call) {
			continue
		}
		if !slices.ContainsFunc(t.solved.Calls, func(other sandbox.Call) bool {
			return other.Name == call.Name && other.Arguments != call.Arguments && t.issuable(other) && !shows(other)
		}) {
			return "", reject("%s %s alone shows the answer", call.Name, clip(call.Arguments))
		}
	}
	return "", nil
}

// issuable says whether all texts among a call's arguments stand in the query
// or are choices of the tool, so that the call needs no other before it.
func (t *trial) issuable(call sandbox.Call) bool {
	var arguments map[string]any
	if json.Unmarshal([]byte(call.Arguments), &arguments) != nil {
		return false
	}
	for name, v := range arguments {
		if s, ok := v.(string); ok && !designer.Mentions(t.task.Query, s) && !t.isChoice(call.Name, name) {
			return false
		}
	}
	return true
}

func (t *trial) isChoice(tool, parameter string) bool {
	i := slices.IndexFunc(t.environment.Tools, func(x episode.Tool) bool { return x.Name == tool })
	var schema struct {
		Properties map[string]struct{ Enum []any }
	}
	return i >= 0 && json.Unmarshal([]byte(t.environment.Tools[i].Parameters), &schema) == nil && len(schema.Properties[parameter].Enum) > 0
}

// clip shortens a text for a detail.
func clip(s string) string {
	if len(s) > 200 {
		return strings.ToValidUTF8(s[:200], "") + "..."
	}
	return s
}
