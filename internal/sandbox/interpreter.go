// The worker's half of the work, without processes: programs held by digest,
// calls and scripts under their limits.
package sandbox

import (
	"container/list"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// dialect is Starlark with sets and while, without recursion: the part that
// Python shares.
var dialect = &syntax.FileOptions{Set: true, While: true, TopLevelControl: true}

const (
	stepChunk   = 20_000 // steps between two looks at memory
	maxScripts  = 1024   // compiled scripts kept per interpreter
	scriptName  = "script"
	reasonSteps = "step limit"
	reasonHeap  = "memory limit"
)

// interpreter holds loaded programs, the least recently used given up first.
type interpreter struct {
	limits   helloRequest
	common   starlark.StringDict
	programs map[string]*list.Element // digest -> *program
	recent   *list.List
	held     int // source bytes of all programs
	scripts  map[scriptKey]*starlark.Program
}

type program struct {
	digest string
	size   int
	data   *data
	tools  map[string]starlark.Callable
}

type scriptKey struct {
	mode   Mode
	source string
}

func newInterpreter(limits helloRequest) *interpreter {
	return &interpreter{
		limits:   limits,
		common:   commonBuiltins(int(limits.ResultBytes)),
		programs: map[string]*list.Element{},
		recent:   list.New(),
		scripts:  map[scriptKey]*starlark.Program{},
	}
}

// handle answers one request.
func (in *interpreter) handle(req request) Result {
	switch req := req.(type) {
	case *loadRequest:
		return in.load(req)
	case callRequest:
		p := in.find(req.Digest)
		if p == nil {
			return Result{Status: absent}
		}
		return in.call(p, req)
	case runRequest:
		p := in.find(req.Digest)
		if p == nil {
			return Result{Status: absent}
		}
		return in.run(p, req)
	}
	return Result{Status: Infrastructure, Error: "unexpected request"}
}

func (in *interpreter) find(digest string) *program {
	e, ok := in.programs[digest]
	if !ok {
		return nil
	}
	in.recent.MoveToFront(e)
	return e.Value.(*program)
}

func (in *interpreter) load(req *loadRequest) Result {
	if in.find(req.Digest) != nil {
		return Result{Status: OK}
	}
	p := &program{
		digest: req.Digest,
		size:   req.bytes(),
		data:   &data{tables: map[string]*starlark.List{}, indexes: map[indexKey]*starlark.Dict{}},
		tools:  map[string]starlark.Callable{},
	}
	for in.recent.Len() > 0 && in.held+p.size > int(in.limits.CacheBytes) {
		oldest := in.recent.Remove(in.recent.Back()).(*program)
		delete(in.programs, oldest.digest)
		in.held -= oldest.size
	}
	for _, f := range req.Files {
		if !strings.HasSuffix(f.Path, ".json") {
			continue
		}
		v, err := decodeJSON(f.Content)
		if err != nil {
			return Result{Status: Raised, Code: CodeNotJSON, Error: fmt.Sprintf("file %s: %v", f.Path, err)}
		}
		rows, ok := v.(*starlark.List)
		if !ok {
			return Result{Status: Raised, Code: CodeNotJSON, Error: fmt.Sprintf("file %s: not an array of rows", f.Path)}
		}
		rows.Freeze()
		p.data.tables[f.Path] = rows
	}
	globals := starlark.StringDict{
		"table":  starlark.NewBuiltin("table", p.data.builtinTable),
		"lookup": starlark.NewBuiltin("lookup", p.data.builtinLookup),
		"refuse": starlark.NewBuiltin("refuse", builtinRefuse),
	}
	for name, v := range in.common {
		globals[name] = v
	}
	// Tools of one designer often share one text: it is run once.
	executed := map[string]starlark.StringDict{}
	for _, t := range req.Tools {
		module, done := executed[t.Source]
		if !done {
			compiled, err := compile(t.Name, t.Source, globals)
			if err != nil {
				return failure(err, t.Name, nil)
			}
			thread := in.newThread()
			if module, err = compiled.Init(thread, globals); err != nil {
				return failure(err, t.Name, thread)
			}
			module.Freeze()
			executed[t.Source] = module
		}
		function, ok := module[t.Name].(starlark.Callable)
		if !ok {
			return Result{Status: Raised, Code: CodeUnknownTool, Source: t.Name, Error: fmt.Sprintf("source defines no function %s", t.Name)}
		}
		p.tools[t.Name] = function
	}
	in.programs[req.Digest] = in.recent.PushFront(p)
	in.held += p.size
	return Result{Status: OK}
}

func compile(name, source string, predeclared starlark.StringDict) (*starlark.Program, error) {
	file, err := dialect.Parse(name, source, 0)
	if err != nil {
		return nil, err
	}
	if found := lint(file); found != nil {
		return nil, *found
	}
	return starlark.FileProgram(file, predeclared.Has)
}

// newThread makes a thread with nothing printed, nothing loaded and the limits
// of one call.
func (in *interpreter) newThread() *starlark.Thread {
	thread := &starlark.Thread{Print: func(*starlark.Thread, string) {}}
	var base uint64
	limit := in.limits.Steps
	thread.SetMaxExecutionSteps(min(limit, stepChunk))
	thread.OnMaxSteps = func(t *starlark.Thread) {
		if t.Steps >= limit {
			t.Cancel(reasonSteps)
			return
		}
		if heap := heapBytes(); base == 0 || heap < base {
			base = heap
		} else if heap-base > in.limits.MemoryBytes {
			runtime.GC() // what is only garbage does not count
			if heap = heapBytes(); heap > base && heap-base > in.limits.MemoryBytes {
				t.Cancel(reasonHeap)
				return
			}
		}
		t.SetMaxExecutionSteps(min(limit, t.Steps+stepChunk))
	}
	return thread
}

var heapSample = []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}

func heapBytes() uint64 {
	metrics.Read(heapSample)
	return heapSample[0].Value.Uint64()
}

func (in *interpreter) call(p *program, req callRequest) Result {
	function, ok := p.tools[req.Tool]
	if !ok {
		return Result{Status: Raised, Code: CodeUnknownTool, Source: req.Tool, Error: fmt.Sprintf("no tool %q", req.Tool)}
	}
	kwargs, err := decodeArguments(req.Arguments)
	if err != nil {
		return Result{Status: Raised, Code: CodeNotJSON, Source: req.Tool, Error: "arguments: " + err.Error()}
	}
	thread := in.newThread()
	v, err := starlark.Call(thread, function, nil, kwargs)
	return in.finish(v, err, req.Tool, thread)
}

func decodeArguments(text string) ([]starlark.Tuple, error) {
	v, err := decodeJSON(text)
	if err != nil {
		return nil, err
	}
	dict, ok := v.(*starlark.Dict)
	if !ok {
		return nil, errors.New("not an object")
	}
	return dict.Items(), nil
}

func (in *interpreter) finish(v starlark.Value, err error, source string, thread *starlark.Thread) Result {
	if err != nil {
		return failure(err, source, thread)
	}
	text, err := appendJSON(nil, v, int(in.limits.ResultBytes))
	if err == nil && len(text) > int(in.limits.ResultBytes) {
		err = errTooLong
	}
	if err != nil {
		r := failure(err, source, thread)
		if r.Status == Raised {
			r.Code, r.Error = CodeNotJSON, "result: "+err.Error()
		}
		return r
	}
	return Result{Status: OK, Value: string(text), Steps: thread.Steps}
}

func (in *interpreter) run(p *program, req runRequest) Result {
	predeclared := starlark.StringDict{}
	for name, v := range in.common {
		predeclared[name] = v
	}
	var calls []Call
	if req.Mode == WithTools {
		predeclared["call"] = starlark.NewBuiltin("call", in.callBuiltin(p, &calls))
	} else {
		predeclared["table"] = starlark.NewBuiltin("table", p.data.builtinTable)
	}
	key := scriptKey{req.Mode, req.Source}
	compiled, ok := in.scripts[key]
	if !ok {
		var err error
		if compiled, err = compile(scriptName, req.Source, predeclared); err != nil {
			return failure(err, scriptName, nil)
		}
		if len(in.scripts) >= maxScripts {
			clear(in.scripts)
		}
		in.scripts[key] = compiled
	}
	thread := in.newThread()
	r := func() Result {
		globals, err := compiled.Init(thread, predeclared)
		if err != nil {
			return failure(err, scriptName, thread)
		}
		globals.Freeze()
		function, ok := globals[req.Function].(starlark.Callable)
		if !ok {
			return Result{Status: Raised, Code: CodeUnknownTool, Source: scriptName, Error: fmt.Sprintf("source defines no function %s", req.Function)}
		}
		kwargs, err := decodeArguments(req.Arguments)
		if err != nil {
			return Result{Status: Raised, Code: CodeNotJSON, Source: scriptName, Error: "arguments: " + err.Error()}
		}
		v, err := starlark.Call(thread, function, nil, kwargs)
		return in.finish(v, err, scriptName, thread)
	}()
	r.Calls = calls
	return r
}

// maxScriptCalls bounds what one script may ask of the tools.
const maxScriptCalls = 1000

func (in *interpreter) callBuiltin(p *program, calls *[]Call) builtinFunc {
	total := 0
	return func(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var name string
		arguments := new(starlark.Dict)
		if err := starlark.UnpackArgs(b.Name(), args, kwargs, "name", &name, "arguments?", &arguments); err != nil {
			return nil, err
		}
		function, ok := p.tools[name]
		if !ok {
			return nil, fmt.Errorf("call: no tool %q", name)
		}
		if len(*calls) >= maxScriptCalls {
			return nil, fmt.Errorf("call: more than %d calls", maxScriptCalls)
		}
		// Arguments and result travel as text, so that a script sees what an
		// agent would see and shares no value with a tool.
		limit := int(in.limits.ResultBytes)
		text, err := appendJSON(nil, arguments, limit)
		if err != nil {
			return nil, err
		}
		given, err := decodeArguments(string(text))
		if err != nil {
			return nil, err
		}
		c := Call{Name: name, Arguments: string(text), Status: OK}
		v, err := starlark.Call(thread, function, nil, given)
		var refused *refusal
		switch {
		case errors.As(err, &refused):
			c.Status = Refused
			c.Value = string(appendErrorValue(nil, refused.code, refused.message))
		case err != nil:
			return nil, err
		default:
			text, err := appendJSON(nil, v, limit)
			if err != nil {
				return nil, err
			}
			c.Value = string(text)
		}
		if total += len(c.Arguments) + len(c.Value); total > maxCallBytes(limit) {
			return nil, errTooLong
		}
		*calls = append(*calls, c)
		return decodeJSON(c.Value)
	}
}

// failure sorts an error of the interpreter into a result.
func failure(err error, source string, thread *starlark.Thread) Result {
	r := Result{Status: Raised, Code: CodeException, Error: oneLine(err.Error()), Source: source}
	if thread != nil {
		r.Steps = thread.Steps
	}
	var refused *refusal
	var eval *starlark.EvalError
	var syntaxError syntax.Error
	var resolveErrors resolve.ErrorList
	switch {
	case errors.Is(err, errTooLong):
		r.Status, r.Code, r.Error = Limit, CodeOutput, "limit:output"
	case errors.As(err, &refused):
		r.Status, r.Code, r.Error = Refused, refused.code, refused.message
		r.Value = string(appendErrorValue(nil, refused.code, refused.message))
	case errors.As(err, &syntaxError):
		r.Code, r.Error = CodeSyntax, syntaxError.Msg
		r.Line, r.Column = int(syntaxError.Pos.Line), int(syntaxError.Pos.Col)
	case errors.As(err, &resolveErrors):
		r.Code, r.Error = CodeSyntax, resolveErrors[0].Msg
		r.Line, r.Column = int(resolveErrors[0].Pos.Line), int(resolveErrors[0].Pos.Col)
	case errors.As(err, &eval):
		r.Error = oneLine(eval.Msg)
		switch {
		case strings.HasSuffix(eval.Msg, "cancelled: "+reasonSteps):
			r.Status, r.Code, r.Error = Limit, CodeSteps, "limit:steps"
		case strings.HasSuffix(eval.Msg, "cancelled: "+reasonHeap):
			r.Status, r.Code, r.Error = Limit, CodeMemory, "limit:memory"
		case strings.HasPrefix(eval.Msg, "fail: "):
			r.Code, r.Error = CodeFail, oneLine(strings.TrimPrefix(eval.Msg, "fail: "))
		}
		for i := range eval.CallStack {
			if frame := eval.CallStack.At(i); frame.Pos.Line > 0 {
				r.Source, r.Line, r.Column = frame.Pos.Filename(), int(frame.Pos.Line), int(frame.Pos.Col)
				break
			}
		}
	}
	return r
}

// oneLine makes a message fit for one line of bounded length.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
	if len(s) > 500 {
		s = strings.ToValidUTF8(s[:500], "") + "..."
	}
	return s
}
