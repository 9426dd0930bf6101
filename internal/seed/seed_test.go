package seed

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// collect makes the environments and checks what holds of every one.
func collect(t *testing.T, groups []Group, o Options) []*episode.Environment {
	t.Helper()
	var all []*episode.Environment
	ids := map[string]bool{}
	for e, err := range Environments(groups, o) {
		if err != nil {
			t.Fatal(err)
		}
		if ids[e.EnvironmentID] {
			t.Fatalf("environment %s comes twice", e.EnvironmentID)
		}
		ids[e.EnvironmentID] = true
		checkEnvironment(t, e, o.Rows)
		all = append(all, e)
	}
	return all
}

// checkEnvironment compares an environment's schema with its files.
func checkEnvironment(t *testing.T, e *episode.Environment, most int) {
	t.Helper()
	var s episode.Schema
	if err := json.Unmarshal([]byte(e.Schema), &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Tables) != len(e.Files) || len(e.Files) == 0 || len(e.Sources) == 0 {
		t.Fatalf("%d tables in the schema, %d files, %d sources", len(s.Tables), len(e.Files), len(e.Sources))
	}
	rows := map[string][]map[string]any{}
	for i, ts := range s.Tables {
		if ts.Path != e.Files[i].Path {
			t.Fatalf("table %s has path %s, file %s", ts.Noun, ts.Path, e.Files[i].Path)
		}
		var r []map[string]any
		if err := json.Unmarshal([]byte(e.Files[i].Content), &r); err != nil {
			t.Fatalf("%s: %v\n%s", ts.Path, err, e.Files[i].Content)
		}
		rows[ts.Noun] = r
		if len(r) != ts.Rows || len(r) < MinRows || len(r) > most {
			t.Fatalf("%s: %d rows, schema says %d, at most %d", ts.Path, len(r), ts.Rows, most)
		}
		if ts.Columns[0].Name != ts.Key || ts.Columns[0].Type != episode.ColumnKey {
			t.Fatalf("%s: the first column is not the key", ts.Path)
		}
		if identifier(ts.Noun) != ts.Noun {
			t.Fatalf("noun %q is no identifier", ts.Noun)
		}
		names := map[string]bool{}
		for _, c := range ts.Columns {
			if identifier(c.Name) != c.Name || names[c.Name] || reserved[c.Name] {
				t.Fatalf("%s: column name %q", ts.Path, c.Name)
			}
			names[c.Name] = true
			distinct, nulls := map[any]bool{}, 0
			for _, row := range r {
				v, ok := row[c.Name]
				if !ok || len(row) != len(ts.Columns) {
					t.Fatalf("%s: row %v lacks a column", ts.Path, row)
				}
				if v == nil {
					nulls++
					continue
				}
				distinct[v] = true
				switch c.Type {
				case episode.ColumnInteger, episode.ColumnNumber:
					f, ok := v.(float64)
					if !ok || c.Type == episode.ColumnInteger && f != float64(int64(f)) {
						t.Fatalf("%s: %s is %v in a column of %s", ts.Path, c.Name, v, c.Type)
					}
				case episode.ColumnBoolean:
					if _, ok := v.(bool); !ok {
						t.Fatalf("%s: %s is %v in a column of %s", ts.Path, c.Name, v, c.Type)
					}
				default:
					if s, ok := v.(string); !ok || s == "" {
						t.Fatalf("%s: %s is %v in a column of %s", ts.Path, c.Name, v, c.Type)
					}
				}
			}
			if len(distinct) != c.Distinct || nulls != c.Nulls {
				t.Fatalf("%s: %s has %d values and %d nulls, schema says %d and %d", ts.Path, c.Name, len(distinct), nulls, c.Distinct, c.Nulls)
			}
			if c.Type == episode.ColumnKey && (len(distinct) != len(r) || nulls > 0) {
				t.Fatalf("%s: key %s is not unique", ts.Path, c.Name)
			}
		}
	}
	for _, ts := range s.Tables {
		for _, j := range ts.Joins {
			keys := map[any]bool{nil: true}
			for _, row := range rows[j.Table] {
				keys[row[j.Key]] = true
			}
			for _, row := range rows[ts.Noun] {
				if !keys[row[j.Column]] {
					t.Fatalf("%s.%s is %v, no key of %s", ts.Noun, j.Column, row[j.Column], j.Table)
				}
			}
		}
	}
}

func builtin(t testing.TB) []Group {
	t.Helper()
	groups, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

func TestBuiltinTablesAreSmallEnoughToCopy(t *testing.T) {
	tables, pairs := 0, 0
	for _, g := range builtin(t) {
		if len(g.Tables) == 2 {
			pairs++
			continue
		}
		tables++
		table := g.Tables[0]
		for _, row := range table.Rows {
			for i, v := range row {
				limit := 24
				if i == 0 {
					limit = 28
				}
				if v.kind == kindText && (len(v.text) > limit || v.text == "" || strings.ContainsFunc(v.text, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' })) {
					t.Errorf("%s: text %q", table.Noun, v.text)
				}
				if v.kind == kindNumber && (number(v) > 99999 || number(v) < -99999) {
					t.Errorf("%s: number %s", table.Noun, v.text)
				}
			}
		}
		for _, c := range table.Columns {
			if strings.Contains(c.Name, "_") || len(c.Name) > 10 {
				t.Errorf("%s: column %q is no short word", table.Noun, c.Name)
			}
		}
		if len(table.Columns) > 6 {
			t.Errorf("%s: %d columns", table.Noun, len(table.Columns))
		}
		if len(table.Rows) < 50 {
			t.Errorf("%s: %d rows", table.Noun, len(table.Rows))
		}
	}
	if tables < 12 || pairs < 2 {
		t.Errorf("%d tables, %d pairs", tables, pairs)
	}
}

func TestBuiltinLicencesAllowThem(t *testing.T) {
	free := []string{"CC0-1.0", "PDDL-1.0", "CC-BY-4.0", "LicenseRef-public-domain"}
	for _, g := range builtin(t) {
		for _, table := range g.Tables {
			s := table.Source
			if !slices.Contains(free, s.Licence) || s.URL == "" || s.Revision == "" || len(s.Digest) != 64 || s.Title == "" {
				t.Errorf("%s: source %+v", table.Noun, s)
			}
		}
	}
}

func TestHeldoutTablesCarryEveryKindOfTask(t *testing.T) {
	full, pairs := 0, 0
	for _, g := range builtin(t) {
		if g.Tables[0].Split != episode.SplitHeldout {
			continue
		}
		if len(g.Tables) == 2 {
			pairs++
			continue
		}
		has := map[string]bool{}
		for _, c := range g.Tables[0].Columns {
			has[c.Type] = true
		}
		if has[episode.ColumnCategory] && has[episode.ColumnText] && has[episode.ColumnInteger] {
			full++
		}
	}
	if full < 3 || pairs < 1 {
		t.Errorf("%d held-out tables with category, text and number, %d pairs", full, pairs)
	}
}

func TestNoTableIsInBothSplits(t *testing.T) {
	split := map[string]string{}
	environments := collect(t, builtin(t), Options{Seed: 1, Rows: 40, PerGroup: 5, Variants: 30})
	heldout, disguised := 0, 0
	for _, e := range environments {
		if e.Split == episode.SplitHeldout {
			heldout++
		}
		for _, s := range e.Sources {
			if s.Kind == "disguised" {
				disguised++
				if e.Split != episode.SplitTrain {
					t.Errorf("disguised %s is held out", s.Title)
				}
			}
			if before, ok := split[s.Digest]; ok && before != e.Split {
				t.Errorf("%s is in both splits", s.Title)
			}
			split[s.Digest] = e.Split
		}
	}
	if heldout == 0 || disguised == 0 {
		t.Errorf("%d held out, %d disguised", heldout, disguised)
	}
	groups := builtin(t)
	country, currency := *groups[0].Tables[0], *groups[1].Tables[0]
	currency.Split = episode.SplitHeldout
	for _, err := range Environments([]Group{{Tables: []*Table{&country}}, {Tables: []*Table{&currency}}}, Options{Rows: 40}) {
		if err == nil {
			t.Error("two tables of one source stood in both splits")
		}
	}
}

func TestSameSeedSameEnvironments(t *testing.T) {
	o := Options{Seed: 7, Rows: 40, PerGroup: 3, Variants: 20}
	first, second := collect(t, builtin(t), o), collect(t, builtin(t), o)
	a, _ := json.Marshal(first)
	b, _ := json.Marshal(second)
	if string(a) != string(b) {
		t.Error("two runs differ")
	}
	o.Seed = 8
	for _, e := range collect(t, builtin(t), o) {
		if e.EnvironmentID == first[0].EnvironmentID {
			t.Error("another seed gave the same id")
		}
	}
}

func TestVariantsAreMadeByThousandsInSeconds(t *testing.T) {
	start := time.Now()
	n := 0
	for _, err := range Environments(builtin(t), Options{Seed: 1, Rows: 40, PerGroup: 1, Variants: 150}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	took := time.Since(start)
	t.Logf("%d environments in %v", n, took)
	if n < 1500 || took > 20*time.Second {
		t.Errorf("%d environments in %v", n, took)
	}
}

// A variant that kept most of its table's texts would teach the table.
func TestHalfOfTheVariantsHoldNothingOfTheirTable(t *testing.T) {
	groups := builtin(t)
	texts := map[string]bool{}
	for _, g := range groups {
		for _, table := range g.Tables {
			for _, row := range table.Rows {
				texts[row[0].text] = true
			}
		}
	}
	all, foreign, pairs := 0, 0, 0
	for _, e := range collect(t, groups, Options{Seed: 3, Rows: 40, PerGroup: 1, Variants: 40}) {
		if e.Sources[0].Kind != "disguised" {
			continue
		}
		all++
		var s episode.Schema
		if err := json.Unmarshal([]byte(e.Schema), &s); err != nil {
			t.Fatal(err)
		}
		if len(s.Tables) == 2 {
			pairs++
			if len(s.Tables[0].Joins) != 1 {
				t.Errorf("%s: two tables without a join", e.EnvironmentID)
			}
		}
		var rows []map[string]any
		if err := json.Unmarshal([]byte(e.Files[0].Content), &rows); err != nil {
			t.Fatal(err)
		}
		known := 0
		for _, row := range rows {
			if texts[row[s.Tables[0].Key].(string)] {
				known++
			}
		}
		if known == 0 {
			foreign++
		}
	}
	if 2*foreign < all || 5*pairs < all || 2*pairs > all {
		t.Errorf("of %d variants %d share no key with a real table and %d have two tables", all, foreign, pairs)
	}
}

func TestSamplesOfOneTableDiffer(t *testing.T) {
	contents := map[string]bool{}
	for _, e := range collect(t, builtin(t)[:1], Options{Seed: 1, Rows: 40, PerGroup: 6}) {
		contents[e.Files[0].Content] = true
	}
	if len(contents) != 6 {
		t.Errorf("%d different samples of 6", len(contents))
	}
}

func TestJSONTextsAreAsPythonWritesThem(t *testing.T) {
	table := &Table{Columns: []Column{{Name: "a"}, {Name: "b"}}, Rows: [][]Value{{Text(`x "y" \`), Integer(-3)}, {Text("é\t<"), {}}}}
	want := "[\n{\"a\": \"x \\\"y\\\" \\\\\", \"b\": -3},\n{\"a\": \"é\\u0009<\", \"b\": null}\n]\n"
	if got := table.content(); got != want {
		t.Errorf("got %s want %s", got, want)
	}
}

func TestSourcesListEveryTable(t *testing.T) {
	b, err := os.ReadFile("builtin/SOURCES.md")
	if err != nil {
		t.Fatal(err)
	}
	if !utf8.Valid(b) {
		t.Error("SOURCES.md is not UTF-8")
	}
	for _, g := range builtin(t) {
		for _, table := range g.Tables {
			if !strings.Contains(string(b), "| "+table.Noun+" | "+table.Split+" |") || !strings.Contains(string(b), table.Source.Digest) {
				t.Errorf("SOURCES.md does not list %s", table.Noun)
			}
		}
	}
}
