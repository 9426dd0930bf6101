// A plain rendering of our manual pages for systems without man(1). It knows
// the mdoc macros that the pages use; see mdoc(7).

package cmdline

import (
	"strings"
	"unicode/utf8"
)

const manualWidth = 78

// renderManual turns an mdoc page into text of 78 columns.
func renderManual(page string) string {
	r := manualRenderer{indent: 0}
	for line := range strings.Lines(page) {
		r.line(strings.TrimRight(line, "\n"))
	}
	r.flush()
	return strings.TrimLeft(r.out.String(), "\n")
}

type manualRenderer struct {
	out     strings.Builder
	words   []string // of the paragraph being collected
	indent  int
	name    string // of the page, for .Nm
	literal bool   // within .Bd -literal
	lists   []manualList
	rows    [][]string // of the column list being collected
	blank   bool       // a blank line is due
}

type manualList struct {
	kind    string // tag, bullet, column, ...
	compact bool
	indent  int
}

func (r *manualRenderer) flush() {
	if len(r.words) == 0 {
		return
	}
	if r.blank {
		r.out.WriteString("\n")
		r.blank = false
	}
	pad := strings.Repeat(" ", r.indent)
	column := 0
	for _, word := range r.words {
		width := utf8.RuneCountInString(word)
		switch {
		case column == 0:
			r.out.WriteString(pad + word)
			column = r.indent + width
		case column+1+width > manualWidth:
			r.out.WriteString("\n" + pad + word)
			column = r.indent + width
		default:
			r.out.WriteString(" " + word)
			column += 1 + width
		}
	}
	r.out.WriteString("\n")
	r.words = nil
}

// columns writes the rows collected, each cell as wide as the widest of its
// column.
func (r *manualRenderer) columns() {
	if len(r.rows) == 0 {
		return
	}
	if r.blank {
		r.out.WriteString("\n")
		r.blank = false
	}
	var widths []int
	for _, row := range r.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range r.rows {
		line := strings.Repeat(" ", r.indent)
		for i, cell := range row {
			line += cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
		}
		r.out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	r.rows = nil
}

func (r *manualRenderer) text(s string) { r.words = append(r.words, strings.Fields(s)...) }

func (r *manualRenderer) line(line string) {
	if !strings.HasPrefix(line, ".") {
		if r.literal {
			r.out.WriteString(strings.Repeat(" ", r.indent) + unescape(line) + "\n")
			return
		}
		r.text(unescape(line))
		return
	}
	macro, rest, _ := strings.Cut(strings.TrimPrefix(line, "."), " ")
	arguments := splitArguments(rest)
	switch macro {
	case `\"`, "Dd", "Os", "Bk", "Ek":
	case "Dt":
		if len(arguments) > 1 {
			r.text(arguments[0] + "(" + arguments[1] + ")")
		}
	case "Sh":
		r.flush()
		r.indent, r.blank = 0, true
		r.text(strings.Join(arguments, " "))
		r.flush()
		r.indent = 5
	case "Ss":
		r.flush()
		r.indent, r.blank = 2, true
		r.text(strings.Join(arguments, " "))
		r.flush()
		r.indent = 5
	case "Nm":
		if r.name == "" && len(arguments) > 0 {
			r.name = arguments[0]
		}
		if len(r.lists) == 0 && len(arguments) == 0 && len(r.words) > 0 && r.words[0] == r.name {
			r.flush() // another line of the synopsis
		}
		r.text(r.inline(append([]string{"Nm"}, arguments...)))
	case "Nd":
		r.text("- " + strings.Join(arguments, " "))
	case "Pp":
		r.flush()
		r.blank = true
	case "Bd":
		r.flush()
		r.literal = true
		r.indent += 4
		r.out.WriteString("\n")
	case "Ed":
		r.literal = false
		r.indent = max(0, r.indent-4)
		r.blank = true
	case "Bl":
		r.flush()
		list := manualList{kind: "tag", indent: r.indent}
		for _, argument := range arguments {
			switch argument {
			case "-tag", "-bullet", "-dash", "-enum", "-column", "-item":
				list.kind = argument[1:]
			case "-compact":
				list.compact = true
			}
		}
		r.lists = append(r.lists, list)
	case "It":
		if len(r.lists) == 0 {
			return
		}
		list := r.lists[len(r.lists)-1]
		r.flush()
		r.blank = r.blank || !list.compact
		r.indent = list.indent
		switch list.kind {
		case "bullet", "dash", "enum":
			r.text("-")
			r.indent += 2
		case "column":
			r.rows = append(r.rows, strings.Split(r.inline(arguments), " Ta "))
		default:
			r.text(r.inline(arguments))
			r.flush()
			r.indent += 6
		}
	case "El":
		r.flush()
		r.columns()
		if n := len(r.lists); n > 0 {
			r.indent = r.lists[n-1].indent
			r.lists = r.lists[:n-1]
		}
		r.blank = true
	case "Rs", "Re":
	case "%T", "%A", "%U", "%D", "%B", "%J":
		r.text(strings.Join(arguments, " "))
	case "Ex":
		r.text("exits 0 on success, and above 0 if an error occurs.")
	default:
		r.text(r.inline(append([]string{macro}, arguments...)))
	}
}

// enclosures are the macros that put something around their arguments.
var enclosures = map[string][2]string{
	"Op": {"[", "]"}, "Pq": {"(", ")"}, "Bq": {"[", "]"}, "Brq": {"{", "}"}, "Aq": {"<", ">"},
	"Dq": {"\"", "\""}, "Qq": {"\"", "\""}, "Sq": {"'", "'"}, "Ql": {"'", "'"},
}

// inline renders the words of a macro line, macros among them, with blanks
// where mdoc puts them.
func (r *manualRenderer) inline(words []string) string {
	var b strings.Builder
	join := true // no blank before the next word
	add := func(s string) {
		if !join {
			b.WriteByte(' ')
		}
		b.WriteString(s)
		join = false
	}
	dash, closing := false, ""
	for i, word := range words {
		if pair, ok := enclosures[word]; ok {
			add(pair[0])
			join = true
			closing = pair[1] + closing
			continue
		}
		switch word {
		case "Fl":
			dash = true
			if i+1 < len(words) && words[i+1] == "Fl" || i+1 == len(words) {
				add("-")
				dash = false
			}
			continue
		case "Ar":
			dash = false
			if i+1 == len(words) {
				add("file ...")
			}
			continue
		case "Nm":
			dash = false
			if i+1 == len(words) || isPunctuation(words[i+1]) {
				add(r.name)
			}
			continue
		case "Xr":
			dash = false
			continue
		case "Ev", "Pa", "Em", "Sy", "Cm", "Va", "Li", "Ic", "No", "Sx", "Dv", "Er", "Fn", "Fa", "Vt", "In", "Lk", "Mt", "An":
			dash = false
			continue
		case "Ns", "Ap":
			dash = false
			join = true
			if word == "Ap" {
				b.WriteByte('\'')
			}
			continue
		case "Ta":
			dash = false
			add("Ta")
			continue
		}
		switch {
		case isPunctuation(word):
			if i == len(words)-1 || allPunctuation(words[i:]) {
				b.WriteString(closing)
				closing = ""
			}
			if word == "|" {
				add(word)
				continue
			}
			join = true
			add(unescape(word))
			continue
		case word == "(" || word == "[":
			add(word)
			join = true
			continue
		}
		text := unescape(word)
		if dash {
			text = "-" + text
			dash = false
		}
		if i >= 2 && words[i-2] == "Xr" {
			b.WriteString("(" + text + ")")
			continue
		}
		add(text)
	}
	b.WriteString(closing)
	return b.String()
}

func isPunctuation(word string) bool {
	switch word {
	case ".", ",", ":", ";", ")", "]", "?", "!", "|":
		return true
	}
	return false
}

func allPunctuation(words []string) bool {
	for _, word := range words {
		if !isPunctuation(word) {
			return false
		}
	}
	return true
}

// splitArguments splits the arguments of a macro; quotes hold blanks together.
func splitArguments(text string) []string {
	var words []string
	for text = strings.TrimLeft(text, " "); text != ""; text = strings.TrimLeft(text, " ") {
		if text[0] == '"' {
			word, rest, _ := strings.Cut(text[1:], "\"")
			words, text = append(words, word), rest
			continue
		}
		word, rest, _ := strings.Cut(text, " ")
		words, text = append(words, word), rest
	}
	return words
}

var escapes = strings.NewReplacer(`\e`, `\`, `\&`, "", `\-`, "-", `\(em`, "-", `\(en`, "-", `\(aq`, "'", `\(dq`, `"`, `\ `, " ")

func unescape(text string) string { return escapes.Replace(text) }
