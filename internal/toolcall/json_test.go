package toolcall

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

var jsonSeeds = []string{
	`{}`, `[]`, `""`, `0`, `-0`, `1.5e-3`, `true`, `null`, `{"a": [1, {"b": "c"}], "d": null}`,
	`{"a": 1,}`, `[1,]`, `[,1]`, `{"a" 1}`, `{"a": 1 "b": 2}`, `{a: 1}`, `{'a': 1}`, `{"a": 1, "a": 2}`, `{"a": 1, "\u0061": 2}`,
	`01`, `1.`, `.5`, `+1`, `1e`, `-`, `--1`, `NaN`, `Infinity`, `tru`, `truth`, `nul`, `True`,
	`"\ud83c\udf78"`, `"\ud83c"`, `"\udf78"`, `"\ud83c\ud83c"`, `"\q"`, `"\u12g4"`, `"\u12`, `"\`, `"a`, "\"a\nb\"", "\"a\tb\"", "\"a\x7fb\"", "\"\xff\"", "\"\xe2\x82\"",
	"\"caf\u00e9 \u5317\u4eac\"", ` 1 `, "\ufeff1", `1 2`, `{}{}`, strings.Repeat("[", 300) + strings.Repeat("]", 300),
	`123456789012345678901234567890`, `1e999999999`, `{"a": {"b": {"c": []}}}`, `["a", "b" "c"]`, `{"a": }`, `[`, `{"a"`, `{"a":`, `{"a":1`, "",
}

// sameAsJSONText holds the scanner to accepting what jsontext accepts: as a whole
// text, with duplicate keys and bad UTF-8 refused.
func sameAsJSONText(t *testing.T, text string) {
	t.Helper()
	value, syntax := scanJSON(text, 0)
	accepted := syntax == nil && skipBlanks(text, value.end) == len(text)
	if syntax != nil && syntax.detail == "nested too deeply" {
		return
	}
	if want := jsontext.Value(text).IsValid(); accepted != want {
		t.Fatalf("%q: accepted %v, jsontext says %v", text, accepted, want)
	}
	if syntax != nil {
		if syntax.start < 0 || syntax.start > syntax.end || syntax.end > len(text) {
			t.Fatalf("%q: error at [%d, %d)", text, syntax.start, syntax.end)
		}
		if _, again := scanJSON(text[:syntax.start], 0); again != nil && again.start < syntax.start {
			t.Fatalf("%q: error at %d, but already at %d in what stands before", text, syntax.start, again.start)
		}
		return
	}
	var check func(v *jsonValue)
	check = func(v *jsonValue) {
		if v.start < 0 || v.start >= v.end || v.end > len(text) {
			t.Fatalf("%q: value at [%d, %d)", text, v.start, v.end)
		}
		if v.kind == '"' {
			var want string
			if err := json.Unmarshal([]byte(text[v.start:v.end]), &want); err != nil || v.text != want {
				t.Fatalf("%q: string %q, want %q (%v)", text, v.text, want, err)
			}
		}
		for i := range v.members {
			check(&v.members[i].key)
			check(&v.members[i].value)
		}
		for i := range v.elements {
			check(&v.elements[i])
		}
	}
	check(&value)
	if accepted && !bytes.Equal(bytes.TrimSpace([]byte(text)), []byte(text[value.start:value.end])) {
		t.Fatalf("%q: the value ends at %d", text, value.end)
	}
}

func TestScannerAcceptsWhatJSONTextAccepts(t *testing.T) {
	for _, text := range jsonSeeds {
		sameAsJSONText(t, text)
	}
}

func TestScannerStopsAtADepth(t *testing.T) {
	if _, syntax := scanJSON(strings.Repeat("[", 1<<20), 0); syntax == nil || syntax.start != maxDepth {
		t.Errorf("%+v, want an error at %d", syntax, maxDepth)
	}
}

func FuzzScanner(f *testing.F) {
	for _, text := range jsonSeeds {
		f.Add(text)
	}
	f.Fuzz(sameAsJSONText)
}
