package designer

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// environment makes one of tables given as rows in JSON. Columns are written
// as name:type; the first is the key.
func environment(t testing.TB, tables ...[3]string) *episode.Environment {
	t.Helper()
	e := &episode.Environment{EnvironmentID: "test"}
	var schema episode.Schema
	for _, table := range tables {
		noun, columns, rows := table[0], strings.Fields(table[1]), table[2]
		ts := episode.TableSchema{Path: noun + ".json", Noun: noun}
		var decoded []map[string]any
		if err := json.Unmarshal([]byte(rows), &decoded); err != nil {
			t.Fatal(err)
		}
		ts.Rows = len(decoded)
		for i, c := range columns {
			name, kind, _ := strings.Cut(c, ":")
			if i == 0 {
				ts.Key, kind = name, episode.ColumnKey
			}
			distinct := map[any]bool{}
			for _, r := range decoded {
				distinct[r[name]] = true
			}
			ts.Columns = append(ts.Columns, episode.Column{Name: name, Type: kind, Distinct: len(distinct)})
		}
		schema.Tables = append(schema.Tables, ts)
		e.Files = append(e.Files, episode.File{Path: ts.Path, MediaType: "application/json", Content: rows})
	}
	text, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	e.Schema = string(text)
	return e
}

func database(t testing.TB, tables ...[3]string) *Database {
	t.Helper()
	d, err := Read(environment(t, tables...))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var countries = [3]string{"country", "name continent:category capital:text population:integer joined:date island:boolean", `[
{"name": "Chad", "continent": "Africa", "capital": "N'Djamena", "population": 18, "joined": "1960-09-20", "island": false},
{"name": "Mali", "continent": "Africa", "capital": "Bamako", "population": 22, "joined": "1960-09-28", "island": false},
{"name": "Fiji", "continent": "Oceania", "capital": "Suva", "population": 2, "joined": "1970-10-13", "island": true},
{"name": "Samoa", "continent": "Oceania", "capital": "Apia", "population": null, "joined": "1976-12-15", "island": true}
]`}

func TestToolsOfATable(t *testing.T) {
	want := []struct{ name, parameters string }{
		{"list_country", "continent:string capital:string island:boolean sort_by:population|joined order:asc|desc limit:integer"},
		{"get_country", "name:string!"},
		{"count_country", "continent:string capital:string island:boolean"},
		{"search_country", "text:string!"},
		{"submit", "answer:string!"},
	}
	tools := database(t, countries).Tools()
	if len(tools) != len(want) {
		t.Fatalf("%d tools, want %d", len(tools), len(want))
	}
	for i, tool := range tools {
		if got := signature(t, tool.Parameters); tool.Name != want[i].name || got != want[i].parameters {
			t.Errorf("tool %d: %s(%s), want %s(%s)", i, tool.Name, got, want[i].name, want[i].parameters)
		}
	}
}

// signature writes the properties of a schema in their order; ! marks the
// required ones.
func signature(t *testing.T, schema string) string {
	t.Helper()
	var s struct {
		Properties json.RawMessage
		Required   []string
	}
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(strings.NewReader(string(s.Properties)))
	dec.Token()
	var out []string
	for dec.More() {
		name, _ := dec.Token()
		var p struct {
			Type string
			Enum []string
		}
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		text := name.(string) + ":" + p.Type
		if len(p.Enum) > 0 {
			text = name.(string) + ":" + strings.Join(p.Enum, "|")
		}
		for _, r := range s.Required {
			if r == name {
				text += "!"
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func TestNothingToFilterByMeansNoCountTool(t *testing.T) {
	for _, tool := range database(t, [3]string{"drink", "country wine:integer", `[{"country": "Chad", "wine": 1}]`}).Tools() {
		if strings.HasPrefix(tool.Name, "count_") {
			t.Errorf("there is a tool %s", tool.Name)
		}
	}
}

func TestFiltersNamedAsParametersOfListAreRenamed(t *testing.T) {
	tools := database(t, [3]string{"fish", "name order:category limit:text", `[{"name": "omul", "order": "salmon", "limit": "none"}]`}).Tools()
	if got, want := signature(t, tools[0].Parameters), "order_is:string limit_is:string limit:integer"; got != want {
		t.Errorf("list_fish(%s), want %s", got, want)
	}
}

// draws counts how often an operation gives a task in many draws.
func draws(d *Database, op Operation) (n int, queries map[string]string) {
	queries = map[string]string{}
	for i := range 300 {
		if p, ok := d.Propose(NewRandom("draw", i), op); ok {
			n++
			queries[p.Query] = p.Answer
		}
	}
	return n, queries
}

func TestAmbiguousQuestionsAreNotAsked(t *testing.T) {
	for _, c := range []struct {
		what  string
		op    Operation
		table [3]string
	}{
		{"a tie for the highest and the lowest", Argmax, [3]string{"x", "name n:integer", `[{"name": "a", "n": 7}, {"name": "b", "n": 7}]`}},
		{"numbers too near to each other", Argmax, [3]string{"x", "name n:number", `[{"name": "a", "n": 7.0000001}, {"name": "b", "n": 7.0000002}]`}},
		{"a comparison of equal values", Compare, [3]string{"x", "name n:integer c:text", `[{"name": "a", "n": 7, "c": "left"}, {"name": "b", "n": 7, "c": "right"}]`}},
		{"one value alone", Argmax, [3]string{"x", "name n:integer", `[{"name": "a", "n": 7}, {"name": "b", "n": null}]`}},
		{"values that are missing", Lookup, [3]string{"x", "name n:text", `[{"name": "a", "n": null}, {"name": "b", "n": null}]`}},
		{"keys that differ by case", Lookup, [3]string{"x", "name n:text", `[{"name": "Go", "n": "left"}, {"name": "GO", "n": "right"}]`}},
		{"keys that cannot be quoted", Lookup, [3]string{"x", "name n:text", `[{"name": "a \"b\"", "n": "left"}]`}},
		{"categories that differ by case", Count, [3]string{"x", "name c:category", `[{"name": "a", "c": "Red"}, {"name": "b", "c": "red"}, {"name": "d", "c": "Red"}, {"name": "e", "c": "red"}]`}},
		{"texts in several keys", SearchGet, [3]string{"x", "name n:text", `[{"name": "my town", "n": "left"}, {"name": "a Town", "n": "right"}]`}},
	} {
		if n, queries := draws(database(t, c.table), c.op); n > 0 {
			t.Errorf("%s: %v", c.what, queries)
		}
	}
}

func TestAnswersThatCanBeGuessedAreNotAskedFor(t *testing.T) {
	for _, c := range []struct {
		what  string
		op    Operation
		table [3]string
	}{
		{"the most frequent value", Lookup, [3]string{"x", "name c:text", `[{"name": "a", "c": "red"}, {"name": "b", "c": "red"}, {"name": "d", "c": "red"}]`}},
		{"yes and no", Lookup, [3]string{"x", "name c:text", `[{"name": "a", "c": "yes"}, {"name": "b", "c": "no"}]`}},
		{"booleans", Lookup, [3]string{"x", "name c:boolean", `[{"name": "a", "c": true}, {"name": "b", "c": false}]`}},
		{"one", Count, [3]string{"x", "name c:category", `[{"name": "a", "c": "red"}, {"name": "b", "c": "blue"}]`}},
		{"the answer in the question", Lookup, [3]string{"x", "name c:text", `[{"name": "Lake Placid", "c": "placid"}, {"name": "Mount Bold", "c": "bold"}]`}},
		{"the loser's value", Compare, [3]string{"x", "name n:integer c:text", `[{"name": "a", "n": 7, "c": "left"}, {"name": "b", "n": 8, "c": "left"}]`}},
	} {
		if n, queries := draws(database(t, c.table), c.op); n > 0 {
			t.Errorf("%s: %v", c.what, queries)
		}
	}
}

func TestEveryOperationHasTwoPhrasingsOrMore(t *testing.T) {
	joined := environment(t, countries, [3]string{"team", "title home:text", `[{"title": "Lions", "home": "Chad"}, {"title": "Bears", "home": "Fiji"}]`})
	var schema episode.Schema
	if err := json.Unmarshal([]byte(joined.Schema), &schema); err != nil {
		t.Fatal(err)
	}
	schema.Tables[1].Joins = []episode.Join{{Column: "home", Table: "country", Key: "name"}}
	text, _ := json.Marshal(schema)
	joined.Schema = string(text)
	d, err := Read(joined)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range mix {
		_, queries := draws(d, op)
		starts := map[string]bool{}
		for q := range queries {
			starts[strings.Join(strings.Fields(q)[:2], " ")] = true
		}
		if len(starts) < 2 {
			t.Errorf("%s: %v", op, queries)
		}
	}
}

func TestTheSameKeyDrawsTheSameTask(t *testing.T) {
	d := database(t, countries)
	for _, op := range []Operation{Lookup, ArgmaxGet, Compare} {
		for i := range 50 {
			a, okA := d.Propose(NewRandom("key", i), op)
			b, okB := d.Propose(NewRandom("key", i), op)
			if okA != okB || okA && (a.Query != b.Query || a.Verifier != b.Verifier || a.Solution != b.Solution) {
				t.Fatalf("%s %d: %q and %q", op, i, a.Query, b.Query)
			}
		}
	}
}

func TestMentions(t *testing.T) {
	for _, c := range []struct {
		text, answer string
		want         bool
	}{
		{`Give the capital for "Chad".`, "chad", true},
		{`Give the capital for "Chad".`, "ha", false},
		{`In 2012-05 it was`, "2012-05", true},
		{`In 2012-05-13 it was`, "2012-05", true},
		{`In 12012 it was`, "2012", false},
		{`the São  Tomé list`, "são tomé", true},
		{`anything`, "", false},
	} {
		if got := Mentions(c.text, c.answer); got != c.want {
			t.Errorf("Mentions(%q, %q) is %v", c.text, c.answer, got)
		}
	}
}

func TestQuoteIsReadBackByStarlark(t *testing.T) {
	// Starlark's literals with these escapes are read as JSON's are, save \x.
	for _, s := range []string{`plain`, `say "hi"`, `back\slash`, "two\nlines", "é 日本"} {
		var got string
		if err := json.Unmarshal([]byte(quote(s)), &got); err != nil || got != s {
			t.Errorf("quote(%q) is %s: %v", s, quote(s), err)
		}
	}
}

func TestReadRefusesWhatDoesNotFit(t *testing.T) {
	for _, c := range []struct{ what, old, new string }{
		{"no schema", `{"tables"`, ``},
		{"a schema that is cut", `"cleaning":null}`, ``},
		{"a key that is no column", `"key":"name"`, `"key":"title"`},
		{"a noun that is no identifier", `"noun":"country"`, `"noun":"The Country"`},
		{"a column that is missing", `"name":"capital"`, `"name":"capitals"`},
		{"a column of another type", `"name":"capital","type":"text"`, `"name":"capital","type":"integer"`},
		{"a file that is missing", `"path":"country.json"`, `"path":"countries.json"`},
	} {
		e := environment(t, countries)
		if !strings.Contains(e.Schema, c.old) {
			t.Fatalf("%s: no %s in %s", c.what, c.old, e.Schema)
		}
		e.Schema = strings.Replace(e.Schema, c.old, c.new, 1)
		if c.new == "" && c.old == `{"tables"` {
			e.Schema = ""
		}
		if _, err := Read(e); err == nil {
			t.Errorf("%s: read without an error", c.what)
		}
	}
}

// Whatever a schema and a file hold, Read either refuses it or gives a
// database that tools and tasks can be drawn from.
func FuzzRead(f *testing.F) {
	e := environment(f, countries)
	f.Add(e.Schema, e.Files[0].Content)
	f.Add(`{"tables": [{"path": "country.json", "noun": "x", "key": "k", "columns": [{"name": "k", "type": "key"}, {"name": "class", "type": "number"}]}]}`, `[{"k": "", "class": 1e999}]`)
	f.Fuzz(func(t *testing.T, schema, content string) {
		d, err := Read(&episode.Environment{Schema: schema, Files: []episode.File{{Path: "country.json", Content: content}}})
		if err != nil {
			return
		}
		for _, tool := range d.Tools() {
			if !json.Valid([]byte(tool.Parameters)) {
				t.Errorf("parameters %s", tool.Parameters)
			}
			for _, x := range tool.Examples {
				if !json.Valid([]byte(x.Arguments)) {
					t.Errorf("arguments %s", x.Arguments)
				}
			}
		}
		for i := range 20 {
			for _, op := range d.Operations(NewRandom(i), []int{1, 2, 3}) {
				if p, ok := d.Propose(NewRandom(i, op), op); ok && (p.Query == "" || p.Answer == "") {
					t.Errorf("%s: %+v", op, p)
				}
			}
		}
	})
}
