// Command _generate makes the tables in the binary (../builtin) from the raw
// files that SOURCES.md names: columns picked and renamed, text folded to
// ASCII, numbers scaled to whole units of at most five digits, rows that do
// not fit dropped, long tables sampled. It counts every change. The same raw
// files give the same bytes.
//
//	go run ./internal/seed/_generate -raw DIR
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"log"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/unicode/norm"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/seed"
)

const (
	keyLength  = 28 // characters
	textLength = 24
	maxInteger = 99999
)

// record is a row of a raw file by column name.
type record map[string]string

// value reads one cell from a record; changes names what it did, and false
// with a reason drops the row.
type value func(record) (cell string, changes []string, drop string)

type column struct {
	name, kind, unit string
	read             value
}

type table struct {
	noun, raw                       string
	domain, subdomain, topic, split string
	most                            int // rows kept; 0 for all
	prepare                         func([]record) []record
	prepared                        string // what prepare did, for the cleaning counts; counted in rows that are gone or made
	columns                         []column
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("_generate: ")
	raw := flag.String("raw", "../shared/data/tables", "folder of the raw files")
	out := flag.String("out", "", "folder to write; beside this program by default")
	flag.Parse()
	if *out == "" {
		for _, dir := range []string{"builtin", "internal/seed/builtin"} {
			if s, err := os.Stat(dir); err == nil && s.IsDir() {
				*out = dir
			}
		}
		if *out == "" {
			log.Fatal("no folder builtin here: run it in the root of the repository or set -out")
		}
	}
	if err := generate(*raw, *out); err != nil {
		log.Fatal(err)
	}
}

func generate(raw, out string) error {
	var catalogue seed.Catalogue
	var rowCounts []int
	for _, t := range tables {
		entry, rows, err := build(raw, t)
		if err != nil {
			return fmt.Errorf("%s: %w", t.noun, err)
		}
		catalogue.Tables = append(catalogue.Tables, entry)
		rowCounts = append(rowCounts, len(rows))
		var b bytes.Buffer
		b.WriteString("[\n")
		for i, row := range rows {
			line, err := marshal(row, "")
			if err != nil {
				return err
			}
			b.Write(line)
			if i < len(rows)-1 {
				b.WriteByte(',')
			}
			b.WriteByte('\n')
		}
		b.WriteString("]\n")
		if err := os.WriteFile(filepath.Join(out, t.noun+".json"), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	catalogue.Joins = joins
	b, err := marshal(catalogue, " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "tables.json"), append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "SOURCES.md"), sources(catalogue, rowCounts), 0o644)
}

func marshal(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// build cleans one table.
func build(dir string, t table) (seed.CatalogueTable, [][]any, error) {
	origin, ok := origins[t.raw]
	if !ok {
		return seed.CatalogueTable{}, nil, fmt.Errorf("no origin of %s is known", t.raw)
	}
	content, err := os.ReadFile(filepath.Join(dir, t.raw))
	if err != nil {
		return seed.CatalogueTable{}, nil, err
	}
	sum := sha256.Sum256(content)
	entry := seed.CatalogueTable{
		Noun: t.noun, Domain: t.domain, Subdomain: t.subdomain, Topic: t.topic, Split: t.split,
		Source: episode.Source{
			Kind: "builtin", URL: "https://github.com/" + origin.repository + "/blob/" + origin.commit + "/" + origin.path,
			Title: origin.title, Revision: origin.commit, Licence: origin.licence, Digest: hex.EncodeToString(sum[:]),
		},
		Cleaning: []episode.Cleaning{},
	}
	records, err := read(t.raw, content)
	if err != nil {
		return entry, nil, err
	}
	counts := map[[2]string]int{}
	order := [][2]string{}
	add := func(column, what string, n int) {
		k := [2]string{column, what}
		if counts[k] == 0 && n > 0 {
			order = append(order, k)
		}
		counts[k] += n
	}
	if !utf8.Valid(content) {
		add("", "file read as Windows-1252", 1)
	}
	if t.prepare != nil {
		before := len(records)
		records = t.prepare(records)
		n := before - len(records)
		if n <= 0 {
			n = len(records)
		}
		add("", t.prepared, n)
	}
	for _, c := range t.columns {
		entry.Columns = append(entry.Columns, seed.CatalogueColumn{Name: c.name, Type: c.kind, Unit: c.unit})
	}
	seen := map[string]bool{}
	var rows [][]any
	for _, r := range records {
		row := make([]any, len(t.columns))
		type change struct{ column, what string }
		var changes []change
		drop := ""
		for i, c := range t.columns {
			cell, did, why := c.read(r)
			limit := textLength
			if i == 0 {
				limit = keyLength
			}
			switch {
			case why != "":
			case cell == "":
				why = "without a value"
			case c.kind == episode.ColumnInteger:
				n, err := strconv.ParseInt(cell, 10, 64)
				if err != nil || n > maxInteger || n < -maxInteger {
					why = "with a number too large"
				}
				row[i] = n
			case len(cell) > limit:
				why = "with a text too long"
			default:
				row[i] = cell
			}
			if why != "" {
				drop = "row dropped: " + c.name + " " + why
				break
			}
			for _, d := range did {
				changes = append(changes, change{c.name, d})
			}
		}
		if drop == "" && seen[strings.ToLower(fmt.Sprint(row[0]))] {
			drop = "row dropped: the key of another"
		}
		if drop != "" {
			add("", drop, 1)
			continue
		}
		seen[strings.ToLower(fmt.Sprint(row[0]))] = true
		for _, c := range changes {
			add(c.column, c.what, 1)
		}
		rows = append(rows, row)
	}
	if t.most > 0 && len(rows) > t.most {
		add("", "row left out: the table is cut to a sample", len(rows)-t.most)
		rows = cut(t.noun, rows, t.most)
	}
	for _, k := range order {
		entry.Cleaning = append(entry.Cleaning, episode.Cleaning{Table: t.noun, Column: k[0], Change: k[1], Count: counts[k]})
	}
	return entry, rows, nil
}

// cut keeps the rows whose keys have the smallest digests, in table order.
func cut(noun string, rows [][]any, most int) [][]any {
	digest := func(row []any) string {
		sum := sha256.Sum256([]byte(noun + "\x00" + fmt.Sprint(row[0])))
		return string(sum[:])
	}
	sorted := slices.SortedFunc(slices.Values(rows), func(a, b []any) int { return cmp.Compare(digest(a), digest(b)) })
	last := digest(sorted[most-1])
	return slices.DeleteFunc(rows, func(row []any) bool { return digest(row) > last })
}

// read gives the records of a raw file, CSV or a JSON array of objects.
func read(name string, content []byte) ([]record, error) {
	if !utf8.Valid(content) {
		decoded, err := charmap.Windows1252.NewDecoder().Bytes(content)
		if err != nil {
			return nil, err
		}
		content = decoded
	}
	var records []record
	if filepath.Ext(name) == ".json" {
		var objects []map[string]any
		d := json.NewDecoder(bytes.NewReader(content))
		d.UseNumber()
		if err := d.Decode(&objects); err != nil {
			return nil, err
		}
		for _, o := range objects {
			r := record{}
			for k, v := range o {
				if v != nil {
					r[k] = fmt.Sprint(v)
				}
			}
			records = append(records, r)
		}
		return records, nil
	}
	lines, err := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(content, []byte("\xef\xbb\xbf")))).ReadAll()
	if err != nil {
		return nil, err
	}
	for _, line := range lines[1:] {
		r := record{}
		for i, cell := range line {
			r[lines[0][i]] = cell
		}
		records = append(records, r)
	}
	return records, nil
}

// Readers of cells.

var folds = strings.NewReplacer("ø", "o", "Ø", "O", "æ", "ae", "Æ", "Ae", "ß", "ss", "ð", "d", "Ð", "D", "þ", "th", "Þ", "Th", "ł", "l", "Ł", "L",
	"ı", "i", "đ", "d", "’", "'", "‘", "'", "“", "", "”", "", "–", "-", "—", "-", "…", "...")

var spaces = regexp.MustCompile(`\s+`)

// fold makes plain ASCII of a text and says what that took.
func fold(s string) (string, []string) {
	var changes []string
	step := func(next, what string) {
		if next != s {
			s = next
			changes = append(changes, what)
		}
	}
	step(html.UnescapeString(s), "HTML entity decoded")
	step(strings.Map(func(r rune) rune {
		if r == '"' || r == '\\' {
			return -1
		}
		return r
	}, s), "quotes removed")
	step(strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII {
			return -1
		}
		return r
	}, norm.NFKD.String(folds.Replace(s))), "folded to ASCII")
	step(strings.TrimSpace(spaces.ReplaceAllString(s, " ")), "white space tidied")
	return s, changes
}

// text reads a column, folded.
func text(from string) value {
	return func(r record) (string, []string, string) {
		s, changes := fold(r[from])
		return s, changes, ""
	}
}

// then applies a further change to what another reader gives.
func then(read value, what string, f func(string) string) value {
	return func(r record) (string, []string, string) {
		s, changes, drop := read(r)
		if t := f(s); t != s {
			s = t
			changes = append(changes, what)
		}
		return s, changes, drop
	}
}

// number reads a column times scale as a whole number.
func number(from string, scale float64) value {
	return func(r record) (string, []string, string) {
		f, err := strconv.ParseFloat(strings.TrimSpace(r[from]), 64)
		if err != nil {
			return "", nil, "without a value"
		}
		whole := math.Round(f * scale)
		var changes []string
		if scale != 1 {
			changes = append(changes, "scaled to the unit")
		}
		if math.Abs(whole-f*scale) > 1e-9*math.Max(1, math.Abs(whole)) {
			changes = append(changes, "rounded to whole units")
		}
		return strconv.FormatFloat(whole+0, 'f', 0, 64), changes, ""
	}
}

// choice rewrites codes as words; a code that is not listed drops the row.
func choice(from, what string, words map[string]string) value {
	return func(r record) (string, []string, string) {
		w, ok := words[r[from]]
		if !ok {
			return "", nil, "without a value"
		}
		if w == r[from] {
			return w, nil, ""
		}
		return w, []string{what}, ""
	}
}

var yesNo = map[string]string{"1": "yes", "0": "no"}

// title writes words with capitals: "PETROLEUM ENGINEERING".
func title(s string) string {
	words := strings.Fields(strings.ToLower(s))
	for i, w := range words {
		if i > 0 && slices.Contains([]string{"and", "of", "the", "for", "in", "to"}, w) {
			continue
		}
		start := strings.IndexFunc(w, unicode.IsLetter)
		if start >= 0 {
			words[i] = w[:start] + strings.ToUpper(w[start:start+1]) + w[start+1:]
		}
	}
	return strings.Join(words, " ")
}

// shorten keeps the part before a joining word where a text is too long.
func shorten(s string) string {
	if len(s) <= textLength {
		return s
	}
	for _, cut := range []string{" & ", " and ", ", ", " ("} {
		if i := strings.Index(s, cut); i > 0 {
			return s[:i]
		}
	}
	return s
}

// sources writes the list that NOTICE is made of.
func sources(c seed.Catalogue, rowCounts []int) []byte {
	var b strings.Builder
	b.WriteString(`# Tables in the binary

Made by ` + "`go run ./internal/seed/_generate`" + ` from the files below; do not edit. Each was cut and cleaned: columns picked and renamed, text folded to ASCII, numbers scaled and rounded to whole units, rows that do not fit left out, long tables sampled. ` + "`tables.json`" + ` counts the changes. "heldout" tables are never trained on.

| table | split | rows | columns | licence | title and source |
|---|---|---|---|---|---|
`)
	for n, t := range c.Tables {
		names := make([]string, len(t.Columns))
		for i, column := range t.Columns {
			names[i] = column.Name
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s, %s (sha256 %s) |\n", t.Noun, t.Split, rowCounts[n], strings.Join(names, ", "), t.Source.Licence, t.Source.Title, t.Source.URL, t.Source.Digest)
	}
	b.WriteString("\nJoins: ")
	for i, j := range c.Joins {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s.%s to %s", j.Table, j.Column, j.To)
	}
	b.WriteString(".\n\nLicences: CC0-1.0 (public domain dedication), CC-BY-4.0 (attribution: the titles above), PDDL-1.0 (Open Data Commons public domain dedication), LicenseRef-public-domain (works of the United States government).\n")
	return []byte(b.String())
}
