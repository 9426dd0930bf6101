package seed

import (
	"embed"
	"encoding/json"
	"fmt"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// The tables in the binary, made by the program in _generate from the files
// that builtin/SOURCES.md names.
//
//go:generate go run ./_generate -raw ../../../shared/data/tables
//go:embed builtin/*.json
var builtinFiles embed.FS

// Catalogue is builtin/tables.json: what the tables in the binary are.
type Catalogue struct {
	Tables []CatalogueTable `json:"tables"`
	Joins  []CatalogueJoin  `json:"joins"`
}

// CatalogueTable describes one table; its rows are in builtin/NOUN.json, an
// array of arrays in column order.
type CatalogueTable struct {
	Noun      string             `json:"noun"`
	Domain    string             `json:"domain"`
	Subdomain string             `json:"subdomain"`
	Topic     string             `json:"topic"`
	Split     string             `json:"split"`
	Source    episode.Source     `json:"source"`
	Columns   []CatalogueColumn  `json:"columns"`
	Cleaning  []episode.Cleaning `json:"cleaning"`
}

// CatalogueColumn is a Column as it is stored.
type CatalogueColumn struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Unit string `json:"unit"`
}

// CatalogueJoin says that a column of one table holds keys of another; some
// rows may lead nowhere, and are left out where the two are joined.
type CatalogueJoin struct {
	Table  string `json:"table"`
	Column string `json:"column"`
	To     string `json:"to"`
}

// Builtin returns the tables in the binary, each a group of its own, followed
// by a group of two for each join between them.
func Builtin() ([]Group, error) {
	var catalogue Catalogue
	b, err := builtinFiles.ReadFile("builtin/tables.json")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &catalogue); err != nil {
		return nil, fmt.Errorf("tables.json: %w", err)
	}
	var groups []Group
	byNoun := map[string]*Table{}
	for _, c := range catalogue.Tables {
		t := &Table{Noun: c.Noun, Domain: c.Domain, Subdomain: c.Subdomain, Topic: c.Topic, Split: c.Split, Source: c.Source, Cleaning: c.Cleaning}
		for _, column := range c.Columns {
			t.Columns = append(t.Columns, Column(column))
		}
		b, err := builtinFiles.ReadFile("builtin/" + c.Noun + ".json")
		if err != nil {
			return nil, err
		}
		var rows [][]any
		if err := json.Unmarshal(b, &rows); err != nil {
			return nil, fmt.Errorf("%s.json: %w", c.Noun, err)
		}
		for n, cells := range rows {
			if len(cells) != len(t.Columns) {
				return nil, fmt.Errorf("%s.json: row %d has %d cells, not %d", c.Noun, n+1, len(cells), len(t.Columns))
			}
			row := make([]Value, len(cells))
			for i, cell := range cells {
				switch v := cell.(type) {
				case string:
					row[i] = Text(v)
				case float64:
					row[i] = Integer(int64(v))
				default:
					return nil, fmt.Errorf("%s.json: row %d: %v is neither text nor number", c.Noun, n+1, cell)
				}
			}
			t.Rows = append(t.Rows, row)
		}
		byNoun[t.Noun] = t
		groups = append(groups, Group{Tables: []*Table{t}})
	}
	for _, j := range catalogue.Joins {
		from, to := byNoun[j.Table], byNoun[j.To]
		if from == nil || to == nil {
			return nil, fmt.Errorf("tables.json: join of %s and %s: no such table", j.Table, j.To)
		}
		for c, column := range from.Columns {
			if column.Name == j.Column {
				groups = append(groups, Group{Tables: []*Table{from, to}, Joins: []Join{{0, c, 1}}})
			}
		}
	}
	return groups, nil
}
