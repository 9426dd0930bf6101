package seed

import (
	"fmt"
	"html"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// A column has a type when at most one value in ten does not fit it; those
// become null, and are counted.
const typeShare = 0.9

// clean names the columns, cleans every text, finds each column's type and
// rewrites its values in that type. Every change of a value is counted.
func clean(g *grid, changes *tally) ([]Column, error) {
	columns := nameColumns(g.header, changes)
	for c := range columns {
		nested := 0
		for _, row := range g.rows {
			switch row[c].kind {
			case kindNested:
				row[c] = Value{}
				nested++
			case kindText:
				row[c].text = cleanText(row[c].text, c, changes)
				if nullNames[strings.ToLower(row[c].text)] {
					if row[c].text != "" {
						changes.add(c, "word for no value made null", 1)
					}
					row[c] = Value{}
				}
			}
		}
		changes.add(c, "nested value made null", nested)
		switch {
		case makeBoolean(g, c, changes):
			columns[c].Type = episode.ColumnBoolean
		case makeNumeric(g, c, &columns[c], changes):
		case makeDate(g, c, changes):
			columns[c].Type = episode.ColumnDate
		default:
			makeText(g, c, &columns[c])
		}
		if columns[c].Type != episode.ColumnInteger && columns[c].Type != episode.ColumnNumber {
			columns[c].Unit = ""
		}
	}
	return columns, nil
}

// nullNames are words for no value in any column; nullNumbers only where
// numbers or dates stand, since "NA" may be a continent and "none" an answer.
var (
	nullNames   = words("", "-", "–", "—", "--", "n/a", "#n/a", "null", "nan", "?", "#value!", "#ref!")
	nullNumbers = words("na", "none", "unknown", "tba", "tbd", "x", ".", "..", "...", "nil", "missing", "inf", "-inf")
)

func words(list ...string) map[string]bool {
	m := map[string]bool{}
	for _, w := range list {
		m[w] = true
	}
	return m
}

var (
	footnote = regexp.MustCompile(`(?i)\s*\[(?:\d{1,3}|[a-z]|(?:note|nb|n) ?\d{1,3}|citation needed)\]`)
	markTail = regexp.MustCompile(`([\pL\pN).])\s*[*†‡§]+$`)
)

// cleanText undoes what the text's way here did to it: HTML entities, Unicode
// forms, invisible characters, line breaks, footnote marks.
func cleanText(s string, column int, changes *tally) string {
	step := func(what string, next string) {
		if next != s {
			changes.add(column, what, 1)
			s = next
		}
	}
	if strings.ContainsRune(s, '&') {
		step("HTML entity decoded", html.UnescapeString(s))
	}
	step("Unicode form composed", norm.NFC.String(s))
	step("white space and invisible characters tidied", tidy(s))
	if strings.ContainsRune(s, '[') {
		step("footnote mark removed", footnote.ReplaceAllString(s, ""))
	}
	if strings.ContainsAny(s, "*†‡§") {
		step("footnote mark removed", markTail.ReplaceAllString(s, "$1"))
	}
	return strings.TrimSpace(s)
}

// tidy removes control and format characters and makes one space of any run
// of white space.
func tidy(s string) string {
	var b strings.Builder
	space := false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			space = true
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r):
		default:
			if space && b.Len() > 0 {
				b.WriteByte(' ')
			}
			space = false
			b.WriteRune(r)
		}
	}
	return b.String()
}

// makeBoolean rewrites a column that holds two opposite words.
func makeBoolean(g *grid, c int, changes *tally) bool {
	pairs := [][2]string{{"true", "false"}, {"yes", "no"}, {"y", "n"}, {"t", "f"}}
	for _, pair := range pairs {
		yes, no, other, rewritten := 0, 0, false, 0
		for _, row := range g.rows {
			v := row[c]
			if v.IsNull() {
				continue
			}
			if v.kind != kindBoolean {
				rewritten++
			}
			switch w := strings.ToLower(v.text); {
			case v.kind == kindNumber:
				other = true
			case w == pair[0]:
				yes++
			case w == pair[1]:
				no++
			default:
				other = true
			}
			if other {
				break
			}
		}
		if other || yes == 0 || no == 0 {
			continue
		}
		for _, row := range g.rows {
			if !row[c].IsNull() {
				row[c] = Value{kindBoolean, strconv.FormatBool(strings.EqualFold(row[c].text, pair[0]))}
			}
		}
		changes.add(c, "word written as true or false", rewritten)
		return true
	}
	return false
}

// makeText makes a text of every value that is left.
func makeText(g *grid, c int, column *Column) {
	distinct := map[string]bool{}
	filled := 0
	for _, row := range g.rows {
		if row[c].IsNull() {
			continue
		}
		row[c] = Text(row[c].text)
		distinct[row[c].text] = true
		filled++
	}
	column.Type = episode.ColumnText
	if len(distinct) >= 2 && fewValues(len(distinct), filled) {
		column.Type = episode.ColumnCategory
	}
}

var (
	numeral = regexp.MustCompile(`^(?i:(c\.|ca\.|circa|about|approx\.|~|≈) ?)?([-+−]?)(?:([$€£¥])|(USD|EUR|GBP) )? ?([-+−]?)` +
		`(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?: \d{3})+(?:\.\d+)?|\d+\.?\d*(?:[eE][-+]?\d{1,3})?|\.\d+)` +
		` ?(%|[\pL°µ][\pL°µ²³/·]{0,13})?((?: ?\([^()]*\))*)$`)
	commaDecimal = regexp.MustCompile(`^[-+−]?\d+,\d{1,2}$`)
)

// reading is what a numeral says.
type reading struct {
	literal                         string // as JSON writes it
	unit                            string // currency sign and unit
	approximate, separated, remarks bool
	fraction                        bool // written with a decimal point
}

// readNumeral reads a number with what people write around it.
func readNumeral(s string) (reading, bool) {
	m := numeral.FindStringSubmatch(s)
	if m == nil || m[2] != "" && m[5] != "" {
		return reading{}, false
	}
	digits := strings.NewReplacer(",", "", " ", "").Replace(m[6])
	if len(digits) > 1 && digits[0] == '0' && digits[1] != '.' && digits[1] != 'e' && digits[1] != 'E' {
		return reading{}, false // 007 is a name
	}
	literal, ok := canonical(digits, m[2]+m[5])
	if !ok {
		return reading{}, false
	}
	unit := strings.TrimSpace(m[3] + m[4] + " " + m[7])
	return reading{literal, unit, m[1] != "", len(digits) != len(m[6]), m[8] != "", strings.ContainsRune(digits, '.')}, true
}

// canonical writes digits as the shortest JSON number of the same float64.
// Integers beyond 2^53 are refused: they are names, and would change.
func canonical(digits, sign string) (string, bool) {
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsInf(f, 0) || f > 1<<53 && !strings.ContainsAny(digits, ".eE") {
		return "", false
	}
	if (sign == "-" || sign == "−") && f != 0 {
		f = -f
	}
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	return strconv.FormatFloat(f, format, -1, 64), true
}

// makeNumeric rewrites a column whose values are numbers of one unit.
func makeNumeric(g *grid, c int, column *Column, changes *tally) bool {
	decimalComma := false
	for _, row := range g.rows {
		if strings.ContainsRune(row[c].text, '.') {
			decimalComma = false
			break
		}
		decimalComma = decimalComma || row[c].kind == kindText && commaDecimal.MatchString(row[c].text)
	}
	readings := make([]reading, len(g.rows))
	fits := make([]bool, len(g.rows))
	units := map[string]int{}
	filled, numbers, unit := 0, 0, ""
	for i, row := range g.rows {
		v := row[c]
		switch {
		case v.IsNull(), v.kind == kindText && nullNumbers[strings.ToLower(v.text)]:
			continue
		case v.kind == kindNumber:
			literal, ok := canonical(strings.TrimPrefix(v.text, "-"), v.text[:len(v.text)-len(strings.TrimPrefix(v.text, "-"))])
			readings[i], fits[i] = reading{literal: literal, fraction: strings.ContainsRune(v.text, '.')}, ok
		case v.kind == kindText:
			s := v.text
			if decimalComma {
				s = strings.Replace(s, ",", ".", 1)
			}
			readings[i], fits[i] = readNumeral(s)
		}
		filled++
		if fits[i] {
			u := readings[i].unit
			units[u]++
			if n := units[u]; n > units[unit] || n == units[unit] && u < unit {
				unit = u
			}
			numbers++
		}
	}
	// A unit is one if most values have it; where some have none it is meant.
	for i := range readings {
		if fits[i] && readings[i].unit != unit && readings[i].unit != "" {
			fits[i] = false
			numbers--
		}
	}
	if numbers < 2 || float64(numbers) < typeShare*float64(filled) || numbers < filled && isCode(column.Name) {
		return false
	}
	integral := true
	for i := range readings {
		if fits[i] && (strings.ContainsAny(readings[i].literal, ".e") || math.Abs(number(Value{kindNumber, readings[i].literal})) > 1<<53) {
			integral = false
		}
	}
	for i, row := range g.rows {
		if row[c].IsNull() {
			continue
		}
		if !fits[i] {
			if nullNumbers[strings.ToLower(row[c].text)] {
				changes.add(c, "word for no value made null", 1)
			} else {
				changes.add(c, "not a number of the column's unit, made null", 1)
			}
			row[c] = Value{}
			continue
		}
		r := readings[i]
		for _, is := range []struct {
			so   bool
			what string
		}{
			{r.approximate, "approximation mark removed"},
			{r.separated, "thousands separators removed"},
			{r.remarks, "remark in brackets removed"},
			{r.unit != "", "unit moved from the value to the column"},
			{decimalComma && strings.ContainsRune(row[c].text, ','), "decimal comma written as a point"},
			{integral && r.fraction, "whole number written without fraction"},
		} {
			if is.so {
				changes.add(c, is.what, 1)
			}
		}
		row[c] = Value{kindNumber, r.literal}
	}
	if unit != "" {
		column.Unit = strings.TrimSpace(unit)
	}
	column.Type = episode.ColumnNumber
	if integral {
		column.Type = episode.ColumnInteger
	}
	return true
}

// Layouts of dates to the day and to the month; those with slashes are tried
// in both orders.
var (
	dayLayouts = []string{"2006-1-2", "2006/1/2", "2.1.2006", "January 2, 2006", "Jan 2, 2006", "Jan. 2, 2006",
		"2 January 2006", "2 Jan 2006", "2 Jan. 2006", "2-Jan-2006", "2-Jan-06",
		"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05", "2006-01-02 15:04:05"}
	monthFirst   = []string{"1/2/2006", "1/2/06", "1-2-2006"}
	dayFirst     = []string{"2/1/2006", "2/1/06", "2-1-2006"}
	monthLayouts = []string{"2006-1", "2006/1", "January 2006", "Jan 2006", "Jan-2006"}
)

// makeDate rewrites a column of dates of one precision as ISO 8601.
func makeDate(g *grid, c int, changes *tally) bool {
	for _, precision := range []struct {
		layouts []string
		iso     string
	}{{dayLayouts, "2006-01-02"}, {monthFirst, "2006-01-02"}, {dayFirst, "2006-01-02"}, {monthLayouts, "2006-01"}} {
		dates := make([]string, len(g.rows))
		filled, fit := 0, 0
		for i, row := range g.rows {
			if row[c].IsNull() || nullNumbers[strings.ToLower(row[c].text)] {
				continue
			}
			filled++
			if row[c].kind == kindText {
				dates[i] = readDate(row[c].text, precision.layouts, precision.iso)
			}
			if dates[i] != "" {
				fit++
			}
		}
		if fit < 2 || float64(fit) < typeShare*float64(filled) {
			continue
		}
		ambiguous := &precision.layouts[0] == &monthFirst[0]
		for i, row := range g.rows {
			if ambiguous && dates[i] != "" && readDate(row[c].text, dayFirst, precision.iso) == "" {
				ambiguous = false // a day beyond 12 settles the order
			}
		}
		for i, row := range g.rows {
			switch {
			case row[c].IsNull():
			case dates[i] == "":
				changes.add(c, "not a date, made null", 1)
				row[c] = Value{}
			case dates[i] != row[c].text:
				what := "date rewritten as ISO 8601"
				if ambiguous {
					what = "date of unclear order read month first"
				}
				changes.add(c, what, 1)
				row[c] = Text(dates[i])
			}
		}
		return true
	}
	return false
}

// readDate is the date in ISO 8601, "" if no layout fits or a time of day
// would be lost.
func readDate(s string, layouts []string, iso string) string {
	if len(s) < 6 || len(s) > 25 {
		return ""
	}
	for _, layout := range layouts {
		t, err := time.Parse(layout, s)
		if err == nil && t.Hour() == 0 && t.Minute() == 0 && t.Second() == 0 && t.Year() > 0 {
			return t.Format(iso)
		}
	}
	return ""
}

// knownUnits are what brackets in a column's name must hold to be its unit.
var knownUnits = words("m", "km", "km²", "km2", "m²", "m2", "sq mi", "sq km", "mi", "ft", "in", "cm", "mm", "g", "kg", "t", "lb", "l", "ml",
	"ha", "acres", "°c", "°f", "c", "f", "k", "%", "percent", "$", "us$", "usd", "eur", "€", "gbp", "£", "million", "millions", "thousands",
	"billion", "years", "days", "hours", "minutes", "seconds", "s", "h", "min", "mph", "km/h", "kw", "mw", "hp", "mg", "u", "mhz", "khz")

var bracketed = regexp.MustCompile(`\s*[(\[]([^()\[\]]*)[)\]]`)

// reserved are names that no column may have: those of the parameters that
// tools over any table have, and the key words of the tools' language.
var reserved = words("sort_by", "order", "limit", "offset", "text", "answer", "call", "table", "refuse",
	"and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else", "except", "false", "finally",
	"for", "from", "global", "if", "import", "in", "is", "lambda", "load", "nonlocal", "none", "not", "or", "pass", "raise", "return",
	"true", "try", "while", "with", "yield")

// maxName is the longest column name, in bytes.
const maxName = 32

// nameColumns makes unique identifiers of headers and takes units out of them.
func nameColumns(header []string, changes *tally) []Column {
	columns := make([]Column, len(header))
	taken := map[string]bool{}
	for i, h := range header {
		h = tidy(norm.NFC.String(html.UnescapeString(h)))
		rest := footnote.ReplaceAllString(h, "")
		unit := ""
		for _, m := range bracketed.FindAllStringSubmatch(rest, -1) {
			if u := strings.ToLower(m[1]); knownUnits[u] && unit == "" {
				unit = m[1]
				rest = strings.Replace(rest, m[0], "", 1)
			}
		}
		name := identifier(rest)
		if name == "" {
			name = fmt.Sprintf("column_%d", i+1)
		}
		if reserved[name] {
			name += "_value"
		}
		if taken[name] && identifier(unit) != "" {
			name += "_" + identifier(unit)
		}
		for base, n := name, 2; taken[name]; n++ {
			name = fmt.Sprintf("%s_%d", base, n)
		}
		taken[name] = true
		columns[i] = Column{Name: name, Unit: unit}
		if h != "" && name != h {
			changes.add(i, "column renamed", 1)
		}
		if unit != "" {
			changes.add(i, "unit taken from the column's name", 1)
		}
	}
	return columns
}

// identifierParts are the words of a name in lower-case ASCII.
func identifierParts(s string) []string {
	var b strings.Builder
	lower := false
	for _, r := range norm.NFKD.String(s) {
		switch {
		case r >= 'A' && r <= 'Z':
			if lower {
				b.WriteByte('_')
			}
			lower = false
			b.WriteByte(byte(r) + 'a' - 'A')
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			lower = r >= 'a'
			b.WriteRune(r)
		case unicode.Is(unicode.Mn, r), r == '\'', r == '’':
		default:
			lower = false
			b.WriteByte('_')
		}
	}
	return strings.FieldsFunc(b.String(), func(r rune) bool { return r == '_' })
}

// identifier makes a lower-case ASCII identifier of a name, "" if nothing of
// it can stay.
func identifier(s string) string {
	name := ""
	for _, p := range identifierParts(s) {
		if name != "" && len(name)+1+len(p) > maxName {
			break
		}
		if name != "" {
			name += "_"
		}
		name += p
	}
	name = name[:min(len(name), maxName)]
	if name != "" && name[0] >= '0' && name[0] <= '9' {
		name = "n" + name
	}
	return strings.TrimRight(name, "_")
}
