// The manual pages against the commands: flags, variables, exit codes,
// examples.

package odyssey_test

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/cmdline"
	"github.com/odyssey-rl/odyssey/man"
)

// manualPage is what the drift test reads of a page.
type manualPage struct {
	sections  []string
	flags     []string // "output o FILE": long name, letter, value
	variables []string
	exits     []string
	examples  []string // lines of literal text
}

func parseManual(t *testing.T, name string) *manualPage {
	t.Helper()
	text, err := man.Pages.ReadFile(name)
	if err != nil {
		t.Fatalf("there is no man/%s", name)
	}
	p := &manualPage{}
	section, literal := "", false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		title, isTitle := strings.CutPrefix(line, ".Sh ")
		item, isItem := strings.CutPrefix(line, ".It ")
		words := strings.Fields(item)
		switch {
		case isTitle:
			section = title
			p.sections = append(p.sections, title)
		case line == ".Ed":
			literal = false
		case strings.HasPrefix(line, ".Bd -literal"):
			literal = true
		case literal && section == "EXAMPLES":
			p.examples = append(p.examples, line)
		case isItem && len(words) > 1 && words[0] == "Fl":
			p.flags = append(p.flags, manualFlag(words))
		case isItem && section == "ENVIRONMENT" && len(words) > 1 && words[0] == "Ev":
			p.variables = append(p.variables, words[1])
		case isItem && section == "EXIT STATUS" && len(words) > 0:
			p.exits = append(p.exits, words[0])
		}
	}
	return p
}

// manualFlag reads "Fl o , Fl -output Ar FILE" and "Fl -zstd".
func manualFlag(words []string) string {
	name, letter, value := "", "", []string{}
	for i := 0; i < len(words); i++ {
		switch {
		case words[i] == "Fl" && i+1 < len(words):
			i++
			if long, ok := strings.CutPrefix(words[i], "-"); ok {
				name = long
			} else {
				letter = words[i]
			}
		case words[i] == "Ar" || words[i] == "," || words[i] == "Ns" || words[i] == "Cm" || words[i] == "No":
		default:
			value = append(value, words[i])
		}
	}
	return strings.TrimSpace(name + " " + letter + " " + strings.Join(value, ""))
}

// Every flag of a command stands in its page, with its letter and its value,
// and no other; so do the exit codes and the variables.
func TestManualPagesFollowTheCommands(t *testing.T) {
	for _, name := range cmdline.Commands {
		dump, stderr, code := runCommand(t, name, "--dump-flags")
		if code != 0 {
			t.Fatalf("%s --dump-flags: %s", name, stderr)
		}
		if _, err := fs.Stat(man.Pages, name+".1"); err != nil {
			t.Errorf("there is no man/%s.1", name)
			continue
		}
		page := parseManual(t, name+".1")
		var flags, variables []string
		for line := range strings.Lines(dump) {
			columns := strings.Split(strings.TrimRight(line, "\n"), "\t")
			flags = append(flags, strings.TrimSpace(columns[0]+" "+columns[1]+" "+columns[2]))
			if columns[3] != "" {
				variables = append(variables, columns[3])
			}
		}
		for _, flag := range flags {
			if !slices.Contains(page.flags, flag) {
				t.Errorf("man/%s.1 lacks the flag %q", name, flag)
			}
		}
		for _, flag := range page.flags {
			if !slices.Contains(flags, flag) {
				t.Errorf("man/%s.1 has a flag %q that the command has not", name, flag)
			}
		}
		if want := []string{"0", "1", "2", "3", "130", "143"}; !slices.Equal(page.exits, want) {
			t.Errorf("man/%s.1: EXIT STATUS lists %v, want %v", name, page.exits, want)
		}
		if !slices.Contains(page.variables, "ODYSSEY_*") {
			for _, variable := range variables {
				if !slices.Contains(page.variables, variable) {
					t.Errorf("man/%s.1: ENVIRONMENT lacks %s", name, variable)
				}
			}
		}
		for _, variable := range page.variables {
			if strings.HasPrefix(variable, "ODYSSEY_") && variable != "ODYSSEY_*" && !slices.Contains(variables, variable) {
				t.Errorf("man/%s.1: ENVIRONMENT has %s, which the command does not read", name, variable)
			}
		}
		for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "ENVIRONMENT", "EXAMPLES", "SEE ALSO"} {
			if !slices.Contains(page.sections, section) {
				t.Errorf("man/%s.1 has no section %s", name, section)
			}
		}
		text, _, code := runCommand(t, name, "--man")
		if code != 0 || !strings.Contains(text, "EXIT STATUS\n") || strings.Contains(text, "\n.") {
			t.Errorf("%s --man: exit code %d, %.200q", name, code, text)
		}
	}
}

// The flags in the examples of every page, and of the help, are flags of the
// commands that they are given to.
func TestExamplesUseFlagsThatExist(t *testing.T) {
	flags := map[string]map[string]bool{}
	for _, name := range cmdline.Commands {
		dump, _, _ := runCommand(t, name, "--dump-flags")
		flags[name] = map[string]bool{}
		for line := range strings.Lines(dump) {
			columns := strings.Split(line, "\t")
			flags[name]["--"+columns[0]] = true
			flags[name]["-"+columns[1]] = columns[1] != ""
		}
	}
	check := func(where, text string) {
		text = strings.ReplaceAll(text, "\\\n", " ")
		for line := range strings.SplitSeq(text, "\n") {
			// A pipe may go on in the next line; each stage is looked at alone.
			for stage := range strings.FieldsFuncSeq(line, func(r rune) bool { return strings.ContainsRune("|;&()<>`", r) }) {
				words := strings.Fields(stage)
				i := slices.IndexFunc(words, func(word string) bool { return flags[word] != nil })
				if i < 0 {
					continue
				}
				for _, word := range words[i+1:] {
					name, _, _ := strings.Cut(word, "=")
					if flagWord.MatchString(name) && !flags[words[i]][name] {
						t.Errorf("%s: %s has no flag %s", where, words[i], name)
					}
				}
			}
		}
	}
	pages, err := fs.Glob(man.Pages, "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range pages {
		check("man/"+name, strings.Join(parseManual(t, name).examples, "\n"))
	}
	for _, name := range cmdline.Commands {
		help, _, _ := runCommand(t, name, "--help")
		_, examples, ok := strings.Cut(help, "\nEXAMPLES\n")
		if !ok {
			t.Errorf("%s --help has no EXAMPLES", name)
		}
		check(name+" --help", examples)
	}
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
			continue
		}
		fenced := false
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "```") {
				fenced = !fenced
			} else if fenced {
				check(name, strings.TrimSpace(line))
			}
		}
	}
}

var flagWord = regexp.MustCompile(`^(--[a-z][a-z0-9-]*|-[a-zA-Z])$`)

// Every page is named by its title and refers to pages that exist.
func TestManualPagesReferToEachOther(t *testing.T) {
	pages, err := fs.Glob(man.Pages, "*")
	if err != nil {
		t.Fatal(err)
	}
	reference := regexp.MustCompile(`\.?Xr (odyssey[a-z-]*) ([157])`)
	for _, name := range pages {
		text, err := man.Pages.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		base, section, _ := strings.Cut(name, ".")
		if want := fmt.Sprintf(".Dt %s %s\n", strings.ToUpper(base), section); !strings.Contains(string(text), want) {
			t.Errorf("man/%s lacks %q", name, want)
		}
		for _, match := range reference.FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(pages, match[1]+"."+match[2]) {
				t.Errorf("man/%s refers to %s(%s), which does not exist", name, match[1], match[2])
			}
		}
	}
}
