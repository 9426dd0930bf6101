package toolcheck

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/toolcall"
)

func sample(t testing.TB) *data {
	t.Helper()
	d, err := readData(&episode.Environment{
		Schema: `{"tables": [{"path": "a.json", "noun": "a", "key": "name", "rows": 3, "columns": [{"name": "name", "type": "key"},
			{"name": "n", "type": "integer"}, {"name": "x", "type": "number"}, {"name": "day", "type": "date"}]}]}`,
		Files: []episode.File{{Path: "a.json", Content: `[{"name": "Abc 1", "n": 5, "x": 0.1, "day": "1999-02"}, {"name": "b", "n": -7, "x": 2, "day": null}, {"name": "Ç", "n": 0, "x": 3.5, "day": "2001-01"}]`}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSubstitutionKeepsTheShapeOfTheData(t *testing.T) {
	want := `[{"name":"Nop 4","n":11,"x":0.4,"day":"2999-02"},{"name":"o","n":-13,"x":8,"day":null},{"name":"Ç","n":1,"x":14,"day":"3001-01"}]`
	if got := sample(t).Substituted()[0].Content; got != want {
		t.Errorf("substituted data\n%s, want\n%s", got, want)
	}
}

func TestSubstitutionIsOneToOneAndKeepsOrderAndContainment(t *testing.T) {
	texts := []string{"", "a", "A", "abc", "bc", "ABC", "Zebra 10", "10", "zebra", "São Tomé", "日本"}
	seen := map[string]string{}
	for _, s := range texts {
		m := substituteText(episode.ColumnText, s)
		if other, ok := seen[m]; ok {
			t.Errorf("%q and %q become %q", s, other, m)
		}
		seen[m] = s
		for _, part := range texts {
			if strings.Contains(s, part) != strings.Contains(m, substituteText(episode.ColumnText, part)) {
				t.Errorf("containment of %q in %q is lost", part, s)
			}
			if strings.EqualFold(s, part) != strings.EqualFold(m, substituteText(episode.ColumnText, part)) {
				t.Errorf("equality of %q and %q without case is lost", part, s)
			}
		}
	}
	numbers := []string{"-3", "-1", "0", "1", "2", "9007199254740992"}
	for i, a := range numbers[1:] {
		x, y := json.Number(substituteNumber(episode.ColumnInteger, numbers[i])), json.Number(substituteNumber(episode.ColumnInteger, a))
		p, _ := x.Float64()
		q, _ := y.Float64()
		if p >= q {
			t.Errorf("%s < %s become %s, %s", numbers[i], a, x, y)
		}
	}
}

func TestWhatCorresponds(t *testing.T) {
	d := sample(t)
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`["Abc 1", "b"]`, `["Nop 4", "o"]`, true},
		{`["Abc 1", "b"]`, `["Abc 1", "o"]`, false}, // a literal
		{`["Abc 1"]`, `["Nop 4", "o"]`, false},
		{`"a constant"`, `"a constant"`, true},
		{`{"name": "b", "n": -7, "x": 2, "day": null}`, `{"name": "o", "n": -13, "x": 8, "day": null}`, true},
		{`{"name": "b", "n": -7}`, `{"name": "o", "n": -7}`, false},
		{`{"day": "1999-02"}`, `{"day": "2999-02"}`, true},
		{`{"day": "1999-02"}`, `{"day": "1999-02"}`, false},
		{`{"Abc 1": 2}`, `{"Nop 4": 2}`, true},
		{`3`, `3`, true},           // a count
		{`3`, `4`, false},          // a count that changed
		{`-2`, `-1`, true},         // the sum of three integers: 2 * -2 + 3
		{`1.8666`, `7.4664`, true}, // a mean
		{`true`, `true`, true},
		{`true`, `false`, false},
	} {
		if got := d.corresponds(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
}

// parameterSchemas are of the kind that tools have.
var parameterSchemas = []string{
	`{"type": "object", "properties": {}, "additionalProperties": false}`,
	`{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": false}`,
	`{"type": "object", "properties": {"a": {"type": "string", "enum": ["x", "y"]}, "n": {"type": "integer", "minimum": 1, "maximum": 5}, "f": {"type": "number"}, "b": {"type": "boolean"}}, "additionalProperties": false}`,
}

func TestMadeUpArgumentsFitAndMisfitsDoNot(t *testing.T) {
	for _, text := range parameterSchemas {
		params, err := readParameters(text)
		if err != nil {
			t.Fatal(err)
		}
		schema, err := toolcall.CompileSchema(text)
		if err != nil {
			t.Fatal(err)
		}
		c := &checker{environment: &episode.Environment{}, data: sample(t), tools: []checkedTool{{Tool: &episode.Tool{Name: "t"}, params: params}}}
		for _, p := range append(c.probes(), c.edges()...) {
			if v := schema.Validate(object(p.arguments)); len(v) > 0 {
				t.Errorf("%s does not fit %s: %s", object(p.arguments), text, v[0].Detail)
			}
		}
		for _, m := range misfits(params) {
			if len(schema.Validate(m)) == 0 {
				t.Errorf("%s fits %s", m, text)
			}
		}
	}
}

func FuzzReadParameters(f *testing.F) {
	for _, s := range parameterSchemas {
		f.Add(s)
	}
	f.Add(`{"type": "object", "properties": [], "additionalProperties": false}`)
	f.Fuzz(func(t *testing.T, text string) {
		params, err := readParameters(text)
		if err != nil {
			return
		}
		for _, p := range params {
			if p.least > p.most {
				t.Errorf("%+v", p)
			}
		}
		for _, m := range misfits(params) {
			if !json.Valid([]byte(m)) {
				t.Errorf("misfit %s", m)
			}
		}
	})
}

func FuzzSubstitute(f *testing.F) {
	f.Add(`[{"name": "a", "n": 1}]`)
	f.Add(`[{"name": {"n": [1e9, "x"]}}]`)
	f.Fuzz(func(t *testing.T, content string) {
		e := &episode.Environment{
			Schema: `{"tables": [{"path": "a.json", "columns": [{"name": "name", "type": "key"}, {"name": "n", "type": "integer"}, {"name": "x", "type": "number"}]}]}`,
			Files:  []episode.File{{Path: "a.json", Content: content}},
		}
		d, err := readData(e)
		if err == nil && !json.Valid([]byte(d.Substituted()[0].Content)) {
			t.Errorf("%s becomes %s", content, d.Substituted()[0].Content)
		}
	})
}
