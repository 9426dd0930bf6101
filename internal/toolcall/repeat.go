package toolcall

// Repetition: the same call again, and text that loops.

import (
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// canonicalCall returns a text that two calls share when a repeat of one by the
// other cannot tell anything new: keys sorted, numbers by value, strings
// case-folded with blanks collapsed.
func canonicalCall(name string, arguments *jsonValue) string {
	var b strings.Builder
	b.WriteString(strconv.Quote(name))
	canonical(&b, arguments)
	return b.String()
}

func canonical(b *strings.Builder, v *jsonValue) {
	switch v.kind {
	case '{':
		sorted := make([]*jsonMember, len(v.members))
		for i := range v.members {
			sorted[i] = &v.members[i]
		}
		sort.Slice(sorted, func(i, j int) bool { return sorted[i].key.text < sorted[j].key.text })
		b.WriteByte('{')
		for _, m := range sorted {
			b.WriteString(strconv.Quote(m.key.text))
			b.WriteByte(':')
			canonical(b, &m.value)
			b.WriteByte(',')
		}
		b.WriteByte('}')
	case '[':
		b.WriteByte('[')
		for i := range v.elements {
			canonical(b, &v.elements[i])
			b.WriteByte(',')
		}
		b.WriteByte(']')
	case '"':
		b.WriteString(strconv.Quote(foldText(v.text)))
	case '0':
		b.WriteString(canonicalNumber(v.text))
	default:
		b.WriteByte(v.kind)
	}
}

// foldText folds case and turns each run of white space into one blank, none at
// the ends.
func foldText(s string) string {
	var b strings.Builder
	blank := false
	for _, r := range s {
		if unicode.IsSpace(r) {
			blank = b.Len() > 0
			continue
		}
		if blank {
			b.WriteByte(' ')
			blank = false
		}
		b.WriteRune(foldRune(r))
	}
	return b.String()
}

// foldRune returns the smallest character that equals r but for case.
func foldRune(r rune) rune {
	if r < utf8.RuneSelf && !(r >= 'a' && r <= 'z') {
		return r
	}
	smallest := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		smallest = min(smallest, next)
	}
	return smallest
}

// canonicalNumber writes a JSON number as sign, digits without zeros at either
// end, and an exponent: equal numbers give equal texts, whatever their size.
func canonicalNumber(number string) string {
	negative := strings.HasPrefix(number, "-")
	number = strings.TrimPrefix(number, "-")
	exponent, tooLarge := 0, false
	if e := strings.IndexAny(number, "eE"); e >= 0 {
		n, err := strconv.Atoi(number[e+1:])
		exponent, tooLarge = n, err != nil
		if tooLarge || n > 1<<40 || n < -1<<40 {
			return number // beyond any sum with a length: as written
		}
		number = number[:e]
	}
	whole, fraction, _ := strings.Cut(number, ".")
	exponent -= len(fraction)
	digits := strings.TrimLeft(whole+fraction, "0")
	trimmed := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(trimmed)
	if trimmed == "" {
		return "0"
	}
	if negative {
		trimmed = "-" + trimmed
	}
	return trimmed + "e" + strconv.Itoa(exponent)
}

// loop returns the looping part of a turn, where it has one: found over n-grams
// of ids outside the excluded byte ranges (sorted, disjoint). second is the
// start of the second round.
func (tt *turnTokens) loop(size, minimum int, threshold float64, excluded []span) (whole span, second int, found bool) {
	if len(tt.ids) < minimum {
		return span{}, 0, false
	}
	// Runs of ids that are counted: the text's, less those that meet an excluded
	// range.
	type run struct{ lo, hi int }
	var runs []run
	counted := 0
	add := func(lo, hi int) {
		if hi > lo {
			runs = append(runs, run{lo, hi})
			counted += hi - lo
		}
	}
	last := tt.textTokens()
	at := 0
	for _, e := range excluded {
		lo, hi := tt.cover(e)
		add(at, min(lo, last))
		at = max(at, hi)
	}
	add(at, last)
	if counted < minimum {
		return span{}, 0, false
	}
	// seen is a hash table of n-grams by the index of their first id; previous
	// holds the latest occurrence.
	tableSize := 1
	for tableSize < 2*counted {
		tableSize <<= 1
	}
	type place struct{ first, previous int32 } // index plus one; 0: free
	seen := make([]place, tableSize)
	find := func(i int) *place {
		hash := uint64(0)
		for _, id := range tt.ids[i : i+size] {
			hash = (hash ^ uint64(uint32(id))) * 0x9E3779B97F4A7C15
			hash ^= hash >> 29
		}
		for slot := hash & uint64(tableSize-1); ; slot = (slot + 1) & uint64(tableSize-1) {
			p := &seen[slot]
			if p.first == 0 || slices.Equal(tt.ids[p.first-1:int(p.first)-1+size], tt.ids[i:i+size]) {
				return p
			}
		}
	}
	total, unique, firstRepeat, lastRepeat := 0, 0, -1, -1
	distances := map[int]int{} // bytes between occurrences -> how many
	for _, r := range runs {
		for i := r.lo; i+size <= r.hi; i++ {
			total++
			p := find(i)
			if p.first == 0 {
				unique++
				*p = place{int32(i) + 1, int32(i) + 1}
				continue
			}
			first, previous := int(p.first)-1, int(p.previous)-1
			distances[tt.offsets[i]-tt.offsets[previous]]++
			if firstRepeat < 0 || first < firstRepeat {
				firstRepeat = first
				second = tt.offsets[i]
			}
			lastRepeat = i + size
			p.previous = int32(i) + 1
		}
	}
	if total == 0 || 1-float64(unique)/float64(total) <= threshold {
		return span{}, 0, false
	}
	whole = span{tt.offsets[firstRepeat], tt.offsets[lastRepeat]}
	exact, period := tt.periodic(distances)
	if exact.start < whole.end && exact.end > whole.start && exact.end-exact.start >= (whole.end-whole.start)/2 {
		return exact, exact.start + period, true
	}
	return whole, second, true
}

// textTokens returns the number of ids that hold the text, the end token apart.
func (tt *turnTokens) textTokens() int {
	n := len(tt.ids)
	for n > 0 && tt.offsets[n-1] >= len(tt.text) {
		n--
	}
	return n
}

// periodic returns the longest run of text in which every byte equals the one a
// period before, by the most frequent distance between equal n-grams.
func (tt *turnTokens) periodic(distances map[int]int) (longest span, period int) {
	for distance, count := range distances {
		if distance > 0 && (period == 0 || count > distances[period] || count == distances[period] && distance < period) {
			period = distance
		}
	}
	if period == 0 {
		return span{}, 0
	}
	text := tt.text
	start := 0
	for i := period; i <= len(text); i++ {
		if i < len(text) && text[i] == text[i-period] {
			continue
		}
		if i-start > longest.end-longest.start && i-start > period {
			longest = span{start, i}
		}
		start = i - period + 1
	}
	return longest, period
}
