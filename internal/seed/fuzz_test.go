package seed

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// check parses a document and, if it is a table, makes environments and
// variants of it and compares them with their schemas.
func check(t *testing.T, path string, content []byte) {
	table, err := Parse(Document{Path: path, Content: content, Source: episode.Source{Digest: "d"}}, DefaultLimits)
	if err != nil {
		if table != nil || err.Error() == "" {
			t.Fatalf("%v with %v", table, err)
		}
		return
	}
	groups, err := Relate([]*Table{table}, Heldout{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range collect(t, groups, Options{Rows: 20, PerGroup: 2, Variants: 2}) {
		if !utf8.ValidString(e.Files[0].Content) {
			t.Fatal("content is not UTF-8")
		}
	}
}

func FuzzDelimited(f *testing.F) {
	f.Add("lake,area (m)\n"+numbered("L #,\"#,000 [1]\"\n", 9), ".csv")
	f.Add("a\tb\tc\n"+numbered("x \"#\"\tNA\t0#/02/2001\n", 9), ".tsv")
	f.Add("a;b\r\n"+numbered("L #;-#,5\r\n", 9), ".txt")
	f.Add("\xef\xbb\xbf\"a\",\"b\"\n"+numbered(`"L \"#\"","$#"`+"\n", 9), ".csv")
	f.Fuzz(func(t *testing.T, content, extension string) {
		if s := strings.TrimLeft(content, " \t\r\n"); s != "" && (s[0] == '[' || s[0] == '{') {
			t.Skip()
		}
		check(t, "x"+extension, []byte(content))
	})
}

func FuzzJSON(f *testing.F) {
	f.Add("[" + strings.TrimSuffix(numbered(`{"name": "M #", "a": #, "b": true, "c": [1]},`, 9), ",") + "]")
	f.Add(numbered(`{"name": "M #", "a": -#.5e3, "b": null}`+"\n", 9))
	f.Add(`{"name": ["a","b","c","d","e","f","g","h"], "n": [1,2,3,4,5,6,7,8.5]}`)
	f.Add(`[["name","n"]` + numbered(`,["M #", "#%"]`, 9) + `]`)
	f.Fuzz(func(t *testing.T, content string) {
		s := strings.TrimLeft(content, " \t\r\n")
		if s == "" || s[0] != '[' && s[0] != '{' {
			content = "[" + content
		}
		check(t, "x.json", []byte(content))
	})
}

func FuzzNumeral(f *testing.F) {
	for _, s := range []string{"1,234.5 km²", "−5 %", "c. 1900", "$ 12 (est.)", "1e5", "0.1", "007", "1 234", "9007199254740993", "1,2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, ok := readNumeral(s)
		if !ok {
			return
		}
		again, ok := canonical(strings.TrimPrefix(r.literal, "-"), r.literal[:len(r.literal)-len(strings.TrimPrefix(r.literal, "-"))])
		if !ok || again != r.literal {
			t.Errorf("%q reads as %s, which reads as %s", s, r.literal, again)
		}
	})
}
