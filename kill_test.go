// The training pipe, killed: whichever of the three commands dies, all end, and
// the same line continues to the bytes of an uninterrupted run.

package odyssey_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// trainingPipe is one run of the line rollout | hca | train. Its processes are
// connected by real pipes that the test holds no end of.
type trainingPipe struct {
	names     []string
	processes []*exec.Cmd
	errors    []*bytes.Buffer
}

func startTrainingPipe(t *testing.T, folder, environments, place string) *trainingPipe {
	t.Helper()
	lines := [][]string{
		{"odyssey-rollout", "-q", "--policy", "policy", "--groups", "3", "-G", "4", "--steps", "5", "--seed", "3", environments},
		{"odyssey-hca", "-q"},
		{"odyssey-train", "-q", "--policy", "policy", "-o", "metrics.jsonl"},
	}
	p := &trainingPipe{}
	var upstream *os.File
	for i, line := range lines {
		command := exec.Command(filepath.Join(folder, line[0]), line[1:]...)
		command.Dir = place // the arguments are in the provenance: they are those of every run
		stderr := new(bytes.Buffer)
		command.Stderr = stderr
		if upstream != nil {
			command.Stdin = upstream
		}
		var reader, writer *os.File
		if i+1 < len(lines) {
			var err error
			if reader, writer, err = os.Pipe(); err != nil {
				t.Fatal(err)
			}
			command.Stdout = writer
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		if upstream != nil {
			upstream.Close()
		}
		if writer != nil {
			writer.Close()
		}
		upstream = reader
		p.names = append(p.names, line[0])
		p.processes = append(p.processes, command)
		p.errors = append(p.errors, stderr)
	}
	return p
}

// wait demands that every process ends, and returns the exit states.
func (p *trainingPipe) wait(t *testing.T) []*os.ProcessState {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		for _, command := range p.processes {
			command.Wait()
		}
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		for i, command := range p.processes {
			command.Process.Signal(syscall.SIGQUIT)
			t.Errorf("%s: %s", p.names[i], p.errors[i])
		}
		t.Fatal("the pipe did not end")
	}
	var states []*os.ProcessState
	for _, command := range p.processes {
		states = append(states, command.ProcessState)
	}
	return states
}

// policyBytes are the files of the latest version, by name.
func policyBytes(t *testing.T, policy string) map[string]string {
	t.Helper()
	latest, err := filepath.EvalSymlinks(filepath.Join(policy, "latest"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"": filepath.Base(latest)}
	err = filepath.WalkDir(latest, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[entry.Name()] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestTheTrainingPipeContinuesWhicheverCommandIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("trains five steps four times")
	}
	folder, work := commands(t), t.TempDir()
	shell := func(line string) {
		t.Helper()
		command := exec.Command("bash", "-euo", "pipefail", "-c", line)
		command.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, output)
		}
	}
	environments := filepath.Join(work, "environments.arrows")
	shell("odyssey-seed -q --builtin | odyssey-tools -q | odyssey-tasks -q --per 2 | odyssey-verify -q -o " + environments)

	train := func(name string, victim int) (metrics []byte, policy map[string]string) {
		place := filepath.Join(work, name)
		directory, file := filepath.Join(place, "policy"), filepath.Join(place, "metrics.jsonl")
		if err := os.Mkdir(place, 0o777); err != nil {
			t.Fatal(err)
		}
		shell("odyssey-train -q --init pico --policy " + directory)
		if victim >= 0 {
			p := startTrainingPipe(t, folder, environments, place)
			for deadline := time.Now().Add(time.Minute); ; {
				if link, _ := os.Readlink(filepath.Join(directory, "latest")); link != "" && link != "v000000" {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("no step was committed; %v", p.errors)
				}
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Duration(10+20*victim) * time.Millisecond) // somewhere inside the next step
			p.processes[victim].Process.Kill()
			p.wait(t)
			if _, err := os.Stat(file); err == nil {
				t.Errorf("%s was killed, and yet the metrics are in place", p.names[victim])
			}
		}
		p := startTrainingPipe(t, folder, environments, place)
		for i, state := range p.wait(t) {
			if !state.Success() {
				t.Fatalf("%s: %v\n%s", p.names[i], state, p.errors[i])
			}
		}
		metrics, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return metrics, policyBytes(t, directory)
	}

	wantMetrics, wantPolicy := train("uninterrupted", -1)
	for victim, name := range []string{"rollout", "hca", "train"} {
		t.Run(name, func(t *testing.T) {
			metrics, policy := train(name, victim)
			if !bytes.Equal(metrics, wantMetrics) {
				t.Errorf("metrics differ from those of an uninterrupted run:\n%s\nwant\n%s", metrics, wantMetrics)
			}
			for file, want := range wantPolicy {
				if policy[file] != want {
					t.Errorf("%s of the final policy differs", fmt.Sprintf("%q", file))
				}
			}
			if len(policy) != len(wantPolicy) {
				t.Errorf("%d files in the final policy, want %d", len(policy), len(wantPolicy))
			}
		})
	}
}
