// Reading a stream, whatever its encoding.

// Package stream is the wire between the commands: a header, records and an
// end, as JSONL or as an Arrow IPC stream of the same schema. It is the only
// package that knows formats.
package stream

import (
	"bufio"
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// ErrCut says that a stream ended before its end record. Errors of a Reader
// wrap it.
var ErrCut = errors.New("the stream was cut: it has no end record")

// Reader reads one stream, which may lie in several files one after the other
// and in several parts within each. It is for one goroutine.
type Reader struct {
	kinds    []Kind
	operands []string
	stdin    io.Reader
	header   Header
	started  bool

	name   string
	file   *os.File
	lines  *bufio.Reader
	record int // number of the record in this file, from 1
	inPart bool
	count  int // records in this part
}

// OpenReader opens the stream that operands hold together: file names, "-" for
// stdin; none means stdin. It returns when the first header has been read, and
// refuses a stream whose kind is not among kinds.
func OpenReader(operands []string, stdin io.Reader, kinds ...Kind) (*Reader, error) {
	if len(operands) == 0 {
		operands = []string{"-"}
	}
	for _, name := range operands {
		if name != "-" {
			if _, err := os.Stat(name); err != nil {
				return nil, err
			}
		}
	}
	r := &Reader{kinds: kinds, operands: operands, stdin: stdin}
	if err := r.nextFile(); err != nil {
		return nil, err
	}
	if err := r.nextPart(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// NewReader reads the stream in src; name stands for it in errors.
func NewReader(src io.Reader, name string, kinds ...Kind) (*Reader, error) {
	r := &Reader{kinds: kinds, name: name, lines: bufio.NewReaderSize(src, 1<<16)}
	return r, r.nextPart()
}

// Header returns the header of the stream's first part.
func (r *Reader) Header() Header { return r.header }

// Close closes the open file.
func (r *Reader) Close() error {
	if r.file != nil {
		err := r.file.Close()
		r.file = nil
		return err
	}
	return nil
}

// Environment returns the next row of an environment stream; io.EOF only after
// a whole stream.
func (r *Reader) Environment() (*episode.Environment, error) {
	e := &episode.Environment{}
	fields := map[string]any{}
	structFields(e, fields)
	extra, err := r.next(fields)
	if err != nil {
		return nil, err
	}
	e.Extra = extra
	return e, nil
}

// Trajectory returns the next row of a trajectory or credit stream; of the
// latter, Credit is set. io.EOF only after a whole stream.
func (r *Reader) Trajectory() (*episode.Trajectory, error) {
	t := &episode.Trajectory{}
	fields := map[string]any{}
	structFields(t, fields)
	if r.header.Kind == KindCredit {
		t.Credit = &episode.Credit{}
		structFields(t.Credit, fields)
	}
	extra, err := r.next(fields)
	if err != nil {
		return nil, err
	}
	t.Extra = extra
	return t, nil
}

// Metric returns the next row of a metric stream; io.EOF only after a whole
// stream.
func (r *Reader) Metric() (*episode.Metric, error) {
	m := &episode.Metric{}
	fields := map[string]any{}
	structFields(m, fields)
	extra, err := r.next(fields)
	if err != nil {
		return nil, err
	}
	m.Extra = extra
	return m, nil
}

func (r *Reader) fail(err error) error {
	if r.record > 0 {
		return fmt.Errorf("%s: record %d: %w", r.name, r.record, err)
	}
	return fmt.Errorf("%s: %w", r.name, err)
}

func (r *Reader) nextFile() error {
	r.Close()
	if len(r.operands) == 0 {
		return io.EOF
	}
	r.name, r.record = r.operands[0], 0
	r.operands = r.operands[1:]
	if r.name == "-" {
		r.name = "stdin"
		r.lines = bufio.NewReaderSize(r.stdin, 1<<16)
		return nil
	}
	file, err := os.Open(r.name)
	if err != nil {
		return err
	}
	r.file = file
	r.lines = bufio.NewReaderSize(file, 1<<16)
	return nil
}

// nextPart reads the header of the next part of this file.
func (r *Reader) nextPart() error {
	line, err := r.line()
	if err == io.EOF {
		if !r.inPart && r.started && r.record > 0 {
			return io.EOF
		}
		return r.fail(ErrCut)
	}
	if err != nil {
		return r.fail(err)
	}
	header, err := parseHeader(line)
	if err != nil {
		return r.fail(err)
	}
	if !r.started {
		if len(r.kinds) > 0 && !slices.Contains(r.kinds, header.Kind) {
			return r.fail(fmt.Errorf("this is a stream of kind %q; wanted %v", header.Kind, r.kinds))
		}
		r.header, r.started = header, true
	} else if err := r.header.agrees(header); err != nil {
		return r.fail(err)
	}
	r.inPart, r.count = true, 0
	return nil
}

// line returns the next line that is not blank, without its line break.
func (r *Reader) line() ([]byte, error) {
	for {
		line, err := r.lines.ReadBytes('\n')
		line = bytes.TrimRight(bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")), "\r\n")
		if len(bytes.TrimSpace(line)) > 0 {
			if err == io.EOF {
				err = nil
			}
			return line, err
		}
		if err != nil {
			return nil, err
		}
	}
}

func (r *Reader) next(fields map[string]any) (map[string]stdjson.RawMessage, error) {
	for {
		if !r.inPart {
			err := r.nextPart()
			if err == io.EOF {
				if err := r.nextFile(); err != nil {
					return nil, err
				}
				err = r.nextPart()
			}
			if err != nil {
				return nil, err
			}
		}
		line, err := r.line()
		if err == io.EOF {
			err = ErrCut
		}
		if err != nil {
			return nil, r.fail(err)
		}
		r.record++
		extra, err := unmarshalObject(line, fields)
		if err != nil {
			return nil, r.fail(err)
		}
		if end, ok := extra["end"]; ok && len(extra) == 1 {
			if n, err := strconv.Atoi(string(end)); err != nil || n != r.count {
				return nil, r.fail(fmt.Errorf("the end record counts %s records, but %d were read", end, r.count))
			}
			r.inPart = false
			continue
		}
		r.count++
		return extra, nil
	}
}
