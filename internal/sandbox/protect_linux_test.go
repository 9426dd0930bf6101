package sandbox

import (
	"fmt"
	"os"
	"regexp"
	"testing"
)

// What the kernel says of a worker, not what the worker says of itself.
func TestAWorkerIsConfined(t *testing.T) {
	s := open(t, Options{})
	pid := s.pool.idle[0].cmd.Process.Pid
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("no /proc here")
	}
	for _, want := range []string{`Seccomp:\s+2`, `NoNewPrivs:\s+1`} {
		if !regexp.MustCompile(want).Match(status) {
			t.Errorf("worker status lacks %s", want)
		}
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`Max open files\s+0\s+0`, `Max core file size\s+0\s+0`, `Max file size\s+0\s+0`} {
		if !regexp.MustCompile(want).Match(limits) {
			t.Errorf("worker limits lack %s", want)
		}
	}
	// The runtime's own poller may stand beside the three pipes.
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, f.Name()))
		if !regexp.MustCompile(`^(pipe:|anon_inode:\[event(poll|fd)\])`).MatchString(target) {
			t.Errorf("worker holds descriptor %s: %s", f.Name(), target)
		}
	}
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err == nil && len(environment) > 100 {
		t.Errorf("worker inherited variables: %q", environment)
	}
}
