package seed

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// maxJoined is the most tables of one environment: each brings its own tools.
const maxJoined = 4

// Heldout says which tables of outside documents are held out of training: a
// share of them, decided by the digest of their bytes alone so that no seed or
// neighbour moves a table, or those of the named nouns.
type Heldout struct {
	Share float64
	Nouns []string
}

// Repeats is an error if a table has the bytes or the rows of an earlier one:
// the two could stand in both splits.
func Repeats(earlier []*Table, t *Table) error {
	for _, e := range earlier {
		if e.Source.Digest == t.Source.Digest {
			return fmt.Errorf("tables %s and %s are the same bytes", e.Source.Title, t.Source.Title)
		}
		if e.rowsDigest() == t.rowsDigest() {
			return fmt.Errorf("tables %s and %s hold the same rows", e.Source.Title, t.Source.Title)
		}
	}
	return nil
}

// Relate groups tables that join and gives every group a split. A column joins
// a table when its values are that table's keys. Tables that repeat another are
// an error.
func Relate(tables []*Table, heldout Heldout) ([]Group, error) {
	for i, t := range tables {
		if err := Repeats(tables[:i], t); err != nil {
			return nil, err
		}
	}
	for _, noun := range heldout.Nouns {
		if !slices.ContainsFunc(tables, func(t *Table) bool { return t.Noun == noun }) {
			return nil, fmt.Errorf("no table of the noun %q to hold out", noun)
		}
	}

	// component[i] is the smallest table that i is joined with.
	component := make([]int, len(tables))
	for i := range component {
		component[i] = i
	}
	var joins []Join
	for from := range tables {
		for column := 1; column < len(tables[from].Columns); column++ {
			for to := range tables {
				a, b := component[from], component[to]
				if from == to || a != b && members(component, a)+members(component, b) > maxJoined || leads(joins, to, from) {
					continue
				}
				if !join(tables[from], column, tables[to]) {
					continue
				}
				joins = append(joins, Join{from, column, to})
				for i := range component {
					if component[i] == max(a, b) {
						component[i] = min(a, b)
					}
				}
				break
			}
		}
	}

	var groups []Group
	for c := range tables {
		if component[c] != c {
			continue
		}
		var g Group
		place := map[int]int{}
		for i, t := range tables {
			if component[i] == c {
				place[i] = len(g.Tables)
				g.Tables = append(g.Tables, t)
			}
		}
		for _, j := range joins {
			if component[j.From] == c {
				g.Joins = append(g.Joins, Join{place[j.From], j.Column, place[j.To]})
			}
		}
		for i, t := range g.Tables {
			for n, base := 2, t.Noun; slices.ContainsFunc(g.Tables[:i], func(o *Table) bool { return o.Noun == t.Noun }); n++ {
				t.Noun = fmt.Sprintf("%s_%d", base, n)
			}
		}
		split := heldout.split(g.Tables)
		for _, t := range g.Tables {
			t.Split = split
		}
		groups = append(groups, g)
	}
	return groups, nil
}

func members(component []int, c int) int {
	n := 0
	for _, o := range component {
		if o == c {
			n++
		}
	}
	return n
}

// leads reports whether joins lead from one table to another.
func leads(joins []Join, from, to int) bool {
	for _, j := range joins {
		if j.From == from && (j.To == to || leads(joins, j.To, to)) {
			return true
		}
	}
	return false
}

// split is decided for joined tables together.
func (h Heldout) split(tables []*Table) string {
	least := tables[0].Source.Digest
	for _, t := range tables {
		least = min(least, t.Source.Digest)
		if slices.Contains(h.Nouns, t.Noun) {
			return episode.SplitHeldout
		}
	}
	sum := sha256.Sum256([]byte("split " + least))
	if float64(binary.BigEndian.Uint32(sum[:4])) < h.Share*(1<<32) {
		return episode.SplitHeldout
	}
	return episode.SplitTrain
}

// join reports whether a column's values are keys of another table, and if
// they are makes them so: rows that lead nowhere are dropped (one in ten at
// most), numbers become texts as keys are. A column whose name does not speak
// of the other table needs five different values, all of them keys.
func join(t *Table, column int, to *Table) bool {
	c := t.Columns[column]
	switch c.Type {
	case episode.ColumnText, episode.ColumnCategory, episode.ColumnInteger, episode.ColumnDate:
	default:
		return false
	}
	distinct := map[string]bool{}
	filled, found := 0, 0
	for _, row := range t.Rows {
		if v := row[column]; !v.IsNull() {
			filled++
			distinct[v.text] = true
			if rowOf(to, v.text) >= 0 {
				found++
			}
		}
	}
	speaks := strings.Contains(c.Name, to.Noun) || c.Name == to.Columns[0].Name && !genericWords[c.Name]
	switch {
	case len(distinct) < 2 || 10*found < 9*filled || len(t.Rows)-(filled-found) < MinRows:
		return false
	case !speaks && (c.Type == episode.ColumnInteger || len(distinct) < 5 || found < filled):
		return false
	}
	var rows [][]Value
	dropped := 0
	for _, row := range t.Rows {
		if v := row[column]; !v.IsNull() {
			if rowOf(to, v.text) < 0 {
				dropped++
				continue
			}
			if v.kind == kindNumber {
				row[column] = Text(v.text)
			}
		}
		rows = append(rows, row)
	}
	if dropped > 0 {
		t.Cleaning = append(t.Cleaning, episode.Cleaning{Column: c.Name, Change: "row that leads to no row of " + to.Noun + " dropped", Count: dropped})
	}
	if c.Type == episode.ColumnInteger {
		t.Cleaning = append(t.Cleaning, episode.Cleaning{Column: c.Name, Change: "number written as text, a key of " + to.Noun, Count: len(rows)})
	}
	if c.Type == episode.ColumnInteger || c.Type == episode.ColumnDate {
		t.Columns[column].Type, t.Columns[column].Unit = episode.ColumnText, ""
	}
	t.Rows, t.byKey = rows, nil
	return true
}
