// Reading one JSON object into the struct that the schema describes. Strict:
// what cannot be kept exactly is refused, never changed. Tests hold it against
// a general JSON parser.

package stream

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
)

// parser reads JSON text from left to right.
type parser struct {
	text []byte
	at   int
}

func (p *parser) blank() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// peek returns the next byte that is no blank, 0 at the end.
func (p *parser) peek() byte {
	p.blank()
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

var errIncomplete = errors.New("the JSON text is not complete")

func (p *parser) wrong(want string) error {
	if p.peek() == 0 && p.at >= len(p.text) {
		return errIncomplete
	}
	rest := p.text[p.at:min(p.at+12, len(p.text))]
	return fmt.Errorf("column %d: want %s, not %q", p.at+1, want, rest)
}

func (p *parser) expect(c byte) error {
	if p.peek() != c || p.at >= len(p.text) {
		return p.wrong("'" + string(rune(c)) + "'")
	}
	p.at++
	return nil
}

// end makes sure that nothing follows.
func (p *parser) end() error {
	if p.blank(); p.at < len(p.text) {
		return p.wrong("the end of the line")
	}
	return nil
}

// more steps over what stands before the next member of an array or object
// that closes with closer; false after its last.
func (p *parser) more(first bool, closer byte) (bool, error) {
	switch c := p.peek(); {
	case p.at < len(p.text) && c == closer:
		p.at++
		return false, nil
	case first:
		return true, nil
	case c == ',' && p.at < len(p.text):
		p.at++
		if p.peek() == closer {
			return false, p.wrong("a value")
		}
		return true, nil
	}
	return false, p.wrong("',' or '" + string(rune(closer)) + "'")
}

// parseRow reads the object text into r. Fields that n does not know go to
// r.extra.
func parseRow(text []byte, n *node, r row) error {
	p := parser{text: text}
	if err := p.expect('{'); err != nil {
		return err
	}
	var seen uint64
	for first := true; ; first = false {
		more, err := p.more(first, '}')
		if err != nil {
			return err
		}
		if !more {
			return p.end()
		}
		name, err := p.name()
		if err != nil {
			return err
		}
		i := n.lookup(name)
		if i < 0 {
			value, err := p.raw()
			if err != nil {
				return at(name, err)
			}
			if _, twice := (*r.extra)[name]; twice {
				return at(name, errTwice)
			}
			if *r.extra == nil {
				*r.extra = map[string]stdjson.RawMessage{}
			}
			(*r.extra)[name] = stdjson.RawMessage(bytes.Clone(value))
			continue
		}
		if seen>>i&1 != 0 {
			return at(name, errTwice)
		}
		seen |= 1 << i
		f := &n.fields[i]
		if err := p.value(f.node, r.value(f)); err != nil {
			return at(name, err)
		}
	}
}

// errUnknownInside is about a field below the top level.
var errUnknownInside = errors.New("is unknown; only top-level fields may be added")

var errTwice = errors.New("stands twice in the object")

// name reads a member's name and its colon.
func (p *parser) name() (string, error) {
	if p.peek() != '"' {
		return "", p.wrong("a name")
	}
	name, err := p.string()
	if err != nil {
		return "", err
	}
	return name, p.expect(':')
}

func (p *parser) value(n *node, v reflect.Value) error {
	switch n.shape {
	case shapeText:
		if p.peek() != '"' {
			return p.wrong("a string")
		}
		s, err := p.string()
		if err != nil {
			return err
		}
		v.SetString(s)
	case shapeWhole:
		x, err := p.integer(math.MinInt64, math.MaxInt64)
		if err != nil {
			return err
		}
		v.SetInt(x)
	case shapeUnsigned:
		literal, err := p.literal()
		if err != nil {
			return err
		}
		x, err := strconv.ParseUint(literal, 10, 64)
		if err != nil {
			return fmt.Errorf("%s is not an integer from 0 to 18446744073709551615", strings.Clone(literal))
		}
		v.SetUint(x)
	case shapeNumber:
		x, err := p.number(64)
		if err != nil {
			return err
		}
		v.SetFloat(x)
	case shapeMaybeNumber:
		if p.word("null") {
			v.SetZero()
			return nil
		}
		x, err := p.number(64)
		if err != nil {
			return err
		}
		v.Set(reflect.ValueOf(&x))
	case shapeSwitch:
		switch {
		case p.word("true"):
			v.SetBool(true)
		case p.word("false"):
			v.SetBool(false)
		default:
			return p.wrong("true or false")
		}
	case shapeIDs:
		return parseNumbers(p, v, func() (int32, error) {
			x, err := p.integer(math.MinInt32, math.MaxInt32)
			return int32(x), err
		})
	case shapeMask:
		return parseNumbers(p, v, func() (uint8, error) {
			x, err := p.integer(0, 255)
			return uint8(x), err
		})
	case shapeLogprobs:
		return parseNumbers(p, v, func() (float32, error) {
			x, err := p.number(32)
			return float32(x), err
		})
	case shapeList:
		if err := p.expect('['); err != nil {
			return err
		}
		v.Set(reflect.MakeSlice(n.kind, 0, 0))
		for i := 0; ; i++ {
			more, err := p.more(i == 0, ']')
			if err != nil || !more {
				return err
			}
			if i == v.Cap() {
				v.Grow(1)
			}
			v.SetLen(i + 1)
			v.Index(i).SetZero()
			if err := p.value(n.element, v.Index(i)); err != nil {
				return atIndex(i, err)
			}
		}
	case shapeObject:
		if err := p.expect('{'); err != nil {
			return err
		}
		var seen uint64
		for first := true; ; first = false {
			more, err := p.more(first, '}')
			if err != nil || !more {
				return err
			}
			name, err := p.name()
			if err != nil {
				return err
			}
			i := n.lookup(name)
			if i < 0 {
				return at(name, errUnknownInside)
			}
			if seen>>i&1 != 0 {
				return at(name, errTwice)
			}
			seen |= 1 << i
			if err := p.value(n.fields[i].node, v.Field(n.fields[i].index)); err != nil {
				return at(name, err)
			}
		}
	}
	return nil
}

func parseNumbers[T int32 | uint8 | float32](p *parser, v reflect.Value, read func() (T, error)) error {
	if err := p.expect('['); err != nil {
		return err
	}
	values := []T{}
	for {
		more, err := p.more(len(values) == 0, ']')
		if err != nil {
			return err
		}
		if !more {
			*v.Addr().Interface().(*[]T) = values
			return nil
		}
		x, err := read()
		if err != nil {
			return atIndex(len(values), err)
		}
		values = append(values, x)
	}
}

// word steps over a literal name.
func (p *parser) word(want string) bool {
	p.blank()
	if !bytes.HasPrefix(p.text[p.at:], []byte(want)) {
		return false
	}
	p.at += len(want)
	return true
}

// literal reads a number by the grammar of JSON. The string is a view of the
// text.
func (p *parser) literal() (string, error) {
	p.blank()
	text, i := p.text, p.at
	digits := func() bool {
		start := i
		for i < len(text) && text[i]-'0' <= 9 {
			i++
		}
		return i > start
	}
	if i < len(text) && text[i] == '-' {
		i++
	}
	if i < len(text) && text[i] == '0' {
		i++
	} else if !digits() {
		return "", p.wrong("a number")
	}
	if i < len(text) && text[i] == '.' {
		i++
		if !digits() {
			return "", p.wrong("a number")
		}
	}
	if i < len(text) && text[i]|0x20 == 'e' {
		i++
		if i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		if !digits() {
			return "", p.wrong("a number")
		}
	}
	literal := unsafe.String(unsafe.SliceData(text[p.at:i]), i-p.at)
	p.at = i
	return literal, nil
}

func (p *parser) integer(least, most int64) (int64, error) {
	// The short case first: most integers are token ids and mask bits.
	if c := p.peek(); c-'0' <= 9 {
		x, i := int64(0), p.at
		for i < len(p.text) && p.text[i]-'0' <= 9 && i < p.at+18 {
			x = x*10 + int64(p.text[i]-'0')
			i++
		}
		whole := i < len(p.text) && (p.text[i] == ',' || p.text[i] == ']') && (c != '0' || i == p.at+1)
		if whole && x <= most {
			p.at = i
			return x, nil
		}
	}
	literal, err := p.literal()
	if err != nil {
		return 0, err
	}
	x, err := strconv.ParseInt(literal, 10, 64)
	if err != nil || x < least || x > most {
		return 0, fmt.Errorf("%s is not an integer from %d to %d", strings.Clone(literal), least, most)
	}
	return x, nil
}

func (p *parser) number(bits int) (float64, error) {
	literal, err := p.literal()
	if err != nil {
		return 0, err
	}
	x, err := strconv.ParseFloat(literal, bits)
	if err != nil {
		return 0, fmt.Errorf("%s does not fit a float of %d bits", strings.Clone(literal), bits)
	}
	if math.Abs(x) >= exactBelow(bits) && !strings.ContainsAny(literal, ".eE") &&
		strconv.FormatFloat(x, 'f', 0, 64) != literal {
		return 0, fmt.Errorf("the integer %s does not fit a float of %d bits", strings.Clone(literal), bits)
	}
	return x, nil
}

// string reads a string whose opening quote is next.
func (p *parser) string() (string, error) {
	start := p.at + 1
	ascii := true
	for i := start; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == '"':
			s := p.text[start:i]
			if !ascii && !utf8.Valid(s) {
				return "", errNotUTF8
			}
			p.at = i + 1
			return string(s), nil
		case c == '\\':
			return p.escaped(start, i)
		case c < 0x20:
			return "", fmt.Errorf("column %d: control character %#02x in a string", i+1, c)
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return "", errIncomplete
}

// escaped reads on in a string that has its first backslash at i.
func (p *parser) escaped(start, i int) (string, error) {
	s := append([]byte(nil), p.text[start:i]...)
	for i < len(p.text) {
		c := p.text[i]
		switch {
		case c == '"':
			if !utf8.Valid(s) {
				return "", errNotUTF8
			}
			p.at = i + 1
			return string(s), nil
		case c < 0x20:
			return "", fmt.Errorf("column %d: control character %#02x in a string", i+1, c)
		case c != '\\':
			s = append(s, c)
			i++
			continue
		}
		if i+1 >= len(p.text) {
			break
		}
		switch c := p.text[i+1]; c {
		case '"', '\\', '/':
			s = append(s, c)
		case 'b':
			s = append(s, '\b')
		case 'f':
			s = append(s, '\f')
		case 'n':
			s = append(s, '\n')
		case 'r':
			s = append(s, '\r')
		case 't':
			s = append(s, '\t')
		case 'u':
			unit, ok := hex4(p.text, i+2)
			if !ok {
				return "", fmt.Errorf("column %d: \\u needs four hexadecimal digits", i+1)
			}
			if utf16.IsSurrogate(unit) {
				low, ok := rune(0), false
				if i+7 < len(p.text) && p.text[i+6] == '\\' && p.text[i+7] == 'u' {
					low, ok = hex4(p.text, i+8)
				}
				unit = utf16.DecodeRune(unit, low)
				if !ok || unit == utf8.RuneError {
					return "", fmt.Errorf("column %d: half of a surrogate pair", i+1)
				}
				i += 6
			}
			s = utf8.AppendRune(s, unit)
			i += 4
		default:
			return "", fmt.Errorf("column %d: unknown escape \\%c", i+1, c)
		}
		i += 2
	}
	return "", errIncomplete
}

func hex4(text []byte, i int) (rune, bool) {
	if i+4 > len(text) {
		return 0, false
	}
	var r rune
	for _, c := range text[i : i+4] {
		digit := strings.IndexByte(hexDigits, c|0x20)
		if digit < 0 || c < '0' || c > '9' && c < 'A' {
			return 0, false
		}
		r = r<<4 | rune(digit)
	}
	return r, true
}

// raw reads any value and returns its text, a view.
func (p *parser) raw() ([]byte, error) {
	p.blank()
	start, depth, i := p.at, 0, p.at
	for {
		if i >= len(p.text) {
			return nil, errIncomplete
		}
		switch c := p.text[i]; c {
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case '"':
			for i++; i < len(p.text) && p.text[i] != '"'; i++ {
				if p.text[i] == '\\' {
					i++
				}
			}
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			i++
		default:
			for i < len(p.text) && !strings.ContainsRune(" \t\r\n,:{}[]\"", rune(p.text[i])) {
				i++
			}
		}
		if depth <= 0 || i > len(p.text) {
			break
		}
	}
	if i > len(p.text) {
		return nil, errIncomplete
	}
	value := jsontext.Value(p.text[start:i])
	if _, err := jsontext.NewDecoder(bytes.NewBuffer(value)).ReadValue(); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "jsontext: "))
	}
	if !value.IsValid() {
		return nil, p.wrong("a value")
	}
	p.at = i
	return value, nil
}
