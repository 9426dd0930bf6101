package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/odyssey-rl/odyssey/internal/stream"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"odyssey-example": func() { Main(exampleCommand()) }})
}

// TestScripts runs the scripts with odyssey-example as a real process.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
		},
	})
}

// exits CODE COMMAND... runs the command and demands the exit code; stdout and
// stderr go to files of these names.
func exits(ts *testscript.TestScript, _ bool, arguments []string) {
	command := exec.Command(arguments[1], arguments[2:]...)
	command.Dir = ts.Getenv("WORK")
	command.Env = []string{"PATH=" + ts.Getenv("PATH"), "WORK=" + ts.Getenv("WORK")}
	for _, name := range []string{"ODYSSEY_DOMAIN", "ODYSSEY_CONFIG", "ODYSSEY_GROUPS"} {
		if value := ts.Getenv(name); value != "" {
			command.Env = append(command.Env, name+"="+value)
		}
	}
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	command.Run()
	ts.Check(os.WriteFile(ts.MkAbs("stdout"), []byte(stdout.String()), 0o666))
	ts.Check(os.WriteFile(ts.MkAbs("stderr"), []byte(stderr.String()), 0o666))
	if got := fmt.Sprint(command.ProcessState.ExitCode()); got != arguments[0] {
		ts.Fatalf("exit code %s, want %s\n%s", got, arguments[0], stderr.String())
	}
}

// exampleCommand keeps the environments of one domain. It is the command of
// README.md with flags for the tests.
func exampleCommand() *Command {
	var domain, then, beside string
	var notes []string
	var groups int
	c := &Command{
		Name: "odyssey-example", Summary: "keep the environments of one domain",
		Shared:   Output | Threads | Seed | Shard | DryRun | KeepGoing,
		Examples: "odyssey-example --domain geography envs.jsonl > some.jsonl",
	}
	c.String(&domain, "domain", "", "domain to keep").Metavar("NAME")
	c.Int(&groups, "groups", 8, 1, "a number").Short("G")
	c.String(&beside, "beside", "", "also write this file").Metavar("FILE").Neutral()
	c.Strings(&notes, "note", "a text, may be repeated")
	c.Choice(&then, "then", "end", []string{"end", "fail", "refuse", "wait", "table"}, "what to do after the last record").Neutral()
	c.Validate = func(inv *Invocation) error {
		if domain == "nowhere" {
			return errors.New("--domain nowhere is no domain")
		}
		return nil
	}
	c.Run = func(ctx context.Context, inv *Invocation) error {
		if then == "table" {
			out, err := inv.Text()
			if err == nil {
				fmt.Fprintf(out, "%s %d %q %d %v\n", domain, groups, notes, inv.Seed, inv.Operands)
			}
			return err
		}
		in, err := inv.Reader(stream.KindEnvironment)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := inv.Writer(in.Header())
		if err != nil {
			return err
		}
		for {
			environment, err := in.Environment()
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			if inv.Skip(environment.EnvironmentID) || domain != "" && environment.Domain != domain {
				continue
			}
			if err := out.WriteEnvironment(environment); err != nil {
				return err
			}
		}
		if beside != "" {
			if err := inv.WriteFile(beside, func(w io.Writer) error { _, err := io.WriteString(w, "beside\n"); return err }); err != nil {
				return err
			}
		}
		switch then {
		case "fail":
			return Hint(errors.New("it failed\nat the end"), "try again")
		case "refuse":
			return Refusedf("no")
		case "wait":
			WatchStdout(ctx)
			<-ctx.Done()
		}
		return nil
	}
	return c
}

const exampleStream = `{"format":"odyssey-stream","kind":"environment","version":"1.0"}
{"environment_id":"a","domain":"x"}
`

func example(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command("odyssey-example", arguments...)
	command.Dir = t.TempDir()
	return command
}

// A signal ends the command with its code, leaves FILE.partial without an end
// record, and no FILE.
func TestSignals(t *testing.T) {
	for s, code := range map[syscall.Signal]int{syscall.SIGINT: ExitSIGINT, syscall.SIGTERM: ExitSIGTERM} {
		for _, blocked := range []string{"stdin", "elsewhere"} {
			arguments, text := []string{"-o", "out.jsonl"}, exampleStream
			if blocked == "elsewhere" {
				arguments = append(arguments, "--then", "wait")
				text += "{\"end\":1}\n"
			}
			command := example(t, arguments...)
			input, err := command.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			io.WriteString(input, text)
			if blocked == "elsewhere" {
				input.Close()
			}
			partial := command.Dir + "/out.jsonl.partial"
			await(t, func() bool { text, _ := os.ReadFile(partial); return strings.Contains(string(text), `"a"`) })
			command.Process.Signal(s)
			command.Wait()
			if got := command.ProcessState.ExitCode(); got != code {
				t.Errorf("%v while blocked in %s: exit code %d, want %d", s, blocked, got, code)
			}
			text2, err := os.ReadFile(partial)
			if err != nil || strings.Contains(string(text2), `"end"`) {
				t.Errorf("%v: %s: %q, %v", s, partial, text2, err)
			}
			if _, err := os.Stat(command.Dir + "/out.jsonl"); err == nil {
				t.Errorf("%v: there is an output file", s)
			}
		}
	}
}

func await(t *testing.T, condition func() bool) {
	t.Helper()
	for range 500 {
		if condition() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("waited for five seconds in vain")
}

// When the reader of stdout goes away, a command that waits, for input or for
// anything else, dies of SIGPIPE in silence.
func TestTheReaderOfStdoutGoesAway(t *testing.T) {
	for _, then := range []string{"end", "wait"} {
		command := example(t, "--then", then)
		input, err := command.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		output, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr strings.Builder
		command.Stderr = &stderr
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		io.WriteString(input, exampleStream)
		if then == "wait" {
			io.WriteString(input, "{\"end\":1}\n")
			input.Close()
		}
		output.Read(make([]byte, 1))
		output.Close()
		command.Wait()
		status := command.ProcessState.Sys().(syscall.WaitStatus)
		if !status.Signaled() || status.Signal() != syscall.SIGPIPE || stderr.Len() > 0 {
			t.Errorf("--then %s: %v, %q; want death by SIGPIPE and nothing on stderr", then, command.ProcessState, stderr.String())
		}
	}
}

// A record is passed on before the input goes on.
func TestACommandServesAsACoprocess(t *testing.T) {
	command := example(t)
	input, _ := command.StdinPipe()
	output, _ := command.StdoutPipe()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	io.WriteString(input, exampleStream)
	got := ""
	buffer := make([]byte, 1<<12)
	for !strings.Contains(got, `"a"`) {
		n, err := output.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		got += string(buffer[:n])
	}
	io.WriteString(input, "{\"end\":1}\n")
	input.Close()
	io.Copy(io.Discard, output)
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
}

func TestPermute(t *testing.T) {
	c := exampleCommand()
	var s shared
	c.declareShared(&s)
	for raw, want := range map[string]string{
		"a --domain x b":             "--domain=x | a b",
		"--domain=x -qv - a":         "--quiet=true --verbose=true | - a",
		"-j4 -o f -o=g":              "--threads=4 --output=f --output=g |",
		"-qo f a":                    "--quiet=true --output=f | a",
		"a -- --domain -q":           "| a --domain -q",
		"--domain -q --groups -3 -":  "--domain=-q --groups=-3 | -",
		"--note a,b --note= --quiet": "--note=a,b --note= --quiet=true |",
		"--domain --":                "--domain=-- |",
	} {
		flags, operands, err := c.permute(strings.Fields(raw))
		got := strings.TrimSpace(strings.Join(flags, " ") + " | " + strings.Join(operands, " "))
		if strings.HasPrefix(raw, "--domain=x") {
			want = "--domain=x " + want
		}
		if err != nil || got != want {
			t.Errorf("%s: got %s, %v; want %s", raw, got, err, want)
		}
	}
	for raw, want := range map[string]string{
		"--domian x": "unknown flag --domian", "-z": "unknown flag -z", "--domain": "--domain needs a value", "-o": "-o needs a value",
	} {
		if _, _, err := c.permute(strings.Fields(raw)); err == nil || !strings.Contains(err.Error(), want) || exitCode(err) != ExitUsage {
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
	}
}

// Every id lies in exactly one shard.
// What is printed about an error is one line without control characters.
func TestErrorsAreALine(t *testing.T) {
	if got, want := oneLine("a\r\nb \x1b[31m\tc\x00"), "a; b \ufffd[31m\tc\ufffd"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := oneLine(strings.Repeat("é", 5000)); len([]rune(got)) != longestLine+len(" ...") {
		t.Errorf("%d characters", len([]rune(got)))
	}
}

func TestShardsPartitionTheIDs(t *testing.T) {
	for id := range 200 {
		in := 0
		for i := range 7 {
			inv := &Invocation{shardIndex: i, shardCount: 7}
			if !inv.Skip(fmt.Sprint("id", id)) {
				in++
			}
		}
		if in != 1 {
			t.Errorf("id %d lies in %d shards", id, in)
		}
	}
}

func TestManualIsRenderedAsText(t *testing.T) {
	got := renderManual(`.Dd January 1, 2026
.Dt ODYSSEY-X 1
.Os
.Sh NAME
.Nm odyssey-x
.Nd do a thing
.Sh SYNOPSIS
.Nm
.Op Fl -groups Ar N
.Op Ar FILE ...
.Sh DESCRIPTION
.Nm
reads
.Pq see Xr odyssey-stream 5 ,
writes
.Ql {"end": n} .
.Bl -tag -width Ds
.It Fl o , Fl -output Ar FILE
Write to
.Ar FILE .
.El
.Pp
Then:
.Bd -literal -offset indent
odyssey-x a | odyssey-y
.Ed
`)
	want := `ODYSSEY-X(1)

NAME
     odyssey-x - do a thing

SYNOPSIS
     odyssey-x [--groups N] [FILE ...]

DESCRIPTION
     odyssey-x reads (see odyssey-stream(5)), writes '{"end": n}'.

     -o, --output FILE
           Write to FILE.

     Then:

         odyssey-x a | odyssey-y
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
