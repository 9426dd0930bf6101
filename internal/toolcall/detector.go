package toolcall

// The detector: one turn in, its calls or its failures out.

import (
	"slices"
	"sort"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/token"
)

// Detector follows one episode. It is not safe for concurrent use.
type Detector struct {
	settings  Settings
	tokenizer *token.Tokenizer
	tools     *Toolset
	off       map[string]bool

	turns    int    // turns seen
	acted    int    // ordinary calls of earlier turns
	required bool   // one of RequiredTools was called
	previous string // canonical form of the call answered last, "" if nothing can repeat it
	strikes  int    // repeats running

	turn  *turnTokens // the latest turn
	calls []checkedCall
}

// checkedCall is a written call that the detector has judged.
type checkedCall struct {
	written *writtenCall
	Call
	canonical string // "" where a repeat is nobody's business
}

// NewDetector returns the detector of a new episode. The toolset may be shared.
func NewDetector(settings Settings, tokenizer *token.Tokenizer, tools *Toolset) *Detector {
	d := &Detector{settings: settings.withDefaults(), tokenizer: tokenizer, tools: tools, off: map[string]bool{}}
	for _, kind := range settings.Off {
		d.off[kind] = true
	}
	return d
}

// Turn reads one turn: the ids that the policy sampled, the end token included,
// and why the generation ended (an episode.Stop constant). turn is the turn's
// index among the trajectory's turns and base the index of ids[0] among its ids;
// both only place the results.
func (d *Detector) Turn(ids []int32, stopReason string, turn, base int) Outcome {
	d.turns++
	d.calls = nil
	d.turn = newTurnTokens(d.tokenizer, ids, turn, base)
	if stopReason == episode.StopCancelled || len(ids) == 0 {
		return Outcome{}
	}
	text := d.turn.text
	r := readHermes(text, d.settings.ThinkingOpen, d.turn.controlAt)
	findings := d.check(&r)
	findings = append(findings, d.structure(&r)...)
	findings = append(findings, d.sequence(&r)...)

	cut := stopReason == episode.StopLength || stopReason == episode.StopContext
	if cut {
		// What the text's end causes is the limit's doing.
		findings = slices.DeleteFunc(findings, func(f finding) bool { return f.atEnd })
		limit := LimitResponseTokens
		if stopReason == episode.StopContext {
			limit = LimitContext
		}
		findings = append(findings, d.cutTail(limit))
	}
	findings = slices.DeleteFunc(findings, func(f finding) bool { return d.off[f.kind] })
	if len(findings) == 0 && !cut {
		findings = d.limits()
	}
	return d.outcome(findings, cut)
}

// outcome orders the findings, presets the calls' outcomes and, where nothing
// failed, moves the episode on.
func (d *Detector) outcome(findings []finding, cut bool) Outcome {
	sort.SliceStable(findings, func(i, j int) bool {
		a, b := findings[i], findings[j]
		if chargeOrder[a.kind] != chargeOrder[b.kind] {
			return chargeOrder[a.kind] < chargeOrder[b.kind]
		}
		return a.culprit.start < b.culprit.start
	})
	var out Outcome
	for _, f := range findings {
		out.Failures = append(out.Failures, d.turn.failure(f))
	}
	failed := len(findings) > 0 || cut
	for i := range d.calls {
		c := &d.calls[i]
		switch {
		case failed:
			c.Outcome = episode.CallNotRun
		case c.Problem != "":
			c.Outcome = episode.CallError
		case c.Submit && out.Submission == "":
			c.Outcome, out.Submission = episode.CallSubmitted, c.Arguments
		case c.Submit:
			c.Outcome = episode.CallNotRun // a second submission
		case c.Notice:
			c.Outcome = episode.CallNotice
		}
		out.Calls = append(out.Calls, c.Call)
	}
	if failed {
		return out
	}
	for i := range d.calls {
		c := &d.calls[i]
		if c.Submit || c.Problem != "" {
			continue
		}
		d.acted++
		if slices.Contains(d.settings.RequiredTools, c.Name) {
			d.required = true
		}
		if c.Notice {
			d.strikes++
		} else {
			d.strikes = 0
		}
		d.previous = c.canonical
	}
	return out
}

// Observed tells how the calls of the latest turn were answered, one
// episode.Call outcome per call. A call that failed for the environment's
// reasons (error) is no reason to blame the policy for asking again.
func (d *Detector) Observed(outcomes []string) {
	if n := len(outcomes); n > 0 && outcomes[n-1] == episode.CallError {
		d.previous, d.strikes = "", 0
	}
}

// check judges each call by itself: syntax, name, arguments.
func (d *Detector) check(r *reading) []finding {
	var findings []finding
	for i := range r.calls {
		w := &r.calls[i]
		lo, hi := d.turn.cover(w.span)
		c := checkedCall{written: w, Call: Call{
			Call:      episode.Call{TokenStart: d.turn.base + lo, TokenEnd: d.turn.base + hi},
			ByteStart: w.start, ByteEnd: w.end,
		}}
		if w.name != nil && w.name.kind == '"' {
			c.Name = w.name.text
		}
		if w.arguments != nil {
			c.Arguments = d.turn.text[w.arguments.start:w.arguments.end]
		}
		for _, f := range d.checkCall(w, &c) {
			if c.Problem == "" {
				c.Problem = f.detail
			}
			findings = append(findings, f)
		}
		d.calls = append(d.calls, c)
	}
	return findings
}

func (d *Detector) checkCall(w *writtenCall, c *checkedCall) []finding {
	var findings []finding
	if w.problem != nil {
		findings = append(findings, *w.problem)
	}
	if w.name == nil {
		return findings
	}
	tool, offered := d.tools.byName[w.name.text]
	if w.name.kind != '"' || !offered {
		culprit, nearest := nameCulprit(w.name, d.tools.names)
		detail := "no tool " + quoteForDetail(d.turn.text[w.name.start:w.name.end])
		if w.name.kind == '"' {
			detail = "no tool " + quoteForDetail(w.name.text)
		}
		if nearest != "" {
			detail += ", near " + nearest
		}
		return append(findings, finding{kind: episode.KindUnknownTool, detail: detail, culprit: culprit, call: w.span})
	}
	c.Submit = w.name.text == d.tools.submit && d.tools.submit != ""
	if w.arguments == nil {
		return findings
	}
	violations := tool.schema.check(w.arguments)
	if len(violations) > 0 && d.settings.Coerce {
		if text, pointers, left := coerce(tool.schema, d.turn.text, w.arguments, violations); len(left) == 0 {
			c.Arguments, c.Coerced, violations = text, pointers, nil
		}
	}
	for _, v := range violations {
		findings = append(findings, finding{kind: v.Kind, detail: v.Detail, culprit: span{v.Start, v.End}, call: w.span})
	}
	if !c.Submit && tool.pure && d.settings.Family != episode.FamilyConversation && !d.off[episode.KindRepeatedQuery] {
		c.canonical = canonicalCall(w.name.text, w.arguments)
	}
	return findings
}

// structure judges the turn as a whole: thinking, action, number and mixture of
// calls, loops and forgeries.
func (d *Detector) structure(r *reading) []finding {
	var findings []finding
	text := d.turn.text
	if r.openThink >= 0 {
		due := len(text)
		if r.draft >= 0 {
			due = r.draft
		}
		block := d.turn.tail(due, d.settings.TailTokens)
		block.start = max(block.start, r.openThink)
		findings = append(findings, finding{kind: episode.KindUnclosedThink, detail: "thinking is never closed",
			culprit: span{due, due}, call: block, atEnd: true})
	} else if len(r.calls) == 0 && d.settings.Family != episode.FamilyConversation {
		prose := span{skipBlanks(text, r.start), len(text)}
		findings = append(findings, finding{kind: episode.KindNoAction, detail: "no tool call in the turn",
			culprit: prose, call: prose, atEnd: true})
	}
	if n := len(r.calls); n > d.settings.MaxCalls {
		findings = append(findings, finding{kind: episode.KindTooManyCalls,
			detail:  "more calls in one turn than the limit",
			culprit: span{r.calls[d.settings.MaxCalls].start, r.calls[n-1].end},
			call:    span{r.calls[0].start, r.calls[n-1].end}})
	}
	if f, ok := forgeries(text, r, d.turn.controlAt); ok {
		findings = append(findings, finding{kind: episode.KindForgedObservation,
			detail: "the policy wrote a tool response itself", culprit: f, call: f})
	}
	if !d.off[episode.KindRepetition] {
		var excluded []span
		for i := range r.calls {
			if a := r.calls[i].arguments; a != nil && d.calls[i].Problem == "" {
				excluded = append(excluded, a.span)
			}
		}
		s := d.settings
		if whole, second, ok := d.turn.loop(s.RepetitionSize, s.RepetitionMin, s.RepetitionThreshold, excluded); ok {
			findings = append(findings, finding{kind: episode.KindRepetition, detail: "the text loops",
				culprit: span{second, whole.end}, call: whole})
		}
	}
	return findings
}

// sequence judges the calls against each other and against earlier turns.
func (d *Detector) sequence(r *reading) []finding {
	var findings []finding
	submission, ordinary := -1, -1 // first of each
	for i := range d.calls {
		if d.calls[i].Submit {
			if submission < 0 {
				submission = i
			}
		} else if ordinary < 0 {
			ordinary = i
		}
	}
	if submission >= 0 {
		submit := &d.calls[submission]
		name := submit.written.name.content()
		actedBefore := d.acted > 0 || ordinary >= 0 && ordinary < submission
		if ordinary >= 0 {
			first := min(d.calls[ordinary].ByteStart, submit.ByteStart)
			last := submit.ByteEnd
			if ordinary > submission {
				last = d.calls[ordinary].ByteEnd
			}
			findings = append(findings, finding{kind: episode.KindMixedAnswer,
				detail:  "the submission stands beside a call that is not answered yet",
				culprit: submit.written.span, call: span{first, last}})
		}
		if d.settings.RequiresTool && !actedBefore {
			findings = append(findings, finding{kind: episode.KindDirectSubmit,
				detail: "submitted before any tool was used", culprit: name, call: submit.written.span})
		}
		if len(d.settings.RequiredTools) > 0 && !d.required {
			findings = append(findings, finding{kind: episode.KindPrematureSubmit,
				detail:  "submitted before using " + strings.Join(d.settings.RequiredTools, " or "),
				culprit: name, call: submit.written.span})
		}
		if f, ok := d.nested(submit); ok {
			findings = append(findings, f)
		}
	}
	previous, strikes := d.previous, d.strikes
	for i := range d.calls {
		c := &d.calls[i]
		if c.Submit {
			continue
		}
		if c.Problem != "" {
			previous, strikes = "", 0
			continue
		}
		if c.canonical == "" || c.canonical != previous {
			previous, strikes = c.canonical, 0
			continue
		}
		strikes++
		if strikes < d.settings.RepeatStrikes {
			c.Notice = true
			continue
		}
		findings = append(findings, finding{kind: episode.KindRepeatedQuery, detail: "the same call again",
			culprit: valuesOf(c.written.arguments), call: c.written.span})
	}
	return findings
}

// nested looks for a call smuggled in as the submitted value.
func (d *Detector) nested(submit *checkedCall) (finding, bool) {
	if submit.written.arguments == nil {
		return finding{}, false
	}
	for i := range submit.written.arguments.members {
		value := &submit.written.arguments.members[i].value
		if value.kind == '"' && d.isCall(value.text) {
			return finding{kind: episode.KindNestedCall, detail: "a tool call is submitted as the answer",
				culprit: value.content(), call: submit.written.span}, true
		}
	}
	return finding{}, false
}

// isCall says whether a text is a tool call, with its tags or without.
func (d *Detector) isCall(text string) bool {
	if at := strings.Index(text, callStart); at >= 0 {
		body := skipBlanks(text, at+len(callStart))
		return body < len(text) && text[body] == '{'
	}
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		return false
	}
	value, syntax := scanJSON(text, 0)
	if syntax != nil || skipBlanks(text, value.end) != len(text) {
		return false
	}
	name, arguments := value.member("name"), value.member("arguments")
	if name == nil || name.kind != '"' || arguments == nil {
		return false
	}
	_, offered := d.tools.byName[name.text]
	return offered
}

// limits watches the episode's turns and calls.
func (d *Detector) limits() []finding {
	if d.off[episode.KindBudgetExhausted] {
		return nil
	}
	ordinary := 0
	for i := range d.calls {
		if d.calls[i].Submit {
			return nil
		}
		ordinary++
	}
	if d.settings.MaxToolCalls > 0 && d.acted+ordinary > d.settings.MaxToolCalls {
		return []finding{d.lastCall(LimitToolCalls)}
	}
	if d.settings.MaxTurns > 0 && d.turns >= d.settings.MaxTurns {
		return []finding{d.lastCall(LimitTurns)}
	}
	return nil
}

// cutTail blames the end of a turn that a limit cut.
func (d *Detector) cutTail(limit string) finding {
	tail := d.turn.tail(d.turn.offsets[len(d.turn.ids)], d.settings.TailTokens)
	return finding{kind: episode.KindBudgetExhausted, detail: limit, culprit: tail, call: tail}
}

// lastCall blames the last call: there it should have submitted.
func (d *Detector) lastCall(limit string) finding {
	whole := span{0, len(d.turn.text)}
	if n := len(d.calls); n > 0 {
		whole = d.calls[n-1].written.span
	}
	return finding{kind: episode.KindBudgetExhausted, detail: limit, culprit: whole, call: whole}
}

// BudgetExhausted returns the failure of an episode that a limit ends after the
// latest turn: one of the Limit constants, such as LimitContext where the next
// prompt would not fit. There must have been a turn.
func (d *Detector) BudgetExhausted(limit string) episode.Failure {
	if limit == LimitTurns || limit == LimitToolCalls {
		return d.turn.failure(d.lastCall(limit))
	}
	return d.turn.failure(d.cutTail(limit))
}

// RuntimeError returns the failure of a call of the latest turn that passed
// every check and failed when it was run; whose fault it is, section 3 of the
// rule decides, not the detector. The culprit is the call's arguments.
func (d *Detector) RuntimeError(call int, fault, detail string) episode.Failure {
	w := d.calls[call].written
	f := finding{kind: episode.KindRuntimeError, detail: detail, culprit: w.span, call: w.span}
	if w.arguments != nil {
		f.culprit = valuesOf(w.arguments)
	}
	failure := d.turn.failure(f)
	failure.Fault = fault
	return failure
}
