// Main: the life of a command from its arguments to its exit code. This file
// holds the only os.Exit.

package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"golang.org/x/term"
)

// Version is the version of the commands. It enters the provenance of every
// stream.
const Version = "0.1.0"

// Main runs the command on the process's arguments and exits.
func Main(c *Command) {
	os.Exit(run(c, os.Args[1:]))
}

type shared struct {
	output       string
	format       string
	zstd         bool
	noProvenance bool
	threads      int
	seed         uint64
	dryRun       bool
	shard        string
	keepGoing    bool
	quiet        bool
	verbose      bool
	progress     string
	color        string
	config       string
	help         bool
	man          bool
	version      bool
	completion   string
	dumpFlags    bool
}

func (c *Command) declareShared(s *shared) {
	first := len(c.flags)
	if c.Shared&Output != 0 {
		c.String(&s.output, "output", "", "write to FILE instead of stdout; .jsonl, .jsonl.zst or .arrows picks the encoding").
			Short("o").Metavar("FILE").Neutral().NoEnvironment()
		c.Choice(&s.format, "format", "jsonl", []string{"jsonl", "arrow"}, "encoding of the output").Neutral()
		c.Switch(&s.zstd, "zstd", "compress the output with zstd").Neutral()
		c.Switch(&s.noProvenance, "no-provenance", "leave the chain of programs out of the header").Neutral()
	}
	if c.Shared&Threads != 0 {
		c.Int(&s.threads, "threads", runtime.GOMAXPROCS(0), 1, "threads to use; the output does not depend on it").
			Short("j").Neutral()
		c.lookup("threads").defaults = "all cores"
	}
	if c.Shared&Seed != 0 {
		c.Uint64(&s.seed, "seed", 1, "seed of all randomness").Neutral() // the provenance holds it apart
	}
	if c.Shared&DryRun != 0 {
		c.Switch(&s.dryRun, "dry-run", "say what would be done and do nothing").Short("n").Neutral().NoEnvironment()
	}
	if c.Shared&Shard != 0 {
		c.String(&s.shard, "shard", "", "take only the I-th of N parts, split by id, I from 0").Metavar("I/N")
	}
	if c.Shared&KeepGoing != 0 {
		c.Switch(&s.keepGoing, "keep-going", "report a record that fails and go on with the next")
	}
	always := []string{"auto", "always", "never"}
	c.Switch(&s.quiet, "quiet", "say nothing but errors").Short("q").Neutral()
	c.Switch(&s.verbose, "verbose", "say more").Short("v").Neutral()
	c.Choice(&s.progress, "progress", "auto", always, "draw progress on stderr").Neutral()
	c.Choice(&s.color, "color", "auto", always, "colour text for people; NO_COLOR is honoured").Neutral()
	c.String(&s.config, "config", "", "read flags from FILE, lines of name = value").Metavar("FILE").Neutral()
	c.Switch(&s.help, "help", "show this help").Short("h").Neutral().NoEnvironment()
	c.Switch(&s.man, "man", "show the manual page").Neutral().NoEnvironment()
	c.Switch(&s.version, "version", "show the version").Neutral().NoEnvironment()
	c.Func("completion", "bash|zsh|fish", "", "print a completion script for the shell", func(shell string) error {
		if completionScript(c, shell) == "" {
			return errors.New("want bash, zsh or fish")
		}
		s.completion = shell
		return nil
	}).Neutral().NoEnvironment()
	c.Switch(&s.dumpFlags, "dump-flags", "list the flags for the test of the manual page").Hidden().Neutral()
	for _, f := range c.flags[first:] {
		f.shared = true
	}
}

func run(c *Command, raw []string) int {
	// A reader that has gone away ends the command as the default action of
	// SIGPIPE does; Go does so by itself for stdout as long as nobody asks
	// for the signal.
	var s shared
	c.declareShared(&s)
	operands, set, err := c.parse(raw)
	if err == nil {
		if done, code := c.answer(&s); done {
			return code
		}
	}
	inv := &Invocation{
		command: c, shared: &s, set: set, Operands: operands,
		Threads: s.threads, Seed: s.seed, DryRun: s.dryRun, KeepGoing: s.keepGoing,
		Quiet: s.quiet, Verbose: s.verbose,
		Stderr: os.Stderr,
	}
	if err == nil {
		err = inv.validate()
	}
	if err != nil {
		return inv.report(err)
	}
	if len(operands) == 0 && c.readsStdin() && term.IsTerminal(int(os.Stdin.Fd())) {
		c.shortHelp(os.Stderr)
		return ExitUsage
	}

	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	inv.ctx = ctx
	inv.stdin = &interruptible{file: os.Stdin, ctx: ctx}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		first := <-signals
		stop(&signalError{first.(syscall.Signal)})
		<-signals
		os.Exit(codeOf(first.(syscall.Signal)))
	}()

	err = c.Run(ctx, inv)
	var interrupted *signalError
	if errors.As(context.Cause(ctx), &interrupted) {
		inv.abandon(true)
		if !inv.Quiet {
			fmt.Fprintf(os.Stderr, "%s: %s\n", c.Name, interrupted)
		}
		return codeOf(interrupted.signal)
	}
	if exitCode(err) <= ExitRefused {
		if finish := inv.finish(); finish != nil {
			err = finish
		}
	}
	if exitCode(err) > ExitRefused {
		inv.abandon(false)
	}
	return inv.report(err)
}

func (c *Command) readsStdin() bool {
	return !c.NoInput && (c.NoInputWhen == nil || !c.NoInputWhen())
}

// answer serves the flags that ask something about the command itself.
func (c *Command) answer(s *shared) (done bool, code int) {
	var text string
	switch {
	case s.help:
		text = c.help()
	case s.man:
		return true, c.showManual()
	case s.version:
		text = c.Name + " " + Version + revision() + "\n"
	case s.completion != "":
		text = completionScript(c, s.completion)
	case s.dumpFlags:
		text = c.dumpFlags()
	default:
		return false, 0
	}
	if _, err := io.WriteString(os.Stdout, text); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", c.Name, err)
		return true, ExitFailure
	}
	return true, ExitOK
}

// revision names the commit that the binary was built from, if it knows.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return " (" + setting.Value + ")"
		}
	}
	return ""
}

// report prints err as the command's last words and returns the exit code.
func (inv *Invocation) report(err error) int {
	inv.endProgress()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", inv.command.Name, oneLine(err.Error()))
		if hint := hintOf(err); hint != "" {
			fmt.Fprintf(os.Stderr, "hint: %s\n", oneLine(hint))
		}
	}
	return exitCode(err)
}

// oneLine makes text a line that a terminal can show: values out of a stream
// may hold control characters, and a schema checker may have pages to say.
func oneLine(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, text)
	if runes := []rune(text); len(runes) > longestLine {
		text = string(runes[:longestLine]) + " ..."
	}
	return text
}

const longestLine = 1000 // characters

type signalError struct{ signal syscall.Signal }

func (e *signalError) Error() string {
	if e.signal == syscall.SIGINT {
		return "interrupted"
	}
	return "terminated"
}

func codeOf(s syscall.Signal) int { return 128 + int(s) }

func parseShard(text string) (index, count int, err error) {
	if text == "" {
		return 0, 1, nil
	}
	a, b, ok := strings.Cut(text, "/")
	index, err1 := strconv.Atoi(a)
	count, err2 := strconv.Atoi(b)
	if !ok || err1 != nil || err2 != nil || count < 1 || index < 0 || index >= count {
		return 0, 0, Usagef("invalid value %q for flag --shard: want I/N with 0 <= I < N", text)
	}
	return index, count, nil
}
