package seed

import (
	"errors"
	"fmt"
	"strings"
)

// maxColumns bounds how wide a table may be when it is read.
const maxColumns = 1000

// quoting says how a field may hold the delimiter.
type quoting int

const (
	quoteDoubled   quoting = iota // "a ""b"" c", RFC 4180
	quoteBackslash                // "a \"b\" c"
	quoteNone                     // quotes are text, as text/tab-separated-values has it
)

// readDelimited reads delimited text. It tries every delimiter with every way
// of quoting and keeps the one by which the fewest records differ in width;
// among equals the wider, then the commoner.
func readDelimited(text string, tabs bool, changes *tally) (*grid, error) {
	delimiters := ",\t;|"
	if tabs {
		delimiters = "\t"
	}
	var best [][]string
	var firstError error
	bestRagged, bestWidth := 0, 0
	for _, delimiter := range []byte(delimiters) {
		if strings.IndexByte(text, delimiter) < 0 {
			continue
		}
		for _, q := range []quoting{quoteDoubled, quoteBackslash, quoteNone} {
			if q == quoteBackslash && !strings.Contains(text, `\"`) || q == quoteNone && (delimiter != '\t' || !strings.Contains(text, `"`)) {
				continue // the same as another way, or none for this delimiter
			}
			records, err := split(text, delimiter, q)
			if err != nil {
				if firstError == nil {
					firstError = err
				}
				continue
			}
			width := usualWidth(records)
			if width < 2 {
				continue
			}
			ragged := 0
			for _, r := range records {
				if len(r) != width {
					ragged++
				}
			}
			if best == nil || ragged < bestRagged && 2*width > bestWidth || ragged == bestRagged && width > bestWidth {
				best, bestRagged, bestWidth = records, ragged, width
			}
		}
	}
	if best == nil {
		if firstError != nil {
			return nil, firstError
		}
		return nil, errors.New("no delimiter (comma, tab, semicolon or bar) makes a table of it")
	}
	if bestWidth > maxColumns {
		return nil, fmt.Errorf("%d columns; at most %d are read", bestWidth, maxColumns)
	}
	if 5*bestRagged > len(best) {
		return nil, fmt.Errorf("%d of %d records do not have %d fields", bestRagged, len(best), bestWidth)
	}
	records := make([][]Value, 0, len(best))
	for _, r := range best {
		row := make([]Value, len(r))
		for i, f := range r {
			row[i] = Text(f)
		}
		records = append(records, row)
	}
	return gridOfRecords(records, changes)
}

// usualWidth is the commonest number of fields, the greater of equals.
func usualWidth(records [][]string) int {
	counts := map[int]int{}
	best := 0
	for _, r := range records {
		counts[len(r)]++
		if c := counts[len(r)]; c > counts[best] || c == counts[best] && len(r) > best {
			best = len(r)
		}
	}
	return best
}

// split cuts text into records of fields. Empty lines are no records.
func split(text string, delimiter byte, q quoting) ([][]string, error) {
	var records [][]string
	var record []string
	var field strings.Builder
	line, i := 1, 0
	for i < len(text) {
		field.Reset()
		if text[i] == '"' && q != quoteNone {
			opened := line
			i++
			for closed := false; !closed; i++ {
				if i >= len(text) {
					return nil, fmt.Errorf("line %d: a quote is never closed", opened)
				}
				switch c := text[i]; {
				case c == '\\' && q == quoteBackslash && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
					i++
					field.WriteByte(text[i])
				case c == '"' && q == quoteDoubled && i+1 < len(text) && text[i+1] == '"':
					i++
					field.WriteByte('"')
				case c == '"':
					closed = true
				default:
					if c == '\n' {
						line++
					}
					field.WriteByte(c)
				}
			}
			if i < len(text) && text[i] != delimiter && text[i] != '\n' && text[i] != '\r' {
				return nil, fmt.Errorf("line %d: text after a closing quote", line)
			}
		} else {
			start := i
			for i < len(text) && text[i] != delimiter && text[i] != '\n' && text[i] != '\r' {
				i++
			}
			field.WriteString(text[start:i])
		}
		record = append(record, field.String())
		if i < len(text) && text[i] == delimiter {
			i++
			if i < len(text) {
				continue
			}
			record = append(record, "")
		}
		if i < len(text) && text[i] == '\r' {
			i++
		}
		if i < len(text) && text[i] == '\n' {
			i++
		}
		line++
		if len(record) > 1 || record[0] != "" {
			records = append(records, record)
		}
		record = nil
	}
	return records, nil
}

// gridOfRecords gives records one width and takes the first as the header if
// it looks like one.
func gridOfRecords(records [][]Value, changes *tally) (*grid, error) {
	width := 0
	counts := map[int]int{}
	for _, r := range records {
		counts[len(r)]++
		if c := counts[len(r)]; c > counts[width] || c == counts[width] && len(r) > width {
			width = len(r)
		}
	}
	if width == 0 {
		return nil, errors.New("no columns")
	}
	if width > maxColumns {
		return nil, fmt.Errorf("%d columns; at most %d are read", width, maxColumns)
	}
	g := &grid{}
	for _, r := range records {
		switch {
		case len(r) > width:
			changes.add(-1, "row with too many fields dropped", 1)
			continue
		case len(r) < width:
			changes.add(-1, "short row filled up", 1)
			r = append(r, make([]Value, width-len(r))...)
		}
		g.rows = append(g.rows, r)
	}
	if len(g.rows) > 1 && headed(g.rows) {
		for _, v := range g.rows[0] {
			g.header = append(g.header, v.text)
		}
		g.rows = g.rows[1:]
	} else {
		g.header = make([]string, width)
		changes.add(-1, "columns named by number", width)
	}
	return g, nil
}

// headed reports whether the first record names the columns. A number above
// numbers, or a word that its own column repeats, says no; a word above
// numbers says yes; without a sign either way it does.
func headed(rows [][]Value) bool {
	evidence := 0
	for c, top := range rows[0] {
		numbers, filled, repeated := 0, 0, false
		for _, row := range rows[1:] {
			if v := row[c]; v.text != "" {
				filled++
				if looksNumeric(v) {
					numbers++
				}
				repeated = repeated || v.text == top.text
			}
		}
		mostly := filled > 0 && 10*numbers >= 8*filled
		switch {
		case top.kind != kindText || top.text != "" && looksNumeric(top) && (mostly || repeated):
			evidence--
		case mostly && top.text != "":
			evidence++
		case repeated:
			evidence--
		}
	}
	return evidence >= 0
}

// looksNumeric is for guessing only: digits and what stands around them.
func looksNumeric(v Value) bool {
	if v.kind == kindNumber {
		return true
	}
	digits := 0
	for _, r := range v.text {
		switch {
		case r >= '0' && r <= '9':
			digits++
		case !strings.ContainsRune(" .,-+/:$%€£()", r):
			return false
		}
	}
	return digits > 0
}
