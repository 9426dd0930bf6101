// From raw arguments to flag values: permutation, environment, configuration
// file. urfave/cli parses only what has been put in its canonical form.

package cmdline

import (
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// permute sorts raw arguments into flags, each as --name=value, and operands.
// Flags and operands may be mixed; "--" ends the flags; "-" is an operand.
func (c *Command) permute(raw []string) (flags, operands []string, err error) {
	for i := 0; i < len(raw); i++ {
		argument := raw[i]
		switch {
		case argument == "--":
			return flags, append(operands, raw[i+1:]...), nil
		case argument == "-" || !strings.HasPrefix(argument, "-"):
			operands = append(operands, argument)
		case strings.HasPrefix(argument, "--"):
			name, text, hasText := strings.Cut(argument[2:], "=")
			f := c.lookup(name)
			if f == nil {
				return nil, nil, c.unknown("--" + name)
			}
			if !hasText && f.metavar != "" {
				if i++; i >= len(raw) {
					return nil, nil, Usagef("flag --%s needs a value (%s)", name, f.metavar)
				}
				text = raw[i]
			} else if !hasText {
				text = "true"
			}
			flags = append(flags, "--"+f.name+"="+text)
		default: // -qv, -j4, -j 4, -j=4
			for letters := argument[1:]; letters != ""; {
				letter := letters[:1]
				letters = letters[1:]
				f := c.lookupShort(letter)
				if f == nil {
					return nil, nil, c.unknown("-" + letter)
				}
				text := "true"
				if f.metavar != "" {
					text = strings.TrimPrefix(letters, "=")
					if letters == "" {
						if i++; i >= len(raw) {
							return nil, nil, Usagef("flag -%s needs a value (%s)", letter, f.metavar)
						}
						text = raw[i]
					}
					letters = ""
				}
				flags = append(flags, "--"+f.name+"="+text)
			}
		}
	}
	return flags, operands, nil
}

func (c *Command) lookup(name string) *Flag {
	i := slices.IndexFunc(c.flags, func(f *Flag) bool { return f.name == name })
	if i < 0 {
		return nil
	}
	return c.flags[i]
}

func (c *Command) lookupShort(letter string) *Flag {
	i := slices.IndexFunc(c.flags, func(f *Flag) bool { return f.short == letter })
	if i < 0 {
		return nil
	}
	return c.flags[i]
}

func (c *Command) unknown(spelling string) error {
	err := Usagef("unknown flag %s", spelling)
	word := strings.TrimLeft(spelling, "-")
	nearest, least := "", min(3, len(word)) // or anything short would be near
	for _, f := range c.flags {
		if d := distance(word, f.name); !f.hidden && d < least {
			nearest, least = f.name, d
		}
	}
	if nearest != "" {
		return Hint(err, "did you mean --%s?", nearest)
	}
	return Hint(err, "%s --help lists the flags", c.Name)
}

// distance counts the insertions, deletions and replacements between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		previous := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := previous
			if a[i] != b[j] {
				cost++
			}
			previous = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// spelled gives flags their two dashes in the errors of the flag package, and
// switches the wording of the other flags.
var spelled = strings.NewReplacer("invalid boolean value", "invalid value", `" for -`, `" for flag --`, `" for flag -`, `" for flag --`)

// parse sets the flags' values from arguments, environment and configuration
// file, in this order of precedence. It returns the operands and the names of
// the flags that were set by any of them.
func (c *Command) parse(raw []string) (operands []string, set map[string]bool, err error) {
	flags, operands, err := c.permute(raw)
	if err != nil {
		return nil, nil, err
	}
	set = map[string]bool{}
	app := &cli.App{
		Name: c.Name, HideHelp: true, HideHelpCommand: true, HideVersion: true,
		Writer: io.Discard, ErrWriter: io.Discard,
		OnUsageError:   func(_ *cli.Context, err error, _ bool) error { return err },
		ExitErrHandler: func(*cli.Context, error) {},
		Action: func(context *cli.Context) error {
			for _, f := range c.flags {
				set[f.name] = context.IsSet(f.name)
			}
			return nil
		},
	}
	for _, f := range c.flags {
		app.Flags = append(app.Flags, &cli.GenericFlag{Name: f.name, Value: f.value})
	}
	if err := app.Run(append([]string{c.Name}, flags...)); err != nil {
		return nil, nil, Usagef("%s", spelled.Replace(err.Error()))
	}
	for _, f := range c.flags {
		if f.env() == "" || set[f.name] {
			continue
		}
		if text := os.Getenv(f.env()); text != "" {
			if err := f.value.Set(text); err != nil {
				return nil, nil, Usagef("environment variable %s=%s: %w", f.env(), text, err)
			}
			set[f.name] = true
		}
	}
	return operands, set, c.configure(set)
}
