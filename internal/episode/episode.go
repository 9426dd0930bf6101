// Package episode holds the nouns of the project: what travels on a stream
// between the commands. It knows no format, file or flag and imports only the
// standard library. The JSON tags name the fields of both encodings;
// odyssey-stream(5) documents each of them.
package episode

import "encoding/json"

// Family says which kind of environment a row belongs to.
const (
	FamilyToolUse       = "tool-use"
	FamilyWebSearch     = "web-search"
	FamilyKnowledgeWork = "knowledge-work"
	FamilyConversation  = "conversation"
)

// Split says on which side of the train/heldout line an environment stands. It
// follows the source table: no heldout environment shares a table with train.
const (
	SplitTrain   = "train"
	SplitHeldout = "heldout"
)

// Environment is one row of an environment stream: data, tools over it, and
// tasks over the tools. The four synthesis commands fill the same row stage by
// stage.
type Environment struct {
	EnvironmentID string   `json:"environment_id"` // digest of sources, files and design seed; fixed by odyssey-seed
	Domain        string   `json:"domain"`
	Subdomain     string   `json:"subdomain"`
	Topic         string   `json:"topic"`
	Family        string   `json:"family"`
	Split         string   `json:"split"`
	Sources       []Source `json:"sources"`
	Files         []File   `json:"files"`
	Schema        string   `json:"schema"` // JSON text: the inferred Schema of the tables among Files
	Tools         []Tool   `json:"tools"`
	SubmitTool    string   `json:"submit_tool"`
	RequiresTool  bool     `json:"requires_tool"`
	Tasks         []Task   `json:"tasks"`
	Audit         []Audit  `json:"audit"`

	// Extra holds top-level fields this version does not know. They pass
	// through every stage untouched.
	Extra map[string]json.RawMessage `json:"-"`
}

// Source says where a file of an environment came from.
type Source struct {
	Kind     string `json:"kind"` // builtin, file, disguised, ...
	URL      string `json:"url"`
	Title    string `json:"title"`
	Revision string `json:"revision"`
	Licence  string `json:"licence"` // SPDX identifier, or "unknown"
	Digest   string `json:"digest"`  // sha256 of the source bytes, hex
}

// File is a data file that the tools read. Tables are JSON: an array of row
// objects, keys in column order.
type File struct {
	Path      string `json:"path"` // relative, slash-separated, such as "country.json"
	MediaType string `json:"media_type"`
	Content   string `json:"content"`
}

// Tool is an executable function offered to the policy.
type Tool struct {
	Name        string    `json:"name"`
	Description string    `json:"description"`
	Parameters  string    `json:"parameters"` // JSON text: a JSON Schema object, properties in declaration order
	Returns     string    `json:"returns"`    // JSON text: a JSON Schema, or ""
	Raises      []string  `json:"raises"`     // error codes the tool may refuse with
	Pure        bool      `json:"pure"`
	Language    string    `json:"language"` // starlark
	Source      string    `json:"source"`
	Examples    []Example `json:"examples"`
}

// Example is a recorded call of a tool; it doubles as a probe.
type Example struct {
	Arguments string `json:"arguments"` // JSON text
	Result    string `json:"result"`    // JSON text
}

// Task is one question with its solution and its independent verifier.
type Task struct {
	TaskID       string    `json:"task_id"`
	Query        string    `json:"query"`
	Level        int       `json:"level"`         // 1..4
	Operation    string    `json:"operation"`     // the operation skeleton, such as "lookup" or "join"
	SubmitSchema string    `json:"submit_schema"` // JSON text: schema of the submit tool's arguments
	Solution     Solution  `json:"solution"`
	Verifier     Verifier  `json:"verifier"`
	Verdicts     []Verdict `json:"verdicts"`
	Status       string    `json:"status"` // "", verified or rejected
}

// Solution reaches the answer through the tools.
type Solution struct {
	Language string         `json:"language"`
	Source   string         `json:"source"`
	Answer   string         `json:"answer"` // JSON text: the arguments of the submit tool
	Calls    []SolutionCall `json:"calls"`  // without the submission
}

// SolutionCall is one tool call of a solution.
type SolutionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON text, keys in schema order
}

// Verifier rebuilds the answer from the data files and judges a submission.
type Verifier struct {
	Language string `json:"language"`
	Source   string `json:"source"`
}

// Task status values.
const (
	StatusVerified = "verified"
	StatusRejected = "rejected"
)

// Verdict is the outcome of one gate for one task.
type Verdict struct {
	Gate    string `json:"gate"`
	Outcome string `json:"outcome"` // pass or fail
	Detail  string `json:"detail"`  // on fail: the counterexample; on pass: a figure, such as the kill score, or ""
	Round   int    `json:"round"`
}

// Verdict outcomes.
const (
	OutcomePass = "pass"
	OutcomeFail = "fail"
)

// Audit accounts for what one stage spent on an environment.
type Audit struct {
	Stage            string  `json:"stage"`
	Model            string  `json:"model"` // builtin for program synthesis
	Calls            int     `json:"calls"`
	PromptTokens     int     `json:"prompt_tokens"`
	CompletionTokens int     `json:"completion_tokens"`
	USD              float64 `json:"usd"`
	Rounds           int     `json:"rounds"`
}
