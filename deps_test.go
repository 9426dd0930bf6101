// Who may import whom. The table below is the rule, this test enforces it, in
// the manner of go/build/deps_test.go of the Go tree.

package odyssey_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/odyssey-rl/odyssey"

// dependencies reads: what stands right of "<" may import what stands left of
// it, and what that may import in turn. The standard library is free to all,
// save where imports of the standard library are listed below. Packages of
// this module stand without "internal/".
const dependencies = `
	# The nouns, and what gives them form.
	std < episode
	episode < token, sandbox, stream, report, sampler
	episode, token < toolcall

	# Numbers.
	std < kernel
	kernel < kernel/ref
	kernel/ref < kernel/simd, kernel/cuda, kernel/kerneltest
	kernel < model
	model, episode < policy

	# Designers and the stages that make environments. Stages meet on the
	# stream: none imports another.
	episode < designer
	episode, sandbox, toolcall < toolcheck
	episode, designer, sandbox < seed
	designer, toolcheck < tools, tasks, verify

	# The stages of training.
	episode, token, toolcall < hca
	token, toolcall, sandbox, policy, model, sampler < rollout
	policy, model < train

	# Only commands know flags and terminals.
	std < man
	man, stream < cmdline
	cmdline, report < cmd
	seed, tools, tasks, verify, rollout, hca, train < cmd
	kernel/ref, kernel/simd, kernel/cuda < cmd

	# Programs beside the commands, over what the commands wrote.
	episode < examples/gates
`

// modules lists the other modules and the packages that may import them. What
// stands here is the only package that knows the thing: formats, flags,
// Starlark, schemas, system-call filters.
const modules = `
	github.com/apache/arrow/go/v17: stream
	github.com/klauspost/compress: stream
	github.com/urfave/cli/v2: cmdline
	github.com/schollz/progressbar/v3: cmdline
	golang.org/x/term: cmdline
	go.starlark.net: sandbox
	github.com/elastic/go-seccomp-bpf: sandbox
	github.com/santhosh-tekuri/jsonschema/v6: toolcall
	github.com/go-json-experiment/json: stream, token, toolcall, toolcheck, sandbox, seed, tools, tasks, verify, rollout, hca
	golang.org/x/text: token, toolcall, seed
	golang.org/x/sys: cmdline, sandbox, policy, kernel/simd, kernel/cuda
`

// closed lists packages that may import only these of the standard library:
// what they compute must not come to depend on files, time or the machine.
const closed = `
	episode: encoding/json
`

// rules reads lines "names SEPARATOR names".
func rules(t *testing.T, table, separator string) (lines [][2][]string) {
	t.Helper()
	names := func(text string) []string {
		list := strings.Split(text, ",")
		for i := range list {
			list[i] = strings.TrimSpace(list[i])
		}
		return list
	}
	for line := range strings.Lines(table) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		left, right, ok := strings.Cut(line, separator)
		if !ok {
			t.Fatalf("no %q in %q", separator, line)
		}
		lines = append(lines, [2][]string{names(left), names(right)})
	}
	return lines
}

func TestImportsFollowTheTable(t *testing.T) {
	may := map[string]map[string]bool{} // package -> what it may import
	for _, rule := range rules(t, dependencies, "<") {
		for _, name := range rule[1] {
			if may[name] == nil {
				may[name] = map[string]bool{}
			}
			for _, below := range rule[0] {
				if below == "std" {
					continue
				}
				if may[below] == nil {
					t.Fatalf("%s stands left of < before it stands right of one", below)
				}
				may[name][below] = true
				for further := range may[below] {
					may[name][further] = true
				}
			}
		}
	}
	foreign := rules(t, modules, ": ")
	standard := map[string][]string{}
	for _, rule := range rules(t, closed, ": ") {
		standard[rule[0][0]] = rule[1]
	}

	command := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	output, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(output)))
	for {
		var listed struct {
			ImportPath string
			Imports    []string
		}
		if err := decoder.Decode(&listed); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name, ok := localName(listed.ImportPath)
		if !ok || name == "" {
			continue
		}
		if may[name] == nil {
			t.Errorf("package %s is not in the table of deps_test.go", name)
			continue
		}
		for _, path := range listed.Imports {
			if below, ok := localName(path); ok {
				if !may[name][below] {
					t.Errorf("%s imports %s, which the table does not allow", name, below)
				}
				continue
			}
			first, _, _ := strings.Cut(path, "/")
			if !strings.Contains(first, ".") { // the standard library
				if list, ok := standard[name]; ok && !slices.Contains(list, path) {
					t.Errorf("%s imports %q, which it may not", name, path)
				}
				continue
			}
			i := slices.IndexFunc(foreign, func(rule [2][]string) bool {
				return path == rule[0][0] || strings.HasPrefix(path, rule[0][0]+"/")
			})
			switch {
			case i < 0:
				t.Errorf("%s imports %s, which is in no row of modules", name, path)
			case !slices.Contains(foreign[i][1], name):
				t.Errorf("%s imports %s; only %s may", name, path, strings.Join(foreign[i][1], ", "))
			}
		}
	}
}

// localName is the name of a package of this module as the table has it.
func localName(path string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(path, module)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	rest = strings.TrimPrefix(rest, "/")
	if strings.HasPrefix(rest, "cmd/") {
		return "cmd", true
	}
	return strings.TrimPrefix(rest, "internal/"), true
}
