// The commands as real processes: scripts under testdata/script, and what is
// demanded of every command alike.

package odyssey_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/odyssey-rl/odyssey/internal/cmdline"
)

// commandFolder builds the commands once and returns the folder that holds
// them.
var commandFolder = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "odyssey-commands-")
	if err != nil {
		return "", err
	}
	builtFolder = folder
	build := exec.Command("go", "build", "-o", folder+"/", "./cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build does
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %v\n%s", err, output)
	}
	return folder, nil
})

func commands(t *testing.T) string {
	t.Helper()
	folder, err := commandFolder()
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

var builtFolder string // what TestMain removes

func TestMain(m *testing.M) {
	code := m.Run()
	if builtFolder != "" {
		os.RemoveAll(builtFolder)
	}
	os.Exit(code)
}

func TestScripts(t *testing.T) {
	folder := commands(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", folder+string(os.PathListSeparator)+env.Getenv("PATH"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits CODE COMMAND... runs a shell line and demands its exit code; stdout and
// stderr go to files of these names.
func exits(ts *testscript.TestScript, _ bool, arguments []string) {
	command := exec.Command("bash", "-c", "set -o pipefail; "+strings.Join(arguments[1:], " "))
	command.Dir = ts.Getenv("WORK")
	command.Env = []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("WORK")}
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	command.Run()
	ts.Check(os.WriteFile(ts.MkAbs("stdout"), stdout.Bytes(), 0o666))
	ts.Check(os.WriteFile(ts.MkAbs("stderr"), stderr.Bytes(), 0o666))
	if got := fmt.Sprint(command.ProcessState.ExitCode()); got != arguments[0] {
		ts.Fatalf("exit code %s, want %s\n%s", got, arguments[0], stderr.String())
	}
}

// runCommand returns what a command without input printed and its exit code.
func runCommand(t *testing.T, name string, arguments ...string) (stdout, stderr string, code int) {
	t.Helper()
	command := exec.Command(filepath.Join(commands(t), name), arguments...)
	command.Dir = t.TempDir()
	var out, log bytes.Buffer
	command.Stdout, command.Stderr = &out, &log
	command.Run()
	return out.String(), log.String(), command.ProcessState.ExitCode()
}

// A wrong command line: exit code 2, nothing on stdout, one line that names the
// command and the fault.
func TestUsageErrors(t *testing.T) {
	for _, name := range cmdline.Commands {
		for _, arguments := range [][]string{{"--no-such-flag"}, {"--progress", "perhaps"}, {"-o"}, {"FILE", "--no-such-flag"}, {"--config", "absent"}} {
			stdout, stderr, code := runCommand(t, name, arguments...)
			if code != cmdline.ExitUsage || stdout != "" || !strings.HasPrefix(stderr, name+": ") {
				t.Errorf("%s %q: exit code %d, stdout %q, stderr %q", name, arguments, code, stdout, stderr)
			}
		}
	}
}

// No input at all is a cut stream, and so is a stream without its end: exit
// code 3 and no output file.
func TestCutStreams(t *testing.T) {
	kinds := map[string]string{
		"odyssey-tools": "environment", "odyssey-tasks": "environment", "odyssey-verify": "environment",
		"odyssey-rollout": "environment", "odyssey-hca": "trajectory", "odyssey-train": "credit",
	}
	for name, kind := range kinds {
		head := fmt.Sprintf("{\"format\":\"odyssey-stream\",\"kind\":%q,\"version\":\"1.0\"}\n", kind)
		for _, input := range []string{"", head, head[:20], head + "{\"environment_id\":\"a\"", "\xff\xff\xff\xff\x10"} {
			arguments := []string{"-o", "out.jsonl"}
			if name == "odyssey-train" {
				arguments = append(arguments, "--eval")
			}
			command := exec.Command(filepath.Join(commands(t), name), arguments...)
			command.Dir = t.TempDir()
			command.Stdin = strings.NewReader(input)
			var log bytes.Buffer
			command.Stderr = &log
			command.Run()
			if code := command.ProcessState.ExitCode(); code != cmdline.ExitFailure {
				t.Errorf("%s of %q: exit code %d, %s", name, input, code, log.String())
			}
			if files, _ := os.ReadDir(command.Dir); len(files) > 0 {
				t.Errorf("%s of %q left %s", name, input, files[0].Name())
			}
		}
	}
}
