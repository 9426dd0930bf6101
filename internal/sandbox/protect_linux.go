// What a worker gives up on Linux: new system calls beside a short list, new
// descriptors, files, core dumps and memory past a bound.
package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"golang.org/x/sys/unix"
)

// allowedCalls is what the Go runtime needs to compute, collect garbage and
// talk over open descriptors. None of them opens or connects anything.
var allowedCalls = []string{
	"read", "write", "close",
	"mmap", "munmap", "mprotect", "madvise", "brk",
	"futex", "sched_yield", "sched_getaffinity", "set_robust_list", "rseq", "restart_syscall",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack",
	"nanosleep", "clock_gettime", "clock_nanosleep", "gettimeofday", "getrandom",
	"timer_create", "timer_settime", "timer_delete",
	"epoll_pwait", "epoll_ctl",
	"getpid", "gettid", "tgkill", "exit", "exit_group",
}

// addressSpace returns the size of the process's address space in bytes.
func addressSpace() (uint64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var pages uint64
	if _, err := fmt.Sscan(string(text), &pages); err != nil {
		return 0, err
	}
	return pages * uint64(os.Getpagesize()), nil
}

// closeInherited closes what a careless ancestor left open, all but the three
// pipes and the runtime's poller.
func closeInherited() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(target, "anon_inode:[event") {
			unix.Close(fd)
		}
	}
	return nil
}

// protect applies the limits of resources and the filter to every thread of
// the process. After an error the process must not run foreign code.
func protect() error {
	if err := closeInherited(); err != nil {
		return err
	}
	// RLIMIT_DATA alone lets one huge allocation through: the runtime reserves
	// address space first, and mapping over a reservation is not counted again.
	// The runtime also reserves gigabytes that it never uses, so the bound on
	// address space counts from what stands now.
	standing, err := addressSpace()
	if err != nil {
		return err
	}
	limits := []struct {
		resource int
		value    uint64
	}{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_FSIZE, 0},
		{unix.RLIMIT_NOFILE, 0},
		{unix.RLIMIT_DATA, hardMemory},
		{unix.RLIMIT_AS, standing + hardMemory},
	}
	for _, l := range limits {
		if raceDetector && (l.resource == unix.RLIMIT_DATA || l.resource == unix.RLIMIT_AS) {
			continue // its shadow memory is larger than any bound
		}
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.value, Max: l.value}); err != nil {
			return fmt.Errorf("setrlimit: %w", err)
		}
	}
	names := allowedCalls
	if runtime.GOARCH == "amd64" {
		names = append([]string{"epoll_wait"}, names...)
	}
	// A thread may be made, a process may not.
	thread := seccomp.NameWithConditions{
		Name: "clone",
		Conditions: seccomp.ArgumentConditions{{
			Argument:  0,
			Operation: seccomp.BitsSet,
			Value:     unix.CLONE_VM | unix.CLONE_THREAD,
		}},
	}
	err = seccomp.LoadFilter(seccomp.Filter{
		NoNewPrivs: true,
		Flag:       seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{
			DefaultAction: seccomp.ActionErrno,
			Syscalls: []seccomp.SyscallGroup{
				{Action: seccomp.ActionAllow, Names: names},
				{Action: seccomp.ActionAllow, NamesWithCondtions: []seccomp.NameWithConditions{thread}},
				// A C library, which a binary built with cgo has, makes threads
				// by clone3 and falls back on clone only where that is unknown.
				{Action: seccomp.ActionErrno | seccomp.Action(unix.ENOSYS), Names: []string{"clone3"}},
			},
		},
	})
	if err != nil {
		return fmt.Errorf("%w: %v", ErrUnprotected, err)
	}
	// A filter that filters nothing is worse than none.
	if _, err := unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		return fmt.Errorf("%w: the filter is not in force", ErrUnprotected)
	}
	if _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); err == nil {
		return fmt.Errorf("%w: the filter is not in force", ErrUnprotected)
	}
	return nil
}

// selfPath names this very binary even after the file was replaced.
const selfPath = "/proc/self/exe"

// dieWithParent makes the kernel end the worker when the parent is killed.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
