// Errors and the exit codes they carry.

package cmdline

import (
	"errors"
	"fmt"
)

// Exit codes of every command.
const (
	ExitOK      = 0
	ExitRefused = 1   // the honest no: rejected under --strict, parity broken
	ExitUsage   = 2   // the command line is wrong; nothing was written
	ExitFailure = 3   // something failed while running
	ExitSIGINT  = 130 // interrupted
	ExitSIGTERM = 143 // terminated
)

type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// Usagef returns an error of the command line: exit code 2, stdout empty.
func Usagef(format string, arguments ...any) error {
	return &exitError{ExitUsage, fmt.Errorf(format, arguments...)}
}

// Refusedf returns the honest no: the work was done and the answer is no. Exit
// code 1; output written so far is completed and kept.
func Refusedf(format string, arguments ...any) error {
	return &exitError{ExitRefused, fmt.Errorf(format, arguments...)}
}

type hintError struct {
	err  error
	hint string
}

func (e *hintError) Error() string { return e.err.Error() }
func (e *hintError) Unwrap() error { return e.err }

// Hint adds to err a line that says what to do about it. It is printed after
// the error, after "hint:".
func Hint(err error, format string, arguments ...any) error {
	return &hintError{err, fmt.Sprintf(format, arguments...)}
}

func exitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	return ExitFailure
}

func hintOf(err error) string {
	var hint *hintError
	if errors.As(err, &hint) {
		return hint.hint
	}
	return ""
}
