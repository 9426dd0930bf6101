package token

// The chat renderer: ChatML, in the words of Qwen3 or in pico's compact ones.
// It is append-only. A conversation is held as ids; every call here returns the
// ids of what is new, to be appended to the ids that were sampled.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// Template names how tools are presented to the policy. Everything else is
// ChatML with Hermes calls in both.
type Template string

const (
	// TemplateQwen3 is the template of the Qwen3 release: tools as JSON lines
	// within <tools> tags and an instruction.
	TemplateQwen3 Template = "qwen3"
	// TemplatePico is the template of the embedded policy: one line per tool,
	// such as "list_country(continent?:str,order?:asc|desc,limit?:int)", and no
	// instruction.
	TemplatePico Template = "pico"
)

// Spellings of the control tokens of ChatML and of Hermes calls.
const (
	MessageStart  = "<|im_start|>"
	MessageEnd    = "<|im_end|>"
	CallStart     = "<tool_call>"
	CallEnd       = "</tool_call>"
	ResponseStart = "<tool_response>"
	ResponseEnd   = "</tool_response>"
	ThinkStart    = "<think>"
	ThinkEnd      = "</think>"
)

// Message is one message of a rendered text with the ids that hold its content,
// [Start, End) in the returned ids. The template's glue (tags, role names, line
// ends around the content) is outside, but for an id that holds both.
type Message struct {
	Role       string // episode.RoleSystem, RoleUser, RoleAssistant or RoleTool
	Start, End int
}

// Renderer lays out conversations for one tokenizer and template.
type Renderer struct {
	tokenizer *Tokenizer
	template  Template
	end       int32
}

// NewRenderer returns a renderer. The tokenizer must have the control tokens of
// ChatML.
func NewRenderer(t *Tokenizer, template Template) (*Renderer, error) {
	if template != TemplateQwen3 && template != TemplatePico {
		return nil, fmt.Errorf("unknown chat template %q", template)
	}
	for _, control := range []string{MessageStart, MessageEnd} {
		if _, ok := t.ID(control); !ok {
			return nil, fmt.Errorf("tokenizer has no control token %s, which the %s template needs", control, template)
		}
	}
	end, _ := t.ID(MessageEnd)
	return &Renderer{tokenizer: t, template: template, end: end}, nil
}

// Tokenizer returns the tokenizer that the renderer encodes with.
func (r *Renderer) Tokenizer() *Tokenizer { return r.tokenizer }

// EndToken returns the id that ends a turn, <|im_end|>.
func (r *Renderer) EndToken() int32 { return r.end }

// Prompt returns the ids of a conversation up to where the policy begins to
// write: the tools, submit (nil where there is none) after them, the query, and
// the opening of the assistant's turn. It fails where a tool's Parameters are
// not JSON.
func (r *Renderer) Prompt(tools []episode.Tool, submit *episode.Tool, query string) ([]int32, []Message, error) {
	if submit != nil {
		tools = append(tools[:len(tools):len(tools)], *submit)
	}
	var l layout
	if len(tools) > 0 {
		l.open(episode.RoleSystem)
		if err := r.presentTools(&l, tools); err != nil {
			return nil, nil, err
		}
		l.close()
	}
	l.open(episode.RoleUser)
	l.content(query)
	l.close()
	l.trusted(MessageStart + "assistant\n")
	ids, messages := r.encode(&l)
	return ids, messages, nil
}

// Observation returns the ids between the end token that the policy sampled and
// its next turn: the results of its calls in one user message, then the opening
// of the assistant's turn. There is one Message per result.
func (r *Renderer) Observation(results []string) ([]int32, []Message) {
	var l layout
	l.trusted("\n" + MessageStart + "user")
	if len(results) == 0 { // nothing to answer: an empty message, well-formed
		l.trusted("\n")
	}
	for _, result := range results {
		l.trusted("\n" + ResponseStart + "\n")
		l.message(episode.RoleTool)
		l.content(result)
		l.endMessage()
		l.trusted("\n" + ResponseEnd)
	}
	l.trusted(MessageEnd + "\n" + MessageStart + "assistant\n")
	return r.encode(&l)
}

// Assistant returns the ids of an assistant's turn as the policy would sample
// it, ended by <|im_end|>: text of our own making, such as a solution's calls.
// Tags of calls and of thinking become control tokens where they begin a line,
// which no JSON string of a call can.
func (r *Renderer) Assistant(text string) []int32 {
	var pieces []Piece
	atLineStart := true
	plain := 0
	for i := 0; i < len(text); {
		if atLineStart {
			if tag := tagAt(text[i:]); tag != "" {
				pieces = append(pieces, Piece{Text: text[plain:i]}, Piece{Text: tag, Trusted: true})
				i += len(tag)
				plain = i
				atLineStart = false
				continue
			}
		}
		atLineStart = text[i] == '\n'
		i++
	}
	pieces = append(pieces, Piece{Text: text[plain:]}, Piece{Text: MessageEnd, Trusted: true})
	return r.tokenizer.EncodePieces(pieces...)
}

func tagAt(s string) string {
	for _, tag := range []string{CallStart, CallEnd, ThinkStart, ThinkEnd} {
		if strings.HasPrefix(s, tag) {
			return tag
		}
	}
	return ""
}

func (r *Renderer) presentTools(l *layout, tools []episode.Tool) error {
	if r.template == TemplatePico {
		for i, tool := range tools {
			line, err := compactTool(tool)
			if err != nil {
				return err
			}
			if i > 0 {
				line = "\n" + line
			}
			l.content(line)
		}
		return nil
	}
	lines := make([]string, len(tools))
	for i, tool := range tools {
		line, err := functionJSON(tool)
		if err != nil {
			return err
		}
		lines[i] = line
	}
	qwenTools(l, lines)
	return nil
}

// qwenTools writes Qwen3's tool block; lines holds one JSON text per tool.
func qwenTools(l *layout, lines []string) {
	l.trusted("# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" +
		"You are provided with function signatures within <tools></tools> XML tags:\n<tools>")
	for _, line := range lines {
		l.trusted("\n")
		l.content(line)
	}
	l.trusted("\n</tools>\n\nFor each function call, return a json object with function name and arguments within " +
		CallStart + CallEnd + " XML tags:\n" + CallStart +
		"\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n" + CallEnd)
}

// functionJSON returns a tool as Qwen3 is shown it, in the spacing of Python's
// json.dumps.
func functionJSON(tool episode.Tool) (string, error) {
	var b strings.Builder
	b.WriteString(`{"type": "function", "function": {"name": `)
	quotePython(&b, tool.Name)
	b.WriteString(`, "description": `)
	quotePython(&b, tool.Description)
	b.WriteString(`, "parameters": `)
	parameters := tool.Parameters
	if parameters == "" {
		parameters = "{}"
	}
	if err := respacePython(&b, parameters); err != nil {
		return "", fmt.Errorf("tool %s: parameters: %w", tool.Name, err)
	}
	b.WriteString("}}")
	return b.String(), nil
}

// compactTool returns a tool as pico is shown it: name(argument:type,...), with
// a question mark after what may be left out.
func compactTool(tool episode.Tool) (string, error) {
	names, schemas, required, err := properties(tool.Parameters)
	if err != nil {
		return "", fmt.Errorf("tool %s: parameters: %w", tool.Name, err)
	}
	var b strings.Builder
	b.WriteString(tool.Name)
	b.WriteByte('(')
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name)
		if !required[name] {
			b.WriteByte('?')
		}
		b.WriteByte(':')
		b.WriteString(schemas[i].compactType())
	}
	b.WriteByte(')')
	return b.String(), nil
}

// layout is a text under construction: pieces, and the byte ranges of messages.
type layout struct {
	pieces   []Piece
	length   int // bytes
	messages []messageBytes
}

type messageBytes struct {
	role       string
	start, end int
}

func (l *layout) trusted(text string) {
	l.pieces = append(l.pieces, Piece{Text: text, Trusted: true})
	l.length += len(text)
}

func (l *layout) content(text string) {
	l.pieces = append(l.pieces, Piece{Text: text})
	l.length += len(text)
}

func (l *layout) message(role string) {
	l.messages = append(l.messages, messageBytes{role: role, start: l.length})
}

func (l *layout) endMessage() { l.messages[len(l.messages)-1].end = l.length }

func (l *layout) open(role string) {
	l.trusted(MessageStart + role + "\n")
	l.message(role)
}

func (l *layout) close() {
	l.endMessage()
	l.trusted(MessageEnd + "\n")
}

// encode turns a layout into ids and places the messages by bytes. Content is
// normalised first, since that may change its length.
func (r *Renderer) encode(l *layout) ([]int32, []Message) {
	if r.tokenizer.normalizeNFC {
		l.normalize()
	}
	ids := r.tokenizer.EncodePieces(l.pieces...)
	offsets := r.tokenizer.Offsets(ids)
	messages := make([]Message, len(l.messages))
	for i, m := range l.messages {
		start, end := Span(offsets, m.start, m.end)
		messages[i] = Message{Role: m.role, Start: start, End: end}
	}
	return ids, messages
}

// parameter is what the compact presentation shows of a property's schema.
type parameter struct {
	types []string
	enum  []string
}

func (p parameter) compactType() string {
	if len(p.enum) > 0 {
		return strings.Join(p.enum, "|")
	}
	if len(p.types) == 0 {
		return "any"
	}
	short := make([]string, 0, len(p.types))
	for _, t := range p.types {
		switch t {
		case "string":
			t = "str"
		case "integer":
			t = "int"
		case "number":
			t = "num"
		case "boolean":
			t = "bool"
		case "array":
			t = "list"
		case "object":
			t = "obj"
		}
		short = append(short, t)
	}
	return strings.Join(short, "|")
}

// properties returns the properties of a JSON Schema object in the order of the
// text.
func properties(schema string) (names []string, parameters []parameter, required map[string]bool, err error) {
	required = map[string]bool{}
	if schema == "" {
		return nil, nil, required, nil
	}
	err = eachMember([]byte(schema), func(key string, value jsontext.Value) error {
		switch key {
		case "properties":
			return eachMember(value, func(name string, value jsontext.Value) error {
				p, err := readParameter(value)
				if err != nil {
					return err
				}
				names, parameters = append(names, name), append(parameters, p)
				return nil
			})
		case "required":
			list, err := texts(value)
			for _, name := range list {
				required[name] = true
			}
			return err
		}
		return nil
	})
	return names, parameters, required, err
}

func readParameter(schema jsontext.Value) (p parameter, err error) {
	if schema.Kind() != '{' { // true and false are schemas too
		return p, nil
	}
	err = eachMember(schema, func(key string, value jsontext.Value) (err error) {
		switch key {
		case "type":
			p.types, err = texts(value)
		case "enum":
			p.enum, err = texts(value)
		}
		return err
	})
	return p, err
}

// texts returns the elements of an array, or a single value, as text: strings
// unquoted, anything else as it is written.
func texts(value jsontext.Value) ([]string, error) {
	if value.Kind() != '[' {
		return []string{textOf(value)}, nil
	}
	var out []string
	d := jsontext.NewDecoder(bytes.NewReader(value))
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	for d.PeekKind() != ']' {
		element, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		out = append(out, textOf(element))
	}
	return out, nil
}

func textOf(value jsontext.Value) string {
	if value.Kind() != '"' {
		return string(value)
	}
	raw, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return string(value)
	}
	return string(raw)
}

func eachMember(object []byte, visit func(key string, value jsontext.Value) error) error {
	d := jsontext.NewDecoder(bytes.NewReader(object))
	open, err := d.ReadToken()
	if err != nil {
		return noEOF(err)
	}
	if open.Kind() != '{' {
		return errors.New("want a JSON object")
	}
	for d.PeekKind() != '}' {
		key, err := d.ReadToken()
		if err != nil {
			return noEOF(err)
		}
		name := key.String()
		value, err := d.ReadValue()
		if err != nil {
			return noEOF(err)
		}
		if err := visit(name, value); err != nil {
			return err
		}
	}
	return nil
}

// noEOF keeps an empty or cut text from looking like the end of a stream.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// respacePython writes a JSON text as Python's json.dumps(ensure_ascii=False)
// would space it, key order and numbers as they are written.
func respacePython(b *strings.Builder, text string) error {
	d := jsontext.NewDecoder(strings.NewReader(text))
	for first := true; first || d.StackDepth() > 0; first = false {
		kind, index := d.StackIndex(d.StackDepth())
		tok, err := d.ReadToken()
		if err != nil {
			return noEOF(err)
		}
		closing := tok.Kind() == '}' || tok.Kind() == ']'
		if !closing && index > 0 {
			if kind == '{' && index%2 == 1 {
				b.WriteString(": ")
			} else if kind == '{' || kind == '[' {
				b.WriteString(", ")
			}
		}
		if tok.Kind() == '"' {
			quotePython(b, tok.String())
		} else {
			b.WriteString(tok.String())
		}
	}
	if rest := strings.TrimLeft(text[d.InputOffset():], " \t\r\n"); rest != "" {
		return errors.New("text after the JSON value")
	}
	return nil
}

// quotePython writes a string as json.dumps(ensure_ascii=False) does.
func quotePython(b *strings.Builder, s string) {
	b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c >= 0x20:
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\b':
			b.WriteString(`\b`)
		case c == '\f':
			b.WriteString(`\f`)
		default:
			fmt.Fprintf(b, `\u%04x`, c)
		}
	}
	b.WriteByte('"')
}

// normalize brings content into the form that the tokenizer would, so that the
// byte ranges of messages count what the ids hold.
func (l *layout) normalize() {
	starts := make([]int, len(l.pieces)+1)
	moved := make([]int, len(l.pieces)+1)
	for i, p := range l.pieces {
		starts[i+1] = starts[i] + len(p.Text)
		if !p.Trusted {
			l.pieces[i].Text = normalized(p.Text)
		}
		moved[i+1] = moved[i] + len(l.pieces[i].Text)
	}
	at := func(old int) int { return moved[sort.SearchInts(starts, old)] }
	for i := range l.messages {
		l.messages[i].start, l.messages[i].end = at(l.messages[i].start), at(l.messages[i].end)
	}
	l.length = moved[len(l.pieces)]
}
