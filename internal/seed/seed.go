// Package seed is the first stage of environment synthesis: it turns real
// tables into environments that hold data and a schema, and nothing else yet.
//
// Tables come from the binary (Builtin) or from outside bytes (Parse): CSV,
// TSV, JSON and JSONL of unknown provenance, whose delimiter, header,
// encoding, types, units and key are inferred and whose every change is
// counted. Relate finds joins between tables and decides the split. Environments cuts
// tables into small environments and, for warm-up data, makes disguised
// variants of them (disguise.go).
//
// The package reads no file and knows no flag; the same tables, options and
// seed give the same environments.
package seed

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// MinRows is the smallest table, in rows, of which an environment is made.
const MinRows = 8

// Kind of a value, as JSON has them.
type valueKind byte

const (
	kindNull valueKind = iota
	kindText
	kindNumber
	kindBoolean
	kindNested // an array or object inside a cell; never in a finished table
)

// Value is one cell: null, or a text, number or boolean.
type Value struct {
	kind valueKind
	text string // the text itself, the JSON literal of a number, "true" or "false"
}

// Text makes a text value.
func Text(s string) Value { return Value{kindText, s} }

// Integer makes an integral number.
func Integer(n int64) Value { return Value{kindNumber, strconv.FormatInt(n, 10)} }

// IsNull reports whether the cell has no value.
func (v Value) IsNull() bool { return v.kind == kindNull }

// String returns the text, the number as JSON writes it, or "".
func (v Value) String() string { return v.text }

// Column is one column of a Table.
type Column struct {
	Name string // lower-case identifier
	Type string // one of the episode.Column type constants
	Unit string // of numbers; "" where none
}

// Table is a cleaned table with unique keys: column 0 is the key.
type Table struct {
	Noun      string // what a row is; an identifier
	Columns   []Column
	Rows      [][]Value // one value per column
	Domain    string
	Subdomain string
	Topic     string
	Split     string
	Source    episode.Source
	Cleaning  []episode.Cleaning // Table is filled in when an environment is made

	byKey  map[string]int // row of each key, made when first asked for
	digest string         // of the rows, made when first asked for
}

// Join links a column of one table of a Group to the key of another.
type Join struct {
	From   int // index of the table with the column
	Column int // index of the column; every value that is not null is a key of To
	To     int // index of the table whose key is meant
}

// Group is what one environment is made of: one table, or several that join.
type Group struct {
	Tables []*Table
	Joins  []Join
}

// Options say how many environments are made and how large.
type Options struct {
	Seed     uint64
	Rows     int // most rows of a table in one environment
	PerGroup int // environments made of a table, or of joined tables, that have more rows than that
	Variants int // disguised variants of each train table
}

// Environments yields the environments of the groups in order, then the
// disguised variants of the train tables. It fails if a heldout table shares
// its source with a train table.
func Environments(groups []Group, o Options) iter.Seq2[*episode.Environment, error] {
	return func(yield func(*episode.Environment, error) bool) {
		if err := checkSplits(groups); err != nil {
			yield(nil, err)
			return
		}
		seen := map[string]bool{}
		emit := func(g Group, kind string) (bool, error) {
			e, err := environment(g, o.Seed, kind)
			if err != nil {
				return false, err
			}
			if seen[e.EnvironmentID] {
				return true, nil
			}
			seen[e.EnvironmentID] = true
			return yield(e, nil), nil
		}
		for _, g := range groups {
			for i := range max(1, o.PerGroup) {
				s, ok := sample(g, o, i)
				if !ok {
					break
				}
				more, err := emit(s, "")
				if err != nil {
					yield(nil, err)
				}
				if err != nil || !more {
					return
				}
				if len(s.Tables) == 1 && len(s.Tables[0].Rows) == len(g.Tables[0].Rows) {
					break // the whole table is in; another sample would be the same
				}
			}
		}
		if o.Variants <= 0 {
			return
		}
		d := newDisguiser(groups)
		for ti := range d.tables {
			for i := range o.Variants {
				g, ok := d.variant(ti, i, o)
				if !ok {
					continue
				}
				more, err := emit(g, "disguised")
				if err != nil {
					yield(nil, err)
				}
				if err != nil || !more {
					return
				}
			}
		}
	}
}

// checkSplits refuses groups in which train and heldout share source bytes.
func checkSplits(groups []Group) error {
	split := map[string]string{}
	for _, g := range groups {
		for _, t := range g.Tables {
			if t.Split != episode.SplitTrain && t.Split != episode.SplitHeldout {
				return fmt.Errorf("table %s: split %q is neither train nor heldout", t.Noun, t.Split)
			}
			if t.Split != g.Tables[0].Split {
				return fmt.Errorf("tables %s and %s are joined but stand in different splits", g.Tables[0].Noun, t.Noun)
			}
			if s, ok := split[t.Source.Digest]; ok && s != t.Split {
				return fmt.Errorf("table %s: its source is in both splits", t.Noun)
			}
			split[t.Source.Digest] = t.Split
		}
	}
	return nil
}

// place is a row of a table of a group.
type place struct{ table, row int }

// sample cuts every table of the group to o.Rows rows by chance; rows keep
// their order. A row comes with the rows that its links lead to, or not at
// all. It reports false if too few rows are left.
func sample(g Group, o Options, index int) (Group, bool) {
	r := newRandom("sample", o.Seed, groupName(g), index)
	kept := make([]map[int]bool, len(g.Tables))
	for i := range kept {
		kept[i] = map[int]bool{}
	}
	for _, ti := range linkOrder(g) {
		rows := make([]int, len(g.Tables[ti].Rows))
		for i := range rows {
			rows[i] = i
		}
		shuffle(r, rows)
		for _, row := range rows {
			if len(kept[ti]) == o.Rows {
				break
			}
			with, ok := follow(g, place{ti, row}, nil)
			if !ok {
				continue
			}
			added := make([]int, len(g.Tables))
			for _, p := range with {
				if !kept[p.table][p.row] {
					added[p.table]++
				}
			}
			for t, n := range added {
				ok = ok && len(kept[t])+n <= o.Rows
			}
			if ok {
				for _, p := range with {
					kept[p.table][p.row] = true
				}
			}
		}
	}
	out := Group{Tables: make([]*Table, len(g.Tables)), Joins: g.Joins}
	for ti, t := range g.Tables {
		if len(kept[ti]) < MinRows {
			return Group{}, false
		}
		cut := *t
		cut.byKey, cut.digest, cut.Rows = nil, "", nil
		for i, row := range t.Rows {
			if kept[ti][i] {
				cut.Rows = append(cut.Rows, row)
			}
		}
		out.Tables[ti] = &cut
	}
	return out, true
}

// follow appends a row and, along the links, every row that it needs; false
// if a link leads nowhere.
func follow(g Group, p place, with []place) ([]place, bool) {
	if slices.Contains(with, p) {
		return with, true
	}
	with = append(with, p)
	for _, j := range g.Joins {
		if j.From != p.table {
			continue
		}
		v := g.Tables[p.table].Rows[p.row][j.Column]
		if v.IsNull() {
			continue
		}
		to, ok := rowOf(g.Tables[j.To], v.text), false
		if to < 0 {
			return nil, false
		}
		if with, ok = follow(g, place{j.To, to}, with); !ok {
			return nil, false
		}
	}
	return with, true
}

// groupName names a group in random keys and messages.
func groupName(g Group) string {
	names := make([]string, len(g.Tables))
	for i, t := range g.Tables {
		names[i] = t.Noun + ":" + t.Source.Digest
	}
	return strings.Join(names, " ")
}

// linkOrder orders tables so that one that links comes before those it links
// to. Tables in a cycle keep their place; Relate makes none.
func linkOrder(g Group) []int {
	var order []int
	done := make([]bool, len(g.Tables))
	for len(order) < len(g.Tables) {
		next := -1
		for i := range g.Tables {
			free := !done[i]
			for _, j := range g.Joins {
				if j.To == i && j.From != i && !done[j.From] {
					free = false
				}
			}
			if free {
				next = i
				break
			}
		}
		if next < 0 {
			next = slices.Index(done, false)
		}
		done[next] = true
		order = append(order, next)
	}
	return order
}

// rowOf finds the row of a key, -1 if there is none.
func rowOf(t *Table, key string) int {
	if t.byKey == nil {
		t.byKey = make(map[string]int, len(t.Rows))
		for i, row := range t.Rows {
			t.byKey[row[0].text] = i
		}
	}
	if i, ok := t.byKey[key]; ok {
		return i
	}
	return -1
}

// environment writes a group as a row of the stream. kind, if not "",
// replaces the kind of the sources.
func environment(g Group, designSeed uint64, kind string) (*episode.Environment, error) {
	first := g.Tables[0]
	e := &episode.Environment{
		Domain: first.Domain, Subdomain: first.Subdomain, Topic: first.Topic,
		Family: episode.FamilyToolUse, Split: first.Split, RequiresTool: true,
		Tools: []episode.Tool{}, Tasks: []episode.Task{}, Audit: []episode.Audit{},
	}
	schema := episode.Schema{Tables: []episode.TableSchema{}, Cleaning: []episode.Cleaning{}}
	digest := sha256.New()
	for ti, t := range g.Tables {
		s := t.Source
		if kind != "" {
			s.Kind = kind
		}
		if !slices.Contains(e.Sources, s) {
			e.Sources = append(e.Sources, s)
		}
		f := episode.File{Path: t.Noun + ".json", MediaType: "application/json", Content: t.content()}
		e.Files = append(e.Files, f)
		ts := t.schema(f.Path)
		for _, j := range g.Joins {
			if j.From == ti {
				to := g.Tables[j.To]
				ts.Joins = append(ts.Joins, episode.Join{Column: t.Columns[j.Column].Name, Table: to.Noun, Key: to.Columns[0].Name})
			}
		}
		schema.Tables = append(schema.Tables, ts)
		for _, c := range t.Cleaning {
			c.Table = t.Noun
			schema.Cleaning = append(schema.Cleaning, c)
		}
		// Lengths delimit the parts, so that no two lists of parts agree.
		for _, part := range []string{s.Kind, s.Digest, f.Path, f.Content} {
			fmt.Fprintf(digest, "%d:%s", len(part), part)
		}
	}
	fmt.Fprintf(digest, "seed %d", designSeed)
	e.EnvironmentID = hex.EncodeToString(digest.Sum(nil)[:8])
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", groupName(g), err)
	}
	e.Schema = string(text)
	return e, nil
}

// content writes the rows as a JSON array, one row a line, keys in column
// order, with a space after colon and comma, as observations have them.
func (t *Table) content() string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = string(appendQuoted(nil, c.Name)) + ": "
	}
	b := []byte("[\n")
	for i, row := range t.Rows {
		b = append(b, '{')
		for j, v := range row {
			if j > 0 {
				b = append(b, ", "...)
			}
			b = append(b, names[j]...)
			b = v.append(b)
		}
		b = append(b, '}')
		if i < len(t.Rows)-1 {
			b = append(b, ',')
		}
		b = append(b, '\n')
	}
	return string(append(b, "]\n"...))
}

// rowsDigest tells tables of the same rows from others.
func (t *Table) rowsDigest() string {
	if t.digest == "" {
		sum := sha256.Sum256([]byte(t.content()))
		t.digest = string(sum[:])
	}
	return t.digest
}

// append writes the value as JSON.
func (v Value) append(b []byte) []byte {
	switch v.kind {
	case kindText:
		return appendQuoted(b, v.text)
	case kindNumber, kindBoolean:
		return append(b, v.text...)
	}
	return append(b, "null"...)
}

// appendQuoted writes valid UTF-8 as a JSON string with the fewest escapes, so
// that a name keeps its spelling.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c < 0x20:
			b = fmt.Appendf(b, "\\u%04x", c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// schema counts what the designer may know about the rows at hand. Column
// types were found on the whole table and are kept, save that a category of
// which a sample holds hardly two rows each is text there.
func (t *Table) schema(path string) episode.TableSchema {
	s := episode.TableSchema{
		Path: path, Noun: t.Noun, Key: t.Columns[0].Name, Rows: len(t.Rows),
		Columns: make([]episode.Column, len(t.Columns)), Joins: []episode.Join{},
	}
	for i, c := range t.Columns {
		out := episode.Column{Name: c.Name, Type: c.Type, Unit: c.Unit}
		distinct := map[string]bool{}
		var least, most Value
		for _, row := range t.Rows {
			v := row[i]
			if v.IsNull() {
				out.Nulls++
				continue
			}
			distinct[v.text] = true
			if least.IsNull() || lessValue(v, least) {
				least = v
			}
			if most.IsNull() || lessValue(most, v) {
				most = v
			}
		}
		out.Distinct = len(distinct)
		if c.Type == episode.ColumnCategory && !fewValues(out.Distinct, len(t.Rows)-out.Nulls) {
			out.Type = episode.ColumnText
		}
		switch c.Type {
		case episode.ColumnInteger, episode.ColumnNumber, episode.ColumnDate:
			if !least.IsNull() {
				out.Min, out.Max = string(least.append(nil)), string(most.append(nil))
			}
		}
		s.Columns[i] = out
	}
	return s
}

// lessValue orders two values of one column.
func lessValue(a, b Value) bool {
	if a.kind == kindNumber {
		return number(a) < number(b)
	}
	return a.text < b.text
}

// number is the value of a number; the parsers let no literal in that
// strconv refuses.
func number(v Value) float64 {
	f, _ := strconv.ParseFloat(v.text, 64)
	return f
}

// fewValues says when a text column is a category: values repeat, and there
// are few enough to choose from.
func fewValues(distinct, rows int) bool {
	return distinct >= 1 && distinct <= 30 && 2*distinct <= rows
}
