package toolcall

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/token"
)

// testTokenizer has 256 bytes, the control tokens and a few merges, so that
// tokens do not end where calls and words do.
var testTokenizer = func() *token.Tokenizer {
	text := strings.Repeat("\n{\"name\": \"get_country\", \"arguments\": {\"name\": \"Chad\"}}\n </tool_call", 3)
	file, err := token.Train(slices.Values([]string{text}), token.TrainOptions{VocabSize: 330, ControlTokens: token.ControlTokens()})
	if err != nil {
		panic(err)
	}
	t, err := token.Load(file)
	if err != nil {
		panic(err)
	}
	return t
}()

const (
	listSchema = `{"type": "object", "properties": {
		"continent": {"type": "string"}, "sort_by": {"type": "string", "enum": ["area", "population"]},
		"limit": {"type": "integer", "minimum": 1, "maximum": 5}}, "additionalProperties": false}`
	getSchema = `{"type": "object", "properties": {"name": {"type": "string"}, "year": {"type": "integer"}},
		"required": ["name"], "additionalProperties": false}`
	noteSchema   = `{"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}, "rows": {"type": "array"}}}`
	submitSchema = `{"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"], "additionalProperties": false}`
)

var toolsetOnce = sync.OnceValues(func() (*Toolset, error) {
	return NewToolset([]episode.Tool{
		{Name: "list_country", Parameters: listSchema, Pure: true},
		{Name: "get_country", Parameters: getSchema, Pure: true},
		{Name: "note", Parameters: noteSchema, Pure: true},
		{Name: "roll_dice", Parameters: `{"type": "object"}`, Pure: false},
		{Name: "submit", Parameters: submitSchema, Pure: true},
	}, "submit")
})

func testToolset(t testing.TB) *Toolset {
	t.Helper()
	set, err := toolsetOnce()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// sample returns the ids of a turn's text, tags as control tokens, ended by the
// end token unless the text was cut.
func sample(text string, ended bool) []int32 {
	if ended {
		text += token.MessageEnd
	}
	return testTokenizer.EncodeTrusted(text)
}

func newTestDetector(t testing.TB, s Settings) *Detector {
	return NewDetector(s, testTokenizer, testToolset(t))
}

func kindsOf(failures []episode.Failure) []string {
	var kinds []string
	for _, f := range failures {
		kinds = append(kinds, f.Kind)
	}
	return kinds
}

const (
	getChad    = `<tool_call>` + "\n" + `{"name": "get_country", "arguments": {"name": "Chad"}}` + "\n" + `</tool_call>`
	getMali    = `<tool_call>` + "\n" + `{"name": "get_country", "arguments": {"name": "Mali"}}` + "\n" + `</tool_call>`
	submitChad = `<tool_call>` + "\n" + `{"name": "submit", "arguments": {"answer": "Chad"}}` + "\n" + `</tool_call>`
	diceRoll   = `<tool_call>` + "\n" + `{"name": "roll_dice", "arguments": {}}` + "\n" + `</tool_call>`
)
