package toolcheck

// The data with every value substituted. Letters and digits of texts are
// exchanged one for one, so that equality, containment and case survive;
// numbers and dates are moved in a way that keeps their order. Column names
// stay.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// data is what the checks know of an environment's tables.
type data struct {
	files       []episode.File
	columnNames []string                 // of all tables, each once, in order
	types       map[string][]string      // column name -> its types in the tables that have it
	columns     map[string]*columnValues // texts by column name
	texts       []string                 // all texts, each once
	isText      map[string]bool
	numbers     map[string]map[string]bool   // column name -> its number literals
	pathTypes   map[string]map[string]string // file -> column -> type
	rows        int                          // of the longest table
	substituted []episode.File
}

// columnValues are the different texts of the columns of one name.
type columnValues struct {
	texts []string
	all   bool // a key or category: worth trying each
	seen  map[string]bool
}

var noValues = &columnValues{}

func (d *data) valuesOf(parameter string) *columnValues {
	if v, ok := d.columns[parameter]; ok {
		return v
	}
	if v, ok := d.columns[strings.TrimSuffix(parameter, "_is")]; ok {
		return v
	}
	return noValues
}

// readData reads the tables of an environment. Without a schema every text is
// a text and numbers stay as they are.
func readData(e *episode.Environment) (*data, error) {
	d := &data{
		files: e.Files, types: map[string][]string{}, columns: map[string]*columnValues{}, isText: map[string]bool{},
		numbers: map[string]map[string]bool{}, pathTypes: map[string]map[string]string{},
	}
	if e.Schema != "" {
		var schema episode.Schema
		if err := json.Unmarshal([]byte(e.Schema), &schema); err != nil {
			return nil, fmt.Errorf("schema of the tables: %w", err)
		}
		for _, t := range schema.Tables {
			d.pathTypes[t.Path] = map[string]string{}
			d.rows = max(d.rows, t.Rows)
			for _, c := range t.Columns {
				d.pathTypes[t.Path][c.Name] = c.Type
				if !slices.Contains(d.columnNames, c.Name) {
					d.columnNames = append(d.columnNames, c.Name)
				}
				if !slices.Contains(d.types[c.Name], c.Type) {
					d.types[c.Name] = append(d.types[c.Name], c.Type)
				}
			}
		}
	}
	for _, f := range e.Files {
		out := f
		if strings.HasSuffix(f.Path, ".json") {
			content, err := d.substituteFile(f)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.Path, err)
			}
			out.Content = content
		}
		d.substituted = append(d.substituted, out)
	}
	return d, nil
}

// Substituted returns the files with every value substituted.
func (d *data) Substituted() []episode.File { return d.substituted }

// substituteFile writes a JSON file anew with its values substituted, and
// takes note of them.
func (d *data) substituteFile(f episode.File) (string, error) {
	dec := json.NewDecoder(strings.NewReader(f.Content))
	dec.UseNumber()
	types := d.pathTypes[f.Path]
	var out bytes.Buffer
	var value func(column string) error
	value = func(column string) error {
		token, err := dec.Token()
		if err != nil {
			return err
		}
		switch token := token.(type) {
		case json.Delim:
			out.WriteByte(byte(token))
			for first := true; dec.More(); first = false {
				if !first {
					out.WriteByte(',')
				}
				inner := column
				if token == '{' {
					name, err := dec.Token()
					if err != nil {
						return err
					}
					inner = name.(string)
					out.Write(appendJSON(nil, inner))
					out.WriteByte(':')
				}
				if err := value(inner); err != nil {
					return err
				}
			}
			end, err := dec.Token()
			if err != nil {
				return err
			}
			out.WriteByte(byte(end.(json.Delim)))
		case string:
			kind := types[column]
			d.note(column, kind, token)
			out.Write(appendJSON(nil, substituteText(kind, token)))
		case json.Number:
			if d.numbers[column] == nil {
				d.numbers[column] = map[string]bool{}
			}
			d.numbers[column][token.String()] = true
			out.WriteString(substituteNumber(types[column], token.String()))
		default:
			out.Write(appendJSON(nil, token))
		}
		return nil
	}
	if err := value(""); err != nil {
		return "", err
	}
	if _, err := dec.Token(); err != io.EOF {
		return "", fmt.Errorf("text after the table")
	}
	return out.String(), nil
}

func (d *data) note(column, kind, text string) {
	v := d.columns[column]
	if v == nil {
		v = &columnValues{seen: map[string]bool{}}
		d.columns[column] = v
	}
	v.all = v.all || kind == episode.ColumnKey || kind == episode.ColumnCategory
	if !v.seen[text] {
		v.seen[text] = true
		v.texts = append(v.texts, text)
	}
	if !d.isText[text] {
		d.isText[text] = true
		d.texts = append(d.texts, text)
	}
}

// substituteText exchanges letters and digits, of a date only the year.
func substituteText(kind, text string) string {
	if kind == episode.ColumnDate && len(text) >= 4 {
		if year, err := strconv.Atoi(text[:4]); err == nil && year >= 0 && year < 9000 {
			return fmt.Sprintf("%04d", year+1000) + text[4:]
		}
		return text
	}
	b := []byte(text)
	for i, c := range b {
		switch {
		case c >= 'a' && c <= 'z':
			b[i] = 'a' + (c-'a'+13)%26
		case c >= 'A' && c <= 'Z':
			b[i] = 'A' + (c-'A'+13)%26
		case c >= '0' && c <= '9':
			b[i] = '0' + (c-'0'+3)%10
		}
	}
	return string(b)
}

// substituteNumber maps n to 2n+1 in an integer column and x to 4x, which
// loses no bit, in another; a number of no known column stays.
func substituteNumber(kind, text string) string {
	switch kind {
	case episode.ColumnInteger:
		n, ok := new(big.Int).SetString(text, 10)
		if ok && n.BitLen() < 64 {
			return n.Add(n.Lsh(n, 1), big.NewInt(1)).String()
		}
	case episode.ColumnNumber:
		if x, err := strconv.ParseFloat(text, 64); err == nil && x < 1e300 && x > -1e300 {
			return strconv.FormatFloat(4*x, 'g', -1, 64)
		}
	}
	return text
}

// substituteArguments substitutes the texts of a probe. Choices are names of
// columns and the like; numbers are limits; they stay.
func (d *data) substituteArguments(arguments []member, params []parameter) []member {
	out := slices.Clone(arguments)
	for i, m := range out {
		p := slices.IndexFunc(params, func(p parameter) bool { return p.name == m.name })
		if s, ok := m.value.(string); ok && p >= 0 && len(params[p].enum) == 0 {
			kind := ""
			if types := d.types[m.name]; len(types) == 1 {
				kind = types[0]
			}
			out[i].value = substituteText(kind, s)
		}
	}
	return out
}

// corresponds says whether b can be the substituted form of a: texts of the
// data and numbers under a column's name must be substituted, other texts may
// be. A number that is no value of a column must be what becomes of a count
// (the same), of a mean or an extreme, or of a sum.
func (d *data) corresponds(a, b string) bool {
	x, errX := decode(a)
	y, errY := decode(b)
	return errX == nil && errY == nil && d.matches("", x, y)
}

func decode(text string) (any, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}

func (d *data) matches(column string, a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		other, ok := b.(map[string]any)
		if !ok || len(a) != len(other) {
			return false
		}
		for k, v := range a {
			w, ok := other[k]
			if !ok {
				w, ok = other[substituteText("", k)]
			}
			if !ok || !d.matches(k, v, w) {
				return false
			}
		}
		return true
	case []any:
		other, ok := b.([]any)
		if !ok || len(a) != len(other) {
			return false
		}
		for i := range a {
			if !d.matches(column, a[i], other[i]) {
				return false
			}
		}
		return true
	case string:
		other, ok := b.(string)
		if !ok {
			return false
		}
		if other == substituteText("", a) || other == substituteText(episode.ColumnDate, a) && slices.Contains(d.types[column], episode.ColumnDate) {
			return true
		}
		return !d.isText[a] && other == a
	case json.Number:
		other, ok := b.(json.Number)
		if !ok {
			return false
		}
		if !d.numbers[column][a.String()] {
			return d.derived(a.String(), other.String())
		}
		for _, kind := range d.types[column] {
			if kind != episode.ColumnInteger && kind != episode.ColumnNumber {
				continue
			}
			if sameNumber(substituteNumber(kind, a.String()), other.String()) {
				return true
			}
		}
		return len(d.types[column]) == 0
	}
	return a == b
}

// derived says whether a number computed from the data can have become b: a
// count stays; a mean or extreme goes the way of its column's values; a sum of
// n integers becomes twice itself and n.
func (d *data) derived(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	if errX != nil || errY != nil {
		return false
	}
	near := func(u, v float64) bool { return math.Abs(u-v) <= 1e-9*max(math.Abs(u), math.Abs(v)) }
	n := y - 2*x
	return near(x, y) || near(4*x, y) || near(2*x+1, y) || n == math.Trunc(n) && n > 0 && n <= float64(d.rows)
}

func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}
