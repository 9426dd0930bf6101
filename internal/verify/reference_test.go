package verify_test

// A slow evaluator that knows nothing of how tasks are made: it reads the
// English of a query and answers it from the rows, by sorting and scanning. It
// shares no code with designer, tools or verifiers.

import (
	"encoding/json"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

type referenceTable struct {
	episode.TableSchema
	rows []map[string]any
}

type reference struct {
	tables []referenceTable
	forms  []form
}

// form is one way to ask, with the meaning of its groups.
type form struct {
	pattern *regexp.Regexp
	answer  func(g map[string]string) ([]string, error)
}

func newReference(t testing.TB, e *episode.Environment) *reference {
	t.Helper()
	ref := &reference{}
	var schema episode.Schema
	if err := json.Unmarshal([]byte(e.Schema), &schema); err != nil {
		t.Fatal(err)
	}
	var nouns, columns []string
	spaced := func(s string) string { return strings.ReplaceAll(s, "_", " ") }
	for i, ts := range schema.Tables {
		table := referenceTable{TableSchema: ts}
		dec := json.NewDecoder(strings.NewReader(e.Files[i].Content))
		dec.UseNumber()
		if err := dec.Decode(&table.rows); err != nil {
			t.Fatal(err)
		}
		ref.tables = append(ref.tables, table)
		nouns = append(nouns, regexp.QuoteMeta(spaced(ts.Noun)))
		for _, c := range ts.Columns {
			columns = append(columns, regexp.QuoteMeta(spaced(c.Name)))
		}
	}
	either := func(name string, of []string) string {
		sort.Slice(of, func(i, j int) bool { return len(of[i]) > len(of[j]) })
		return "(?P<" + name + ">" + strings.Join(of, "|") + ")"
	}
	expand := func(s string) *regexp.Regexp {
		// C, M, W, L are columns, N and T nouns, K, V, A, B quoted values, H a direction.
		s = regexp.MustCompile(`\{([a-z])\}`).ReplaceAllStringFunc(s, func(p string) string {
			name := p[1:2]
			switch name {
			case "c", "m", "l":
				return either(name, append([]string(nil), columns...))
			case "n", "t":
				return either(name, append([]string(nil), nouns...))
			case "h":
				return "(?P<h>highest|lowest|higher|lower|latest|earliest|later|earlier)"
			case "w":
				return "(?: with " + either("w", append([]string(nil), columns...)) + ` (?P<v>"[^"]*"|true|false))?`
			case "f":
				return either("w", append([]string(nil), columns...)) + ` (?P<v>"[^"]*"|true|false)`
			}
			return `"(?P<` + name + `>[^"]*)"`
		})
		return regexp.MustCompile("^" + s + "$")
	}
	add := func(answer func(map[string]string) ([]string, error), forms ...string) {
		for _, f := range forms {
			ref.forms = append(ref.forms, form{expand(f), answer})
		}
	}
	add(ref.lookup, `What is the {c} of the {n} {k}\?`, `Tell me the {c} of {n} {k}\.`, `Give the {c} for {k}\.`)
	add(ref.count, `How many {n} entries have {f}\?`, `Count the {n} entries with {f}\.`)
	add(ref.search, `Find the {n} whose {m} contains {x} and give its {c}\.`, `What is the {c} of the {n} with {x} in its {m}\?`)
	add(ref.most, `Which {n}{w} has the {h} {m}\?`, `Name the {n}{w} with the {h} {m}\.`,
		`What is the {c} of the {n}{w} that has the {h} {m}\?`, `Take the {n}{w} with the {h} {m}\. Give its {c}\.`)
	add(ref.compare, `Which {n} has the {h} {m}, {a} or {b}\? Give its {c}\.`, `What is the {c} of the {n} that has the {h} {m}, {a} or {b}\?`)
	add(ref.join, `What is the {c} of the {t} that is the {l} of {n} {k}\?`, `Take the {l} of {n} {k} and give the {c} of that {t}\.`,
		`What is the {c} of the {l} of {n} {k}\?`, `Take the {l} of {n} {k} and give its {c}\.`)
	return ref
}

// answer returns the answer of a query; it is an error if the query cannot be
// read or has not exactly one answer.
func (ref *reference) answer(query string) (string, error) {
	found := map[string]bool{}
	var errs []string
	for _, f := range ref.forms {
		m := f.pattern.FindStringSubmatch(query)
		if m == nil {
			continue
		}
		g := map[string]string{}
		for i, name := range f.pattern.SubexpNames() {
			if name != "" && m[i] != "" {
				g[name] = m[i]
			}
		}
		answers, err := f.answer(g)
		if err != nil {
			errs = append(errs, err.Error())
		}
		for _, a := range answers {
			found[a] = true
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%d answers %v %v", len(found), found, errs)
	}
	for a := range found {
		return a, nil
	}
	panic("unreachable")
}

// of gives the tables of a noun, or all where the query names none.
func (ref *reference) of(noun string) []referenceTable {
	var out []referenceTable
	for _, t := range ref.tables {
		if noun == "" || strings.ReplaceAll(t.Noun, "_", " ") == noun {
			out = append(out, t)
		}
	}
	return out
}

func cell(r map[string]any, spacedColumn string) (any, bool) {
	for name, v := range r {
		if strings.ReplaceAll(name, "_", " ") == spacedColumn {
			return v, true
		}
	}
	return nil, false
}

func text(v any) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprint(v)
}

func (ref *reference) lookup(g map[string]string) (out []string, err error) {
	for _, t := range ref.of(g["n"]) {
		for _, r := range t.rows {
			if v, ok := cell(r, g["c"]); ok && strings.EqualFold(text(r[t.Key]), g["k"]) {
				out = append(out, text(v))
			}
		}
	}
	return out, nil
}

func meets(r map[string]any, g map[string]string) bool {
	if g["w"] == "" {
		return true
	}
	v, ok := cell(r, g["w"])
	return ok && v != nil && strings.EqualFold(text(v), strings.Trim(g["v"], `"`))
}

func (ref *reference) count(g map[string]string) ([]string, error) {
	n := 0
	for _, r := range ref.of(g["n"])[0].rows {
		if meets(r, g) {
			n++
		}
	}
	return []string{fmt.Sprint(n)}, nil
}

func (ref *reference) search(g map[string]string) (out []string, err error) {
	for _, r := range ref.of(g["n"])[0].rows {
		v, ok := cell(r, g["m"])
		if ok && strings.Contains(strings.ToLower(text(v)), strings.ToLower(g["x"])) {
			c, _ := cell(r, g["c"])
			out = append(out, text(c))
		}
	}
	if len(out) != 1 {
		return nil, fmt.Errorf("%d rows match", len(out))
	}
	return out, nil
}

// ahead says whether x comes before y in the direction h.
func ahead(h string, x, y any) bool {
	less := text(x) < text(y)
	if n, ok := x.(json.Number); ok {
		a, _ := n.Float64()
		b, _ := y.(json.Number).Float64()
		less = a < b
	}
	up := h == "highest" || h == "higher" || h == "latest" || h == "later"
	return x != y && less != up
}

// best returns the answer column (the key without one) of the rows that no
// other row is ahead of.
func best(t referenceTable, rows []map[string]any, g map[string]string) ([]string, error) {
	var first []map[string]any
	for _, r := range rows {
		v, _ := cell(r, g["m"])
		if v == nil {
			continue
		}
		beaten := false
		for _, other := range rows {
			if w, _ := cell(other, g["m"]); w != nil && ahead(g["h"], w, v) {
				beaten = true
			}
		}
		if !beaten {
			first = append(first, r)
		}
	}
	if len(first) != 1 {
		return nil, fmt.Errorf("%d rows are first", len(first))
	}
	if g["c"] == "" {
		return []string{text(first[0][t.Key])}, nil
	}
	v, ok := cell(first[0], g["c"])
	if !ok {
		return nil, fmt.Errorf("no column %s", g["c"])
	}
	return []string{text(v)}, nil
}

func (ref *reference) most(g map[string]string) ([]string, error) {
	t := ref.of(g["n"])[0]
	var rows []map[string]any
	for _, r := range t.rows {
		if meets(r, g) {
			rows = append(rows, r)
		}
	}
	return best(t, rows, g)
}

func (ref *reference) compare(g map[string]string) ([]string, error) {
	t := ref.of(g["n"])[0]
	var rows []map[string]any
	for _, r := range t.rows {
		if k := text(r[t.Key]); strings.EqualFold(k, g["a"]) || strings.EqualFold(k, g["b"]) {
			rows = append(rows, r)
		}
	}
	if len(rows) != 2 {
		return nil, fmt.Errorf("%d rows to compare", len(rows))
	}
	return best(t, rows, g)
}

func (ref *reference) join(g map[string]string) (out []string, err error) {
	t := ref.of(g["n"])[0]
	for _, j := range t.Joins {
		if strings.ReplaceAll(j.Column, "_", " ") != g["l"] || g["t"] != "" && strings.ReplaceAll(j.Table, "_", " ") != g["t"] {
			continue
		}
		for _, r := range t.rows {
			if !strings.EqualFold(text(r[t.Key]), g["k"]) {
				continue
			}
			for _, o := range ref.of(strings.ReplaceAll(j.Table, "_", " "))[0].rows {
				if v, ok := cell(o, g["c"]); ok && text(o[j.Key]) == text(r[j.Column]) {
					out = append(out, text(v))
				}
			}
		}
	}
	return out, nil
}
