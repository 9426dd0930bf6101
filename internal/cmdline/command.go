// What a command is made of: its name, its flags, its run function.

// Package cmdline is the part that the seven commands share: flags, standard
// streams, exit codes, signals, progress, manual pages and completion. It is
// the only package that knows urfave/cli and progressbar, and together with
// main.go of each command the only one that knows flags and terminals.
// README.md shows a whole command.
package cmdline

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Shared names groups of flags that commands spell and default alike. A
// command opts in to those it honours.
type Shared uint

// The groups of shared flags. -q, -v, --progress, --color, --config, --help,
// --man, --version and --completion belong to every command.
const (
	Output    Shared = 1 << iota // -o --format --zstd --no-provenance; Invocation.Writer
	Threads                      // -j: Invocation.Threads
	Seed                         // --seed: Invocation.Seed
	DryRun                       // -n: Invocation.DryRun
	Shard                        // --shard I/N: Invocation.Skip
	KeepGoing                    // --keep-going: Invocation.KeepGoing
)

// Command describes one command. Flags are declared by its methods String,
// Int, Choice and so on, before Main.
type Command struct {
	Name     string // odyssey-hca
	Summary  string // one line, lower case, without a full stop
	Operands string // the operands in the usage line; "[FILE...]" if empty
	Examples string // lines for the EXAMPLES section of --help
	Shared   Shared

	// NoInput marks a command, or with NoInputWhen an invocation, that does
	// not read stdin when there is no operand.
	NoInput     bool
	NoInputWhen func() bool

	// Validate checks flags together before anything is opened; its error is
	// a usage error. It may be nil.
	Validate func(inv *Invocation) error

	// Run does the work. It returns nil, Refusedf, or what went wrong.
	Run func(ctx context.Context, inv *Invocation) error

	flags []*Flag
}

// Flag is one declared flag. Its methods refine the declaration.
type Flag struct {
	name     string
	short    string
	value    value
	metavar  string // "" for a switch
	usage    string
	shared   bool
	hidden   bool
	neutral  bool // changes no byte of the output
	noEnv    bool
	defaults string
}

type value interface {
	Set(text string) error
	String() string
}

// Short gives the flag a one-letter spelling.
func (f *Flag) Short(letter string) *Flag { f.short = letter; return f }

// Metavar names the flag's value in help, in capitals.
func (f *Flag) Metavar(name string) *Flag { f.metavar = name; return f }

// Neutral says that the flag changes no byte of the output, so that it does
// not enter the provenance.
func (f *Flag) Neutral() *Flag { f.neutral = true; return f }

// Hidden leaves the flag out of help and completion.
func (f *Flag) Hidden() *Flag { f.hidden = true; return f }

// NoEnvironment takes the flag's ODYSSEY_ variable away: for flags that speak
// of one run only.
func (f *Flag) NoEnvironment() *Flag { f.noEnv = true; return f }

func (f *Flag) env() string {
	if f.noEnv || f.hidden {
		return ""
	}
	return "ODYSSEY_" + strings.ToUpper(strings.ReplaceAll(f.name, "-", "_"))
}

func (c *Command) add(name, metavar, usage string, v value) *Flag {
	if slices.ContainsFunc(c.flags, func(f *Flag) bool { return f.name == name }) {
		panic("flag --" + name + " declared twice")
	}
	f := &Flag{name: name, metavar: metavar, usage: usage, value: v, defaults: v.String()}
	c.flags = append(c.flags, f)
	return f
}

// Switch declares a flag without a value.
func (c *Command) Switch(target *bool, name, usage string) *Flag {
	return c.add(name, "", usage, &boolValue{target})
}

// String declares a flag with any text.
func (c *Command) String(target *string, name, standard, usage string) *Flag {
	*target = standard
	return c.add(name, "TEXT", usage, funcValue{func(s string) error { *target = s; return nil }, func() string { return *target }})
}

// Strings declares a flag that may be repeated; each occurrence is one element
// and commas mean nothing.
func (c *Command) Strings(target *[]string, name, usage string) *Flag {
	return c.add(name, "TEXT", usage, funcValue{
		func(s string) error { *target = append(*target, s); return nil },
		func() string { return strings.Join(*target, " ") },
	})
}

// Choice declares a flag whose value is one of choices.
func (c *Command) Choice(target *string, name, standard string, choices []string, usage string) *Flag {
	*target = standard
	set := func(s string) error {
		if !slices.Contains(choices, s) {
			return fmt.Errorf("want %s", strings.Join(choices, ", "))
		}
		*target = s
		return nil
	}
	return c.add(name, strings.Join(choices, "|"), usage, funcValue{set, func() string { return *target }})
}

// Int declares a flag with a whole number of at least least.
func (c *Command) Int(target *int, name string, standard, least int, usage string) *Flag {
	*target = standard
	set := func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil {
			return fmt.Errorf("want a whole number")
		}
		if n < least {
			return fmt.Errorf("want at least %d", least)
		}
		*target = n
		return nil
	}
	return c.add(name, "N", usage, funcValue{set, func() string { return strconv.Itoa(*target) }})
}

// Uint64 declares a flag with a number from 0 to 2^64-1.
func (c *Command) Uint64(target *uint64, name string, standard uint64, usage string) *Flag {
	*target = standard
	set := func(s string) error {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("want a number from 0 to 18446744073709551615")
		}
		*target = n
		return nil
	}
	return c.add(name, "N", usage, funcValue{set, func() string { return strconv.FormatUint(*target, 10) }})
}

// Float declares a flag with a finite number in [least, most].
func (c *Command) Float(target *float64, name string, standard, least, most float64, usage string) *Flag {
	*target = standard
	set := func(s string) error {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("want a number")
		}
		if x < least || x > most {
			return fmt.Errorf("want a number from %v to %v", least, most)
		}
		*target = x
		return nil
	}
	return c.add(name, "X", usage, funcValue{set, func() string { return strconv.FormatFloat(*target, 'g', -1, 64) }})
}

// Duration declares a flag such as 1.5s or 2m.
func (c *Command) Duration(target *time.Duration, name string, standard time.Duration, usage string) *Flag {
	*target = standard
	set := func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return fmt.Errorf("want a duration such as 90s or 2m")
		}
		*target = d
		return nil
	}
	return c.add(name, "DURATION", usage, funcValue{set, func() string { return target.String() }})
}

// Func declares a flag that set checks and stores; text is its default in
// help.
func (c *Command) Func(name, metavar, text, usage string, set func(text string) error) *Flag {
	current := text
	return c.add(name, metavar, usage, funcValue{
		func(s string) error {
			if err := set(s); err != nil {
				return err
			}
			current = s
			return nil
		},
		func() string { return current },
	})
}

type funcValue struct {
	set func(string) error
	get func() string
}

func (v funcValue) Set(text string) error { return v.set(text) }
func (v funcValue) String() string {
	if v.get == nil { // the flag package asks a zero value
		return ""
	}
	return v.get()
}

type boolValue struct{ target *bool }

func (v *boolValue) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("want true or false")
	}
	*v.target = on
	return nil
}
func (v *boolValue) String() string {
	if v.target == nil {
		return "false"
	}
	return strconv.FormatBool(*v.target)
}
func (v *boolValue) IsBoolFlag() bool { return true }
