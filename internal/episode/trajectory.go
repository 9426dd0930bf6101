package episode

import "encoding/json"

// Trajectory is the record of one episode, token by token. Every per-token
// array has the length of TokenIDs.
type Trajectory struct {
	TrajectoryID  string  `json:"trajectory_id"` // digest of seed, step, group, sample, task
	Step          int     `json:"step"`          // optimizer step that this episode feeds, from 0
	GroupID       string  `json:"group_id"`
	GroupSize     int     `json:"group_size"` // planned G
	Sample        int     `json:"sample"`     // 0..G-1
	EnvironmentID string  `json:"environment_id"`
	TaskID        string  `json:"task_id"`
	Domain        string  `json:"domain"`
	Family        string  `json:"family"`
	Level         int     `json:"level"`
	Split         string  `json:"split"`
	Policy        string  `json:"policy"`         // digest of the policy's configuration and tokenizer
	PolicyVersion int     `json:"policy_version"` // version of the weights that sampled
	Seed          uint64  `json:"seed"`           // the run's seed
	Temperature   float64 `json:"temperature"`    // 0: greedy

	Tools        string `json:"tools"` // JSON text: the tools as offered, an array of {name, description, parameters, pure}
	SubmitTool   string `json:"submit_tool"`
	RequiresTool bool   `json:"requires_tool"`

	TokenIDs        []int32   `json:"token_ids"`
	LossMask        []uint8   `json:"loss_mask"`        // b: 1 where the policy sampled the token
	RolloutLogprobs []float32 `json:"rollout_logprobs"` // log-probability of each sampled token, 0 where b = 0
	Segments        []Segment `json:"segments"`
	Turns           []Turn    `json:"turns"`

	FinishReason string    `json:"finish_reason"`
	Failures     []Failure `json:"failures"`   // in the order of the rule; the first is the charged one
	Reward       float64   `json:"reward"`     // the verifier's, before the abnormal rule
	Retries      int       `json:"retries"`    // slots tried again after a fault of another side
	Submission   string    `json:"submission"` // JSON text submitted, or ""

	Credit *Credit `json:"-"` // set on credit streams; its fields stand at top level on the wire

	Extra map[string]json.RawMessage `json:"-"`
}

// Segment is a run of tokens whose prefix was never rewritten.
type Segment struct {
	TokenStart int `json:"token_start"`
	TokenEnd   int `json:"token_end"`
}

// Role of a turn.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// Turn is one message of the history with the tokens that hold it. Template
// glue belongs to no turn.
type Turn struct {
	Role             string `json:"role"`
	TokenStart       int    `json:"token_start"`
	TokenEnd         int    `json:"token_end"`
	Calls            []Call `json:"calls"`
	StopReason       string `json:"stop_reason"`       // why the generation ended: stop, length, context, cancelled; "" for other roles
	ObservationError bool   `json:"observation_error"` // a tool turn that reports an error
}

// Why a generation ended.
const (
	StopEnd       = "stop"    // the end-of-turn token was sampled
	StopLength    = "length"  // the turn's token budget
	StopContext   = "context" // the episode's context budget
	StopCancelled = "cancelled"
)

// Call is one tool call found in an assistant turn.
type Call struct {
	Name       string `json:"name"`
	Arguments  string `json:"arguments"` // JSON text as sampled
	TokenStart int    `json:"token_start"`
	TokenEnd   int    `json:"token_end"`
	Outcome    string `json:"outcome"` // ok, refused, error, notice, submitted, not_run
}

// Call outcomes.
const (
	CallOK        = "ok"
	CallRefused   = "refused" // the tool answered with an error value of its contract
	CallError     = "error"   // the tool raised
	CallNotice    = "notice"  // answered by the harness: a repeat below the strike limit
	CallSubmitted = "submitted"
	CallNotRun    = "not_run"
)

// Why an episode ended.
const (
	FinishSubmitted = "submitted"
	FinishAbnormal  = "abnormal"
	FinishBudget    = "budget"
	FinishFault     = "fault"
	FinishCancelled = "cancelled"
)

// Whose fault a failure is. Only the agent's makes a trajectory abnormal.
const (
	FaultAgent          = "agent"
	FaultEnvironment    = "environment"
	FaultVerifier       = "verifier"
	FaultInfrastructure = "infrastructure"
)

// Failure kinds; hca.md section 2 is the rule of each.
const (
	KindMalformedJSON      = "malformed_json"
	KindUnclosedCall       = "unclosed_call"
	KindArgumentsNotObject = "arguments_not_object"
	KindUnknownTool        = "unknown_tool"
	KindMissingArgument    = "missing_argument"
	KindUnexpectedArgument = "unexpected_argument"
	KindArgumentType       = "argument_type"
	KindArgumentValue      = "argument_value"
	KindRuntimeError       = "runtime_error"
	KindBudgetExhausted    = "budget_exhausted"
	KindNoAction           = "no_action"
	KindUnclosedThink      = "unclosed_think"
	KindNestedCall         = "nested_call"
	KindTooManyCalls       = "too_many_calls"
	KindMixedAnswer        = "mixed_answer"
	KindDirectSubmit       = "direct_submit"
	KindPrematureSubmit    = "premature_submit"
	KindRepeatedQuery      = "repeated_query"
	KindRepetition         = "repetition"
	KindForgedObservation  = "forged_observation"
)

// Failure is an observable failure with its place. Token indices are indices
// into the trajectory's TokenIDs; byte offsets are into the raw bytes of the
// turn's tokens. [start, end) everywhere; start = end marks missing text.
type Failure struct {
	Turn           int    `json:"turn"` // index into Turns
	Kind           string `json:"kind"`
	Fault          string `json:"fault"`
	Detail         string `json:"detail"`
	ByteStart      int    `json:"byte_start"` // the culprit
	ByteEnd        int    `json:"byte_end"`
	TokenStart     int    `json:"token_start"` // the culprit, decision token included
	TokenEnd       int    `json:"token_end"`
	CallTokenStart int    `json:"call_token_start"` // the whole call, or what stands for it
	CallTokenEnd   int    `json:"call_token_end"`
}

// Credit is what odyssey-hca adds to a trajectory.
type Credit struct {
	CreditMask      []uint8  `json:"credit_mask"` // m <= b
	Advantage       *float64 `json:"advantage"`   // nil: the row is left out of the loss
	Return          float64  `json:"return"`
	ResponsibleTurn int      `json:"responsible_turn"` // index into Turns, -1 if none
	ErrorSpan       Span     `json:"error_span"`       // token indices, empty if none
	Baseline        Baseline `json:"baseline"`
	Weight          float64  `json:"weight"` // factor on each m = 1 log-probability times advantage, normalisation included
}

// Span is [TokenStart, TokenEnd) in a trajectory's TokenIDs.
type Span struct {
	TokenStart int `json:"token_start"`
	TokenEnd   int `json:"token_end"`
}

// Baseline describes the set that centred a group.
type Baseline struct {
	Size       int     `json:"size"`
	Mean       float64 `json:"mean"`
	Std        float64 `json:"std"`
	Degenerate bool    `json:"degenerate"`
}

// Metric is one row of training or evaluation figures.
type Metric struct {
	Step               int      `json:"step"`
	Split              string   `json:"split"`
	Temperature        float64  `json:"temperature"`
	Reward             float64  `json:"reward"`
	CompletionRate     float64  `json:"completion_rate"`
	AbnormalRate       float64  `json:"abnormal_rate"`
	MalformedRate      float64  `json:"malformed_rate"`
	Turns              float64  `json:"turns"`
	ResponseTokens     float64  `json:"response_tokens"`
	LogprobAbsDiffMax  *float64 `json:"logprob_abs_diff_max,omitempty"` // nil here and below: not measured
	LogprobAbsDiffMean *float64 `json:"logprob_abs_diff_mean,omitempty"`
	Loss               *float64 `json:"loss,omitempty"`
	GradNorm           *float64 `json:"grad_norm,omitempty"`
	Entropy            *float64 `json:"entropy,omitempty"`
	MaxTokenWeight     *float64 `json:"max_token_weight,omitempty"`
	Trajectories       int      `json:"trajectories"`
	Tokens             int      `json:"tokens"`
	TokensPerS         *float64 `json:"tokens_per_s,omitempty"` // only with --timings
	Seconds            *float64 `json:"seconds,omitempty"`      // only with --timings

	Extra map[string]json.RawMessage `json:"-"`
}
