// Package token turns text into token ids and back: byte-level BPE as a Hugging
// Face tokenizer.json describes it, the trainer that writes such a file, and the
// chat renderer that lays out a conversation as ids.
//
// Two rules hold everywhere. Control tokens (the added tokens of the file, such
// as <|im_end|> or <tool_call>) come only out of trusted template text: whatever
// a tool, a user or a query spells is encoded as ordinary text. And ids are the
// truth: text is derived from them, never the other way round, so that ids once
// sampled are never encoded again.
package token

import (
	"crypto/sha256"
	"encoding/hex"
	"sort"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Tokenizer encodes and decodes with one vocabulary. It is immutable and safe
// for concurrent use.
type Tokenizer struct {
	bytesOf      [][]byte         // id -> raw bytes, nil where the id is undefined
	isControl    []bool           // id -> added token
	controlID    map[string]int32 // spelling of an added token -> id
	control      controlMatcher
	wordID       map[string]int32 // raw bytes -> id; only with ignoreMerges
	byteID       [256]int32
	nextWord     splitter
	merges       mergeTable
	ignoreMerges bool
	normalizeNFC bool
	hash         string
	caches       sync.Pool // of *wordCache
}

// wordCache remembers the ids of words. One encoder uses it at a time.
type wordCache struct {
	ids map[string][]int32
}

const (
	maxCachedWord  = 64      // bytes
	maxCachedWords = 1 << 16 // entries of one cache
)

// Piece is a part of a text to encode. Only where Trusted is set can a spelled
// control token become one.
type Piece struct {
	Text    string
	Trusted bool
}

// Encode returns the ids of text that comes from anywhere. It never yields a
// control token.
func (t *Tokenizer) Encode(text string) []int32 {
	return t.EncodePieces(Piece{Text: text})
}

// EncodeTrusted returns the ids of template text: spelled control tokens become
// their ids.
func (t *Tokenizer) EncodeTrusted(text string) []int32 {
	return t.EncodePieces(Piece{Text: text, Trusted: true})
}

// EncodePieces returns the ids of the pieces as one text: words and merges cross
// from piece to piece, as if the whole had been encoded at once, but a control
// token is matched only inside one trusted piece.
func (t *Tokenizer) EncodePieces(pieces ...Piece) []int32 {
	cache, _ := t.caches.Get().(*wordCache)
	if cache == nil {
		cache = &wordCache{ids: map[string][]int32{}}
	}
	defer t.caches.Put(cache)
	var out []int32
	pending := "" // ordinary text up to the next control token
	for _, p := range pieces {
		text := p.Text
		for p.Trusted {
			start, end, id := t.control.find(text)
			if id < 0 {
				break
			}
			out = t.encodeOrdinary(out, pending+text[:start], cache)
			out = append(out, id)
			pending, text = "", text[end:]
		}
		if pending == "" {
			pending = text
		} else {
			pending += text
		}
	}
	return t.encodeOrdinary(out, pending, cache)
}

func (t *Tokenizer) encodeOrdinary(out []int32, s string, cache *wordCache) []int32 {
	if t.normalizeNFC {
		s = normalized(s)
	}
	if out == nil {
		out = make([]int32, 0, len(s)/3+1)
	}
	for i := 0; i < len(s); {
		end := t.nextWord(s, i)
		word := s[i:end]
		i = end
		if ids, ok := cache.ids[word]; ok {
			out = append(out, ids...)
			continue
		}
		before := len(out)
		out = t.encodeWord(out, word)
		if len(word) <= maxCachedWord {
			if len(cache.ids) >= maxCachedWords {
				clear(cache.ids)
			}
			cache.ids[strings.Clone(word)] = append([]int32(nil), out[before:]...)
		}
	}
	return out
}

func normalized(s string) string {
	if isASCII(s) || norm.NFC.IsNormalString(s) {
		return s
	}
	return norm.NFC.String(s)
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// Decode returns the raw bytes of the ids. They need not be valid UTF-8: an id
// may hold part of a character. Undefined ids have no bytes.
func (t *Tokenizer) Decode(ids []int32) []byte {
	out := make([]byte, 0, len(ids)*4)
	for _, id := range ids {
		out = append(out, t.Bytes(id)...)
	}
	return out
}

// Bytes returns the raw bytes of one id, nil where the id is undefined. The
// caller must not change them.
func (t *Tokenizer) Bytes(id int32) []byte {
	if id < 0 || int(id) >= len(t.bytesOf) {
		return nil
	}
	return t.bytesOf[id]
}

// Offsets returns the prefix sums of the ids' byte lengths, len(ids)+1 values:
// id j holds bytes [offsets[j], offsets[j+1]) of Decode(ids).
func (t *Tokenizer) Offsets(ids []int32) []int {
	out := make([]int, len(ids)+1)
	for i, id := range ids {
		out[i+1] = out[i] + len(t.Bytes(id))
	}
	return out
}

// Span returns the smallest range [lo, hi) of ids that covers bytes
// [start, end), by the Offsets of the ids. An empty byte range gives an empty id
// range at the id that holds the byte, len(ids) at the end of the text.
func Span(offsets []int, start, end int) (lo, hi int) {
	lo = sort.SearchInts(offsets, start+1) - 1
	if start >= end {
		return lo, lo
	}
	return lo, sort.SearchInts(offsets, end)
}

// VocabSize returns the greatest id plus one. A model's embedding may have more
// rows; ids beyond the vocabulary have no bytes.
func (t *Tokenizer) VocabSize() int { return len(t.bytesOf) }

// ID returns the id of a control token by its spelling.
func (t *Tokenizer) ID(control string) (int32, bool) {
	id, ok := t.controlID[control]
	return id, ok
}

// IsControl says whether the id is a control token.
func (t *Tokenizer) IsControl(id int32) bool {
	return id >= 0 && int(id) < len(t.isControl) && t.isControl[id]
}

// Hash returns the SHA-256 of the tokenizer.json, in hex: streams name it, so
// that ids are never read with another vocabulary.
func (t *Tokenizer) Hash() string { return t.hash }

func hashOf(file []byte) string {
	sum := sha256.Sum256(file)
	return hex.EncodeToString(sum[:])
}

// controlMatcher finds the leftmost, then longest, control token in a text.
type controlMatcher struct {
	byFirst [256][]controlToken // longest spelling first
	first   string              // the first bytes, for a fast search
}

type controlToken struct {
	spelling string
	id       int32
}

func newControlMatcher(ids map[string]int32) controlMatcher {
	var m controlMatcher
	for spelling, id := range ids {
		b := spelling[0]
		m.byFirst[b] = append(m.byFirst[b], controlToken{spelling, id})
	}
	var first []byte
	for b := range m.byFirst {
		list := m.byFirst[b]
		if len(list) == 0 {
			continue
		}
		first = append(first, byte(b))
		sort.Slice(list, func(i, j int) bool {
			if len(list[i].spelling) != len(list[j].spelling) {
				return len(list[i].spelling) > len(list[j].spelling)
			}
			return list[i].spelling < list[j].spelling
		})
	}
	m.first = string(first)
	return m
}

// find returns the place and id of the first control token in s, id -1 where
// there is none.
func (m *controlMatcher) find(s string) (start, end int, id int32) {
	for i := 0; i < len(s); i++ {
		for _, c := range m.byFirst[s[i]] {
			if strings.HasPrefix(s[i:], c.spelling) {
				return i, i + len(c.spelling), c.id
			}
		}
	}
	return 0, 0, -1
}
