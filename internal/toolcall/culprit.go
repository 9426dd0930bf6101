package toolcall

// Naming the guilty bytes, and from bytes to tokens.

import (
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/token"
)

// turnTokens is one turn as sampled, with the place of every id.
type turnTokens struct {
	tokenizer *token.Tokenizer
	ids       []int32
	offsets   []int  // len(ids)+1 prefix sums of the ids' bytes
	text      string // the bytes, the end token excluded
	turn      int    // index into the trajectory's turns
	base      int    // index of ids[0] in the trajectory
}

func newTurnTokens(t *token.Tokenizer, ids []int32, turn, base int) *turnTokens {
	tt := &turnTokens{tokenizer: t, ids: ids, offsets: t.Offsets(ids), turn: turn, base: base}
	raw := t.Decode(ids)
	end := len(raw)
	if n := len(ids); n > 0 && isEndToken(t, ids[n-1]) {
		end = tt.offsets[n-1]
	}
	tt.text = string(raw[:end])
	return tt
}

func isEndToken(t *token.Tokenizer, id int32) bool {
	if !t.IsControl(id) {
		return false
	}
	switch string(t.Bytes(id)) {
	case token.MessageEnd, "<|endoftext|>":
		return true
	}
	return false
}

// controlAt says whether a control token was sampled at a byte.
func (tt *turnTokens) controlAt(at int) bool {
	j, _ := token.Span(tt.offsets, at, at)
	return j < len(tt.ids) && tt.offsets[j] == at && tt.tokenizer.IsControl(tt.ids[j])
}

// cover returns the ids that a byte span meets, [lo, hi) within the turn. An
// empty span gives the id that holds its byte; at the end of the text that is
// the end token sampled there, else the last id.
func (tt *turnTokens) cover(s span) (lo, hi int) {
	lo, hi = token.Span(tt.offsets, s.start, s.end)
	if s.empty() {
		lo = max(0, min(lo, len(tt.ids)-1))
		hi = lo + 1
	}
	return lo, min(hi, len(tt.ids))
}

// decision widens a culprit to the sampled token before it, where the wrong
// choice was made; tokens of white space in between are passed over.
func (tt *turnTokens) decision(lo int) int {
	for lo > 0 {
		lo--
		if strings.Trim(string(tt.tokenizer.Bytes(tt.ids[lo])), " \n\r\t") != "" {
			break
		}
	}
	return lo
}

// failure maps a finding to tokens. The call's range always holds the culprit's,
// so that whatever is trained includes it.
func (tt *turnTokens) failure(f finding) episode.Failure {
	lo, hi := tt.cover(f.culprit)
	switch f.kind {
	case episode.KindMalformedJSON, episode.KindUnclosedCall, episode.KindMissingArgument:
		lo = tt.decision(lo)
	}
	callLo, callHi := tt.cover(f.call)
	callLo, callHi = min(callLo, lo), max(callHi, hi)
	return episode.Failure{
		Turn: tt.turn, Kind: f.kind, Fault: episode.FaultAgent, Detail: f.detail,
		ByteStart: f.culprit.start, ByteEnd: f.culprit.end,
		TokenStart: tt.base + lo, TokenEnd: tt.base + hi,
		CallTokenStart: tt.base + callLo, CallTokenEnd: tt.base + callHi,
	}
}

// tail returns the bytes of the last n ids that end at or before a byte.
func (tt *turnTokens) tail(end, n int) span {
	_, hi := token.Span(tt.offsets, 0, end)
	if end == 0 {
		hi = 0
	}
	return span{tt.offsets[max(0, hi-n)], end}
}

// nameCulprit returns what is wrong in a tool's name: against the nearest
// offered name, the part that differs, widened to whole parts between
// separators; without a near one, the whole name.
func nameCulprit(name *jsonValue, offered []string) (culprit span, nearest string) {
	whole := name.content()
	if whole.empty() {
		whole = name.span
	}
	if name.kind != '"' || name.text == "" {
		return name.span, ""
	}
	best := -1
	for _, candidate := range offered {
		// A long name is no near miss of anything, and the distance is quadratic.
		if len(name.text) > 2*len(candidate)+8 {
			continue
		}
		distance := editDistance(name.text, candidate)
		if distance <= max(2, len(candidate)/2) && (best < 0 || distance < best) {
			best, nearest = distance, candidate
		}
	}
	if best < 0 || name.escaped {
		return whole, nearest
	}
	start, end := differingPart(name.text, nearest)
	return span{whole.start + start, whole.start + end}, nearest
}

func differingPart(name, nearest string) (start, end int) {
	for start < len(name) && start < len(nearest) && name[start] == nearest[start] {
		start++
	}
	end = len(name)
	for i := len(nearest); end > start && i > start && name[end-1] == nearest[i-1]; i-- {
		end--
	}
	for start < end && isSeparator(name[start]) {
		start++
	}
	for end > start && isSeparator(name[end-1]) {
		end--
	}
	for start > 0 && !isSeparator(name[start-1]) {
		start--
	}
	for end < len(name) && !isSeparator(name[end]) {
		end++
	}
	if start == end {
		return 0, len(name)
	}
	return start, end
}

func isSeparator(c byte) bool { return strings.IndexByte("_-. /:", c) >= 0 }

// editDistance is the Levenshtein distance in bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// valuesOf returns the place of the values of an arguments object, from the
// first to the last, without the quotes at either end; the object itself where
// it is empty.
func valuesOf(arguments *jsonValue) span {
	n := len(arguments.members)
	if n == 0 {
		return arguments.span
	}
	first := arguments.members[0].value.content()
	last := arguments.members[n-1].value.content()
	if s := (span{first.start, last.end}); !s.empty() {
		return s
	}
	return arguments.span
}
