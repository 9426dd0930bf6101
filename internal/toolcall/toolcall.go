// Package toolcall finds and checks the tool calls in what a policy sampled, and
// names every observable failure of a turn with its exact place.
//
// One Detector follows one episode. Rollout feeds it each turn as it is sampled
// and runs the calls it returns; odyssey-hca feeds it a recorded trajectory
// (Replay). Both are the same code with the same Settings, so the policy is
// never punished for a call that the harness would have run.
//
// Text here is the raw bytes of the sampled ids. Calls, tags and errors are
// found in bytes and mapped to ids by prefix sums of the ids' lengths; nothing
// is encoded again. A tag counts whether it was sampled as one control token or
// spelled out.
//
// Two places where the rule's text leaves room, and what is done:
//
//   - The decision token of malformed_json, unclosed_call and missing_argument is
//     the sampled token before the span. Tokens of nothing but white space in
//     between are passed over and belong to the culprit too: in
//     `"}` `\n` `</tool_call>` the wrong decision is `"}`.
//   - Where text follows a complete call (a second object, a surplus brace), all
//     of that text is the culprit, not only its first item.
package toolcall

import "github.com/odyssey-rl/odyssey/internal/episode"

// Settings are the thresholds of the detector and what it must know of the
// environment. The zero value of a threshold means its default.
type Settings struct {
	// Family of the environment, one of the episode.Family constants. In
	// conversation a turn of plain text is an answer, and a repeated call may
	// tell something new: neither no_action nor repeated_query exists there.
	Family string
	// RequiresTool: a tool must be used before the submission (direct_submit).
	RequiresTool bool
	// RequiredTools: one of these must be used before the submission
	// (premature_submit); none if empty.
	RequiredTools []string
	// ThinkingOpen: the prompt ends inside a thinking block, so that each turn
	// begins inside one.
	ThinkingOpen bool

	MaxCalls      int // calls in one turn; default 4, 8 in family tool-use
	MaxTurns      int // turns of an episode; 0: not watched
	MaxToolCalls  int // calls of an episode, the submission apart; 0: not watched
	RepeatStrikes int // repeats running until repeated_query; default 2

	RepetitionSize      int     // tokens of an n-gram; default 8
	RepetitionThreshold float64 // 1 - unique/total above which a turn loops; default 0.5
	RepetitionMin       int     // tokens of a turn below which it is not looked at; default 160

	TailTokens int // tokens blamed at the end of a cut turn or an open thinking block; default 256

	// Coerce lets a scalar of the wrong type pass where it can be read as the
	// right one ("3" as 3). The changed arguments are what runs.
	Coerce bool

	// Off lists failure kinds that go undetected.
	Off []string
}

// Defaults of Settings.
const (
	DefaultMaxCalls            = 4
	DefaultMaxCallsToolUse     = 8
	DefaultRepeatStrikes       = 2
	DefaultRepetitionSize      = 8
	DefaultRepetitionThreshold = 0.5
	DefaultRepetitionMin       = 160
	DefaultTailTokens          = 256
)

func (s Settings) withDefaults() Settings {
	if s.MaxCalls == 0 {
		s.MaxCalls = DefaultMaxCalls
		if s.Family == episode.FamilyToolUse {
			s.MaxCalls = DefaultMaxCallsToolUse
		}
	}
	if s.RepeatStrikes == 0 {
		s.RepeatStrikes = DefaultRepeatStrikes
	}
	if s.RepetitionSize == 0 {
		s.RepetitionSize = DefaultRepetitionSize
	}
	if s.RepetitionThreshold == 0 {
		s.RepetitionThreshold = DefaultRepetitionThreshold
	}
	if s.RepetitionMin == 0 {
		s.RepetitionMin = DefaultRepetitionMin
	}
	if s.TailTokens == 0 {
		s.TailTokens = DefaultTailTokens
	}
	return s
}

// Kinds returns every failure kind that the detector knows, in the order in
// which they are charged when several apply in one turn. runtime_error, which
// only running the calls can show, comes last.
func Kinds() []string {
	return []string{
		episode.KindBudgetExhausted, episode.KindUnclosedThink,
		episode.KindMalformedJSON, episode.KindUnclosedCall, episode.KindArgumentsNotObject,
		episode.KindUnknownTool,
		episode.KindMissingArgument, episode.KindUnexpectedArgument, episode.KindArgumentType, episode.KindArgumentValue,
		episode.KindNoAction, episode.KindTooManyCalls, episode.KindMixedAnswer,
		episode.KindDirectSubmit, episode.KindPrematureSubmit, episode.KindNestedCall,
		episode.KindRepeatedQuery, episode.KindRepetition, episode.KindForgedObservation,
		episode.KindRuntimeError,
	}
}

// chargeOrder ranks the kinds: the lowest is charged, and among equals the one
// whose culprit stands first.
var chargeOrder = map[string]int{
	episode.KindBudgetExhausted:    0,
	episode.KindUnclosedThink:      1,
	episode.KindMalformedJSON:      2,
	episode.KindUnclosedCall:       2,
	episode.KindArgumentsNotObject: 2,
	episode.KindUnknownTool:        3,
	episode.KindMissingArgument:    4,
	episode.KindUnexpectedArgument: 4,
	episode.KindArgumentType:       4,
	episode.KindArgumentValue:      4,
	episode.KindNoAction:           5,
	episode.KindTooManyCalls:       6,
	episode.KindMixedAnswer:        7,
	episode.KindDirectSubmit:       8,
	episode.KindPrematureSubmit:    9,
	episode.KindNestedCall:         10,
	episode.KindRepeatedQuery:      11,
	episode.KindRepetition:         12,
	episode.KindForgedObservation:  13,
	episode.KindRuntimeError:       14,
}

// Details of budget_exhausted: which limit.
const (
	LimitTurns          = "turns"
	LimitToolCalls      = "tool_calls"
	LimitResponseTokens = "response_tokens"
	LimitContext        = "context"
)

// NoticeResult is what the harness answers to a call marked Notice: a repeat
// below the strike limit.
const NoticeResult = `{"notice": "repeated call"}`

// Call is one call of a turn, in order. Outcome is preset where the detector
// decides it (submitted, notice, not_run) and empty where running it will tell.
type Call struct {
	episode.Call // token range: the whole call, tags included, in the trajectory

	ByteStart, ByteEnd int // the whole call in the bytes of the turn

	Submit bool // the submission
	Notice bool // a repeat: answer NoticeResult, do not run

	// Problem is set where the call is wrong but its failure kind is switched
	// off: answer it with this text as an error, do not run it.
	Problem string

	// Coerced lists the JSON pointers of arguments that were coerced; Arguments
	// is then the changed text.
	Coerced []string
}

// Outcome is what a turn holds. Calls are to be run only where Failures is
// empty.
type Outcome struct {
	Calls      []Call
	Failures   []episode.Failure // Failures[0] is the one charged
	Submission string            // JSON text of the submission's arguments, "" where there is none
}
