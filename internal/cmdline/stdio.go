// Standard streams: reads that a signal ends, and the watch for a reader that
// has gone away.

package cmdline

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// interruptible reads a file until ctx is done. While it waits for input it
// also watches stdout, so that a filter ends when the command after it does.
type interruptible struct {
	file *os.File
	ctx  context.Context
	once sync.Once
	wake [2]*os.File // a pipe, whose end closes when ctx is done
}

func (r *interruptible) Read(into []byte) (int, error) {
	r.once.Do(func() {
		reading, writing, err := os.Pipe()
		if err != nil {
			return
		}
		r.wake[0], r.wake[1] = reading, writing
		context.AfterFunc(r.ctx, func() { writing.Close() })
	})
	if r.wake[0] == nil {
		return r.file.Read(into)
	}
	for {
		fds := []unix.PollFd{
			{Fd: int32(r.file.Fd()), Events: unix.POLLIN},
			{Fd: int32(r.wake[0].Fd()), Events: unix.POLLIN},
			{Fd: watched()},
		}
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return r.file.Read(into)
		case fds[1].Revents != 0:
			return 0, context.Cause(r.ctx)
		case fds[2].Revents&unix.POLLERR != 0:
			dieOfBrokenPipe()
		case fds[0].Revents != 0:
			n, err := r.file.Read(into)
			if err == nil && n == 0 && len(into) > 0 {
				err = io.EOF
			}
			return n, err
		}
	}
}

// watched is stdout's descriptor if stdout is a pipe, else -1, which poll
// ignores.
func watched() int32 {
	info, err := os.Stdout.Stat()
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return -1
	}
	return int32(os.Stdout.Fd())
}

// WatchStdout ends the process as SIGPIPE does when stdout is a pipe and its
// reader goes away, until ctx is done. A command calls it around waits that
// are neither reads from stdin nor writes to stdout.
func WatchStdout(ctx context.Context) {
	fd := watched()
	if fd < 0 {
		return
	}
	go func() {
		for ctx.Err() == nil {
			fds := []unix.PollFd{{Fd: fd}} // no events: only the error of a closed pipe
			n, err := unix.Poll(fds, int((200 * time.Millisecond).Milliseconds()))
			if err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
			if n > 0 && ctx.Err() == nil && fds[0].Revents&unix.POLLERR != 0 {
				dieOfBrokenPipe()
			}
		}
	}()
}

// dieOfBrokenPipe writes into the pipe that nobody reads any more; the
// runtime then ends the process by SIGPIPE.
func dieOfBrokenPipe() {
	os.Stdout.Write([]byte{'\n'})
	os.Exit(128 + int(unix.SIGPIPE))
}
