package seed

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// numbered repeats a line with its number, so that small examples have rows
// enough.
func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(format, "#", strconv.Itoa(i+1)))
	}
	return b.String()
}

func parse(t *testing.T, name, content string) *Table {
	t.Helper()
	table, err := Parse(Document{Path: name, Content: []byte(content)}, DefaultLimits)
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, content)
	}
	return table
}

// describe writes the columns as "name type unit" and the first row.
func describe(t *Table) string {
	var b strings.Builder
	for i, c := range t.Columns {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strings.TrimSpace(c.Name + " " + c.Type + " " + c.Unit))
	}
	b.WriteString(" |")
	for _, v := range t.Rows[0] {
		b.WriteString(" " + string(v.append(nil)))
	}
	return b.String()
}

func TestParseFindsColumnsTypesAndUnits(t *testing.T) {
	for _, test := range []struct{ name, file, content, want string }{
		{"comma", "lakes.csv", "Lake,Area\n" + numbered("Lake no #,#5\n", 9),
			`name key, area integer | "Lake no 1" 15`},
		{"tab", "lakes.tsv", "lake\tarea\n" + numbered("Lake, #\t#\n", 9),
			`name key, area integer | "Lake, 1" 1`},
		{"semicolon and decimal comma", "lakes.csv", "lake;depth\n" + numbered("L #;#,5\n", 9),
			`name key, depth number | "L 1" 1.5`},
		{"bar, CRLF", "a.txt", "lake|area\r\n" + numbered("L #|#\r\n", 9),
			`name key, area integer | "L 1" 1`},
		{"byte order mark", "a.csv", "\ufefflake,area\n" + numbered("L #,#\n", 9),
			`name key, area integer | "L 1" 1`},
		{"UTF-16", "a.csv", utf16Text("lake,area\n" + numbered("Lé #,#\n", 9)),
			`name key, area integer | "Lé 1" 1`},
		{"Windows-1252", "a.csv", "lake,area\n" + numbered("L\xe9 #,#\n", 9),
			`name key, area integer | "Lé 1" 1`},
		{"quoted delimiter, quote and line break", "a.csv", "lake,area\n" + numbered("\"L, \"\"#\"\"\nx\",#\n", 9),
			`name key, area integer | "L, \"1\" x" 1`},
		{"quotes escaped by backslash", "a.csv", "\"lake\",\"note\"\n" + numbered(`"Lake #","a \"b\", c #"`+"\n", 9),
			`name key, note text | "Lake 1" "a \"b\", c 1"`},
		{"quotes as text", "a.tsv", "lake\tnote\n" + numbered("Lake #\t\"5\" of #\n", 9),
			`name key, note text | "Lake 1" "\"5\" of 1"`},
		{"no header", "lakes.csv", numbered("L #,#,#.5\n", 9),
			`column_1 key, column_2 integer, column_3 number | "L 1" 1 1.5`},
		{"units in names", "m.csv", "Mountain,Height (m),Height (ft),Pressure [%]\n" + numbered("M #,#00,#000,#\n", 9),
			`name key, height integer m, height_ft integer ft, pressure integer % | "M 1" 100 1000 1`},
		{"units in cells", "m.csv", "name,weight,price,share\n" + numbered("M #,#4 t,$#0.50,#%\n", 9),
			`name key, weight integer t, price number $, share integer % | "M 1" 14 10.5 1`},
		{"thousands", "m.csv", "name,people\n" + numbered("M #,\"#,234,567\"\n", 9),
			`name key, people integer | "M 1" 1234567`},
		{"signs and approximations", "m.csv", "name,low,built\n" + numbered("M #,−#.5,c. 190#\n", 9),
			`name key, low number, built integer | "M 1" -1.5 1901`},
		{"footnotes and entities", "m.csv", "name,area\n" + numbered("M &amp; N #[note 2]*,#[1]\n", 9),
			`name key, area integer | "M \u0026 N 1" 1`},
		{"booleans", "m.csv", "name,open\nA,Yes\n" + numbered("M #,No\n", 9),
			`name key, open boolean | "A" true`},
		{"dates, month first by evidence", "m.csv", "name,seen\nA,12/31/1999\n" + numbered("M #,0#/02/2001\n", 9),
			`name key, seen date | "A" "1999-12-31"`},
		{"dates in words", "m.csv", "name,seen\n" + numbered("M #,\"January #, 2002\"\n", 9),
			`name key, seen date | "M 1" "2002-01-01"`},
		{"months", "m.csv", "name,seen\n" + numbered("M #,2002-0#\n", 9),
			`name key, seen date | "M 1" "2002-01"`},
		{"leading zeros are names", "m.csv", "name,zip\n" + numbered("M #,0012#\n", 9),
			`name key, zip text | "M 1" "00121"`},
		{"integers beyond 2^53 are names", "m.csv", "name,id\n" + numbered("M #,900719925474099#\n", 9),
			`name key, id text | "M 1" "9007199254740991"`},
		{"category", "m.csv", "name,kind\n" + numbered("A #,red\nB #,blue\n", 9),
			`name key, kind category | "A 1" "red"`},
		{"key to the right", "m.csv", "rank,kind,Ship Name\n" + numbered("#,x,A #\n#,y,B #\n", 9),
			`ship_name key, rank integer, kind category | "A 1" 1 "x"`},
		{"key made of two columns", "m.csv", "country,year,people\n" + numbered("Chad,#,5#\nMali,#,6#\n", 9),
			`name key, country category, year integer, people integer | "Chad 1" "Chad" 1 51`},
		{"key made of the row's number", "birds.csv", "kind,mass\n" + numbered("a,#\na,#\nb,#\nb,#\n", 5),
			`name key, kind category, mass integer | "bird 1" "a" 1`},
		{"reserved words", "m.csv", "name,class,order,Limit,9 lives\n" + numbered("M #,#,1#,2#,3#\n", 9),
			`name key, class_value integer, order_value integer, limit_value integer, n9_lives integer | "M 1" 1 11 21 31`},
		{"JSON rows", "m.json", "[" + strings.TrimSuffix(numbered(`{"name": "M #", "a": #, "b": true, "c": null, "d": [1]},`, 9), ",") + `,{"name": "N", "b": false, "e": 1}]`,
			`name key, a integer, b boolean | "M 1" 1 true`},
		{"JSON columns", "m.json", `{"name": ["a","b","c","d","e","f","g","h"], "n": [1,2,3,4,5,6,7,8.5]}`,
			`name key, n number | "a" 1`},
		{"JSON arrays with a header", "m.json", `[["name","n"]` + numbered(`,["M #", #]`, 9) + `]`,
			`name key, n integer | "M 1" 1`},
		{"JSON rows in an envelope", "m.json", `{"count": 9, "data": [` + strings.TrimSuffix(numbered(`{"name": "M #", "n": #},`, 9), ",") + `]}`,
			`name key, n integer | "M 1" 1`},
		{"JSONL", "m.jsonl", numbered("{\"name\": \"M #\", \"n\": \"#,000\"}\r\n", 9),
			`name key, n integer | "M 1" 1000`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := describe(parse(t, test.file, test.content)); got != strings.ReplaceAll(test.want, `\u0026`, "&") {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func utf16Text(s string) string {
	b := []byte{0xff, 0xfe}
	for _, r := range s {
		b = append(b, byte(r), byte(r>>8))
	}
	return string(b)
}

func TestParseCountsWhatItChanges(t *testing.T) {
	table := parse(t, "m.csv", "name,Area (km²),kind,note\n"+
		"A[1],\"1,000\",x,\n"+"B,n/a,y,\n"+"B,5,y,\n"+",5,y,\n"+"An island with a name far too long,5,x,\n"+
		numbered("M #,#,x,\n", 40))
	for _, want := range []episode.Cleaning{
		{Column: "", Change: "row with the key of another dropped", Count: 1},
		{Column: "", Change: "row without a key dropped", Count: 1},
		{Column: "", Change: "row with a long key dropped", Count: 1},
		{Column: "name", Change: "footnote mark removed", Count: 1},
		{Column: "area", Change: "unit taken from the column's name", Count: 1},
		{Column: "area", Change: "thousands separators removed", Count: 1},
		{Column: "area", Change: "word for no value made null", Count: 1},
		{Column: "note", Change: "empty column dropped", Count: 1},
	} {
		if !slices.Contains(table.Cleaning, want) {
			t.Errorf("not counted: %+v\nin %+v", want, table.Cleaning)
		}
	}
	if len(table.Rows) != 42 || !table.Rows[1][1].IsNull() {
		t.Errorf("%d rows, second %v", len(table.Rows), table.Rows[1])
	}
}

func TestParseRefusesWhatIsNoTable(t *testing.T) {
	for _, test := range []struct{ name, content, want string }{
		{"nothing", " \n", "no data"},
		{"prose", "It was a dark and stormy night.\n" + numbered("Rain #\n", 9), "no delimiter"},
		{"too few rows", "a,b\n1,2\n", "1 rows; an environment needs at least 8"},
		{"open quote", "a,b\n\"x,1\n" + numbered("y #,1\n", 9), "line 2: a quote is never closed"},
		{"zero bytes", "a,b\x00\n", "byte 3 is zero"},
		{"ragged", "a,b\n" + numbered("x\nx,1\nx,1,2\n", 9), "do not have"},
		{"cut JSON", `[{"a": 1}, {"a"`, "cut off"},
		{"bad JSON", "[\n{\"a\": 1},\n{'a': 2}]", "line 3"},
		{"duplicate member", `[{"a": 1, "a": 2}]`, "duplicate"},
		{"one object", `{"a": 1}`, "no table"},
		{"two tables", `{"a": [{"x":1}], "b": [{"x":1}]}`, "several arrays"},
		{"empty array", `[]`, "no rows"},
		{"numbers", `[1,2,3,4,5,6,7,8,9]`, "neither an object nor an array"},
		{"huge number", `[{"a": 1e999}]`, "out of range"},
		{"half a UTF-16 unit", "\xff\xfea", "odd number"},
		{"one column", "name,x\n" + numbered("M #,\n", 9), "no column besides the key"},
		{"text after a quote", "a,b\n" + numbered("\"x\"y #,1\n", 9), "line 2: text after a closing quote"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse(Document{Path: "x", Content: []byte(test.content)}, DefaultLimits)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestNounIsWhatARowIs(t *testing.T) {
	for file, want := range map[string]string{
		"lakes.csv": "lake", "data/538_recent-movies.csv": "movie", "List-of-lakes-by-area.csv": "lake", "country_codes.csv": "country",
		"cities.json": "city", "boxes.csv": "box", "bus.csv": "bus", "passes.csv": "pass_row", "classes.csv": "class_row", "123.csv": "row", "data.csv": "row",
	} {
		if got := nounOf(file, []Column{{Name: "name"}}, 0); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
	if got := nounOf("x.csv", []Column{{Name: "ship_name"}}, 0); got != "ship" {
		t.Errorf("ship_name: %s", got)
	}
}

func related(t *testing.T, heldout Heldout, documents ...string) ([]Group, error) {
	t.Helper()
	var tables []*Table
	for i, content := range documents {
		name, content, _ := strings.Cut(content, ":")
		table := parse(t, name+".csv", content)
		table.Source = episode.Source{Title: name, Digest: fmt.Sprintf("%064d", i)}
		tables = append(tables, table)
	}
	return Relate(tables, heldout)
}

var (
	cities    = "cities:city,country,people\n" + numbered("A #,C #,#0\nB #,C #,#1\n", 10) + "X,Nowhere,5\n"
	countries = "countries:country,area\n" + numbered("C #,#00\n", 12)
	orders    = "orders:order_id,customer_id,sum\n" + numbered("o#,#,#5\np#,#,#6\n", 9)
	customers = "customers:id,name,city\n" + numbered("#,Name #,A #\n", 9)
)

func TestRelateJoinsTablesByTheirKeys(t *testing.T) {
	groups, err := related(t, Heldout{}, cities, countries, "lakes:lake,area\n"+numbered("L #,#\n", 9))
	if err != nil {
		t.Fatal(err)
	}
	if len(groups) != 2 || len(groups[0].Tables) != 2 || !slices.Equal(groups[0].Joins, []Join{{0, 1, 1}}) {
		t.Fatalf("%d groups, first joins %v", len(groups), groups[0].Joins)
	}
	if !slices.Contains(groups[0].Tables[0].Cleaning, episode.Cleaning{Column: "country", Change: "row that leads to no row of country dropped", Count: 1}) {
		t.Error("the row that leads nowhere was not counted")
	}
	for _, e := range collect(t, groups, Options{Seed: 1, Rows: 10, PerGroup: 3}) {
		if e.Files[0].Path == "city.json" && (len(e.Files) != 2 || !strings.Contains(e.Schema, `"joins":[{"column":"country","table":"country","key":"name"}]`)) {
			t.Errorf("schema %s", e.Schema)
		}
	}
}

func TestRelateTurnsNumbersIntoKeys(t *testing.T) {
	tables := []*Table{}
	for i, d := range []string{orders, customers} {
		name, content, _ := strings.Cut(d, ":")
		table, err := Parse(Document{Path: name + ".csv", Content: []byte(content), Key: []string{"order_id", "id"}[i]}, DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		table.Source.Digest = name
		tables = append(tables, table)
	}
	groups, err := Relate(tables, Heldout{})
	if err != nil {
		t.Fatal(err)
	}
	if len(groups) != 1 || len(groups[0].Joins) != 1 {
		t.Fatalf("groups %+v", groups)
	}
	collect(t, groups, Options{Rows: 40})
}

func TestRelateRefusesATableTwice(t *testing.T) {
	if _, err := related(t, Heldout{}, cities, "towns"+strings.TrimPrefix(cities, "cities")); err == nil || !strings.Contains(err.Error(), "the same rows") {
		t.Errorf("got %v", err)
	}
}

func TestHeldoutIsDecidedByTheTablesAlone(t *testing.T) {
	var documents []string
	for i := range 60 {
		documents = append(documents, fmt.Sprintf("lakes:lake,area\n%s", numbered(fmt.Sprintf("L%d #,#\n", i), 9)))
	}
	count := func(h Heldout) (split []string, heldout int) {
		groups, err := related(t, h, documents...)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			split = append(split, g.Tables[0].Split)
			if g.Tables[0].Split == episode.SplitHeldout {
				heldout++
			}
		}
		return split, heldout
	}
	fifth, n := count(Heldout{Share: 0.2})
	if n < 4 || n > 22 {
		t.Errorf("%d of 60 held out for a share of 0.2", n)
	}
	half, more := count(Heldout{Share: 0.5})
	for i := range fifth {
		if fifth[i] == episode.SplitHeldout && half[i] != episode.SplitHeldout {
			t.Error("a greater share let a table go")
		}
	}
	if more <= n {
		t.Errorf("%d held out of a half, %d of a fifth", more, n)
	}
	if _, n := count(Heldout{Share: 1}); n != 60 {
		t.Errorf("%d held out of all", n)
	}
	if _, n := count(Heldout{Nouns: []string{"lake"}}); n != 60 {
		t.Errorf("%d held out by noun", n)
	}
	if _, err := related(t, Heldout{Nouns: []string{"pond"}}, cities); err == nil {
		t.Error("a noun that no table has was accepted")
	}
}
