// The worker process: its start, its protections and its loop.
package sandbox

import (
	"bufio"
	"io"
	"os"
	"runtime/debug"
	"time"
)

// workerName is the argument zero that makes this binary a worker. No flag
// and no variable of a user's can do so by accident.
const workerName = "odyssey-sandbox-worker"

// maybeWorkerCalled guards against starting a program again that would not
// become a worker.
var maybeWorkerCalled bool

// MaybeWorker turns the process into a worker if it was started as one, and
// then does not return. It must be the first line of main, and of TestMain, in
// every program that uses a Pool.
func MaybeWorker() {
	maybeWorkerCalled = true
	if len(os.Args) == 1 && os.Args[0] == workerName {
		os.Exit(work(os.Stdin, os.Stdout))
	}
}

// The memory plan of a worker: the collector works harder as the heap nears
// softMemory; past hardMemory of data the kernel refuses and the worker dies.
const (
	softMemory = 320 << 20
	hardMemory = 512 << 20
	maxStack   = 64 << 20
)

// work reads the limits, gives up every right the work does not need, and
// answers requests until its input ends.
func work(stdin io.Reader, stdout io.Writer) int {
	debug.SetGCPercent(300)
	debug.SetMemoryLimit(softMemory)
	debug.SetMaxStack(maxStack)
	time.Sleep(time.Microsecond) // the runtime opens its poller now, while it still may
	in := bufio.NewReaderSize(stdin, 1<<16)
	body, err := readFrame(in, nil, maxRequestBytes)
	if err != nil {
		return 1
	}
	req, err := parseRequest(body)
	limits, ok := req.(helloRequest)
	if err != nil || !ok {
		return 1
	}
	hello := Result{Status: OK}
	if err := protect(); err != nil && !limits.Unprotected {
		hello = Result{Status: Infrastructure, Error: err.Error()}
	}
	answer := make([]byte, 4, 1<<16)
	send := func(r Result) error {
		answer = finishFrame(appendResult(answer[:4], r))
		_, err := stdout.Write(answer)
		return err
	}
	if send(hello) != nil || hello.Status != OK {
		return 1
	}
	interp := newInterpreter(limits)
	for {
		if body, err = readFrame(in, body, maxRequestBytes); err != nil {
			return 0
		}
		req, err := parseRequest(body)
		if err != nil {
			return 1
		}
		if send(interp.handle(req)) != nil {
			return 0
		}
		if cap(body) > 1<<20 {
			body = nil
		}
		if cap(answer) > 1<<20 {
			answer = make([]byte, 4, 1<<16)
		}
	}
}
