package toolcheck

// Arguments that fit a parameter schema, and such that do not.

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// parameter is one property of a parameter schema, as far as arguments can be
// made up for it.
type parameter struct {
	name     string
	kind     string // string, integer, number, boolean
	enum     []any
	least    int
	most     int
	required bool
}

// Bounds of an integer parameter that declares none.
const (
	unboundedLeast = -5
	unboundedMost  = 50
)

// member is one argument.
type member struct {
	name  string
	value any
}

// object writes arguments as JSON.
func object(arguments []member) string {
	b := []byte{'{'}
	for i, m := range arguments {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(appendJSON(b, m.name), ": "...)
		b = appendJSON(b, m.value)
	}
	return string(append(b, '}'))
}

func appendJSON(b []byte, v any) []byte {
	var buffer bytes.Buffer
	enc := json.NewEncoder(&buffer)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // values made here have a JSON form
	}
	return append(b, bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))...)
}

// readParameters reads the properties of a schema in the order in which they
// are declared.
func readParameters(text string) ([]parameter, error) {
	var schema struct {
		Type       string
		Properties json.RawMessage
		Required   []string
		Additional *bool `json:"additionalProperties"`
	}
	if err := json.Unmarshal([]byte(text), &schema); err != nil {
		return nil, err
	}
	if schema.Type != "object" {
		return nil, fmt.Errorf("not the schema of an object")
	}
	if schema.Additional == nil || *schema.Additional {
		return nil, fmt.Errorf("additionalProperties is not false")
	}
	var out []parameter
	if len(schema.Properties) > 0 {
		dec := json.NewDecoder(bytes.NewReader(schema.Properties))
		if _, err := dec.Token(); err != nil {
			return nil, err
		}
		for dec.More() {
			name, err := dec.Token()
			if err != nil {
				return nil, err
			}
			property := struct {
				Type    string
				Enum    []any
				Minimum *int
				Maximum *int
			}{}
			if err := dec.Decode(&property); err != nil {
				return nil, fmt.Errorf("%v: %w", name, err)
			}
			p := parameter{name: name.(string), kind: property.Type, enum: property.Enum, least: unboundedLeast, most: unboundedMost}
			switch p.kind {
			case "string", "integer", "number", "boolean":
			default:
				return nil, fmt.Errorf("%s: type %q is not one that arguments can be made for", p.name, p.kind)
			}
			if property.Minimum != nil {
				p.least = *property.Minimum
				p.most = max(p.most, p.least+unboundedMost)
			}
			if property.Maximum != nil {
				p.most = *property.Maximum
				p.least = min(p.least, p.most)
			}
			out = append(out, p)
		}
	}
	for _, name := range schema.Required {
		found := false
		for i := range out {
			if out[i].name == name {
				out[i].required, found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("required property %s is not declared", name)
		}
	}
	return out, nil
}

// misfits returns arguments that a schema of these parameters must refuse.
func misfits(params []parameter) []string {
	// plain fits as far as types go; what is not required is left out.
	plain := func(except string) []member {
		var m []member
		for _, p := range params {
			if p.required && p.name != except {
				m = append(m, member{p.name, p.plainValue()})
			}
		}
		return m
	}
	out := []string{`[]`, `"x"`, object(append(plain(""), member{"no_such_parameter", 1}))}
	for _, p := range params {
		if p.required {
			out = append(out, object(plain(p.name)))
		}
		wrong := []any{nil, []any{}, map[string]any{}}
		switch p.kind {
		case "string":
			wrong = append(wrong, 5, true)
		case "integer":
			wrong = append(wrong, "5", 1.5, true)
		case "number":
			wrong = append(wrong, "5", true)
		case "boolean":
			wrong = append(wrong, "true", 1)
		}
		if len(p.enum) > 0 {
			wrong = append(wrong, "no such choice")
		}
		for _, v := range wrong {
			out = append(out, object(append(plain(p.name), member{p.name, v})))
		}
	}
	return out
}

func (p parameter) plainValue() any {
	if len(p.enum) > 0 {
		return p.enum[0]
	}
	switch p.kind {
	case "integer", "number":
		return p.least
	case "boolean":
		return true
	}
	return "x"
}

// random is a stream of numbers fixed by a key.
type random struct{ state uint64 }

func newRandom(key string) *random {
	sum := sha256.Sum256([]byte(key))
	return &random{binary.LittleEndian.Uint64(sum[:8])}
}

// below draws from [0, n) by splitmix64 (Steele, Lea, Flood 2014).
func (r *random) below(n int) int {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	high, _ := bits.Mul64(z^z>>31, uint64(n))
	return int(high)
}

// awkward are texts that break careless code.
var awkward = []string{"", " ", "a", "\"", "\\", "%s", "{}", "None", "0", "-1", "007", "1e", "é", "日本", "\n", "'; --", strings.Repeat("x", 300)}

const (
	randomProbes = 8 // random arguments per tool
	singleProbes = 4 // values of a text column that are tried alone
)

// probes makes up the calls of the total and literal gates: per tool random
// arguments, and alone each parameter that names a column with every key and
// category of that column, and with some of its other values.
func (c *checker) probes() []probe {
	var out []probe
	for i, t := range c.tools {
		r := newRandom("probes of " + t.Name + " in " + c.environment.EnvironmentID)
		for range randomProbes {
			var m []member
			for _, p := range t.params {
				if p.required || r.below(2) == 0 {
					m = append(m, member{p.name, c.value(r, p)})
				}
			}
			out = append(out, probe{tool: i, arguments: m})
		}
		for _, p := range t.params {
			if p.kind != "string" || len(p.enum) > 0 || !aloneFits(t.params, p) {
				continue
			}
			values := c.data.valuesOf(p.name)
			if len(values.texts) == 0 {
				for range singleProbes {
					out = append(out, probe{tool: i, arguments: []member{{p.name, c.value(r, p)}}})
				}
				continue
			}
			first, count := 0, len(values.texts)
			if !values.all && count > singleProbes {
				first, count = r.below(count), singleProbes
			}
			for k := range count {
				v := values.texts[(first+k)%len(values.texts)]
				out = append(out, probe{tool: i, arguments: []member{{p.name, v}}})
			}
		}
	}
	return out
}

// smallRange is how many values an integer parameter may have for all of them to
// be tried.
const smallRange = 20

// edges makes up the calls of the total gate alone: each parameter of each tool
// in turn takes every awkward text, every choice, every value of a small range,
// and some keys and parts of them, beside plain values of what is required.
func (c *checker) edges() []probe {
	var out []probe
	for i, t := range c.tools {
		r := newRandom("edges of " + t.Name + " in " + c.environment.EnvironmentID)
		for _, p := range t.params {
			var plain []member
			for _, other := range t.params {
				if other.required && other.name != p.name {
					plain = append(plain, member{other.name, other.plainValue()})
				}
			}
			for _, v := range c.edgeValues(r, p) {
				out = append(out, probe{tool: i, arguments: append(slices.Clone(plain), member{p.name, v})})
			}
		}
	}
	return out
}

func (c *checker) edgeValues(r *random, p parameter) []any {
	var out []any
	switch {
	case len(p.enum) > 0:
		return p.enum
	case p.kind == "boolean":
		return []any{false, true}
	case p.kind == "integer" && p.most-p.least >= 0 && p.most-p.least < smallRange:
		for v := p.least; v <= p.most; v++ {
			out = append(out, v)
		}
	case p.kind == "integer" || p.kind == "number":
		return []any{p.least, p.most}
	default:
		for _, text := range awkward {
			out = append(out, text)
		}
		for _, text := range c.data.texts[:min(singleProbes, len(c.data.texts))] {
			out = append(out, text)
		}
		for range 2 * singleProbes {
			out = append(out, c.value(r, p))
		}
	}
	return out
}

// aloneFits says whether a call with p alone lacks nothing required.
func aloneFits(params []parameter, p parameter) bool {
	for _, other := range params {
		if other.required && other.name != p.name {
			return false
		}
	}
	return true
}

// value draws a value of a parameter: a choice, a number in bounds, or a text
// that is mostly one of the data or a part of one.
func (c *checker) value(r *random, p parameter) any {
	if len(p.enum) > 0 {
		return p.enum[r.below(len(p.enum))]
	}
	switch p.kind {
	case "boolean":
		return r.below(2) == 0
	case "integer":
		return p.least + r.below(p.most-p.least+1)
	case "number":
		return float64(p.least) + float64(r.below(4*(p.most-p.least)+1))/4
	}
	texts := c.data.valuesOf(p.name).texts
	if len(texts) == 0 {
		texts = c.data.texts
	}
	chance := r.below(8)
	if chance == 0 || len(texts) == 0 {
		return awkward[r.below(len(awkward))]
	}
	s := texts[r.below(len(texts))]
	if chance <= 2 { // a part of it
		letters := []rune(s)
		if n := len(letters); n > 1 {
			start := r.below(n - 1)
			return string(letters[start : start+1+r.below(n-start)])
		}
	}
	return s
}
