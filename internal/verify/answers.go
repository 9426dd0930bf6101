package verify

// Wrong answers that a verifier must reject, guesses that must not be right,
// and when two answers are the same.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/designer"
	"github.com/odyssey-rl/odyssey/internal/episode"
)

// column holds one column of a table.
type column struct {
	name   string
	values []answer // of each row, "" where it has none
}

// readCells reads the columns of the tables, in an order that depends on
// nothing but their content.
func readCells(e *episode.Environment) []column {
	var out []column
	for _, f := range e.Files {
		if !strings.HasSuffix(f.Path, ".json") {
			continue
		}
		var rows []map[string]any
		dec := json.NewDecoder(strings.NewReader(f.Content))
		dec.UseNumber()
		if dec.Decode(&rows) != nil {
			continue // not a table
		}
		names := map[string]bool{}
		for _, r := range rows {
			for name := range r {
				names[name] = true
			}
		}
		sorted := make([]string, 0, len(names))
		for name := range names {
			sorted = append(sorted, name)
		}
		slices.Sort(sorted)
		for _, name := range sorted {
			c := column{name: name, values: make([]answer, len(rows))}
			for i, r := range rows {
				c.values[i] = readAnswer(textOf(r[name]))
			}
			out = append(out, c)
		}
	}
	return out
}

func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// Bounds on the near misses taken from the data.
const (
	nearRows    = 6  // other rows' values of the answer's column
	nearColumns = 12 // values beside the answer
)

// wrongAnswers makes submissions that the verifier must reject: empty ones,
// such of another type, the answer with a letter or digit off, numbers off by
// one and by a unit, awkward texts, values of neighbouring rows and columns, and
// the answers of the other tasks.
func (t *trial) wrongAnswers() []string {
	var out []string
	seen := map[string]bool{}
	add := func(answer map[string]any) {
		text := encode(answer)
		if !seen[text] && !t.sameAnswer(answer) {
			seen[text] = true
			out = append(out, text)
		}
	}
	with := func(name string, v any) {
		changed := map[string]any{}
		for k, old := range t.answer {
			changed[k] = old
		}
		changed[name] = v
		add(changed)
	}
	add(map[string]any{})
	names := make([]string, 0, len(t.answer))
	for name := range t.answer {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range []any{"", " ", nil, true, 5, []any{t.answer[name]}, map[string]any{"value": t.answer[name]}} {
			with(name, v)
		}
		text, ok := t.answer[name].(string)
		if !ok {
			continue
		}
		for _, v := range t.nearMisses(text) {
			with(name, v)
		}
	}
	for i := range t.environment.Tasks {
		var sibling map[string]any
		if other := &t.environment.Tasks[i]; other != t.task && json.Unmarshal([]byte(other.Solution.Answer), &sibling) == nil && sibling != nil {
			add(sibling)
		}
	}
	return out
}

func encode(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // made of decoded JSON
	}
	return strings.TrimSpace(b.String())
}

// awkward are texts that careless code raises on: numbers that are nearly none
// and digits of other scripts.
var awkward = []string{"+", "-", ".", "e5", "1e", "0x10", "1_000", "1,000", "007", "1e99", "-1e-99", "٣", "½", "inf", "nan", strings.Repeat("9", 400)}

func (t *trial) nearMisses(text string) []string {
	letters := []rune(text)
	out := []string{text + "x", "x" + text, text + " " + text, "about " + text, "\"" + text + "\""}
	out = append(out, awkward...)
	if len(letters) > 1 {
		out = append(out, string(letters[1:]), string(letters[:len(letters)-1]))
	}
	if x, _, ok := number(text); ok {
		for _, y := range []float64{x + 1, x - 1, -x, x * 10, x / 10, x * 1000, x / 1000, x * 1.01, x + 0.5} {
			out = append(out, strconv.FormatFloat(y, 'f', -1, 64))
		}
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			out = append(out, fmt.Sprint(n+1), fmt.Sprint(n-1))
		}
		out = append(out, text+" m", text+"%")
	}
	given := readAnswer(text)
	rows, columns := 0, 0
	for _, c := range t.cells {
		at := slices.IndexFunc(c.values, given.same)
		if at < 0 {
			continue
		}
		for k := 1; k < len(c.values) && rows < nearRows; k++ { // the row after it, the row before it, and so on
			i := at + (k+1)/2
			if k%2 == 0 {
				i = at - k/2
			}
			v := c.values[(i+len(c.values))%len(c.values)]
			if v.text != "" && !given.same(v) {
				out = append(out, v.text)
				rows++
			}
		}
		for _, other := range t.cells {
			if len(other.values) != len(c.values) || columns >= nearColumns {
				continue
			}
			if v := other.values[at]; v.text != "" && !given.same(v) {
				out = append(out, v.text)
				columns++
			}
		}
	}
	return out
}

// sameAnswer says whether a submission is the recorded one, read generously:
// a wrong answer must be wrong beyond doubt.
func (t *trial) sameAnswer(other map[string]any) bool {
	if len(other) != len(t.answer) {
		return false
	}
	for name, v := range t.answer {
		w, ok := other[name]
		if !ok {
			return false
		}
		a, isText := v.(string)
		b, alsoText := w.(string)
		if isText && alsoText {
			if !sameText(a, b) {
				return false
			}
		} else if encode(v) != encode(w) {
			return false
		}
	}
	return true
}

// answer is a text with the two readings by which answers are compared.
type answer struct {
	text     string
	normal   string // no case, single blanks
	number   float64
	isNumber bool
	whole    bool // digits and a sign only
}

func readAnswer(text string) answer {
	a := answer{text: text, normal: normal(text)}
	a.number, a.whole, a.isNumber = number(a.normal)
	return a
}

// same compares two answers: numbers by value, within a hundred-thousandth
// where either has a fraction; other texts by their normal form.
func (a answer) same(b answer) bool {
	if a.isNumber && b.isNumber {
		if a.whole && b.whole {
			return a.number == b.number
		}
		return math.Abs(a.number-b.number) <= 1e-5*max(math.Abs(a.number), math.Abs(b.number))
	}
	return a.normal == b.normal
}

func sameText(a, b string) bool { return readAnswer(a).same(readAnswer(b)) }

// normal is the form in which texts are compared.
func normal(s string) string { return strings.Join(strings.Fields(strings.ToLower(s)), " ") }

// number reads a decimal number, whole if it is but digits and a sign.
func number(s string) (x float64, whole, ok bool) {
	if s == "" || len(s) > 40 {
		return 0, false, false
	}
	whole = true
	for i, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9':
		case (c == '-' || c == '+') && i == 0:
		case c == '.' || c == 'e' || c == '-' || c == '+':
			whole = false
		default:
			return 0, false, false
		}
	}
	x, err := strconv.ParseFloat(s, 64)
	return x, whole, err == nil
}

// sameJSON compares two JSON texts by value, numbers by their text.
func sameJSON(a, b string) bool {
	x, errX := decodeJSON(a)
	y, errY := decodeJSON(b)
	return errX == nil && errY == nil && encode(x) == encode(y)
}

func decodeJSON(text string) (any, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}

// holds says whether a reply holds an answer, as one of its values.
func holds(reply, answerText string) bool {
	v, err := decodeJSON(reply)
	if err != nil {
		return false
	}
	var search func(any) bool
	wanted := readAnswer(answerText)
	search = func(v any) bool {
		switch v := v.(type) {
		case map[string]any:
			for _, item := range v {
				if search(item) {
					return true
				}
			}
			return false
		case []any:
			return slices.ContainsFunc(v, search)
		}
		text := textOf(v)
		return text != "" && wanted.same(readAnswer(text))
	}
	return search(v)
}

// quoted finds the values that a query quotes.
var quoted = regexp.MustCompile(`"([^"]*)"`)

// plainGuesses are tried whatever the question.
var plainGuesses = []string{"0", "1", "yes", "no", "true", "false", "none", "unknown"}

// guesses are the submissions of one who has no tools: the values that the
// query quotes, the plain guesses, and for each column that the query names
// its most frequent value, if that stands on more than one row in twenty.
func (t *trial) guesses() []string {
	var texts []string
	for _, m := range quoted.FindAllStringSubmatch(t.task.Query, -1) {
		texts = append(texts, m[1])
	}
	texts = append(texts, t.task.Query)
	texts = append(texts, plainGuesses...)
	for _, c := range t.cells {
		if !designer.Mentions(t.task.Query, strings.ReplaceAll(c.name, "_", " ")) {
			continue
		}
		count := map[string]int{}
		most := 0
		for _, v := range c.values {
			if v.text != "" {
				count[v.normal]++
				most = max(most, count[v.normal])
			}
		}
		if most < 2 || most*20 <= len(c.values) {
			continue
		}
		var modes []string
		for s, n := range count {
			if n == most {
				modes = append(modes, s)
			}
		}
		slices.Sort(modes)
		texts = append(texts, modes...)
	}
	var out []string
	seen := map[string]bool{}
	for _, s := range texts {
		if seen[s] {
			continue
		}
		seen[s] = true
		for name, v := range t.answer { // one text is what is asked for
			if _, isText := v.(string); isText && len(t.answer) == 1 {
				out = append(out, encode(map[string]any{name: s}))
			}
		}
	}
	return out
}
