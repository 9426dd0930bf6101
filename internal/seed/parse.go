package seed

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// Limits bound what a table may hold so that its rows fit a prompt.
type Limits struct {
	KeyLength  int // longest key, in characters; rows with a longer one are dropped
	TextLength int // longest text in another column; longer ones become null, or the column goes
	Columns    int // most columns, the key included
}

// DefaultLimits are those of the flags of odyssey-seed.
var DefaultLimits = Limits{KeyLength: 28, TextLength: 40, Columns: 12}

// Document is one file of outside bytes with what is known about it.
type Document struct {
	Path    string // gives the noun where the table does not
	Content []byte
	Noun    string // "" to infer it
	Key     string // name of the key column; "" to infer it
	Source  episode.Source
}

// grid is a table as it was read: cells without types, rows of one length.
type grid struct {
	header []string
	rows   [][]Value
}

// tally counts changes by column (an index of the grid, -1 for whole rows).
type tally []change

type change struct {
	column int
	what   string
	count  int
}

func (t *tally) add(column int, what string, n int) {
	if n == 0 {
		return
	}
	for i := range *t {
		if (*t)[i].column == column && (*t)[i].what == what {
			(*t)[i].count += n
			return
		}
	}
	*t = append(*t, change{column, what, n})
}

// Parse reads a document as one table: CSV, TSV or another delimited text with
// or without a header, a JSON array of objects or of arrays, a JSON object of
// columns, or JSONL. The table has no split yet. An error says why the bytes
// are no table of which an environment could be made.
func Parse(d Document, limits Limits) (*Table, error) {
	var changes tally
	text, err := decode(d.Content, &changes)
	if err != nil {
		return nil, err
	}
	var g *grid
	switch start := strings.TrimLeft(text, " \t\r\n"); {
	case start == "":
		return nil, errors.New("no data")
	case start[0] == '{' || start[0] == '[':
		g, err = readJSON(text, &changes)
	default:
		g, err = readDelimited(text, path.Ext(d.Path) == ".tsv", &changes)
	}
	if err != nil {
		return nil, err
	}
	return finish(g, d, limits, changes)
}

// decode returns the document's text as UTF-8 without a byte order mark. Bytes
// that are not UTF-8 are read as Windows-1252, which every byte string is.
func decode(b []byte, changes *tally) (string, error) {
	switch {
	case bytes.HasPrefix(b, []byte("\xef\xbb\xbf")):
		b = b[3:]
		changes.add(-1, "byte order mark removed", 1)
	case bytes.HasPrefix(b, []byte("\xff\xfe")), bytes.HasPrefix(b, []byte("\xfe\xff")):
		if len(b)%2 != 0 {
			return "", errors.New("UTF-16 text has an odd number of bytes")
		}
		units := make([]uint16, 0, len(b)/2)
		for i := 2; i < len(b); i += 2 {
			lo, hi := uint16(b[i]), uint16(b[i+1])
			if b[0] == 0xfe {
				lo, hi = hi, lo
			}
			units = append(units, hi<<8|lo)
		}
		b = []byte(string(utf16.Decode(units)))
		changes.add(-1, "UTF-16 read as UTF-8", 1)
	}
	if !utf8.Valid(b) {
		decoded, err := charmap.Windows1252.NewDecoder().Bytes(b)
		if err != nil {
			return "", fmt.Errorf("text is neither UTF-8 nor Windows-1252: %w", err)
		}
		b = decoded
		changes.add(-1, "Windows-1252 read as UTF-8", 1)
	}
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return "", fmt.Errorf("not text: byte %d is zero", i)
	}
	return string(b), nil
}

// finish cleans a grid, finds types, names, key and noun, and drops what
// cannot stay.
func finish(g *grid, d Document, limits Limits, changes tally) (*Table, error) {
	if len(g.rows) < MinRows {
		return nil, fmt.Errorf("%d rows; an environment needs at least %d", len(g.rows), MinRows)
	}
	columns, err := clean(g, &changes)
	if err != nil {
		return nil, err
	}
	order, parts, err := arrange(g, columns, d.Key, limits, &changes)
	if err != nil {
		return nil, err
	}
	t := &Table{Source: d.Source, Domain: Unclassified, Subdomain: Unclassified}
	key := order[0]
	t.Noun = d.Noun
	if t.Noun == "" {
		t.Noun = nounOf(d.Path, columns, key)
	}
	if key >= 0 && columns[key].Name == t.Noun {
		renameKey(columns, key)
	}
	for i, c := range order {
		if c < 0 {
			t.Columns = append(t.Columns, Column{Name: freeName("name", columns), Type: episode.ColumnKey})
			continue
		}
		if i == 0 {
			columns[c].Type, columns[c].Unit = episode.ColumnKey, ""
		}
		t.Columns = append(t.Columns, columns[c])
	}
	t.Topic = strings.ReplaceAll(t.Noun, "_", " ") + " table"
	seen := map[string]bool{}
	for n, row := range g.rows {
		out := make([]Value, len(order))
		for i, c := range order {
			switch {
			case c < 0 && parts != nil:
				if !row[parts[0]].IsNull() && !row[parts[1]].IsNull() {
					out[i] = Text(row[parts[0]].text + " " + row[parts[1]].text)
				}
			case c < 0:
				out[i] = Text(fmt.Sprintf("%s %d", strings.ReplaceAll(t.Noun, "_", " "), n+1))
			case i == 0 && !row[c].IsNull():
				out[i] = Text(row[c].text)
			default:
				out[i] = row[c]
			}
		}
		k := strings.ToLower(out[0].text)
		switch {
		case out[0].IsNull():
			changes.add(-1, "row without a key dropped", 1)
		case seen[k]:
			changes.add(-1, "row with the key of another dropped", 1)
		case utf8.RuneCountInString(k) > limits.KeyLength:
			changes.add(-1, "row with a long key dropped", 1)
		default:
			seen[k] = true
			t.Rows = append(t.Rows, out)
		}
	}
	if len(t.Rows) < MinRows {
		return nil, fmt.Errorf("%d rows left after cleaning (column %q as key); an environment needs at least %d", len(t.Rows), t.Columns[0].Name, MinRows)
	}
	switch {
	case parts != nil:
		changes.add(-1, "key made of "+columns[parts[0]].Name+" and "+columns[parts[1]].Name, len(t.Rows))
	case key < 0:
		changes.add(-1, "key made of the row's number", len(t.Rows))
	}
	slices.SortStableFunc(changes, func(a, b change) int { return a.column - b.column })
	for _, c := range changes {
		name := ""
		if c.column >= 0 {
			name = columns[c.column].Name
		}
		t.Cleaning = append(t.Cleaning, episode.Cleaning{Column: name, Change: c.what, Count: c.count})
	}
	return t, nil
}
