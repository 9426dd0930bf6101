package rollout

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// The mistakes that a warm-up plants, with their relative weights. They are the
// ones that small policies make of themselves.
const (
	mistakeVerb    = iota // another verb in the tool's name
	mistakeTypo           // two letters of the verb swapped
	mistakeKey            // an argument under another name
	mistakeBrace          // the last brace left out
	mistakeType           // a number as a string or a string as a number
	mistakeEnum           // a word that the enumeration does not hold
	mistakeQuote          // single quotes
	mistakeComma          // a trailing comma
	mistakeMissing        // no arguments where one is required
	mistakeCount
)

var mistakeWeights = [mistakeCount]int{22, 15, 20, 14, 12, 12, 4, 4, 5}

var (
	otherVerbs = map[string][]string{
		"get":    {"fetch", "find", "lookup"},
		"list":   {"query", "filter"},
		"count":  {"num", "total"},
		"search": {"find", "query"},
		"submit": {"answer", "finish"},
	}
	anyVerbs   = []string{"fetch", "find", "query"}
	otherKeys  = []string{"id", "query", "value", "key"}
	otherWords = map[string][]string{
		"desc": {"descending", "highest"},
		"asc":  {"ascending", "lowest"},
	}
)

// corrupted is the text of c with one mistake in it, drawn by weight among
// those that c allows.
func corrupted(c call, tools []episode.Tool, draws *generator) string {
	offered := func(name string) bool {
		return slices.ContainsFunc(tools, func(t episode.Tool) bool { return t.Name == name })
	}
	var schema parameters
	if i := slices.IndexFunc(tools, func(t episode.Tool) bool { return t.Name == c.name }); i >= 0 {
		schema = readParameters(tools[i].Parameters)
	}
	arguments, ok := members(c.arguments)
	verb, noun, hasNoun := strings.Cut(c.name, "_")
	renamed := func(verb string) call {
		if hasNoun {
			verb += "_" + noun
		}
		return call{verb, c.arguments}
	}
	for range 30 {
		switch draws.weighted(mistakeWeights[:]) {
		case mistakeVerb:
			verbs := otherVerbs[verb]
			if verbs == nil {
				verbs = anyVerbs
			}
			if wrong := renamed(pick(verbs, draws)); !offered(wrong.name) {
				return wrong.text()
			}
		case mistakeTypo:
			if len(verb) < 2 {
				continue
			}
			i := draws.below(len(verb) - 1)
			wrong := renamed(verb[:i] + verb[i+1:i+2] + verb[i:i+1] + verb[i+2:])
			if !offered(wrong.name) { // two equal letters swapped are no mistake
				return wrong.text()
			}
		case mistakeKey:
			key := pick(otherKeys, draws)
			if !ok || len(arguments) == 0 || schema.has(key) {
				continue
			}
			arguments[draws.below(len(arguments))].name = key
			return call{c.name, object(arguments)}.text()
		case mistakeBrace:
			return strings.TrimSuffix(c.text(), "}")
		case mistakeType:
			if !ok || len(arguments) == 0 {
				continue
			}
			m := &arguments[draws.below(len(arguments))]
			switch kind := jsontext.Value(m.value).Kind(); {
			case kind == '0':
				m.value = `"` + m.value + `"`
			case kind == '"' && jsontext.Value(m.value[1:len(m.value)-1]).Kind() == '0' && json.Valid([]byte(m.value[1:len(m.value)-1])):
				m.value = m.value[1 : len(m.value)-1]
			default:
				continue
			}
			return call{c.name, object(arguments)}.text()
		case mistakeEnum:
			if !ok || len(arguments) == 0 {
				continue
			}
			m := &arguments[draws.below(len(arguments))]
			words := otherWords[strings.Trim(m.value, `"`)]
			if words == nil || !schema.enumerates(m.name) {
				continue
			}
			m.value = `"` + pick(words, draws) + `"`
			return call{c.name, object(arguments)}.text()
		case mistakeQuote:
			return `{'name': '` + c.name + `', "arguments": ` + c.arguments + `}`
		case mistakeComma:
			return call{c.name, strings.TrimSuffix(c.arguments, "}") + ",}"}.text()
		case mistakeMissing:
			if len(schema.Required) > 0 {
				return call{c.name, "{}"}.text()
			}
		}
	}
	return strings.TrimSuffix(c.text(), "}")
}

// parameters is the part of a tool's schema that mistakes look at.
type parameters struct {
	Properties map[string]struct {
		Enum []json.RawMessage `json:"enum"`
	} `json:"properties"`
	Required []string `json:"required"`
}

func readParameters(text string) parameters {
	var p parameters
	if json.Unmarshal([]byte(text), &p) != nil {
		return parameters{}
	}
	return p
}

func (p parameters) has(name string) bool {
	_, ok := p.Properties[name]
	return ok
}

func (p parameters) enumerates(name string) bool { return len(p.Properties[name].Enum) > 0 }

// member is a name and a value of a JSON object, the value as it is written.
type argument struct{ name, value string }

// members reads the members of a JSON object in their order.
func members(text string) ([]argument, bool) {
	d := jsontext.NewDecoder(strings.NewReader(text))
	if tok, err := d.ReadToken(); err != nil || tok.Kind() != '{' {
		return nil, false
	}
	var all []argument
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, false
		}
		key := name.String()
		value, err := d.ReadValue()
		if err != nil {
			return nil, false
		}
		all = append(all, argument{key, string(value)})
	}
	return all, true
}

func object(members []argument) string {
	b := []byte("{")
	for i, m := range members {
		if i > 0 {
			b = append(b, ", "...)
		}
		b, _ = jsontext.AppendQuote(b, m.name)
		b = append(append(b, ": "...), m.value...)
	}
	return string(append(b, '}'))
}

// generator is a counter-based stream of numbers: splitmix64 over a key.
type generator struct{ state uint64 }

func newGenerator(key [32]byte) *generator {
	return &generator{binary.LittleEndian.Uint64(key[:])}
}

func (g *generator) next() uint64 {
	g.state += 0x9e3779b97f4a7c15
	z := g.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (g *generator) float() float64 { return float64(g.next()>>11) / (1 << 53) }

func (g *generator) below(n int) int { return int(g.next() % uint64(n)) }

// weighted draws an index with probability proportional to its weight.
func (g *generator) weighted(weights []int) int {
	total := 0
	for _, w := range weights {
		total += w
	}
	at := g.below(total)
	for i, w := range weights {
		if at -= w; at < 0 {
			return i
		}
	}
	panic("rollout: no weight")
}

func pick(words []string, g *generator) string { return words[g.below(len(words))] }
