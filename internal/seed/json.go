package seed

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// readJSON reads an array of objects or of arrays, an object of equally long
// arrays (columns), an object with one such array among its members, or JSONL.
// Columns stand in the order in which they first occur.
func readJSON(text string, changes *tally) (*grid, error) {
	// A duplicate member or a lone surrogate is an error of the decoder's.
	d := jsontext.NewDecoder(strings.NewReader(text))
	var values []node
	for {
		n, err := readNode(d, 0)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, jsonError(text, err)
		}
		values = append(values, n)
	}
	if len(values) > 1 {
		return gridOfRows(values, changes)
	}
	if values[0].array {
		return gridOfRows(values[0].items, changes)
	}
	if g := gridOfColumns(values[0]); g != nil {
		return g, nil
	}
	table := -1
	for i, item := range values[0].items {
		if item.array && len(item.items) > 0 && (item.items[0].object() || item.items[0].array) {
			if table >= 0 {
				return nil, fmt.Errorf("an object with several arrays (%q, %q) is no table", values[0].names[table], values[0].names[i])
			}
			table = i
		}
	}
	if table < 0 {
		return nil, errors.New("an object without an array of rows is no table")
	}
	return gridOfRows(values[0].items[table].items, changes)
}

// jsonError says where the text ends to be JSON.
func jsonError(text string, err error) error {
	var s *jsontext.SyntacticError
	if !errors.As(err, &s) {
		return err
	}
	cause := "not JSON"
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		cause = "JSON is cut off"
	case s.Err != nil:
		cause = s.Err.Error()
	}
	return fmt.Errorf("line %d: %s", 1+strings.Count(text[:min(int(s.ByteOffset), len(text))], "\n"), cause)
}

// node is a JSON value: a leaf, an array or an object.
type node struct {
	leaf  Value
	array bool
	names []string // of an object's items; not nil for an object
	items []node
}

func (n node) object() bool { return n.names != nil }

// cell is the node as a cell: arrays and objects are only marked.
func (n node) cell() Value {
	if n.array || n.object() {
		return Value{kind: kindNested}
	}
	return n.leaf
}

// Nothing below a cell of a table is kept, so that a hostile depth costs
// nothing.
const jsonDepth = 4

func readNode(d *jsontext.Decoder, depth int) (node, error) {
	if depth == jsonDepth && (d.PeekKind() == '[' || d.PeekKind() == '{') {
		return node{leaf: Value{kind: kindNested}}, d.SkipValue()
	}
	t, err := d.ReadToken()
	if err != nil {
		return node{}, err
	}
	switch t.Kind() {
	case 'n':
		return node{}, nil
	case 't', 'f':
		return node{leaf: Value{kindBoolean, t.String()}}, nil
	case '"':
		return node{leaf: Text(t.String())}, nil
	case '0':
		if f, err := strconv.ParseFloat(t.String(), 64); err != nil || math.IsInf(f, 0) {
			return node{}, fmt.Errorf("number %s is out of range", t.String())
		}
		return node{leaf: Value{kindNumber, t.String()}}, nil
	case '[':
		n := node{array: true}
		for d.PeekKind() != ']' {
			item, err := readNode(d, depth+1)
			if err != nil {
				return node{}, err
			}
			n.items = append(n.items, item)
		}
		_, err := d.ReadToken()
		return n, err
	case '{':
		n := node{names: []string{}}
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return node{}, err
			}
			n.names = append(n.names, name.String())
			item, err := readNode(d, depth+1)
			if err != nil {
				return node{}, err
			}
			n.items = append(n.items, item)
		}
		_, err := d.ReadToken()
		return n, err
	}
	return node{}, fmt.Errorf("unexpected %v", t.Kind())
}

// gridOfRows makes a table of objects, or of arrays of which the first holds
// the names.
func gridOfRows(rows []node, changes *tally) (*grid, error) {
	if len(rows) == 0 {
		return nil, errors.New("no rows")
	}
	if rows[0].array {
		records := make([][]Value, len(rows))
		for i, r := range rows {
			if !r.array {
				return nil, fmt.Errorf("row %d is no array as row 1 is", i+1)
			}
			for _, item := range r.items {
				records[i] = append(records[i], item.cell())
			}
		}
		return gridOfRecords(records, changes)
	}
	g := &grid{}
	index := map[string]int{}
	for i, r := range rows {
		if !r.object() {
			return nil, fmt.Errorf("row %d is neither an object nor an array", i+1)
		}
		row := make([]Value, len(g.header))
		for j, name := range r.names {
			c, ok := index[name]
			if !ok {
				c = len(g.header)
				index[name] = c
				g.header = append(g.header, name)
				row = append(row, Value{})
				if c > maxColumns {
					return nil, fmt.Errorf("more than %d columns", maxColumns)
				}
			}
			row[c] = r.items[j].cell()
		}
		g.rows = append(g.rows, row)
	}
	for i, row := range g.rows {
		if n := len(g.header) - len(row); n > 0 {
			g.rows[i] = slices.Grow(row, n)[:len(g.header)]
		}
	}
	return g, nil
}

// gridOfColumns makes a table of an object of equally long arrays, nil if the
// object is none.
func gridOfColumns(n node) *grid {
	if len(n.items) == 0 || len(n.items) > maxColumns {
		return nil
	}
	length := len(n.items[0].items)
	for _, column := range n.items {
		if !column.array || len(column.items) != length || length == 0 {
			return nil
		}
		if column.items[0].object() || len(n.items) == 1 && column.items[0].array {
			return nil // rows of an envelope
		}
	}
	g := &grid{header: n.names, rows: make([][]Value, length)}
	for i := range g.rows {
		g.rows[i] = make([]Value, len(n.items))
		for c, column := range n.items {
			g.rows[i][c] = column.items[i].cell()
		}
	}
	return g
}
