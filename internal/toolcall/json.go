package toolcall

// A strict JSON scanner that keeps the place of everything. The decoders at hand
// do not tell what the rule needs: where a value ends inside a longer text, the
// first byte at which no JSON can continue (jsontext reports the start of a bad
// literal or number), and whether the text ended inside a string. A test and a
// fuzz target hold it to accepting exactly what jsontext accepts.

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// span is the byte range [start, end).
type span struct{ start, end int }

func (s span) empty() bool { return s.start >= s.end }

// jsonValue is one value with its place in the text.
type jsonValue struct {
	span
	kind     byte   // '{', '[', '"', '0' (a number), 't', 'f' or 'n'
	text     string // of a string: decoded; of a number: as written
	escaped  bool   // a string with escapes: its bytes are not those of text
	members  []jsonMember
	elements []jsonValue
}

type jsonMember struct{ key, value jsonValue }

// member returns the value of a key of an object.
func (v *jsonValue) member(key string) *jsonValue {
	for i := range v.members {
		if v.members[i].key.text == key {
			return &v.members[i].value
		}
	}
	return nil
}

// content returns the place of a string without its quotes, of anything else the
// whole value.
func (v *jsonValue) content() span {
	if v.kind == '"' {
		return span{v.start + 1, v.end - 1}
	}
	return v.span
}

// syntaxError says where the text stops being JSON. The span runs from the first
// byte at which no valid JSON can continue to the end of that lexical item; it
// is empty at the end of the text.
type syntaxError struct {
	span
	detail   string
	inString bool // the text ended inside a string
}

// maxDepth bounds nesting, so that no text can exhaust the stack.
const maxDepth = 512

type jsonScanner struct {
	text  string
	at    int
	depth int
}

// scanJSON reads the one value that starts at or after text[at:], white space
// apart. What follows the value is not looked at.
func scanJSON(text string, at int) (jsonValue, *syntaxError) {
	s := jsonScanner{text: text, at: at}
	s.blanks()
	return s.value()
}

func skipBlanks(text string, at int) int {
	for at < len(text) && isBlank(text[at]) {
		at++
	}
	return at
}

func isBlank(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

func (s *jsonScanner) blanks() { s.at = skipBlanks(s.text, s.at) }

// fail reports the item at the current place.
func (s *jsonScanner) fail(want string) *syntaxError {
	if s.at >= len(s.text) {
		return &syntaxError{span: span{len(s.text), len(s.text)}, detail: "text ends, want " + want}
	}
	item := span{s.at, lexicalItemEnd(s.text, s.at)}
	return &syntaxError{span: item, detail: quoteForDetail(s.text[item.start:item.end]) + " found, want " + want}
}

// failAt reports bytes inside a string or a number.
func (s *jsonScanner) failAt(start, end int, detail string) *syntaxError {
	return &syntaxError{span: span{start, min(end, len(s.text))}, detail: detail}
}

func (s *jsonScanner) value() (jsonValue, *syntaxError) {
	if s.at >= len(s.text) {
		return jsonValue{}, s.fail("a JSON value")
	}
	switch c := s.text[s.at]; {
	case c == '{' || c == '[':
		if s.depth >= maxDepth {
			return jsonValue{}, s.failAt(s.at, s.at+1, "nested too deeply")
		}
		s.depth++
		defer func() { s.depth-- }()
		if c == '{' {
			return s.object()
		}
		return s.array()
	case c == '"':
		return s.string()
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return jsonValue{}, s.fail("a JSON value")
}

func (s *jsonScanner) literal(word string) (jsonValue, *syntaxError) {
	start := s.at
	for i := range len(word) {
		if s.at >= len(s.text) || s.text[s.at] != word[i] {
			return jsonValue{}, s.fail(word)
		}
		s.at++
	}
	return jsonValue{span: span{start, s.at}, kind: word[0]}, nil
}

func (s *jsonScanner) object() (jsonValue, *syntaxError) {
	v := jsonValue{kind: '{', span: span{start: s.at}}
	s.at++
	s.blanks()
	if s.at < len(s.text) && s.text[s.at] == '}' {
		s.at++
		v.end = s.at
		return v, nil
	}
	var seen map[string]bool // only for objects of many members
	for {
		s.blanks()
		if s.at >= len(s.text) || s.text[s.at] != '"' {
			if len(v.members) == 0 {
				return v, s.fail("a key or }")
			}
			return v, s.fail("a key")
		}
		key, err := s.string()
		if err != nil {
			return v, err
		}
		twice := false
		if len(v.members) < 16 {
			twice = v.member(key.text) != nil
		} else {
			if seen == nil {
				seen = make(map[string]bool, 32)
				for i := range v.members {
					seen[v.members[i].key.text] = true
				}
			}
			twice = seen[key.text]
			seen[key.text] = true
		}
		if twice {
			return v, s.failAt(key.start, key.end, "duplicate key "+quoteForDetail(key.text))
		}
		s.blanks()
		if s.at >= len(s.text) || s.text[s.at] != ':' {
			return v, s.fail("a colon")
		}
		s.at++
		s.blanks()
		value, err := s.value()
		if err != nil {
			return v, err
		}
		v.members = append(v.members, jsonMember{key, value})
		s.blanks()
		if s.at < len(s.text) {
			switch s.text[s.at] {
			case ',':
				s.at++
				continue
			case '}':
				s.at++
				v.end = s.at
				return v, nil
			}
		}
		return v, s.fail("a comma or }")
	}
}

func (s *jsonScanner) array() (jsonValue, *syntaxError) {
	v := jsonValue{kind: '[', span: span{start: s.at}}
	s.at++
	s.blanks()
	if s.at < len(s.text) && s.text[s.at] == ']' {
		s.at++
		v.end = s.at
		return v, nil
	}
	for {
		s.blanks()
		element, err := s.value()
		if err != nil {
			return v, err
		}
		v.elements = append(v.elements, element)
		s.blanks()
		if s.at < len(s.text) {
			switch s.text[s.at] {
			case ',':
				s.at++
				continue
			case ']':
				s.at++
				v.end = s.at
				return v, nil
			}
		}
		return v, s.fail("a comma or ]")
	}
}

func (s *jsonScanner) number() (jsonValue, *syntaxError) {
	start := s.at
	digits := func() bool {
		first := s.at
		for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
			s.at++
		}
		return s.at > first
	}
	if s.text[s.at] == '-' {
		s.at++
	}
	if s.at < len(s.text) && s.text[s.at] == '0' {
		s.at++
		if s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
			return jsonValue{}, s.fail("no digit after a leading zero")
		}
	} else if !digits() {
		return jsonValue{}, s.fail("a digit")
	}
	if s.at < len(s.text) && s.text[s.at] == '.' {
		s.at++
		if !digits() {
			return jsonValue{}, s.fail("a digit")
		}
	}
	if s.at < len(s.text) && (s.text[s.at] == 'e' || s.text[s.at] == 'E') {
		s.at++
		if s.at < len(s.text) && (s.text[s.at] == '+' || s.text[s.at] == '-') {
			s.at++
		}
		if !digits() {
			return jsonValue{}, s.fail("a digit")
		}
	}
	return jsonValue{span: span{start, s.at}, kind: '0', text: s.text[start:s.at]}, nil
}

func (s *jsonScanner) string() (jsonValue, *syntaxError) {
	start := s.at
	s.at++
	var decoded []byte // nil while the bytes stand for themselves
	run := s.at        // start of the bytes not yet copied
	for {
		if s.at >= len(s.text) {
			err := s.fail(`a closing quote`)
			err.inString = true
			return jsonValue{}, err
		}
		c := s.text[s.at]
		switch {
		case c == '"':
			v := jsonValue{span: span{start, s.at + 1}, kind: '"'}
			if decoded == nil {
				v.text = s.text[run:s.at]
			} else {
				v.text, v.escaped = string(append(decoded, s.text[run:s.at]...)), true
			}
			s.at++
			return v, nil
		case c < 0x20:
			return jsonValue{}, s.failAt(s.at, s.at+1, "raw control byte "+strconv.Quote(string(rune(c)))+" inside a string")
		case c == '\\':
			decoded = append(decoded, s.text[run:s.at]...)
			var err *syntaxError
			if decoded, err = s.escape(decoded); err != nil {
				return jsonValue{}, err
			}
			run = s.at
		case c < utf8.RuneSelf:
			s.at++
		default:
			if !utf8.FullRuneInString(s.text[s.at:]) { // cut inside a character
				s.at = len(s.text)
				continue
			}
			r, width := utf8.DecodeRuneInString(s.text[s.at:])
			if r == utf8.RuneError && width == 1 {
				return jsonValue{}, s.failAt(s.at, s.at+1, "bytes that are not UTF-8 inside a string")
			}
			s.at += width
		}
	}
}

// escape reads the escape at the current place.
func (s *jsonScanner) escape(out []byte) ([]byte, *syntaxError) {
	start := s.at
	s.at++
	if s.at >= len(s.text) {
		err := s.fail("an escape")
		err.inString = true
		return out, err
	}
	c := s.text[s.at]
	s.at++
	switch c {
	case '"', '\\', '/':
		return append(out, c), nil
	case 'b':
		return append(out, '\b'), nil
	case 'f':
		return append(out, '\f'), nil
	case 'n':
		return append(out, '\n'), nil
	case 'r':
		return append(out, '\r'), nil
	case 't':
		return append(out, '\t'), nil
	case 'u':
		r, err := s.hex4()
		if err != nil {
			return out, err
		}
		if !utf16.IsSurrogate(r) {
			return utf8.AppendRune(out, r), nil
		}
		if r >= 0xDC00 {
			return out, s.failAt(start, s.at, "second half of a surrogate pair without the first")
		}
		if strings.HasPrefix(s.text[s.at:], `\u`) {
			after := s.at
			s.at += 2
			low, err := s.hex4()
			if err != nil {
				return out, err
			}
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return utf8.AppendRune(out, pair), nil
			}
			s.at = after
		} else if rest := s.text[s.at:]; rest == "" || rest == `\` {
			s.at = len(s.text)
			err := s.fail("the other half of a surrogate pair")
			err.inString = true
			return out, err
		}
		return out, s.failAt(start, s.at, "first half of a surrogate pair without the second")
	}
	s.at--
	_, width := utf8.DecodeRuneInString(s.text[s.at:])
	return out, s.failAt(s.at, s.at+width, "no such escape in JSON")
}

func (s *jsonScanner) hex4() (rune, *syntaxError) {
	var r rune
	for range 4 {
		if s.at >= len(s.text) {
			err := s.fail("four hexadecimal digits")
			err.inString = true
			return 0, err
		}
		c := s.text[s.at]
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			_, width := utf8.DecodeRuneInString(s.text[s.at:])
			return 0, s.failAt(s.at, s.at+width, "want four hexadecimal digits")
		}
		s.at++
	}
	return r, nil
}

// tags are the control spellings that end a lexical item of a call.
var tags = []string{callStart, callEnd, thinkStart, thinkEnd, responseStart, responseEnd, messageStart, messageEnd}

// lexicalItemEnd returns the end of the item that starts at text[at]: a tag, a
// quoted string (in either quotes, within a line), a word or number, or one
// character.
func lexicalItemEnd(text string, at int) int {
	rest := text[at:]
	switch c := rest[0]; {
	case c == '<':
		for _, tag := range tags {
			if strings.HasPrefix(rest, tag) {
				return at + len(tag)
			}
		}
	case c == '"' || c == '\'':
		for i := 1; i < len(rest) && rest[i] >= 0x20; i++ {
			if rest[i] == '\\' {
				i++
			} else if rest[i] == c {
				return at + i + 1
			}
		}
	case c == '\\' && len(rest) > 1:
		_, width := utf8.DecodeRuneInString(rest[1:])
		return at + 1 + width
	case isWordByte(c):
		i := 1
		for i < len(rest) && isWordByte(rest[i]) {
			i++
		}
		return at + i
	}
	return at + 1
}

func isWordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' ||
		c == '_' || c == '-' || c == '+' || c == '.' || c >= utf8.RuneSelf
}

// quoteForDetail shows a piece of sampled text in a detail: valid, short, on one
// line.
func quoteForDetail(s string) string {
	const limit = 40
	if len(s) > limit {
		s = s[:limit] + "..."
	}
	return strconv.QuoteToGraphic(strings.ToValidUTF8(s, "\ufffd"))
}
