package toolcall

// The Hermes dialect. One assistant turn is, in this grammar,
//
//	turn     = { thinking } text { call text } [ end token ]
//	thinking = [ "<think>" ] any "</think>"
//	call     = "<tool_call>" ws object ws "</tool_call>"
//	object   = JSON object with "name", a string, and "arguments", an object
//
// An opener of thinking that stands in the prompt needs only its closer. Only
// what follows the last closed thinking counts. The closer of a call is looked
// for outside JSON strings.

import (
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/token"
)

const (
	callStart     = token.CallStart
	callEnd       = token.CallEnd
	responseStart = token.ResponseStart
	responseEnd   = token.ResponseEnd
	thinkStart    = token.ThinkStart
	thinkEnd      = token.ThinkEnd
	messageStart  = token.MessageStart
	messageEnd    = token.MessageEnd
)

// reading is what a turn's text holds.
type reading struct {
	start     int // first byte after the last closed thinking
	openThink int // start of a thinking block that is never closed, -1 if none
	draft     int // first call drafted in that block, -1 if none
	calls     []writtenCall
}

// writtenCall is one call as it stands in the text.
type writtenCall struct {
	span                 // tags included; to the end of the turn where it is cut off
	name      *jsonValue // nil where the call has none
	arguments *jsonValue
	problem   *finding // what keeps it from being a call with a name and arguments
}

// finding is a failure in the bytes of a turn.
type finding struct {
	kind    string
	detail  string
	culprit span // may be empty: text is missing there
	call    span // the whole call, or what stands for it
	atEnd   bool // caused by the end of the text, so not where a limit cut it
}

// readHermes reads the text of a turn, the end token excluded. controlAt says
// whether a control token was sampled at a byte.
func readHermes(text string, thinkingOpen bool, controlAt func(at int) bool) reading {
	r := reading{openThink: -1, draft: -1}
	at := 0
	lastCloser := strings.LastIndex(text, callEnd)
	if thinkingOpen && !strings.Contains(text, thinkEnd) {
		r.openThink = 0
		r.draft = strings.Index(text, callStart)
		return r
	}
	for {
		next := strings.IndexByte(text[at:], '<')
		if next < 0 {
			return r
		}
		at += next
		rest := text[at:]
		switch {
		case strings.HasPrefix(rest, thinkStart):
			length := strings.Index(rest, thinkEnd)
			if length < 0 {
				r.openThink = at
				if draft := strings.Index(rest, callStart); draft >= 0 {
					r.draft = at + draft
				}
				return r
			}
			at += length + len(thinkEnd)
			r.start, r.calls = at, nil
		case strings.HasPrefix(rest, thinkEnd):
			at += len(thinkEnd)
			r.start, r.calls = at, nil
		case strings.HasPrefix(rest, callStart) && (controlAt(at) || opensCall(text, at, lastCloser)):
			call, resume := readCall(text, at)
			r.calls = append(r.calls, call)
			at = resume
		default:
			at++
		}
	}
}

// opensCall says whether a spelled-out opening tag begins a call rather than
// being spoken of: an object follows, or a closing tag somewhere after it.
func opensCall(text string, at, lastCloser int) bool {
	body := skipBlanks(text, at+len(callStart))
	return lastCloser > at || body < len(text) && text[body] == '{'
}

// readCall reads the call whose opening tag stands at text[open:], and returns
// where to go on reading.
func readCall(text string, open int) (writtenCall, int) {
	body := open + len(callStart)
	value, syntax := scanJSON(text, body)
	if syntax != nil {
		return brokenCall(text, open, syntax)
	}
	call := writtenCall{span: span{open, len(text)}}
	after := skipBlanks(text, value.end)
	rest := text[after:]
	switch {
	case strings.HasPrefix(rest, callEnd):
		call.end = after + len(callEnd)
		call.interpret(&value)
		return call, call.end
	case rest == "":
		call.problem = &finding{kind: episode.KindUnclosedCall, detail: "the turn ends before " + callEnd,
			culprit: span{len(text), len(text)}, atEnd: true}
	case strings.HasPrefix(rest, callStart), strings.HasPrefix(rest, thinkStart), strings.HasPrefix(rest, thinkEnd),
		!strings.Contains(rest, callEnd):
		// The closer was due here and something else was sampled.
		item := span{after, lexicalItemEnd(text, after)}
		call.end = callLimit(text, after)
		call.problem = &finding{kind: episode.KindUnclosedCall, culprit: item,
			detail: quoteForDetail(text[item.start:item.end]) + " found, want " + callEnd}
	default: // a second value, a surplus brace, prose
		closer := after + strings.Index(rest, callEnd)
		call.end = callLimit(text, after)
		surplus := span{after, min(closer, call.end)}
		for isBlank(text[surplus.end-1]) {
			surplus.end--
		}
		call.problem = &finding{kind: episode.KindMalformedJSON, culprit: surplus,
			detail: quoteForDetail(text[surplus.start:surplus.end]) + " found after the call's object"}
	}
	call.problem.call = call.span
	return call, after
}

// brokenCall is readCall where the text stops being JSON.
func brokenCall(text string, open int, syntax *syntaxError) (writtenCall, int) {
	call := writtenCall{span: span{open, len(text)}}
	body := open + len(callStart)
	problem := &finding{kind: episode.KindMalformedJSON, detail: syntax.detail, culprit: syntax.span}
	resume := max(syntax.start, body)
	if syntax.start >= len(text) { // the text ended
		closer := -1
		if syntax.inString { // a string that never ends took the closer in
			closer = strings.Index(text[body:], callEnd)
		}
		if closer < 0 {
			problem.kind, problem.atEnd = episode.KindUnclosedCall, true
			problem.detail = "the turn ends inside the call: " + syntax.detail
			resume = len(text)
		} else {
			problem.culprit = span{body + closer, body + closer + len(callEnd)}
			problem.detail = callEnd + " found, want a closing quote"
			call.end = problem.culprit.end
			resume = call.end
		}
	} else {
		call.end = callLimit(text, syntax.start)
	}
	problem.call = call.span
	call.problem = problem
	return call, resume
}

// callLimit returns the end of a call that went wrong at a byte: after its
// closer, or where the next call opens, or at the end of the turn.
func callLimit(text string, from int) int {
	end := len(text)
	if opener := strings.Index(text[from:], callStart); opener >= 0 {
		end = from + opener
	}
	if closer := strings.Index(text[from:end], callEnd); closer >= 0 {
		end = from + closer + len(callEnd)
	}
	return end
}

// interpret reads name and arguments out of the call's JSON value.
func (c *writtenCall) interpret(value *jsonValue) {
	fail := func(kind string, culprit span, detail string) {
		c.problem = &finding{kind: kind, detail: detail, culprit: culprit, call: c.span}
	}
	if value.kind != '{' {
		fail(episode.KindMalformedJSON, value.span, "a call must be an object")
		return
	}
	closingBrace := span{value.end - 1, value.end}
	c.name = value.member("name")
	if c.name == nil {
		fail(episode.KindMalformedJSON, closingBrace, "the call has no name")
		return
	}
	arguments := value.member("arguments")
	switch {
	case arguments == nil:
		culprit, detail := closingBrace, "the call has no arguments"
		for i := range value.members {
			if key := &value.members[i].key; key.text == "parameters" || key.text == "args" || key.text == "input" {
				culprit, detail = key.span, quoteForDetail(key.text)+" found, want \"arguments\""
				break
			}
		}
		fail(episode.KindArgumentsNotObject, culprit, detail)
	case arguments.kind != '{':
		detail := "arguments must be an object"
		if arguments.kind == '"' {
			if inner, syntax := scanJSON(arguments.text, 0); syntax == nil && inner.kind == '{' {
				detail = "arguments is an object encoded twice, as a string"
			}
		}
		fail(episode.KindArgumentsNotObject, arguments.span, detail)
	default:
		c.arguments = arguments
	}
}

// forgeries returns the tool responses and messages that the policy wrote
// itself, outside calls and after thinking.
func forgeries(text string, r *reading, controlAt func(at int) bool) (span, bool) {
	limit := len(text)
	if r.openThink >= 0 {
		limit = r.openThink
	}
	found := span{-1, -1}
	lastCloser := strings.LastIndex(text[:limit], responseEnd)
	next := 0 // index of the first call not yet passed
	for at := r.start; at < limit; {
		step := strings.IndexByte(text[at:limit], '<')
		if step < 0 {
			break
		}
		at += step
		for next < len(r.calls) && r.calls[next].end <= at {
			next++
		}
		if next < len(r.calls) && r.calls[next].start <= at {
			at = r.calls[next].end
			continue
		}
		width := forgeryAt(text[:limit], at, lastCloser, controlAt(at))
		if width == 0 {
			at++
			continue
		}
		if found.start < 0 {
			found.start = at
		}
		at += width
		found.end = at
	}
	return found, found.start >= 0
}

// forgeryAt returns the length of the forgery that starts at a byte, 0 where
// there is none. Spelled-out tags count where they are closed or begin a line;
// otherwise the policy speaks of them.
func forgeryAt(text string, at, lastCloser int, control bool) int {
	rest := text[at:]
	beginsLine := at == 0 || text[at-1] == '\n'
	switch {
	case strings.HasPrefix(rest, responseStart):
		if lastCloser > at {
			return strings.Index(rest, responseEnd) + len(responseEnd)
		}
		if control || beginsLine {
			if call := strings.Index(rest, callStart); call >= 0 {
				return call
			}
			return len(rest)
		}
	case strings.HasPrefix(rest, responseEnd) && control:
		return len(responseEnd)
	case strings.HasPrefix(rest, messageStart) && (control || beginsLine):
		return len(messageStart)
	}
	return 0
}
