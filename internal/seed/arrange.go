package seed

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// arrange picks the key and the columns that stay. It returns indices of the
// grid's columns, the key (wanted, if it is not "") first; -1 stands for a key
// to be made, of the two columns in parts or, without them, of row numbers.
func arrange(g *grid, columns []Column, wanted string, limits Limits, changes *tally) (order, parts []int, err error) {
	key := -1
	if wanted == "" {
		if key = chooseKey(g, columns, limits); key < 0 {
			parts = chooseKeyParts(g, columns, limits)
		}
	} else if key = slices.IndexFunc(columns, func(c Column) bool { return c.Name == identifier(wanted) }); key < 0 {
		return nil, nil, fmt.Errorf("no column %q to be the key", wanted)
	}
	order = []int{key}
	for c := range columns {
		if c == key {
			continue
		}
		distinct, filled, long := map[string]bool{}, 0, 0
		for _, row := range g.rows {
			if row[c].IsNull() {
				continue
			}
			filled++
			distinct[row[c].text] = true
			if row[c].kind == kindText && utf8.RuneCountInString(row[c].text) > limits.TextLength {
				long++
			}
		}
		reason := ""
		switch {
		case filled == 0:
			reason = "empty column dropped"
		case 2*filled < len(g.rows):
			reason = "mostly empty column dropped"
		case len(distinct) == 1:
			reason = "column with one value dropped"
		case 10*long > filled:
			reason = "column of long text dropped"
		case slices.ContainsFunc(order, func(o int) bool { return o >= 0 && sameColumn(g, o, c) }):
			reason = "column equal to another dropped"
		case len(order) >= limits.Columns:
			reason = "column beyond the limit dropped"
		}
		if reason != "" {
			changes.add(c, reason, 1)
			continue
		}
		for _, row := range g.rows {
			if row[c].kind == kindText && utf8.RuneCountInString(row[c].text) > limits.TextLength {
				row[c] = Value{}
			}
		}
		changes.add(c, "long text made null", long)
		order = append(order, c)
	}
	if len(order) < 2 {
		return nil, nil, errors.New("no column besides the key can stay")
	}
	return order, parts, nil
}

func sameColumn(g *grid, a, b int) bool {
	for _, row := range g.rows {
		if row[a] != row[b] {
			return false
		}
	}
	return true
}

// chooseKey picks the column that names the rows: nearly unique, short, by
// preference text with a telling name and far to the left; -1 if none will do.
// The rules are guesses that hold for tables as people publish them.
func chooseKey(g *grid, columns []Column, limits Limits) int {
	best, bestScore := -1, 0.0
	for c, column := range columns {
		seen := map[string]bool{}
		filled, short, letters, plain, length := 0, 0, 0, 0, 0
		for _, row := range g.rows {
			v := row[c]
			if v.IsNull() {
				continue
			}
			filled++
			k := strings.ToLower(v.text)
			if n := utf8.RuneCountInString(v.text); !seen[k] && n <= limits.KeyLength {
				short++
				length += n
			}
			seen[k] = true
			if strings.ContainsFunc(v.text, unicode.IsLetter) {
				letters++
			}
			if !strings.ContainsFunc(v.text, func(r rune) bool { return r > unicode.MaxASCII }) {
				plain++
			}
		}
		if 10*len(seen) < 9*len(g.rows) || 2*short < len(g.rows) || short < MinRows {
			continue
		}
		score := 0.0
		parts := strings.Split(column.Name, "_")
		named := slices.Contains(parts, "name") || slices.Contains(parts, "title")
		coded := isCode(column.Name)
		switch column.Type {
		case episode.ColumnText, episode.ColumnCategory:
			score = 4
			if 2*letters < filled {
				score = 2.5
			}
			if named {
				score += 2
			}
			if coded {
				score--
			}
			if length < 4*short {
				score -= 0.5
			}
			score += 0.5 * float64(plain) / float64(filled)
		case episode.ColumnDate:
			score = 2
		case episode.ColumnInteger:
			if coded || column.Name == "year" || column.Name == "rank" {
				score = 1
			}
		}
		score -= 0.05 * float64(min(c, 15))
		score += float64(short) / float64(len(g.rows))
		if score > bestScore && score >= 1 {
			best, bestScore = c, score
		}
	}
	return best
}

// isCode reports whether a column's name speaks of identifiers.
func isCode(name string) bool {
	return slices.ContainsFunc(strings.Split(name, "_"), func(p string) bool {
		return slices.Contains([]string{"id", "code", "symbol", "url", "key", "number", "no", "index", "iso", "isbn", "zip", "phone"}, p)
	})
}

// chooseKeyParts picks two columns, the first of text, that name the rows
// together, such as a country and a year; nil if there are none among the
// first ten.
func chooseKeyParts(g *grid, columns []Column, limits Limits) []int {
	for a := range min(10, len(columns)) {
		if columns[a].Type != episode.ColumnText && columns[a].Type != episode.ColumnCategory {
			continue
		}
		for b := range min(10, len(columns)) {
			switch columns[b].Type {
			case episode.ColumnNumber, episode.ColumnBoolean:
				continue
			}
			seen := map[string]bool{}
			for _, row := range g.rows {
				k := strings.ToLower(row[a].text + " " + row[b].text)
				if a != b && !row[a].IsNull() && !row[b].IsNull() && utf8.RuneCountInString(k) <= limits.KeyLength {
					seen[k] = true
				}
			}
			if 10*len(seen) >= 9*len(g.rows) {
				return []int{a, b}
			}
		}
	}
	return nil
}

// genericWords do not say what a row is, be they a column's name or part of a
// file's.
var genericWords = words("name", "title", "id", "key", "code", "label", "symbol", "number", "date", "year", "month", "day", "time", "rank",
	"url", "index", "no", "series", "edition", "notes", "observer", "callsign", "iata", "icao", "original", "full", "short", "official",
	"display", "first", "last", "common", "data", "dataset", "table", "list", "row", "record", "entry", "file", "csv", "json", "export", "standard", "input")

// nounOf says what a row is: the word in the key column's name, else the last
// telling word of the file's name.
func nounOf(file string, columns []Column, key int) string {
	if key >= 0 {
		name := columns[key].Name
		for _, suffix := range []string{"_name", "_title", "name"} {
			if rest, ok := strings.CutSuffix(name, suffix); ok && len(rest) > 2 {
				name = rest
				break
			}
		}
		if !strings.Contains(name, "_") && !genericWords[name] && len(name) > 2 && !strings.HasPrefix(name, "column") {
			return safeNoun(singular(name))
		}
	}
	// Of the parts between underscores the last with a telling word counts.
	segments := strings.Split(strings.TrimSuffix(path.Base(file), path.Ext(file)), "_")
	for _, segment := range slices.Backward(segments) {
		parts := identifierParts(segment)
		if len(parts) > 2 && parts[1] == "of" {
			parts = parts[2:] // list of ..., timeline of ...
		}
		noun := ""
		for _, p := range parts {
			if noun != "" && slices.Contains([]string{"by", "in", "of", "on", "at", "from", "with", "for", "and", "the", "to", "present"}, p) {
				break
			}
			if w := singular(p); len(w) > 2 && !genericWords[w] && !strings.ContainsAny(w, "0123456789") {
				noun = w
			}
		}
		if noun != "" {
			return safeNoun(noun[:min(len(noun), maxName)])
		}
	}
	return "row"
}

// safeNoun keeps a noun from being a word that tools could not carry.
func safeNoun(noun string) string {
	if reserved[noun] {
		return noun + "_row"
	}
	return noun
}

// singular is a guess for English plurals.
func singular(w string) string {
	switch {
	case w == "movies" || w == "cookies":
		return w[:len(w)-1]
	case w == "series" || w == "species" || w == "news":
		return w
	case len(w) > 4 && strings.HasSuffix(w, "ies"):
		return w[:len(w)-3] + "y"
	case len(w) > 4 && (strings.HasSuffix(w, "sses") || strings.HasSuffix(w, "xes") || strings.HasSuffix(w, "ches") || strings.HasSuffix(w, "shes")):
		return w[:len(w)-2]
	case len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") && !strings.HasSuffix(w, "is"):
		return w[:len(w)-1]
	}
	return w
}

// renameKey takes the noun out of the key's name: a country's name is its
// name.
func renameKey(columns []Column, key int) {
	columns[key].Name = freeName("name", columns)
}

// freeName is a column name that no column has.
func freeName(name string, columns []Column) string {
	for slices.ContainsFunc(columns, func(c Column) bool { return c.Name == name }) {
		name += "_key"
	}
	return name
}
