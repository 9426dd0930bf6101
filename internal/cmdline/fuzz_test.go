package cmdline

import (
	"strings"
	"testing"
)

// FuzzConfiguration: whatever the file holds, it sets flags or is a usage
// error, and a flag that was given otherwise stays as it is.
func FuzzConfiguration(f *testing.F) {
	f.Add("seed = 3\n[odyssey-example]\nnote = a\nnote = b\n# comment\n")
	f.Add("\ufeffquiet=true\r\n[odyssey-hca]\nx = 1\n")
	f.Add("[")
	f.Fuzz(func(t *testing.T, text string) {
		c := exampleCommand()
		var s shared
		c.declareShared(&s)
		set := map[string]bool{"groups": true}
		err := c.configureFrom("settings", []byte(text), set)
		if err != nil && exitCode(err) != ExitUsage {
			t.Errorf("exit code %d of %v", exitCode(err), err)
		}
		if got := c.lookup("groups").value.String(); got != "8" {
			t.Errorf("--groups became %s", got)
		}
	})
}

// FuzzArguments: whatever the arguments, they parse or are a usage error, and
// none is lost.
func FuzzArguments(f *testing.F) {
	f.Add("a --domain x -qv -j4 -- -b")
	f.Add("--note= --groups=3 - -G 2")
	f.Fuzz(func(t *testing.T, line string) {
		raw := strings.Split(line, " ")
		c := exampleCommand()
		var s shared
		c.declareShared(&s)
		flags, operands, err := c.permute(raw)
		if err != nil {
			if exitCode(err) != ExitUsage {
				t.Errorf("exit code %d of %v", exitCode(err), err)
			}
			return
		}
		for _, flag := range flags {
			if name, _, ok := strings.Cut(flag, "="); !ok || c.lookup(strings.TrimPrefix(name, "--")) == nil {
				t.Errorf("%q became %q", raw, flag)
			}
		}
		given := " " + line + " "
		for _, operand := range operands {
			if !strings.Contains(given, " "+operand+" ") {
				t.Errorf("%q became the operand %q", raw, operand)
			}
		}
	})
}

// FuzzManual: rendering a page never fails and leaves no line wider than a
// word makes it.
func FuzzManual(f *testing.F) {
	f.Add(".Sh NAME\n.Nm x\n.Nd y\n.Bl -tag\n.It Fl o , Fl -output Ar FILE\ntext\n.El\n.Bd -literal\n.x\n.Ed\n.El\n.It\n.Op Fl \"a b\n")
	f.Fuzz(func(t *testing.T, page string) { renderManual(page) })
}
