package toolcall

import (
	"slices"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

func TestValidate(t *testing.T) {
	const (
		missing, unexpected = episode.KindMissingArgument, episode.KindUnexpectedArgument
		badType, badValue   = episode.KindArgumentType, episode.KindArgumentValue
	)
	deep := `{"type": "object", "required": ["where"], "additionalProperties": false, "properties": {
		"where": {"type": "object", "required": ["a/b"], "additionalProperties": false, "properties": {"a/b": {"type": "array", "items": {"type": "integer"}}}},
		"when": {"type": "string", "format": "date"}, "code": {"type": "string", "pattern": "^[A-Z]{2}$"},
		"either": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "small": {"anyOf": [{"type": "integer", "maximum": 3}, {"type": "null"}]},
		"gone": false, "n": {"type": "number", "exclusiveMinimum": 0}, "list": {"type": "array", "maxItems": 1}}}`
	for _, c := range []struct {
		name, marked string // the first culprit marked
		kinds        []string
	}{
		{"fits", `{"where": {"a/b": [1, 2.0]}, "when": "2024-02-29", "code": "TD", "either": null, "n": 1e400}`, nil},
		{"nested missing", `{"where": {«}»}`, []string{missing}},
		{"nested unexpected", `{"where": {"a/b": [], "«é»": 1}}`, []string{unexpected}},
		{"element", `{"where": {"a/b": [1, «"2"»]}}`, []string{badType}},
		{"format", `{"where": {"a/b": []}, "when": "«2023-02-29»"}`, []string{badValue}},
		{"pattern", `{"where": {"a/b": []}, "code": "«td»"}`, []string{badValue}},
		{"no alternative of that type", `{"where": {"a/b": []}, "either": «5»}`, []string{badType}},
		{"an alternative's range", `{"where": {"a/b": []}, "small": «5»}`, []string{badValue}},
		{"forbidden property", `{"where": {"a/b": []}, "«gone»": 5}`, []string{unexpected}},
		{"range", `{"where": {"a/b": []}, "n": «0»}`, []string{badValue}},
		{"tiny number is above zero", `{"where": {"a/b": []}, "n": 1e-999999999}`, nil},
		{"items", `{"where": {"a/b": []}, "list": «[1, 2]»}`, []string{badValue}},
		{"not an object", `«5»`, []string{badType}},
		{"several, in order", `{"when": «5», "x": 1}`, []string{badType, unexpected, missing}},
		{"no JSON", `{"where": «}»`, []string{episode.KindMalformedJSON}},
		{"two values", `{"where": {"a/b": []}} «{}»`, []string{episode.KindMalformedJSON}},
	} {
		schema, err := CompileSchema(deep)
		if err != nil {
			t.Fatal(err)
		}
		text, culprit, marked := splitMarks(c.marked)
		got := schema.Validate(text)
		var kinds []string
		for _, v := range got {
			kinds = append(kinds, v.Kind)
			if v.Detail == "" {
				t.Errorf("%s: %+v says nothing", c.name, v)
			}
		}
		if !slices.Equal(kinds, c.kinds) {
			t.Errorf("%s: %+v, want kinds %v", c.name, got, c.kinds)
			continue
		}
		if marked && (got[0].Start != culprit.start || got[0].End != culprit.end) {
			t.Errorf("%s: %q at [%d, %d), want [%d, %d)", c.name, text[got[0].Start:got[0].End], got[0].Start, got[0].End, culprit.start, culprit.end)
		}
	}
}

func TestCompileSchema(t *testing.T) {
	for _, c := range []struct{ schema, wrong string }{
		{``, ""}, {`{}`, ""}, {`true`, ""}, {`{"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "integer"}}}`, ""},
		{`{"type": 5}`, "schema"}, {`{`, "not JSON"}, {`{} x`, "not JSON"}, {`{"type": "object", "type": "string"}`, "duplicate"},
		{`{"$ref": "https://example.org/x.json"}`, "stand alone"}, {`{"$ref": "file:///etc/passwd"}`, "stand alone"}, {`{"pattern": "("}`, "schema"},
	} {
		_, err := CompileSchema(c.schema)
		if (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("CompileSchema(%s): %v, want %q", c.schema, err, c.wrong)
		}
	}
}

func TestToolsetSurvivesItsText(t *testing.T) {
	set := testToolset(t)
	again, err := ParseToolset(set.JSON(), set.SubmitTool())
	if err != nil || again.JSON() == "" || !slices.Equal(again.names, set.names) {
		t.Fatalf("%v, %v", again, err)
	}
	for _, name := range set.names {
		if again.byName[name].pure != set.byName[name].pure {
			t.Errorf("%s: pure %v", name, again.byName[name].pure)
		}
	}
	if again.Schema("get_country").Validate(`{}`) == nil {
		t.Error("the schema was lost")
	}
	foreign, err := ParseToolset(`[{"name": "f", "parameters": "{\"type\": \"object\", \"required\": [\"a\"]}"}, {"name": "g"}]`, "")
	if err != nil || foreign.Schema("f").Validate(`{}`) == nil || foreign.Schema("g").Validate(`{}`) != nil || !foreign.byName["g"].pure {
		t.Errorf("%v, %v", foreign, err)
	}
	for _, text := range []string{``, `{}`, `[{}]`, `[{"name": "f"}, {"name": "f"}]`, `[] []`, `[{"name": "f", "parameters": 5}]`} {
		if _, err := ParseToolset(text, ""); err == nil {
			t.Errorf("ParseToolset(%s) passed", text)
		}
	}
	if _, err := ParseToolset(`[]`, "submit"); err == nil {
		t.Error("a submit tool that is not offered passed")
	}
}

func TestCanonicalNumbers(t *testing.T) {
	for _, group := range [][]string{
		{"1", "1.0", "1e0", "10e-1", "0.1e1", "1.000"}, {"0", "-0", "0.0", "0e5"}, {"100", "1e2", "1E+2"}, {"-2.50", "-25e-1"},
		{"12345678901234567890123"}, {"12345678901234567890124"}, {"1e999999999999999999999"}, {"0.001"},
	} {
		for _, n := range group {
			if got, want := canonicalNumber(n), canonicalNumber(group[0]); got != want {
				t.Errorf("%s is %s, %s is %s", n, got, group[0], want)
			}
		}
	}
	seen := map[string]string{}
	for _, n := range []string{"1", "0", "100", "-2.5", "12345678901234567890123", "12345678901234567890124", "1e999999999999999999999", "0.001"} {
		if other, twice := seen[canonicalNumber(n)]; twice {
			t.Errorf("%s and %s are one", n, other)
		}
		seen[canonicalNumber(n)] = n
	}
}
