// Package toolcheck tries the tools of an environment in the sandbox. It is
// what odyssey-tools does before it lets tools go and what odyssey-verify does
// to any stream: the same checks, in one place.
//
// The tools are probed with the recorded examples, with random arguments that
// fit their schema, with every key and category of the data, and once more on
// data in which every value was substituted: a tool that holds a literal of
// the data answers differently there.
package toolcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/sandbox"
	"github.com/odyssey-rl/odyssey/internal/toolcall"
)

// The gates of the tools, in the order in which they are tried.
const (
	GateSchema   = "schema"         // parameter schemas compile, are closed, and refuse what does not fit
	GateLoad     = "tools_load"     // sources compile and define the tools
	GateExamples = "tools_examples" // two or more recorded examples come out as recorded
	GateTotal    = "tools_total"    // no arguments that fit the schema make a tool raise; two runs agree; results fit the declared schema
	GateCover    = "tools_cover"    // every column can be reached
	GateLiteral  = "tools_literal"  // no value of the data stands in the code
)

// Gates lists them in order.
var Gates = []string{GateSchema, GateLoad, GateExamples, GateTotal, GateCover, GateLiteral}

// minExamples is the number of recorded examples that a tool needs.
const minExamples = 2

// Fault is the first gate that the tools of an environment failed.
type Fault struct {
	Gate   string
	Tool   string // "" where no single tool is at fault
	Detail string // the counterexample
}

func (f *Fault) Error() string {
	if f.Tool == "" {
		return f.Gate + ": " + f.Detail
	}
	return f.Gate + ": " + f.Tool + ": " + f.Detail
}

// Checked is what came of checking the tools of an environment.
type Checked struct {
	Fault      *Fault                      // nil: every gate passed
	Session    *sandbox.Session            // on the environment's data and tools; nil if they do not load
	Parameters map[string]*toolcall.Schema // by tool, the submit tool among them; complete if Fault is nil
	Calls      int                         // tool calls made
}

// Program is what the sandbox loads of an environment.
func Program(e *episode.Environment) sandbox.Program {
	return sandbox.Program{Files: e.Files, Tools: e.Tools}
}

// Check tries every gate on the tools of an environment, up to the first that
// fails. The error speaks of the sandbox, not of the tools.
func Check(ctx context.Context, pool *sandbox.Pool, e *episode.Environment) (Checked, error) {
	c := &checker{ctx: ctx, environment: e, parameters: map[string]*toolcall.Schema{}}
	fault, err := c.run(pool)
	return Checked{Fault: fault, Session: c.session, Parameters: c.parameters, Calls: c.calls}, err
}

type checker struct {
	ctx         context.Context
	environment *episode.Environment
	data        *data
	session     *sandbox.Session
	tools       []checkedTool // without the submit tool
	parameters  map[string]*toolcall.Schema
	calls       int
}

type checkedTool struct {
	*episode.Tool
	arguments *toolcall.Schema
	returns   *toolcall.Schema
	params    []parameter
}

// probe is one call and what came of it.
type probe struct {
	tool      int // index into checker.tools
	arguments []member
	status    sandbox.Status
	value     string
}

func (c *checker) run(pool *sandbox.Pool) (*Fault, error) {
	var err error
	if c.data, err = readData(c.environment); err != nil {
		return &Fault{Gate: GateLoad, Detail: err.Error()}, nil
	}
	if fault := c.schemas(); fault != nil {
		return fault, nil
	}
	c.session, err = pool.Open(c.ctx, Program(c.environment))
	var load *sandbox.LoadError
	if errors.As(err, &load) {
		return &Fault{GateLoad, load.Tool, load.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	if fault, err := c.examples(); fault != nil || err != nil {
		return fault, err
	}
	probes := c.probes()
	for _, calls := range [][]probe{probes, c.edges()} {
		if fault, err := c.total(calls); fault != nil || err != nil {
			return fault, err
		}
	}
	if fault := c.cover(probes); fault != nil {
		return fault, nil
	}
	return c.literal(pool, probes)
}

// schemas checks what can be known without running anything.
func (c *checker) schemas() *Fault {
	e := c.environment
	submit := false
	seen := map[string]bool{}
	for i := range e.Tools {
		tool := &e.Tools[i]
		fault := func(format string, arguments ...any) *Fault {
			return &Fault{GateSchema, tool.Name, fmt.Sprintf(format, arguments...)}
		}
		if tool.Name == "" || seen[tool.Name] {
			return fault("the name is empty or taken")
		}
		seen[tool.Name] = true
		if tool.Language != "starlark" {
			return &Fault{GateLoad, tool.Name, fmt.Sprintf("language %q is not one that can be run", tool.Language)}
		}
		t := checkedTool{Tool: tool}
		var err error
		if t.arguments, err = toolcall.CompileSchema(tool.Parameters); err != nil {
			return fault("parameters: %v", err)
		}
		c.parameters[tool.Name] = t.arguments
		if t.returns, err = toolcall.CompileSchema(tool.Returns); err != nil {
			return fault("returns: %v", err)
		}
		if t.params, err = readParameters(tool.Parameters); err != nil {
			return fault("parameters: %v", err)
		}
		if tool.Description == "" || strings.ContainsAny(tool.Description, "\n\r") {
			return fault("the description is not one line")
		}
		for _, arguments := range misfits(t.params) {
			if len(t.arguments.Validate(arguments)) == 0 {
				return fault("the schema accepts %s", arguments)
			}
		}
		if tool.Name == e.SubmitTool {
			submit = true
			continue
		}
		c.tools = append(c.tools, t)
	}
	if !submit {
		return &Fault{Gate: GateSchema, Detail: fmt.Sprintf("submit tool %q is not among the tools", e.SubmitTool)}
	}
	return nil
}

func (c *checker) examples() (*Fault, error) {
	for _, t := range c.tools {
		if len(t.Examples) < minExamples {
			return &Fault{GateExamples, t.Name, fmt.Sprintf("%d recorded examples, want %d or more", len(t.Examples), minExamples)}, nil
		}
		for _, x := range t.Examples {
			if v := t.arguments.Validate(x.Arguments); len(v) > 0 {
				return &Fault{GateExamples, t.Name, fmt.Sprintf("example %s does not fit the parameters: %s", x.Arguments, v[0].Detail)}, nil
			}
			res := c.session.Call(c.ctx, t.Name, x.Arguments)
			c.calls++
			if err := broken(res); err != nil {
				return nil, err
			}
			if res.Status != sandbox.OK && res.Status != sandbox.Refused {
				return &Fault{GateExamples, t.Name, fmt.Sprintf("example %s: %s", x.Arguments, res.Describe())}, nil
			}
			if res.Value != x.Result {
				return &Fault{GateExamples, t.Name, fmt.Sprintf("example %s gives %s, recorded is %s", x.Arguments, clip(res.Value), clip(x.Result))}, nil
			}
		}
	}
	return nil, nil
}

// Record runs the examples of the tools and writes down their results. The
// fault, if any, is that of a tool that raised.
func Record(ctx context.Context, session *sandbox.Session, tools []episode.Tool) (*Fault, error) {
	for i := range tools {
		for j := range tools[i].Examples {
			x := &tools[i].Examples[j]
			res := session.Call(ctx, tools[i].Name, x.Arguments)
			if err := broken(res); err != nil {
				return nil, err
			}
			if res.Status != sandbox.OK && res.Status != sandbox.Refused {
				return &Fault{GateExamples, tools[i].Name, fmt.Sprintf("example %s: %s", x.Arguments, res.Describe())}, nil
			}
			x.Result = res.Value
		}
	}
	return nil, nil
}

// total runs the probes, and some of them twice.
func (c *checker) total(probes []probe) (*Fault, error) {
	if fault, err := c.perform(c.session, probes, GateTotal); fault != nil || err != nil {
		return fault, err
	}
	var again []probe
	for i := 0; i < len(probes); i += repeatEvery {
		again = append(again, probes[i])
	}
	if fault, err := c.perform(c.session, again, GateTotal); fault != nil || err != nil {
		return fault, err
	}
	for i, p := range probes {
		t := c.tools[p.tool]
		if i%repeatEvery == 0 {
			if second := again[i/repeatEvery]; p.status != second.status || p.value != second.value {
				return &Fault{GateTotal, t.Name, fmt.Sprintf("%s gives %s, and then %s", object(p.arguments), clip(p.value), clip(second.value))}, nil
			}
		}
		if p.status == sandbox.Refused {
			if code := refusalCode(p.value); !contains(t.Raises, code) {
				return &Fault{GateTotal, t.Name, fmt.Sprintf("%s is refused with %q, which is not declared", object(p.arguments), code)}, nil
			}
			continue
		}
		if v := t.returns.Validate(p.value); len(v) > 0 {
			return &Fault{GateTotal, t.Name, fmt.Sprintf("%s gives %s, not as declared: %s", object(p.arguments), clip(p.value), v[0].Detail)}, nil
		}
	}
	return nil, nil
}

// repeatEvery is the distance of the probes that are run twice.
const repeatEvery = 3

// batchScript makes calls in one trip to the worker. What they give is in
// Result.Calls.
const batchScript = "def probe(calls):\n    for name, arguments in calls:\n        call(name, arguments)\n"

// batchSize keeps a batch well below the limits of one script.
const batchSize = 200

// perform fills in what comes of the probes. The fault is that of a probe that
// raised or met a limit.
func (c *checker) perform(session *sandbox.Session, probes []probe, gate string) (*Fault, error) {
	for len(probes) > 0 {
		batch := probes[:min(batchSize, len(probes))]
		probes = probes[len(batch):]
		b := []byte(`{"calls": [`)
		for i, p := range batch {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = append(b, `["`+c.tools[p.tool].Name+`", `...)
			b = append(append(b, object(p.arguments)...), ']')
		}
		res := session.Run(c.ctx, sandbox.WithTools, batchScript, "probe", string(append(b, "]}"...)))
		if err := broken(res); err != nil {
			return nil, err
		}
		if res.Status != sandbox.OK || len(res.Calls) != len(batch) {
			// One probe at a time: which is it?
			for i := range batch {
				p := &batch[i]
				one := session.Call(c.ctx, c.tools[p.tool].Name, object(p.arguments))
				c.calls++
				if err := broken(one); err != nil {
					return nil, err
				}
				if one.Status != sandbox.OK && one.Status != sandbox.Refused {
					return &Fault{gate, c.tools[p.tool].Name, object(p.arguments) + ": " + one.Describe()}, nil
				}
				p.status, p.value = one.Status, one.Value
			}
			continue
		}
		c.calls += len(batch)
		for i, call := range res.Calls {
			batch[i].status, batch[i].value = call.Status, call.Value
		}
	}
	return nil, nil
}

// cover asks whether every column is a parameter, a choice, or in a result.
func (c *checker) cover(probes []probe) *Fault {
	reached := map[string]bool{}
	for _, t := range c.tools {
		for _, p := range t.params {
			reached[p.name] = true
			for _, choice := range p.enum {
				if s, ok := choice.(string); ok {
					reached[s] = true
				}
			}
		}
	}
	seen := map[int]bool{} // one result of a tool is enough
	for _, p := range probes {
		if p.status != sandbox.OK || seen[p.tool] {
			continue
		}
		seen[p.tool] = true
		var v any
		if json.Unmarshal([]byte(p.value), &v) == nil {
			eachKey(v, func(k string) { reached[k] = true })
		}
	}
	for _, column := range c.data.columnNames {
		if !reached[column] {
			return &Fault{Gate: GateCover, Detail: fmt.Sprintf("no tool reaches column %s", column)}
		}
	}
	return nil
}

func eachKey(v any, do func(string)) {
	switch v := v.(type) {
	case map[string]any:
		for k, item := range v {
			do(k)
			eachKey(item, do)
		}
	case []any:
		for _, item := range v {
			eachKey(item, do)
		}
	}
}

// literal runs the probes on substituted data, their arguments substituted
// too: the answers must be the substituted ones.
func (c *checker) literal(pool *sandbox.Pool, probes []probe) (*Fault, error) {
	session, err := pool.Open(c.ctx, sandbox.Program{Files: c.data.Substituted(), Tools: c.environment.Tools})
	var load *sandbox.LoadError
	if errors.As(err, &load) {
		return &Fault{GateLiteral, load.Tool, "with substituted data: " + load.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	mapped := make([]probe, len(probes))
	for i, p := range probes {
		mapped[i] = probe{tool: p.tool, arguments: c.data.substituteArguments(p.arguments, c.tools[p.tool].params)}
	}
	if fault, err := c.perform(session, mapped, GateLiteral); fault != nil || err != nil {
		return fault, err
	}
	for i, p := range probes {
		m := mapped[i]
		same := p.status == m.status
		if same && p.status == sandbox.OK {
			same = c.data.corresponds(p.value, m.value)
		} else if same {
			same = refusalCode(p.value) == refusalCode(m.value)
		}
		if !same {
			return &Fault{GateLiteral, c.tools[p.tool].Name, fmt.Sprintf("%s gives %s, but with every value substituted %s gives %s",
				object(p.arguments), clip(p.value), object(m.arguments), clip(m.value))}, nil
		}
	}
	return nil, nil
}

// broken turns a result that says nothing about the tool into an error.
func broken(res sandbox.Result) error {
	if res.Status == sandbox.Infrastructure || res.Status == sandbox.Limit && res.Code == sandbox.CodeTime {
		return fmt.Errorf("sandbox: %s", res.Error)
	}
	return nil
}

func refusalCode(value string) string {
	var v struct{ Error string }
	if json.Unmarshal([]byte(value), &v) != nil {
		return ""
	}
	return v.Error
}

func contains(list []string, s string) bool {
	for _, item := range list {
		if item == s {
			return true
		}
	}
	return false
}

// clip shortens a text for a detail.
func clip(s string) string {
	if len(s) > 200 {
		return strings.ToValidUTF8(s[:200], "") + "..."
	}
	return s
}
