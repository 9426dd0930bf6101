package designer

// The relational operations that tasks are made of. Each operation draws a
// question whose answer is unique, and writes it three times: in English, as
// calls of the tools, and as a loop over raw rows. The three share no code
// below this file.
//
// A draw is refused where the answer could be read in more than one way: ties
// and near ties, missing values, names that stand for two rows; and where it
// would be no test of the tools: an answer that stands in the query, that is
// the most frequent value of its column, or that one call alone would show.

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// Operation is the skeleton of a task.
type Operation string

// The operations, with their levels in levels.
const (
	Lookup    Operation = "lookup"     // a column of a named row
	Count     Operation = "count"      // how many rows meet a condition
	Argmax    Operation = "argmax"     // the row with the highest or lowest value
	SearchGet Operation = "search-get" // a column of the row whose key contains a text
	ArgmaxGet Operation = "argmax-get" // a column of the row with the highest or lowest value
	Compare   Operation = "compare"    // a column of that of two rows with the higher or lower value
	Join      Operation = "join"       // a column of the row that a named row leads to
)

var levels = map[Operation]int{
	Lookup: 1, Count: 1, Argmax: 1,
	SearchGet: 2, ArgmaxGet: 2,
	Compare: 3, Join: 3,
}

// mix holds each operation as often as it is wanted among the tasks of an
// environment.
var mix = []Operation{Lookup, Lookup, Count, SearchGet, Argmax, ArgmaxGet, Compare, Join}

// Operations returns the operations of the given levels that the database has
// the tables and columns for, each as often as it is wanted, in an order drawn
// from r.
func (d *Database) Operations(r *Random, wanted []int) []Operation {
	var out []Operation
	for _, op := range mix {
		if slices.Contains(wanted, levels[op]) && (op != Join || d.hasJoin()) {
			out = append(out, op)
		}
	}
	shuffle(r, out)
	return out
}

func (d *Database) hasJoin() bool {
	return slices.ContainsFunc(d.tables, func(t *table) bool { return len(t.Joins) > 0 })
}

// Proposal is a task as the designer means it, before anything has run.
type Proposal struct {
	Operation Operation
	Level     int
	Query     string
	Solution  string // Starlark: solve() returns the submission
	Verifier  string // Starlark: verify(answer)
	Answer    string // what the designer expects to be submitted

	between []string // texts that only a reply should show, such as the key that a search finds
}

// Propose draws a task of an operation. It reports false where the draw must
// be refused; another draw may be accepted.
func (d *Database) Propose(r *Random, op Operation) (Proposal, bool) {
	p, ok := draw{d, r}.propose(op)
	p.Operation, p.Level = op, levels[op]
	if !ok || Mentions(p.Query, p.Answer) || d.guessed(p) {
		return p, false
	}
	return p, !slices.ContainsFunc(p.between, func(s string) bool { return Mentions(p.Query, s) })
}

// guessed says whether an answer is the most frequent value of a column that
// the query names.
func (d *Database) guessed(p Proposal) bool {
	for _, t := range d.tables {
		for _, c := range t.Columns {
			if t.modes[c.Name][fold(p.Answer)] && Mentions(p.Query, spaced(c.Name)) {
				return true
			}
		}
	}
	return false
}

// Mentions says whether an answer stands in a text, as a whole word or words,
// whatever the case.
func Mentions(text, answer string) bool {
	text, answer = fold(text), fold(answer)
	for start := 0; answer != ""; {
		i := strings.Index(text[start:], answer)
		if i < 0 {
			return false
		}
		before, _ := utf8.DecodeLastRuneInString(text[:start+i])
		after, _ := utf8.DecodeRuneInString(text[start+i+len(answer):])
		if !wordRune(before) && !wordRune(after) {
			return true
		}
		start += i + 1
	}
	return false
}

func wordRune(c rune) bool {
	return c != utf8.RuneError && (unicode.IsLetter(c) || unicode.IsDigit(c))
}

type draw struct {
	*Database
	r *Random
}

func (d draw) propose(op Operation) (Proposal, bool) {
	switch op {
	case Lookup:
		return d.lookup()
	case Count:
		return d.count()
	case SearchGet:
		return d.searchGet()
	case Argmax:
		return d.argmax(false)
	case ArgmaxGet:
		return d.argmax(true)
	case Compare:
		return d.compare()
	case Join:
		return d.join()
	}
	panic("no operation " + string(op))
}

// say fills one of several phrasings; {x} stands for the word of x.
func (d draw) say(words map[string]string, phrasings ...string) string {
	var pairs []string
	for name, text := range words {
		pairs = append(pairs, "{"+name+"}", text)
	}
	return strings.NewReplacer(pairs...).Replace(pick(d.r, phrasings))
}

// row draws a row that its key names beyond doubt.
func (d draw) row(t *table) (row, bool) {
	if len(t.rows) == 0 {
		return nil, false
	}
	r := pick(d.r, t.rows)
	key := r[t.Key].(string)
	return r, quotable(key) && t.keys[fold(key)] == 1
}

// answerColumn draws a column whose value in r can be asked for: it is there,
// hard to guess, and equal to none of the texts that the asker or an earlier
// reply shows. Columns in except are left out.
func (d draw) answerColumn(t *table, r row, shown []string, except ...string) (episode.Column, bool) {
	var fit []episode.Column
	for _, c := range t.Columns {
		// A category of three values is guessed too easily.
		if c.Type == episode.ColumnKey || c.Type == episode.ColumnBoolean ||
			c.Type == episode.ColumnCategory && c.Distinct < 4 || slices.Contains(except, c.Name) {
			continue
		}
		if t.askable(r, c.Name) && !shows(shown, textOf(r[c.Name])) {
			fit = append(fit, c)
		}
	}
	if len(fit) == 0 {
		return episode.Column{}, false
	}
	return pick(d.r, fit), true
}

// askable says whether the value of a column of r is there and not what
// somebody who knows the column would guess.
func (t *table) askable(r row, column string) bool {
	v := r[column]
	if v == nil {
		return false
	}
	text := fold(textOf(v))
	return text != "" && !t.modes[column][text] && !guesses[text]
}

// guesses are answers that are tried without looking.
var guesses = map[string]bool{"0": true, "1": true, "yes": true, "no": true, "true": true, "false": true, "none": true, "unknown": true}

func shows(texts []string, answer string) bool {
	return slices.ContainsFunc(texts, func(s string) bool { return fold(s) == fold(answer) })
}

// expecting writes the verifier of a task whose answer is a value of column c.
func expecting(c episode.Column, lines ...string) string {
	return verifier(c.Type == episode.ColumnInteger, c.Type == episode.ColumnNumber, lines...)
}

// only is the verifier's way from a list of rows to its only element.
func only(rows string) string {
	return fmt.Sprintf("if len(%[1]s) != 1:\n        fail(\"%%d rows match\" %% len(%[1]s))", rows)
}

// rowsWhere is the verifier's loop that gathers the rows meeting a condition.
func rowsWhere(variable string, t *table, condition string) string {
	return fmt.Sprintf("%[1]s = []\n    for row in table(%[2]s):\n        if %[3]s:\n            %[1]s.append(row)", variable, quote(t.Path), condition)
}

func field(variable, column string) string { return variable + "[" + quote(column) + "]" }

func (d draw) lookup() (Proposal, bool) {
	t := pick(d.r, d.tables)
	r, ok := d.row(t)
	if !ok {
		return Proposal{}, false
	}
	key := r[t.Key].(string)
	c, ok := d.answerColumn(t, r, []string{key})
	if !ok {
		return Proposal{}, false
	}
	phrasings := []string{`What is the {c} of the {n} "{k}"?`, `Tell me the {c} of {n} "{k}".`}
	if d.columnIsUnique(c.Name) {
		phrasings = append(phrasings, `Give the {c} for "{k}".`)
	}
	return Proposal{
		Query:    d.say(map[string]string{"c": spaced(c.Name), "n": spaced(t.Noun), "k": key}, phrasings...),
		Solution: solution("found = " + field(callExpression("get_"+t.Noun, [2]string{t.Key, quote(key)}), c.Name)),
		Verifier: expecting(c, rowsWhere("rows", t, field("row", t.Key)+" == "+quote(key)), only("rows"), "expected = "+field("rows[0]", c.Name)),
		Answer:   textOf(r[c.Name]),
	}, true
}

// columnIsUnique says whether only one table has a column of that name.
func (d draw) columnIsUnique(name string) bool {
	n := 0
	for _, t := range d.tables {
		if t.Column(name) != nil {
			n++
		}
	}
	return n == 1
}

// condition is an equality of a column with a value.
type condition struct {
	column episode.Column
	value  any
}

// condition draws a condition that at least two rows meet.
func (d draw) condition(t *table) (condition, []row, bool) {
	columns := t.columnsThat(func(c episode.Column) bool {
		return c.Type == episode.ColumnCategory || c.Type == episode.ColumnBoolean
	})
	if len(columns) == 0 || len(t.rows) == 0 {
		return condition{}, nil, false
	}
	w := condition{column: pick(d.r, columns)}
	w.value = pick(d.r, t.rows)[w.column.Name]
	s, isText := w.value.(string)
	if w.value == nil || isText && !quotable(s) {
		return condition{}, nil, false
	}
	var meet []row
	for _, r := range t.rows {
		v, ok := r[w.column.Name].(string)
		if r[w.column.Name] == w.value {
			meet = append(meet, r)
		} else if ok && isText && fold(v) == fold(s) {
			return condition{}, nil, false // two spellings of one value
		}
	}
	return w, meet, len(meet) >= 2
}

// words is the condition in a query.
func (w condition) words() string {
	if s, ok := w.value.(string); ok {
		return spaced(w.column.Name) + ` "` + s + `"`
	}
	return spaced(w.column.Name) + " " + textOf(w.value)
}

func (w condition) argument() [2]string {
	return [2]string{filterName(w.column.Name), literal(w.value)}
}

func (w condition) test() string { return field("row", w.column.Name) + " == " + literal(w.value) }

func (d draw) count() (Proposal, bool) {
	t := pick(d.r, d.tables)
	w, meet, ok := d.condition(t)
	if !ok {
		return Proposal{}, false
	}
	return Proposal{
		Query:    d.say(map[string]string{"n": spaced(t.Noun), "w": w.words()}, `How many {n} entries have {w}?`, `Count the {n} entries with {w}.`),
		Solution: solution("found = " + callExpression("count_"+t.Noun, w.argument())),
		Verifier: verifier(true, false, "expected = 0", fmt.Sprintf("for row in table(%s):\n        if %s:\n            expected += 1", quote(t.Path), w.test())),
		Answer:   fmt.Sprint(len(meet)),
	}, true
}

func (d draw) searchGet() (Proposal, bool) {
	t := pick(d.r, d.tables)
	r, ok := d.row(t)
	if !ok {
		return Proposal{}, false
	}
	key := r[t.Key].(string)
	var words []string
	for _, w := range strings.Fields(key) {
		w = strings.TrimFunc(w, func(c rune) bool { return !wordRune(c) })
		if utf8.RuneCountInString(w) >= 3 {
			words = append(words, w)
		}
	}
	if len(words) == 0 {
		return Proposal{}, false
	}
	text := pick(d.r, words)
	if text == key {
		letters := []rune(text)
		text = string(letters[:max(3, len(letters)-2)])
	}
	matches := 0
	for _, other := range t.rows {
		if strings.Contains(strings.ToLower(other[t.Key].(string)), strings.ToLower(text)) {
			matches++
		}
	}
	// A text that is itself a key would need no search.
	if matches != 1 || t.keys[fold(text)] > 0 {
		return Proposal{}, false
	}
	c, ok := d.answerColumn(t, r, []string{key, text})
	if !ok {
		return Proposal{}, false
	}
	return Proposal{
		Query: d.say(map[string]string{"c": spaced(c.Name), "n": spaced(t.Noun), "k": spaced(t.Key), "w": text},
			`Find the {n} whose {k} contains "{w}" and give its {c}.`, `What is the {c} of the {n} with "{w}" in its {k}?`),
		Solution: solution(
			"keys = "+callExpression("search_"+t.Noun, [2]string{"text", quote(text)}),
			"found = "+field(callExpression("get_"+t.Noun, [2]string{t.Key, "keys[0]"}), c.Name)),
		Verifier: expecting(c,
			rowsWhere("rows", t, field("row", t.Key)+".lower().find("+quote(text)+".lower()) >= 0"),
			only("rows"), "expected = "+field("rows[0]", c.Name)),
		Answer: textOf(r[c.Name]), between: []string{key},
	}, true
}

// measure is a column that rows are ordered by, and the direction asked for.
type measure struct {
	column  episode.Column
	highest bool
}

func (d draw) measure(t *table) (measure, bool) {
	columns := t.columnsThat(isOrdered)
	if len(columns) == 0 {
		return measure{}, false
	}
	return measure{pick(d.r, columns), d.r.chance(0.5)}, true
}

// less orders two values of the measure; near says that they are too near to
// each other to ask which is greater.
func (m measure) less(a, b any) (less, near bool) {
	if x, ok := number(a); ok {
		y, _ := number(b)
		gap := math.Abs(x - y)
		return x < y, gap == 0 || m.column.Type == episode.ColumnNumber && gap <= 1e-5*max(math.Abs(x), math.Abs(y))
	}
	x, y := a.(string), b.(string)
	// A date that begins another may be the same day.
	return x < y, strings.HasPrefix(x, y) || strings.HasPrefix(y, x)
}

// beats says whether a is further in the direction asked for than b.
func (m measure) beats(a, b any) (beats, near bool) {
	less, near := m.less(a, b)
	return less != m.highest, near
}

func (m measure) words(superlative bool) string {
	words := [2][2]string{{"lower", "lowest"}, {"higher", "highest"}}
	if m.column.Type == episode.ColumnDate {
		words = [2][2]string{{"earlier", "earliest"}, {"later", "latest"}}
	}
	i, j := 0, 0
	if m.highest {
		i = 1
	}
	if superlative {
		j = 1
	}
	return words[i][j]
}

// order is the argument of the list tool.
func (m measure) order() string {
	if m.highest {
		return "desc"
	}
	return "asc"
}

// comparison is the verifier's test that a is further than b.
func (m measure) comparison(a, b string) string {
	if m.highest {
		return a + " > " + b
	}
	return a + " < " + b
}

func (d draw) argmax(get bool) (Proposal, bool) {
	t := pick(d.r, d.tables)
	m, ok := d.measure(t)
	if !ok {
		return Proposal{}, false
	}
	rows, phrase, test := t.rows, "", field("row", m.column.Name)+" != None"
	var arguments [][2]string
	except := []string{m.column.Name}
	var shown []string
	if d.r.chance(0.7) {
		w, meet, ok := d.condition(t)
		if ok {
			rows, phrase = meet, " with "+w.words()
			test += " and " + w.test()
			arguments = append(arguments, w.argument())
			except = append(except, w.column.Name)
			shown = append(shown, textOf(w.value))
		}
	}
	var best row
	tied, present := false, 0
	for _, r := range rows {
		if r[m.column.Name] == nil {
			continue
		}
		present++
		if best == nil {
			best = r
			continue
		}
		beats, near := m.beats(r[m.column.Name], best[m.column.Name])
		switch {
		case near:
			tied = true
			if beats {
				best = r
			}
		case beats:
			best, tied = r, false
		}
	}
	if present < 2 || tied {
		return Proposal{}, false
	}
	key := best[t.Key].(string)
	if t.keys[fold(key)] != 1 || !quotable(key) {
		return Proposal{}, false
	}
	arguments = append(arguments, [2]string{"sort_by", quote(m.column.Name)}, [2]string{"order", quote(m.order())}, [2]string{"limit", "1"})
	first := callExpression("list_"+t.Noun, arguments...) + "[0]"
	value, further := field("row", m.column.Name), field("best[0]", m.column.Name)
	naive := []string{
		fmt.Sprintf("best = []\n    for row in table(%s):\n        if %s:\n            if not best or %s:\n                best = [row]\n            elif %s == %s:\n                best.append(row)",
			quote(t.Path), test, m.comparison(value, further), value, further),
		only("best"),
	}
	words := map[string]string{"n": spaced(t.Noun), "w": phrase, "h": m.words(true), "m": spaced(m.column.Name)}
	if !get {
		if shows(shown, key) {
			return Proposal{}, false
		}
		return Proposal{
			Query:    d.say(words, `Which {n}{w} has the {h} {m}?`, `Name the {n}{w} with the {h} {m}.`),
			Solution: solution("found = " + first),
			Verifier: verifier(false, false, append(naive, "expected = "+field("best[0]", t.Key))...),
			Answer:   key,
		}, true
	}
	c, ok := d.answerColumn(t, best, append(shown, key), except...)
	if !ok {
		return Proposal{}, false
	}
	words["c"] = spaced(c.Name)
	return Proposal{
		Query:    d.say(words, `What is the {c} of the {n}{w} that has the {h} {m}?`, `Take the {n}{w} with the {h} {m}. Give its {c}.`),
		Solution: solution("key = "+first, "found = "+field(callExpression("get_"+t.Noun, [2]string{t.Key, "key"}), c.Name)),
		Verifier: expecting(c, append(naive, "expected = "+field("best[0]", c.Name))...),
		Answer:   textOf(best[c.Name]),
		between:  []string{key},
	}, true
}

func (d draw) compare() (Proposal, bool) {
	t := pick(d.r, d.tables)
	m, ok := d.measure(t)
	if !ok {
		return Proposal{}, false
	}
	a, okA := d.row(t)
	b, okB := d.row(t)
	if !okA || !okB || a[m.column.Name] == nil || b[m.column.Name] == nil {
		return Proposal{}, false
	}
	aBeats, near := m.beats(a[m.column.Name], b[m.column.Name])
	if near {
		return Proposal{}, false
	}
	winner, loser := b, a
	if aBeats {
		winner, loser = a, b
	}
	keyA, keyB := a[t.Key].(string), b[t.Key].(string)
	shown := []string{keyA, keyB}
	for _, c := range t.Columns { // either reply alone must leave the answer open
		if loser[c.Name] != nil {
			shown = append(shown, textOf(loser[c.Name]))
		}
	}
	c, ok := d.answerColumn(t, winner, shown, m.column.Name)
	if !ok {
		return Proposal{}, false
	}
	get := func(key string) string { return callExpression("get_"+t.Noun, [2]string{t.Key, quote(key)}) }
	valueA, valueB := field("a", m.column.Name), field("b", m.column.Name)
	return Proposal{
		Query: d.say(map[string]string{"n": spaced(t.Noun), "h": m.words(false), "m": spaced(m.column.Name), "a": keyA, "b": keyB, "c": spaced(c.Name)},
			`Which {n} has the {h} {m}, "{a}" or "{b}"? Give its {c}.`, `What is the {c} of the {n} that has the {h} {m}, "{a}" or "{b}"?`),
		Solution: solution("a = "+get(keyA), "b = "+get(keyB),
			"found = (a if "+m.comparison(valueA, valueB)+" else b)["+quote(c.Name)+"]"),
		Verifier: expecting(c,
			rowsWhere("rows", t, field("row", t.Key)+" in ["+quote(keyA)+", "+quote(keyB)+"]"),
			"if len(rows) != 2 or "+field("rows[0]", m.column.Name)+" == "+field("rows[1]", m.column.Name)+":\n        fail(\"%d rows to compare, or a tie\" % len(rows))",
			fmt.Sprintf("expected = rows[0 if %s else 1][%s]", m.comparison(field("rows[0]", m.column.Name), field("rows[1]", m.column.Name)), quote(c.Name))),
		Answer: textOf(winner[c.Name]),
	}, true
}

func (d draw) join() (Proposal, bool) {
	t := pick(d.r, d.tables)
	if len(t.Joins) == 0 {
		return Proposal{}, false
	}
	link := pick(d.r, t.Joins)
	to := d.table(link.Table)
	r, ok := d.row(t)
	target, isText := r[link.Column].(string)
	if !ok || !isText || to.keys[fold(target)] != 1 {
		return Proposal{}, false
	}
	i := slices.IndexFunc(to.rows, func(o row) bool { return o[to.Key] == target })
	if i < 0 {
		return Proposal{}, false
	}
	key := r[t.Key].(string)
	shown := []string{key}
	for _, c := range t.Columns { // the first reply must not hold the answer
		if r[c.Name] != nil {
			shown = append(shown, textOf(r[c.Name]))
		}
	}
	c, ok := d.answerColumn(to, to.rows[i], shown)
	if !ok {
		return Proposal{}, false
	}
	phrasings := []string{`What is the {c} of the {m} that is the {l} of {n} "{k}"?`, `Take the {l} of {n} "{k}" and give the {c} of that {m}.`}
	if link.Column == to.Noun {
		phrasings = []string{`What is the {c} of the {l} of {n} "{k}"?`, `Take the {l} of {n} "{k}" and give its {c}.`}
	}
	return Proposal{
		Query: d.say(map[string]string{"c": spaced(c.Name), "m": spaced(to.Noun), "l": spaced(link.Column), "n": spaced(t.Noun), "k": key}, phrasings...),
		Solution: solution(
			"key = "+field(callExpression("get_"+t.Noun, [2]string{t.Key, quote(key)}), link.Column),
			"found = "+field(callExpression("get_"+to.Noun, [2]string{to.Key, "key"}), c.Name)),
		Verifier: expecting(c,
			rowsWhere("rows", t, field("row", t.Key)+" == "+quote(key)), only("rows"),
			rowsWhere("others", to, field("row", to.Key)+" == "+field("rows[0]", link.Column)), only("others"),
			"expected = "+field("others[0]", c.Name)),
		Answer: textOf(to.rows[i][c.Name]), between: []string{target},
	}, true
}
