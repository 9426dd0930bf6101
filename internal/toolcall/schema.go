package toolcall

// JSON Schema, one compiled checker for detector, executor and verifier. The
// library finds what is violated and says where by JSON pointer; the scanner's
// tree turns the pointer into bytes.

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// Schema is a compiled JSON Schema (draft 2020-12 unless it says otherwise,
// formats asserted, no reference beyond itself). It is safe for concurrent use.
type Schema struct {
	compiled *jsonschema.Schema
}

// Violation is one way in which a JSON text does not fit a schema.
type Violation struct {
	Kind       string // one of the argument kinds, or malformed_json
	Pointer    string // JSON pointer of the value, "" for the whole
	Detail     string // for people
	Start, End int    // the culprit in the text, bytes [Start, End)
}

// noReferences refuses to load what a schema refers to outside itself.
type noReferences struct{}

func (noReferences) Load(url string) (any, error) {
	return nil, fmt.Errorf("reference to %s: a schema must stand alone", url)
}

// CompileSchema compiles a JSON Schema. The empty text accepts any value.
func CompileSchema(text string) (*Schema, error) {
	if text == "" {
		text = "true"
	}
	document, syntax := scanJSON(text, 0)
	if syntax == nil && skipBlanks(text, document.end) < len(text) {
		syntax = &syntaxError{detail: "text after the value"}
	}
	if syntax != nil {
		return nil, fmt.Errorf("schema is not JSON: %s", syntax.detail)
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noReferences{})
	compiler.AssertFormat()
	const name = "schema:tool"
	if err := compiler.AddResource(name, document.plain()); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	compiled, err := compiler.Compile(name)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	return &Schema{compiled}, nil
}

// Validate checks a JSON text; nil means that it fits. Violations come in the
// order of their place.
func (s *Schema) Validate(text string) []Violation {
	value, syntax := scanJSON(text, 0)
	if syntax == nil {
		if rest := skipBlanks(text, value.end); rest < len(text) {
			syntax = &syntaxError{span: span{rest, len(text)}, detail: "text after the JSON value"}
		}
	}
	if syntax != nil {
		return []Violation{{Kind: episode.KindMalformedJSON, Detail: syntax.detail, Start: syntax.start, End: syntax.end}}
	}
	return s.check(&value)
}

// check validates a scanned value.
func (s *Schema) check(value *jsonValue) []Violation {
	err := s.compiled.Validate(value.plain())
	if err == nil {
		return nil
	}
	var failed *jsonschema.ValidationError
	if !errors.As(err, &failed) {
		return []Violation{{Kind: episode.KindArgumentValue, Detail: err.Error(), Start: value.start, End: value.end}}
	}
	var out []Violation
	collectViolations(value, failed, &out)
	slices.SortFunc(out, func(a, b Violation) int {
		if a.Start != b.Start {
			return a.Start - b.Start
		}
		if a.End != b.End {
			return a.End - b.End
		}
		return strings.Compare(a.Kind+a.Pointer+a.Detail, b.Kind+b.Pointer+b.Detail)
	})
	return slices.Compact(out)
}

var printer = message.NewPrinter(language.English)

func collectViolations(root *jsonValue, e *jsonschema.ValidationError, out *[]Violation) {
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf: // the branches' own complaints are alternatives
	default:
		if len(e.Causes) > 0 {
			for _, cause := range e.Causes {
				collectViolations(root, cause, out)
			}
			return
		}
	}
	at, key := locate(root, e.InstanceLocation)
	pointer := pointerOf(e.InstanceLocation)
	add := func(kind string, culprit span, pointer, detail string) {
		*out = append(*out, Violation{Kind: kind, Pointer: pointer, Detail: detail, Start: culprit.start, End: culprit.end})
	}
	missing := func(names []string) {
		culprit := span{at.end - 1, at.end} // the closing brace
		add(episode.KindMissingArgument, culprit, pointer, "missing "+strings.Join(names, ", "))
	}
	unexpected := func(names []string) {
		for _, name := range names {
			if i := memberIndex(at, name); i >= 0 {
				add(episode.KindUnexpectedArgument, at.members[i].key.content(), pointer+"/"+escapePointer(name), "unexpected "+name)
			}
		}
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		missing(k.Missing)
	case *kind.DependentRequired:
		missing(k.Missing)
	case *kind.Dependency:
		missing(k.Missing)
	case *kind.AdditionalProperties:
		unexpected(k.Properties)
	case *kind.FalseSchema:
		if key != nil {
			add(episode.KindUnexpectedArgument, key.content(), pointer, "unexpected "+key.text)
			return
		}
		add(episode.KindArgumentValue, at.span, pointer, where(pointer)+"not allowed here")
	case *kind.Type:
		add(episode.KindArgumentType, at.span, pointer, where(pointer)+k.LocalizedString(printer))
	case *kind.AnyOf, *kind.OneOf:
		if everyBranchIsType(e) {
			add(episode.KindArgumentType, at.span, pointer, where(pointer)+"type fits no alternative")
			return
		}
		add(episode.KindArgumentValue, at.content(), pointer, where(pointer)+k.LocalizedString(printer))
	default:
		add(episode.KindArgumentValue, at.content(), pointer, where(pointer)+k.LocalizedString(printer))
	}
}

func where(pointer string) string {
	if pointer == "" {
		return ""
	}
	return pointer[1:] + ": "
}

// everyBranchIsType says whether each alternative failed by the type of the
// value itself.
func everyBranchIsType(e *jsonschema.ValidationError) bool {
	for _, cause := range e.Causes {
		if len(cause.Causes) == 1 && len(cause.InstanceLocation) == len(e.InstanceLocation) {
			cause = cause.Causes[0]
		}
		if _, ok := cause.ErrorKind.(*kind.Type); !ok || len(cause.InstanceLocation) != len(e.InstanceLocation) {
			return false
		}
	}
	return len(e.Causes) > 0
}

// locate walks to a place in the tree; key is set where it is an object's
// member.
func locate(root *jsonValue, path []string) (at *jsonValue, key *jsonValue) {
	at = root
	for _, step := range path {
		switch at.kind {
		case '{':
			i := memberIndex(at, step)
			if i < 0 {
				return at, nil
			}
			key, at = &at.members[i].key, &at.members[i].value
		case '[':
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at.elements) {
				return at, nil
			}
			key, at = nil, &at.elements[i]
		default:
			return at, nil
		}
	}
	return at, key
}

func memberIndex(v *jsonValue, name string) int {
	return slices.IndexFunc(v.members, func(m jsonMember) bool { return m.key.text == name })
}

func escapePointer(step string) string {
	return strings.ReplaceAll(strings.ReplaceAll(step, "~", "~0"), "/", "~1")
}

func pointerOf(path []string) string {
	var b strings.Builder
	for _, step := range path {
		b.WriteByte('/')
		b.WriteString(escapePointer(step))
	}
	return b.String()
}

// plain returns the value as the schema library takes it.
func (v *jsonValue) plain() any {
	switch v.kind {
	case '{':
		object := make(map[string]any, len(v.members))
		for i := range v.members {
			object[v.members[i].key.text] = v.members[i].value.plain()
		}
		return object
	case '[':
		array := make([]any, len(v.elements))
		for i := range v.elements {
			array[i] = v.elements[i].plain()
		}
		return array
	case '"':
		return v.text
	case '0':
		return json.Number(boundExponent(v.text))
	case 't':
		return true
	case 'f':
		return false
	}
	return nil
}

// boundExponent keeps a number such as 1e999999999 from being written out digit
// by digit when it is compared exactly. Beyond 2,000 places the sign, the order
// against any bound of a schema and being an integer stay as they are.
func boundExponent(number string) string {
	e := strings.IndexAny(number, "eE")
	if e < 0 {
		return number
	}
	const limit = 2000
	exponent, err := strconv.Atoi(number[e+1:])
	if err == nil && exponent <= limit && exponent >= -limit {
		return number
	}
	if number[e+1] == '-' {
		return number[:e] + "e-2000"
	}
	return number[:e] + "e2000"
}
