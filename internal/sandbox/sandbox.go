// Package sandbox runs generated code: tools, solutions and verifiers written
// in Starlark. The code runs in worker processes, which are this very binary
// started again; a worker gives up opening files, sockets and new processes
// before it reads its first program. The parent owns the clock: a worker that
// does not answer in time is killed and replaced.
//
// The worker is not trusted. What it sends is length-prefixed, parsed with
// bounds and carries no instruction; a script cannot write to the pipe itself.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// Program is what a session runs on: the data files of an environment and its
// tools.
type Program struct {
	Files []episode.File
	Tools []episode.Tool
}

// Options bound what generated code may use. The zero value of a field means
// its default.
type Options struct {
	Workers     int           // worker processes, at most; default 1
	Time        time.Duration // wall clock of one call; default 5 s
	LoadTime    time.Duration // wall clock of starting a worker or loading a program; default 20 s
	Steps       uint64        // Starlark steps of one call; default 2,000,000
	MemoryBytes uint64        // heap that one call may add; default 128 MiB
	ResultBytes int           // length of one result; default 1 MiB
	CacheBytes  int           // data that one worker keeps loaded, as source bytes; default 32 MiB

	// Unprotected runs workers without a system-call filter where the system
	// has none. Without it such a system refuses to run anything.
	Unprotected bool
}

func (o Options) withDefaults() Options {
	if o.Workers <= 0 {
		o.Workers = 1
	}
	if o.Time <= 0 {
		o.Time = 5 * time.Second
	}
	if o.LoadTime <= 0 {
		o.LoadTime = 20 * time.Second
	}
	if o.Steps == 0 {
		o.Steps = 2_000_000
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = 128 << 20
	}
	if o.ResultBytes <= 0 {
		o.ResultBytes = 1 << 20
	}
	if o.CacheBytes <= 0 {
		o.CacheBytes = 32 << 20
	}
	return o
}

// Status says how a call ended.
type Status string

const (
	OK             Status = "ok"
	Refused        Status = "refused"        // the tool answered with an error value of its contract
	Raised         Status = "raised"         // an uncaught error: fail, a type error, an unknown key, ...
	Limit          Status = "limit"          // Code says which: steps, memory, time or output
	Infrastructure Status = "infrastructure" // the worker could not start, died or answered nonsense
)

// Codes of Limit.
const (
	CodeSteps  = "steps"
	CodeMemory = "memory"
	CodeTime   = "time"
	CodeOutput = "output"
)

// Codes of Raised and of LoadError.
const (
	CodeSyntax      = "syntax"       // the source does not parse or resolve, or holds a construct that can only fail
	CodeUnknownTool = "unknown_tool" // no function of that name
	CodeFail        = "fail"         // fail() was called
	CodeException   = "exception"    // any other error of the interpreter
	CodeNotJSON     = "not_json"     // the arguments or the returned value have no JSON form
)

// Result is the outcome of one call.
type Result struct {
	Status Status

	// Value is JSON text in the form of Python's json.dumps with
	// ensure_ascii=False, keys in insertion order. OK: the returned value.
	// Refused: {"error": code, "message": text}. Otherwise "".
	Value string

	Code  string // Refused: the code given; Raised and Limit: the constants above
	Error string // message for people; "" if OK

	// Line and Column are where the innermost frame of the script stood, from
	// 1; 0 if unknown. Source names the script they count in: a tool's name,
	// or "script" for one given to Run.
	Source string
	Line   int
	Column int

	Steps uint64 // Starlark steps taken: deterministic, unlike time
	Calls []Call // Run with WithTools: the tool calls that the script made, in order
}

// Describe says how a call ended, and where, for a verdict: such as
// "raised (error): no such key at list_lake:4:16".
func (r Result) Describe() string {
	s := string(r.Status)
	if r.Code != "" {
		s += " (" + r.Code + ")"
	}
	s += ": " + r.Error
	if r.Line > 0 {
		s += fmt.Sprintf(" at %s:%d:%d", r.Source, r.Line, r.Column)
	}
	return s
}

// Observation is the text that an agent is shown for a result. It is "" for
// Limit and Infrastructure, which no agent is shown.
func (r Result) Observation() string {
	switch r.Status {
	case OK, Refused:
		return r.Value
	case Raised:
		return string(appendErrorValue(nil, "exception", r.Error))
	}
	return ""
}

// Call is one tool call made by a script.
type Call struct {
	Name      string
	Arguments string // JSON text, keys in the order the script gave them
	Status    Status // OK or Refused: a call that raised ends the script
	Value     string // as Result.Value
}

// Mode says what a script given to Run may reach.
type Mode byte

const (
	// WithTools offers call(name, arguments), the only way to the tools. It
	// returns the tool's value as the agent would read it; a refusal returns
	// {"error": code, "message": text}.
	WithTools Mode = 1
	// DataOnly offers table(path) and no tools.
	DataOnly Mode = 2
)

// LoadError says why a program cannot be loaded.
type LoadError struct {
	Tool         string // the tool whose source is at fault, "" for a data file
	Code         string // CodeSyntax, CodeException, CodeFail or CodeNotJSON
	Message      string
	Line, Column int
}

func (e *LoadError) Error() string {
	if e.Tool == "" {
		return e.Message
	}
	if e.Line == 0 {
		return fmt.Sprintf("tool %s: %s", e.Tool, e.Message)
	}
	return fmt.Sprintf("tool %s:%d:%d: %s", e.Tool, e.Line, e.Column, e.Message)
}

// ErrUnprotected is wrapped by the error of Open where the system offers no
// system-call filter and Options.Unprotected is not set.
var ErrUnprotected = errors.New("no system-call filter here: generated code cannot be contained")

// Session calls into one program. It may be used by several goroutines.
type Session struct {
	pool    *Pool
	load    *loadRequest
	private *process // set on sessions of OpenFresh
	lock    chan struct{}
}

// Open loads a program into a worker and returns a session on it. Programs are
// kept by content: opening the same one again costs a digest. The error is a
// *LoadError if the program itself is at fault.
func (p *Pool) Open(ctx context.Context, program Program) (*Session, error) {
	s := &Session{pool: p, load: newLoadRequest(program)}
	return s, p.loadCheck(ctx, s.load)
}

// OpenFresh is Open in a worker of its own that nothing ran in before. Close
// ends that worker.
func (p *Pool) OpenFresh(ctx context.Context, program Program) (*Session, error) {
	worker, err := startProcess(ctx, p.options)
	if err != nil {
		return nil, err
	}
	s := &Session{pool: p, load: newLoadRequest(program), private: worker, lock: make(chan struct{}, 1)}
	if res := worker.ensureLoaded(ctx, s.load); res.Status != OK {
		worker.kill()
		return nil, loadFailure(res)
	}
	return s, nil
}

// Close ends the worker of a session made by OpenFresh; for others it does
// nothing.
func (s *Session) Close() {
	if s.private != nil {
		s.private.kill()
	}
}

// Call calls a tool with arguments, the JSON text of an object.
func (s *Session) Call(ctx context.Context, tool, arguments string) Result {
	return s.do(ctx, callRequest{Digest: s.load.Digest, Tool: tool, Arguments: arguments})
}

// Run executes a script and calls a function of it with arguments, the JSON
// text of an object. Each run starts from the script's own fresh globals.
func (s *Session) Run(ctx context.Context, mode Mode, source, function, arguments string) Result {
	return s.do(ctx, runRequest{Digest: s.load.Digest, Mode: mode, Source: source, Function: function, Arguments: arguments})
}

func (s *Session) do(ctx context.Context, req request) Result {
	if s.private != nil {
		s.lock <- struct{}{}
		defer func() { <-s.lock }()
		return s.private.perform(ctx, s.load, req)
	}
	worker, err := s.pool.acquire(ctx, s.load.Digest)
	if err != nil {
		return Result{Status: Infrastructure, Error: err.Error()}
	}
	defer s.pool.release(worker)
	return worker.perform(ctx, s.load, req)
}

// loadFailure turns the result of a load into the error of Open.
func loadFailure(res Result) error {
	if res.Status == Raised {
		return &LoadError{Tool: res.Source, Code: res.Code, Message: res.Error, Line: res.Line, Column: res.Column}
	}
	if res.Status == Limit {
		return &LoadError{Tool: res.Source, Code: res.Code, Message: res.Error}
	}
	return errors.New(res.Error)
}
