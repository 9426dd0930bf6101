// What a command says about itself: help, manual page, completion.

package cmdline

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/term"

	"github.com/odyssey-rl/odyssey/man"
)

func (c *Command) usageLine() string {
	operands := c.Operands
	if operands == "" {
		operands = "[FILE...]"
	}
	return fmt.Sprintf("usage: %s [flags] %s\n", c.Name, operands)
}

func (c *Command) shortHelp(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n%s%s --help lists the flags, --man shows the manual page\n",
		c.Name, c.Summary, c.usageLine(), c.Name)
}

func (c *Command) help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s - %s\n\n%s", c.Name, c.Summary, c.usageLine())
	section := func(title string, wanted func(*Flag) bool) {
		lines := []string{}
		for _, f := range c.flags {
			if f.hidden || !wanted(f) {
				continue
			}
			spelling := "    --" + f.name
			if f.short != "" {
				spelling = "-" + f.short + ", --" + f.name
			}
			if f.metavar != "" {
				spelling += " " + f.metavar
			}
			about := f.usage
			if f.metavar != "" && f.defaults != "" {
				about += " (default " + f.defaults + ")"
			}
			if len(spelling) > 26 {
				lines = append(lines, "  "+spelling, "  "+strings.Repeat(" ", 28)+about)
			} else {
				lines = append(lines, fmt.Sprintf("  %-28s%s", spelling, about))
			}
		}
		if len(lines) > 0 {
			fmt.Fprintf(&b, "\n%s\n%s\n", title, strings.Join(lines, "\n"))
		}
	}
	section("FLAGS", func(f *Flag) bool { return !f.shared })
	section("SHARED FLAGS", func(f *Flag) bool { return f.shared })
	if c.Examples != "" {
		fmt.Fprintf(&b, "\nEXAMPLES\n")
		for line := range strings.Lines(strings.Trim(c.Examples, "\n")) {
			fmt.Fprintf(&b, "  %s\n", strings.TrimRight(line, "\n"))
		}
	}
	fmt.Fprintf(&b, "\nA flag --some-name can also be set by ODYSSEY_SOME_NAME, or by a line\n\"some-name = value\" under [%s] in the file of --config; odyssey(7) has an example.\n%s --man shows the manual page.\n", c.Name, c.Name)
	return b.String()
}

// dumpFlags lists the flags for the test that compares them with the manual
// page: name, short, metavar, environment variable, separated by tabs.
func (c *Command) dumpFlags() string {
	var b strings.Builder
	for _, f := range c.flags {
		if !f.hidden {
			fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", f.name, f.short, f.metavar, f.env())
		}
	}
	return b.String()
}

// showManual shows the manual page: through man(1) on a terminal that has it,
// else as plain text.
func (c *Command) showManual() int {
	page, err := man.Pages.ReadFile(c.Name + ".1")
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: this build has no manual page\n", c.Name)
		return ExitFailure
	}
	if viewer, err := exec.LookPath("man"); err == nil && term.IsTerminal(int(os.Stdout.Fd())) {
		file, err := os.CreateTemp("", c.Name+"-*.1")
		if err == nil {
			defer os.Remove(file.Name())
			file.Write(page)
			file.Close()
			command := exec.Command(viewer, "-l", file.Name())
			command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
			if command.Run() == nil {
				return ExitOK
			}
		}
	}
	if _, err := os.Stdout.WriteString(renderManual(string(page))); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", c.Name, err)
		return ExitFailure
	}
	return ExitOK
}

func completionScript(c *Command, shell string) string {
	var long, short []string
	for _, f := range c.flags {
		if f.hidden {
			continue
		}
		long = append(long, "--"+f.name)
		if f.short != "" {
			short = append(short, "-"+f.short)
		}
	}
	switch shell {
	case "bash":
		return fmt.Sprintf("complete -o default -W %q %s\n", strings.Join(append(long, short...), " "), c.Name)
	case "zsh":
		var b strings.Builder
		fmt.Fprintf(&b, "#compdef %s\n_arguments", c.Name)
		for _, f := range c.flags {
			if f.hidden {
				continue
			}
			about := strings.NewReplacer("[", "(", "]", ")", "'", "", ":", " -").Replace(f.usage)
			argument := ""
			if strings.Contains(f.metavar, "|") {
				argument = ":value:(" + strings.ReplaceAll(f.metavar, "|", " ") + ")"
			} else if f.metavar != "" {
				argument = ":" + f.metavar + ":_files"
			}
			fmt.Fprintf(&b, " \\\n  '--%s[%s]%s'", f.name, about, argument)
		}
		b.WriteString(" \\\n  '*:FILE:_files'\n")
		return b.String()
	case "fish":
		var b strings.Builder
		for _, f := range c.flags {
			if f.hidden {
				continue
			}
			fmt.Fprintf(&b, "complete -c %s -l %s", c.Name, f.name)
			if f.short != "" {
				fmt.Fprintf(&b, " -s %s", f.short)
			}
			if strings.Contains(f.metavar, "|") {
				fmt.Fprintf(&b, " -x -a '%s'", strings.ReplaceAll(f.metavar, "|", " "))
			} else if f.metavar != "" {
				b.WriteString(" -r")
			}
			fmt.Fprintf(&b, " -d '%s'\n", strings.ReplaceAll(f.usage, "'", ""))
		}
		return b.String()
	}
	return ""
}
