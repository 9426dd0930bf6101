package token

// Splitting text into words before BPE: a hand-written function for each pattern
// that a tokenizer.json may name. A regular expression engine with look-ahead
// would be ten times slower, and the standard library has none.

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// splitter returns the end of the word that starts at s[i].
type splitter func(s string, i int) (end int)

// splitters maps the patterns, as they stand in a tokenizer.json, to functions.
var splitters = map[string]splitter{
	qwenPattern:  nextQwenWord,
	plainPattern: nextPlainWord,
}

// plainPattern is the one that Train writes. Letters never take in the character
// before them, so a name has the same ids after a blank, a quote or a bracket: a
// small policy learns to copy names much sooner. White space is one word each.
const plainPattern = `\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s`

// qwenPattern is the one of the Qwen2 and Qwen3 files.
const qwenPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// Classes of characters that the pattern tells apart.
const (
	classOther   = iota
	classLetter  // \p{L}
	classNumber  // \p{N}
	classSpace   // \s but line ends
	classNewline // \r or \n
)

var asciiClass = func() (table [utf8.RuneSelf]uint8) {
	for i := range table {
		table[i] = classify(rune(i))
	}
	return table
}()

func classify(r rune) uint8 {
	switch {
	case r == '\r' || r == '\n':
		return classNewline
	case unicode.IsLetter(r):
		return classLetter
	case unicode.Is(unicode.N, r):
		return classNumber
	case unicode.IsSpace(r):
		return classSpace
	}
	return classOther
}

// classAt returns the class and the width in bytes of the character at s[i].
// A byte that is not UTF-8 is a character of its own.
func classAt(s string, i int) (class uint8, width int) {
	if c := s[i]; c < utf8.RuneSelf {
		return asciiClass[c], 1
	}
	r, width := utf8.DecodeRuneInString(s[i:])
	if r >= 0x4E00 && r <= 0x9FFF { // CJK unified ideographs, the common case
		return classLetter, width
	}
	return classify(r), width
}

// skip returns the end of the run of characters of one class that starts at i.
func skip(s string, i int, class uint8) int {
	for i < len(s) {
		c, width := classAt(s, i)
		if c != class {
			break
		}
		i += width
	}
	return i
}

// nextPlainWord splits by plainPattern.
func nextPlainWord(s string, i int) int {
	class, width := classAt(s, i)
	switch class {
	case classLetter, classOther:
		return skip(s, i+width, class)
	case classSpace:
		if s[i] == ' ' {
			return skip(s, i+1, classOther)
		}
	}
	return i + width
}

// nextQwenWord splits by qwenPattern. Alternatives are tried in its order.
func nextQwenWord(s string, i int) int {
	class, width := classAt(s, i)
	if s[i] == '\'' {
		if n := contraction(s[i:]); n > 0 {
			return i + n
		}
	}
	switch class { // [^\r\n\p{L}\p{N}]?\p{L}+
	case classLetter:
		return skip(s, i+width, classLetter)
	case classOther, classSpace:
		if j := i + width; j < len(s) {
			if c, w := classAt(s, j); c == classLetter {
				return skip(s, j+w, classLetter)
			}
		}
	case classNumber: // \p{N}
		return i + width
	}
	start := i //  ?[^\s\p{L}\p{N}]+[\r\n]*
	if s[i] == ' ' {
		start++
	}
	if end := skip(s, start, classOther); end > start {
		return skip(s, end, classNewline)
	}
	// White space. lastNewline is the end of the last line end in the run,
	// lastStart the start of its last character.
	end, lastNewline, lastStart := i, -1, i
	for end < len(s) {
		c, w := classAt(s, end)
		if c != classSpace && c != classNewline {
			break
		}
		lastStart = end
		end += w
		if c == classNewline {
			lastNewline = end
		}
	}
	switch {
	case lastNewline >= 0: // \s*[\r\n]+
		return lastNewline
	case end == len(s) || lastStart == i: // \s+(?!\S) at the end of the text; \s+
		return end
	}
	return lastStart // \s+(?!\S): the last one goes with what follows
}

// contraction returns the length of the contraction that s starts with, 0 where
// there is none. s[0] is an apostrophe.
func contraction(s string) int {
	if len(s) < 2 {
		return 0
	}
	switch s[1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	}
	if strings.HasPrefix(s[1:], "\u017f") { // LATIN SMALL LETTER LONG S folds to s
		return 3
	}
	if len(s) < 3 {
		return 0
	}
	switch string([]byte{s[1] | 0x20, s[2] | 0x20}) {
	case "re", "ve", "ll":
		return 3
	}
	return 0
}
