// Writing JSONL: one object a line, fields in the order of the schema, numbers
// in the shortest form that reads back to the same bits.

package stream

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonlEncoder writes the records of a JSONL stream.
type jsonlEncoder struct {
	out     io.Writer
	node    *node
	pending []byte // records since the last flush
}

func newJSONLEncoder(out io.Writer, header Header) (*jsonlEncoder, error) {
	text, err := header.marshal()
	if err != nil {
		return nil, err
	}
	return &jsonlEncoder{out: out, node: rowNodes[header.Kind], pending: append(text, '\n')}, nil
}

// pendingMost bounds what waits in memory for the end of a group, in bytes.
const pendingMost = 1 << 22

func (e *jsonlEncoder) append(r row) error {
	start := len(e.pending)
	line, err := appendRow(e.pending, e.node, r)
	if err != nil {
		e.pending = e.pending[:start]
		return err
	}
	e.pending = append(line, '\n')
	if len(e.pending) > pendingMost {
		return e.flush()
	}
	return nil
}

func (e *jsonlEncoder) flush() error {
	if len(e.pending) == 0 {
		return nil
	}
	_, err := e.out.Write(e.pending)
	e.pending = e.pending[:0]
	return err
}

func (e *jsonlEncoder) close(count int) error {
	e.pending = fmt.Appendf(e.pending, "{\"end\": %d}\n", count)
	return e.flush()
}

func appendRow(text []byte, n *node, r row) ([]byte, error) {
	start := len(text)
	text = append(text, '{')
	for i := range n.fields {
		f := &n.fields[i]
		v := r.value(f)
		if f.omitNull && v.IsNil() {
			continue
		}
		text = appendName(text, f.name)
		var err error
		if text, err = appendValue(text, f.node, v); err != nil {
			return nil, at(f.name, err)
		}
	}
	for name := range *r.extra {
		if n.lookup(name) >= 0 {
			return nil, at(name, errKnown)
		}
	}
	text = append(text, '}')
	object, err := appendExtra(text[start:], *r.extra)
	return append(text[:start], object...), err
}

// errKnown is about a field of Extra.
var errKnown = errors.New("is a field of this kind of record and cannot pass through as an unknown one")

func appendName(text []byte, name string) []byte {
	if text[len(text)-1] != '{' {
		text = append(text, ',')
	}
	text = append(text, '"')
	text = append(text, name...)
	return append(text, '"', ':')
}

func appendValue(text []byte, n *node, v reflect.Value) ([]byte, error) {
	switch n.shape {
	case shapeText:
		return appendText(text, v.String())
	case shapeWhole:
		return strconv.AppendInt(text, v.Int(), 10), nil
	case shapeUnsigned:
		return strconv.AppendUint(text, v.Uint(), 10), nil
	case shapeNumber:
		return appendNumber(text, v.Float(), 64)
	case shapeSwitch:
		return strconv.AppendBool(text, v.Bool()), nil
	case shapeMaybeNumber:
		if v.IsNil() {
			return append(text, "null"...), nil
		}
		return appendNumber(text, v.Elem().Float(), 64)
	case shapeIDs:
		text = append(text, '[')
		for i, id := range *v.Addr().Interface().(*[]int32) {
			if i > 0 {
				text = append(text, ',')
			}
			text = strconv.AppendInt(text, int64(id), 10)
		}
		return append(text, ']'), nil
	case shapeMask:
		text = append(text, '[')
		for i, m := range *v.Addr().Interface().(*[]uint8) {
			if i > 0 {
				text = append(text, ',')
			}
			text = strconv.AppendUint(text, uint64(m), 10)
		}
		return append(text, ']'), nil
	case shapeLogprobs:
		text = append(text, '[')
		for i, x := range *v.Addr().Interface().(*[]float32) {
			if i > 0 {
				text = append(text, ',')
			}
			var err error
			if text, err = appendNumber(text, float64(x), 32); err != nil {
				return nil, atIndex(i, err)
			}
		}
		return append(text, ']'), nil
	case shapeList:
		text = append(text, '[')
		for i := range v.Len() {
			if i > 0 {
				text = append(text, ',')
			}
			var err error
			if text, err = appendValue(text, n.element, v.Index(i)); err != nil {
				return nil, atIndex(i, err)
			}
		}
		return append(text, ']'), nil
	case shapeObject:
		text = append(text, '{')
		for i := range n.fields {
			f := &n.fields[i]
			text = appendName(text, f.name)
			var err error
			if text, err = appendValue(text, f.node, v.Field(f.index)); err != nil {
				return nil, at(f.name, err)
			}
		}
		return append(text, '}'), nil
	}
	panic("unreachable")
}

// exactBelow is the bound below which every integer is a float of that many
// bits.
func exactBelow(bits int) float64 {
	if bits == 32 {
		return 1 << 24
	}
	return 1 << 53
}

// appendNumber writes the shortest decimal that parses to the same float of
// that many bits. Only integers that are exact are written as integers.
func appendNumber(text []byte, x float64, bits int) ([]byte, error) {
	if !finite(x) {
		return nil, errNotFinite
	}
	if size := math.Abs(x); size != 0 && (size < 1e-6 || size >= exactBelow(bits)) {
		return strconv.AppendFloat(text, x, 'e', -1, bits), nil
	}
	return strconv.AppendFloat(text, x, 'f', -1, bits), nil
}

var errNotUTF8 = errors.New("is not valid UTF-8")

const hexDigits = "0123456789abcdef"

// appendText quotes s, escaping only what JSON forbids.
func appendText(text []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return nil, errNotUTF8
	}
	text = append(text, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		text = append(text, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			text = append(text, '\\', c)
		case '\n':
			text = append(text, '\\', 'n')
		case '\r':
			text = append(text, '\\', 'r')
		case '\t':
			text = append(text, '\\', 't')
		default:
			text = append(text, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(text, s[start:]...), '"'), nil
}

// appendExtra adds the fields of extra, sorted by name, to the JSON object
// text. Their values keep their bytes, but for line breaks between tokens.
func appendExtra(text []byte, extra map[string]stdjson.RawMessage) ([]byte, error) {
	if len(extra) == 0 {
		return text, nil
	}
	names := make([]string, 0, len(extra))
	for name := range extra {
		names = append(names, name)
	}
	slices.Sort(names)
	text = text[:len(text)-1]
	for _, name := range names {
		if text[len(text)-1] != '{' {
			text = append(text, ',')
		}
		quoted, err := appendText(text, name)
		if err != nil {
			return nil, at(strconv.Quote(name), err)
		}
		value := jsontext.Value(extra[name])
		if !value.IsValid() {
			return nil, at(name, errors.New("is not a JSON value"))
		}
		value = bytes.TrimSpace(value)
		if bytes.ContainsAny(value, "\r\n") {
			value = value.Clone()
			if err := value.Compact(jsontext.PreserveRawStrings(true)); err != nil {
				return nil, at(name, err)
			}
		}
		text = append(append(quoted, ':'), value...)
	}
	return append(text, '}'), nil
}
