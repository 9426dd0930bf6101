package toolcall

// The tools offered to a policy, with their schemas compiled.

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// Toolset is a list of offered tools, in order, the submit tool among them. It
// is immutable and safe for concurrent use: compile it once per environment.
type Toolset struct {
	names  []string
	byName map[string]offeredTool
	submit string
	text   string
}

type offeredTool struct {
	schema *Schema
	pure   bool
}

// NewToolset compiles the tools' Parameters. submit names the one among them
// that ends an episode; "" where there is none.
func NewToolset(tools []episode.Tool, submit string) (*Toolset, error) {
	set := &Toolset{byName: make(map[string]offeredTool, len(tools)), submit: submit}
	var text strings.Builder
	text.WriteByte('[')
	for i, tool := range tools {
		schema, err := CompileSchema(tool.Parameters)
		if err != nil {
			return nil, fmt.Errorf("tool %s: %w", tool.Name, err)
		}
		if _, twice := set.byName[tool.Name]; twice {
			return nil, fmt.Errorf("tool %s is offered twice", tool.Name)
		}
		set.names = append(set.names, tool.Name)
		set.byName[tool.Name] = offeredTool{schema: schema, pure: tool.Pure}
		if i > 0 {
			text.WriteByte(',')
		}
		parameters := tool.Parameters
		if parameters == "" {
			parameters = "{}"
		}
		fmt.Fprintf(&text, `{"name":%s,"description":%s,"parameters":%s,"pure":%v}`,
			jsonString(tool.Name), jsonString(tool.Description), parameters, tool.Pure)
	}
	text.WriteByte(']')
	set.text = text.String()
	if submit != "" {
		if _, ok := set.byName[submit]; !ok {
			return nil, fmt.Errorf("submit tool %s is not among the tools", submit)
		}
	}
	return set, nil
}

// JSON returns the tools as offered, the text of Trajectory.Tools: an array of
// {name, description, parameters, pure}.
func (s *Toolset) JSON() string { return s.text }

// SubmitTool returns the name of the submit tool, "" where there is none.
func (s *Toolset) SubmitTool() string { return s.submit }

// Schema returns the schema of a tool's arguments, nil where it is not offered.
func (s *Toolset) Schema(tool string) *Schema { return s.byName[tool].schema }

// ParseToolset reads the text of Trajectory.Tools back. Parameters may be an
// object or a text that holds one; a tool not marked otherwise is pure.
func ParseToolset(text, submit string) (*Toolset, error) {
	root, syntax := scanJSON(text, 0)
	if syntax != nil {
		return nil, fmt.Errorf("offered tools are not JSON: %s", syntax.detail)
	}
	if root.kind != '[' || skipBlanks(text, root.end) != len(text) {
		return nil, fmt.Errorf("offered tools: want one JSON array")
	}
	tools := make([]episode.Tool, len(root.elements))
	for i := range root.elements {
		element := &root.elements[i]
		name := element.member("name")
		if name == nil || name.kind != '"' {
			return nil, fmt.Errorf("offered tools: tool %d has no name", i)
		}
		tool := episode.Tool{Name: name.text, Pure: true}
		if description := element.member("description"); description != nil && description.kind == '"' {
			tool.Description = description.text
		}
		if parameters := element.member("parameters"); parameters != nil {
			switch parameters.kind {
			case '"':
				tool.Parameters = parameters.text
			case 'n':
			default:
				tool.Parameters = text[parameters.start:parameters.end]
			}
		}
		if pure := element.member("pure"); pure != nil {
			tool.Pure = pure.kind != 'f'
		}
		tools[i] = tool
	}
	return NewToolset(tools, submit)
}

func jsonString(s string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		panic(err) // a string always has a JSON form
	}
	return strings.TrimSuffix(b.String(), "\n")
}
