// Package designer writes the tools, tasks and verifiers of an environment.
//
// The builtin designer is program synthesis: from the schema of the tables it
// derives tools, and it composes relational operations (operations.go) into
// questions, each with a solution that goes through the tools and a verifier
// that rebuilds the answer from the raw rows by another route. It is a pure
// function of the environment and a random key; it runs nothing. What it
// writes is run and judged by the stages that use it.
package designer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// Builtin names this designer where the model is named.
const Builtin = "builtin"

// Database is the data of an environment as the designer sees it.
type Database struct {
	tables []*table
}

// table is a table with its rows decoded.
type table struct {
	episode.TableSchema
	rows []row
	// modes holds, per column, the folded values that stand on more than one
	// row in twenty and on more rows than any other value of the column: what
	// somebody who knows the column would guess.
	modes map[string]map[string]bool
	// keys counts the rows of each folded key; a name that stands for two rows
	// is asked for by no task.
	keys map[string]int
}

// row holds the values of one row by column: string, json.Number, bool or nil.
type row map[string]any

// Read decodes the tables of an environment and checks them against its
// schema. The error says which table, row and column disagree.
func Read(e *episode.Environment) (*Database, error) {
	var schema episode.Schema
	if e.Schema == "" {
		return nil, fmt.Errorf("environment %s has no schema", e.EnvironmentID)
	}
	if err := json.Unmarshal([]byte(e.Schema), &schema); err != nil {
		return nil, fmt.Errorf("environment %s: schema: %w", e.EnvironmentID, err)
	}
	if len(schema.Tables) == 0 {
		return nil, fmt.Errorf("environment %s: its schema names no table", e.EnvironmentID)
	}
	content := map[string]string{}
	for _, f := range e.Files {
		content[f.Path] = f.Content
	}
	d := &Database{}
	for _, ts := range schema.Tables {
		text, ok := content[ts.Path]
		if !ok {
			return nil, fmt.Errorf("environment %s: its schema names file %s, which is not among its files", e.EnvironmentID, ts.Path)
		}
		t, err := readTable(ts, text)
		if err != nil {
			return nil, fmt.Errorf("environment %s: %s: %w", e.EnvironmentID, ts.Path, err)
		}
		if d.table(ts.Noun) != nil {
			return nil, fmt.Errorf("environment %s: two tables of noun %q", e.EnvironmentID, ts.Noun)
		}
		d.tables = append(d.tables, t)
	}
	for _, t := range d.tables {
		for _, j := range t.Joins {
			to := d.table(j.Table)
			if to == nil || to.Key != j.Key || t.Column(j.Column) == nil {
				return nil, fmt.Errorf("environment %s: %s: join of %q to %q has no such column or table", e.EnvironmentID, t.Path, j.Column, j.Table)
			}
		}
	}
	return d, nil
}

func (d *Database) table(noun string) *table {
	for _, t := range d.tables {
		if t.Noun == noun {
			return t
		}
	}
	return nil
}

func readTable(ts episode.TableSchema, text string) (*table, error) {
	t := &table{TableSchema: ts, modes: map[string]map[string]bool{}, keys: map[string]int{}}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&t.rows); err != nil {
		return nil, err
	}
	if !identifier(ts.Noun) {
		return nil, fmt.Errorf("noun %q is not an identifier", ts.Noun)
	}
	if key := t.Column(ts.Key); key == nil || key.Type != episode.ColumnKey {
		return nil, fmt.Errorf("key %q is not a column of type key", ts.Key)
	}
	for _, c := range t.Columns {
		if !identifier(c.Name) {
			return nil, fmt.Errorf("column name %q is not an identifier", c.Name)
		}
		count := map[string]int{}
		for i, r := range t.rows {
			v, ok := r[c.Name]
			if !ok || !fits(v, c.Type) {
				return nil, fmt.Errorf("row %d: column %s is missing or not of type %s", i, c.Name, c.Type)
			}
			if v != nil {
				count[fold(textOf(v))]++
			}
		}
		t.modes[c.Name] = mostFrequent(count, len(t.rows))
		if c.Name == ts.Key {
			t.keys = count
		}
	}
	return t, nil
}

// mostFrequent returns the values that share the highest count, if that count
// is a guess worth making.
func mostFrequent(count map[string]int, rows int) map[string]bool {
	most := 0
	for _, n := range count {
		most = max(most, n)
	}
	modes := map[string]bool{}
	if most > 1 && most*20 > rows {
		for v, n := range count {
			if n == most {
				modes[v] = true
			}
		}
	}
	return modes
}

// fits says whether v may stand in a column of type t. Null may, save as key.
func fits(v any, t string) bool {
	switch v := v.(type) {
	case nil:
		return t != episode.ColumnKey
	case string:
		return t == episode.ColumnKey || t == episode.ColumnCategory || t == episode.ColumnText || t == episode.ColumnDate
	case bool:
		return t == episode.ColumnBoolean
	case json.Number:
		_, err := v.Float64()
		return err == nil && (t == episode.ColumnNumber || t == episode.ColumnInteger)
	}
	return false
}

// identifier says whether a name can be part of a tool's name and a
// parameter: lower-case letters, digits and underscores, no digit first.
func identifier(s string) bool {
	for i, c := range s {
		if !(c >= 'a' && c <= 'z' || c == '_' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return s != ""
}

// textOf writes a value that is not null as it is submitted: a string as it
// is, a number in decimal.
func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		if v {
			return "true"
		}
		return "false"
	}
	return ""
}

// fold is the normal form in which answers are compared: no case, single
// blanks.
func fold(s string) string { return strings.Join(strings.Fields(strings.ToLower(s)), " ") }

// quotable says whether a value can stand between quotes in a query.
func quotable(s string) bool {
	return s != "" && s == strings.TrimSpace(s) && !strings.ContainsAny(s, "\"\\\n\r\t")
}

// number is the value of a number, and whether v is one.
func number(v any) (float64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := n.Float64()
	return f, err == nil
}

// appendJSON writes a string, number, bool or nil as JSON with the fewest
// escapes, so that a name keeps its spelling.
func appendJSON(b []byte, v any) []byte {
	var buffer bytes.Buffer
	enc := json.NewEncoder(&buffer)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // no value made here is without a JSON form
	}
	return append(b, bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))...)
}

// argument is one argument of a call.
type argument struct {
	name  string
	value any
}

// appendObject writes arguments as JSON, spaced as observations are.
func appendObject(b []byte, arguments []argument) []byte {
	b = append(b, '{')
	for i, a := range arguments {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(appendJSON(b, a.name), ": "...)
		b = appendJSON(b, a.value)
	}
	return append(b, '}')
}
