// JSON to Starlark and back. Both directions are strict and bounded in depth;
// lib/json of the interpreter recurses without bound and rewrites invalid
// UTF-8.
package sandbox

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"go.starlark.net/starlark"
)

const maxDepth = 200

var errTooLong = errors.New("value is too long")

// decodeJSON reads one strict JSON value (no duplicate names, valid UTF-8).
// Integers of any size stay integers; numbers with a point or an exponent are
// floats.
func decodeJSON(text string) (starlark.Value, error) {
	d := jsontext.NewDecoder(strings.NewReader(text))
	v, err := decodeValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return nil, errors.New("text after the JSON value")
	}
	return v, nil
}

func decodeValue(d *jsontext.Decoder, depth int) (starlark.Value, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("JSON nested deeper than %d", maxDepth)
	}
	tok, err := d.ReadToken()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	switch tok.Kind() {
	case 'n':
		return starlark.None, nil
	case 't':
		return starlark.True, nil
	case 'f':
		return starlark.False, nil
	case '"':
		return starlark.String(tok.String()), nil
	case '0':
		return decodeNumber(tok.String())
	case '[':
		var items []starlark.Value
		for d.PeekKind() != ']' {
			v, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			items = append(items, v)
		}
		_, err := d.ReadToken()
		return starlark.NewList(items), err
	case '{':
		dict := new(starlark.Dict)
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			key := starlark.String(name.String())
			v, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			if err := dict.SetKey(key, v); err != nil {
				return nil, err
			}
		}
		_, err := d.ReadToken()
		return dict, err
	}
	return nil, errors.New("not JSON")
}

func decodeNumber(text string) (starlark.Value, error) {
	if strings.ContainsAny(text, ".eE") {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("number %s is out of range", text)
		}
		return starlark.Float(x), nil
	}
	if len(text) < 19 {
		n, err := strconv.ParseInt(text, 10, 64)
		return starlark.MakeInt64(n), err
	}
	if len(text) > 4096 {
		return nil, errors.New("integer of more than 4096 digits")
	}
	n, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return nil, fmt.Errorf("bad number %s", text)
	}
	return starlark.MakeBigInt(n), nil
}

// appendJSON appends v as Python's json.dumps(v, ensure_ascii=False) would
// write it: ", " and ": " between items, insertion order. It returns
// errTooLong once b exceeds limit.
func appendJSON(b []byte, v starlark.Value, limit int) ([]byte, error) {
	return appendValue(b, v, limit, 0)
}

func appendValue(b []byte, v starlark.Value, limit, depth int) ([]byte, error) {
	if depth > maxDepth {
		return b, fmt.Errorf("value nested deeper than %d", maxDepth)
	}
	if len(b) > limit {
		return b, errTooLong
	}
	var err error
	switch v := v.(type) {
	case starlark.NoneType:
		return append(b, "null"...), nil
	case starlark.Bool:
		return strconv.AppendBool(b, bool(v)), nil
	case starlark.String:
		if !utf8.ValidString(string(v)) {
			return b, errors.New("string is not valid UTF-8")
		}
		return appendQuoted(b, string(v)), nil
	case starlark.Int:
		if n, ok := v.Int64(); ok {
			return strconv.AppendInt(b, n, 10), nil
		}
		n := v.BigInt()
		if n.BitLen() > 4*4096 {
			return b, errTooLong
		}
		return n.Append(b, 10), nil
	case starlark.Float:
		return appendFloat(b, float64(v))
	case *starlark.Dict:
		return appendMapping(b, v.Items(), limit, depth)
	case starlark.IterableMapping:
		return appendMapping(b, v.Items(), limit, depth)
	case starlark.Iterable: // list, tuple, range, set
		b = append(b, '[')
		it := v.Iterate()
		defer it.Done()
		var item starlark.Value
		for i := 0; it.Next(&item); i++ {
			if i > 0 {
				b = append(b, ", "...)
			}
			if b, err = appendValue(b, item, limit, depth+1); err != nil {
				return b, err
			}
		}
		return append(b, ']'), nil
	}
	return b, fmt.Errorf("a %s has no JSON form", v.Type())
}

func appendMapping(b []byte, items []starlark.Tuple, limit, depth int) ([]byte, error) {
	b = append(b, '{')
	var err error
	for i, item := range items {
		if i > 0 {
			b = append(b, ", "...)
		}
		key, ok := item[0].(starlark.String)
		if !ok {
			return b, fmt.Errorf("a key of type %s has no JSON form", item[0].Type())
		}
		if b, err = appendValue(b, key, limit, depth+1); err != nil {
			return b, err
		}
		b = append(b, ": "...)
		if b, err = appendValue(b, item[1], limit, depth+1); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// appendFloat writes the shortest decimal that reads back as x, in the form of
// Python's repr.
func appendFloat(b []byte, x float64) ([]byte, error) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return b, fmt.Errorf("%v has no JSON form", x)
	}
	if a := math.Abs(x); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(b, x, 'e', -1, 64), nil
	}
	start := len(b)
	b = strconv.AppendFloat(b, x, 'f', -1, 64)
	if !strings.Contains(string(b[start:]), ".") {
		b = append(b, ".0"...)
	}
	return b, nil
}

const hexDigits = "0123456789abcdef"

func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		case '\b':
			b = append(b, `\b`...)
		case '\f':
			b = append(b, `\f`...)
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(b, s[from:]...), '"')
}

// appendErrorValue writes the form in which a refusal reaches the agent.
func appendErrorValue(b []byte, code, message string) []byte {
	b = appendQuoted(append(b, `{"error": `...), strings.ToValidUTF8(code, "\uFFFD"))
	b = appendQuoted(append(b, `, "message": `...), strings.ToValidUTF8(message, "\uFFFD"))
	return append(b, '}')
}
