// One run of a command: its operands, shared flags, input and output.

package cmdline

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/odyssey-rl/odyssey/internal/stream"
)

// Invocation is what a command's Run is given.
type Invocation struct {
	Operands  []string // FILE operands; none means stdin
	Threads   int      // --threads, at least 1
	Seed      uint64   // --seed
	DryRun    bool     // --dry-run
	KeepGoing bool     // --keep-going
	Quiet     bool     // --quiet
	Verbose   bool     // --verbose
	Stderr    io.Writer

	command *Command
	shared  *shared
	set     map[string]bool
	ctx     context.Context
	stdin   io.Reader

	shardIndex, shardCount int

	inputDigest string
	writer      *stream.Writer
	text        *bufio.Writer
	file        *os.File // of output, nil: stdout
	progress    progress
}

// IsSet says whether the flag was given, by argument, environment or
// configuration file.
func (inv *Invocation) IsSet(name string) bool { return inv.set[name] }

// Stdin is the standard input; a read from it ends when the command is
// interrupted.
func (inv *Invocation) Stdin() io.Reader { return inv.stdin }

// maxThreads is more than any machine has; beyond it the stacks alone would
// fill the memory.
const maxThreads = 1 << 12

func (inv *Invocation) validate() error {
	var err error
	if inv.shardIndex, inv.shardCount, err = parseShard(inv.shared.shard); err != nil {
		return err
	}
	if _, err := inv.format(); err != nil {
		return err
	}
	if inv.set["output"] && inv.shared.output == "" {
		return Hint(Usagef("--output is empty"), "-o - writes to stdout")
	}
	if inv.Threads > maxThreads {
		return Usagef("invalid value \"%d\" for flag --threads: want at most %d", inv.Threads, maxThreads)
	}
	if inv.command.Validate != nil {
		err := inv.command.Validate(inv)
		if err != nil && exitCode(err) == ExitFailure {
			return &exitError{ExitUsage, err}
		}
		return err
	}
	return nil
}

// Skip says whether the row with this id is not this invocation's work: it
// lies in another part of --shard I/N.
func (inv *Invocation) Skip(id string) bool {
	if inv.shardCount <= 1 {
		return false
	}
	sum := sha256.Sum256([]byte(id))
	return binary.BigEndian.Uint64(sum[:8])%uint64(inv.shardCount) != uint64(inv.shardIndex)
}

// Logf tells people something on stderr, one line, unless --quiet.
func (inv *Invocation) Logf(format string, arguments ...any) {
	if !inv.Quiet {
		inv.say(fmt.Sprintf(format, arguments...))
	}
}

// Debugf tells people something on stderr with --verbose.
func (inv *Invocation) Debugf(format string, arguments ...any) {
	if inv.Verbose && !inv.Quiet {
		inv.say(fmt.Sprintf(format, arguments...))
	}
}

// Warnf tells people about something wrong that does not stop the command.
func (inv *Invocation) Warnf(format string, arguments ...any) {
	inv.say("warning: " + fmt.Sprintf(format, arguments...))
}

func (inv *Invocation) say(text string) {
	inv.progress.mutex.Lock()
	defer inv.progress.mutex.Unlock()
	inv.progress.clear()
	fmt.Fprintf(inv.Stderr, "%s: %s\n", inv.command.Name, oneLine(text))
}

// Color says whether text for people on file may be coloured.
func (inv *Invocation) Color(file *os.File) bool {
	switch inv.shared.color {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(file.Fd()))
}

// Reader opens the stream in the operands, or in stdin without any, and
// refuses it if its kind is not among kinds.
func (inv *Invocation) Reader(kinds ...stream.Kind) (*stream.Reader, error) {
	return inv.ReaderOf(inv.Operands, kinds...)
}

// ReaderOf is Reader for the given operands.
func (inv *Invocation) ReaderOf(operands []string, kinds ...stream.Kind) (*stream.Reader, error) {
	r, err := stream.OpenReader(operands, inv.stdin, kinds...)
	if err != nil {
		return nil, err
	}
	if inv.inputDigest == "" {
		inv.inputDigest = r.Header().Digest()
	}
	return r, nil
}

// Writer opens the output stream that the flags ask for. The header is the
// input's, changed where the command changes it; Writer adds this command to
// its provenance. Main closes the writer: with the end record if Run returns
// nil or Refusedf, else the output file is removed.
func (inv *Invocation) Writer(header stream.Header) (*stream.Writer, error) {
	if inv.writer != nil {
		return nil, errors.New("the output stream is already open")
	}
	format, err := inv.format()
	if err != nil {
		return nil, err
	}
	if inv.shared.noProvenance {
		header.Provenance = nil
	} else {
		header.Provenance = append(header.Provenance[:len(header.Provenance):len(header.Provenance)], inv.provenance())
	}
	out, err := inv.openOutput()
	if err != nil {
		return nil, err
	}
	writer, err := stream.NewWriter(out, header, format)
	if err != nil {
		return nil, err
	}
	writer.OnRecord = inv.tick
	inv.writer = writer
	inv.startProgress()
	return writer, nil
}

// Text opens the output for people's eyes: reports and tables. It goes to
// stdout or to --output. Main flushes it and looks at its errors.
func (inv *Invocation) Text() (io.Writer, error) {
	if inv.text == nil {
		out, err := inv.openOutput()
		if err != nil {
			return nil, err
		}
		inv.text = bufio.NewWriter(out)
	}
	return inv.text, nil
}

func (inv *Invocation) openOutput() (io.Writer, error) {
	if inv.toStdout() {
		return os.Stdout, nil
	}
	if inv.file != nil {
		return inv.file, nil
	}
	file, err := inv.create(inv.shared.output)
	if err != nil {
		return nil, err
	}
	inv.file = file
	return file, nil
}

// create opens what will be the file name: name.partial, which takes its place
// by complete, or name itself if that is a device or a named pipe.
func (inv *Invocation) create(name string) (*os.File, error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return os.OpenFile(name, os.O_WRONLY, 0)
	}
	name += ".partial"
	if written, err := os.Stat(name); err == nil { // opening it would empty it
		for _, operand := range inv.Operands {
			if read, err := os.Stat(operand); err == nil && os.SameFile(read, written) {
				return nil, Hint(fmt.Errorf("%s is input and would be written over", operand), "rename it, or write another file")
			}
		}
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
}

// complete closes a file that create opened for name and puts it in its place.
func complete(file *os.File, name string) error {
	partial := file.Name() != name
	if partial {
		if err := file.Sync(); err != nil {
			file.Close()
			return err
		}
	}
	if err := file.Close(); err != nil {
		return err
	}
	if partial {
		return os.Rename(file.Name(), name)
	}
	return nil
}

// WriteFile writes a file beside the output, such as a summary, whole or not at
// all. A device or a named pipe is written as it is.
func (inv *Invocation) WriteFile(name string, write func(io.Writer) error) error {
	file, err := inv.create(name)
	if err != nil {
		return err
	}
	buffer := bufio.NewWriter(file)
	if err = write(buffer); err == nil {
		err = buffer.Flush()
	}
	if err == nil {
		err = complete(file, name)
	} else {
		file.Close()
	}
	if err != nil && file.Name() != name {
		os.Remove(file.Name())
	}
	return err
}

func (inv *Invocation) toStdout() bool { return inv.shared.output == "" || inv.shared.output == "-" }

// format is the encoding of the output: by the extension of --output unless
// --format says otherwise.
func (inv *Invocation) format() (stream.Format, error) {
	format := stream.Format{Arrow: inv.shared.format == "arrow", Zstd: inv.shared.zstd}
	name := inv.shared.output
	if !inv.set["format"] {
		format.Arrow = strings.HasSuffix(name, ".arrows") || strings.HasSuffix(name, ".arrow")
	}
	if strings.HasSuffix(name, ".zst") {
		format.Zstd = true
	}
	if (format.Arrow || format.Zstd) && name == "" && term.IsTerminal(int(os.Stdout.Fd())) {
		return format, Hint(Usagef("binary output is not for a terminal"), "-o FILE writes a file; -o - insists")
	}
	return format, nil
}

func (inv *Invocation) provenance() stream.Provenance {
	p := stream.Provenance{Program: inv.command.Name, Version: Version, Arguments: []string{}, Input: inv.inputDigest}
	for _, f := range inv.command.flags {
		if inv.set[f.name] && !f.neutral {
			p.Arguments = append(p.Arguments, "--"+f.name+"="+f.value.String())
		}
	}
	if inv.command.Shared&Seed != 0 {
		seed := inv.Seed
		p.Seed = &seed
	}
	return p
}

// finish completes the output: end record, flush, sync, rename.
func (inv *Invocation) finish() error {
	if inv.writer != nil {
		if err := inv.writer.Close(); err != nil {
			return err
		}
	}
	if inv.text != nil {
		if err := inv.text.Flush(); err != nil {
			return err
		}
	}
	if inv.file == nil {
		return nil
	}
	return complete(inv.file, inv.shared.output)
}

// abandon leaves no output file; an interrupted command leaves FILE.partial
// with what the writer has flushed: whole environments, whole groups.
func (inv *Invocation) abandon(keep bool) {
	if inv.file == nil {
		return
	}
	inv.file.Close()
	if !keep && inv.file.Name() != inv.shared.output {
		os.Remove(inv.file.Name())
	}
}
