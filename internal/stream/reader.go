// Reading a stream, whatever its encoding.

// Package stream is the wire between the commands: a header, records and an
// end, as JSONL or as an Arrow IPC stream of the same schema. It is the only
// package that knows formats. README.md tells how it is laid out.
package stream

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// ErrCut says that a stream ended before its end. Errors of a Reader wrap it.
var ErrCut = errors.New("the stream was cut: it has no end record")

// part is one stream within a file: header, records, end.
type part interface {
	header() Header
	next(r row) error // io.EOF after the end
}

// Reader reads one stream, which may lie in several files one after the other
// and in several parts within each. It is for one goroutine.
type Reader struct {
	kinds    []Kind
	operands []string // not yet opened
	stdin    io.Reader
	header   Header // of the first part

	name   string // of the open file, for errors
	file   *os.File
	source *bufio.Reader
	unzip  *zstd.Decoder // set once the file turned out to be compressed
	fault  *faultKeeper  // beneath unzip
	part   part
	parts  int // begun in this file
	record int // number of the last record in this file, from 1
	seen   map[[16]byte]struct{}
	err    error
}

// OpenReader opens the stream that operands hold together: file names, "-" for
// stdin; none means stdin. It returns when the first header has been read, and
// refuses a stream whose kind is not among kinds.
func OpenReader(operands []string, stdin io.Reader, kinds ...Kind) (*Reader, error) {
	if len(operands) == 0 {
		operands = []string{"-"}
	}
	for _, name := range operands { // before anything is written
		if name != "-" {
			if _, err := os.Stat(name); err != nil {
				return nil, err
			}
		}
	}
	r := &Reader{kinds: kinds, operands: operands, stdin: stdin, seen: map[[16]byte]struct{}{}}
	err := r.nextFile()
	if err == nil {
		err = r.nextPart()
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// NewReader reads the stream in source; name stands for it in errors.
func NewReader(source io.Reader, name string, kinds ...Kind) (*Reader, error) {
	r := &Reader{kinds: kinds, seen: map[[16]byte]struct{}{}}
	r.open(name, source)
	if err := r.nextPart(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Header returns the header of the stream's first part. Its Provenance is the
// caller's to extend.
func (r *Reader) Header() Header { return r.header }

// Close closes the open file.
func (r *Reader) Close() error {
	if r.unzip != nil {
		r.unzip.Close()
		r.unzip = nil
	}
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}

// Environment returns the next row of an environment stream; io.EOF only after
// a whole stream.
func (r *Reader) Environment() (*episode.Environment, error) {
	e := &episode.Environment{}
	if err := r.next(environmentRow(e), KindEnvironment); err != nil {
		return nil, err
	}
	if err := checkEnvironment(e); err != nil {
		return nil, r.fail(err)
	}
	return e, r.once("environment_id", e.EnvironmentID)
}

// Trajectory returns the next row of a trajectory or credit stream; of the
// latter, Credit is set. io.EOF only after a whole stream.
func (r *Reader) Trajectory() (*episode.Trajectory, error) {
	t := &episode.Trajectory{}
	if r.header.Kind == KindCredit {
		t.Credit = &episode.Credit{}
	}
	if err := r.next(trajectoryRow(t), KindTrajectory, KindCredit); err != nil {
		return nil, err
	}
	if err := checkTrajectory(t, r.header.Kind); err != nil {
		return nil, r.fail(err)
	}
	return t, r.once("trajectory_id", t.TrajectoryID)
}

// Metric returns the next row of a metric stream; io.EOF only after a whole
// stream.
func (r *Reader) Metric() (*episode.Metric, error) {
	m := &episode.Metric{}
	if err := r.next(metricRow(m), KindMetric); err != nil {
		return nil, err
	}
	return m, nil
}

// once refuses an id that an earlier record had.
func (r *Reader) once(field, id string) error {
	sum := sha256.Sum256([]byte(id))
	key := [16]byte(sum[:16])
	if _, twice := r.seen[key]; twice {
		return r.fail(&fieldError{field, fmt.Errorf("%s stands in an earlier record too", id)})
	}
	r.seen[key] = struct{}{}
	return nil
}

// fail keeps err, with its place, as the end of the stream.
func (r *Reader) fail(err error) error {
	if r.record > 0 {
		err = fmt.Errorf("record %d: %w", r.record, err)
	}
	r.err = fmt.Errorf("%s: %w", r.name, err)
	return r.err
}

// next reads the next record of the files and parts still to come.
func (r *Reader) next(into row, kinds ...Kind) error {
	if r.err != nil {
		return r.err
	}
	if !slices.Contains(kinds, r.header.Kind) {
		return r.fail(fmt.Errorf("this is a stream of kind %q", r.header.Kind))
	}
	for {
		if r.part != nil {
			err := r.part.next(into)
			if err == io.EOF {
				r.part = nil
				continue
			}
			if err = r.cause(err); errors.Is(err, ErrCut) {
				r.record = 0 // no record is to blame
				return r.fail(err)
			}
			r.record++
			if err != nil {
				return r.fail(err)
			}
			return nil
		}
		err := r.nextPart()
		if err == io.EOF {
			if err = r.nextFile(); err == nil {
				err = r.nextPart()
			}
		}
		if err != nil {
			r.err = err
			return err
		}
	}
}

// cause prefers the error of the file beneath to what a decoder made of it.
func (r *Reader) cause(err error) error {
	if err != nil && r.fault.err != nil {
		return r.fault.err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, ErrCut) {
		return fmt.Errorf("%w (%w)", ErrCut, err)
	}
	return err
}

func (r *Reader) nextFile() error {
	if err := r.Close(); err != nil {
		return err
	}
	if len(r.operands) == 0 {
		return io.EOF
	}
	name := r.operands[0]
	r.operands = r.operands[1:]
	if name == "-" {
		r.open("stdin", r.stdin)
		return nil
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	r.file = file
	r.open(name, file)
	return nil
}

func (r *Reader) open(name string, source io.Reader) {
	r.name, r.parts, r.record, r.part = name, 0, 0, nil
	r.fault = &faultKeeper{source: source}
	r.source = bufio.NewReaderSize(r.fault, 1<<16)
}

var (
	magicZstd    = []byte{0x28, 0xb5, 0x2f, 0xfd}
	magicArrow   = []byte{0xff, 0xff, 0xff, 0xff}
	magicBOM     = []byte{0xef, 0xbb, 0xbf}
	magicFile    = []byte("ARROW1")
	magicGzip    = []byte{0x1f, 0x8b}
	magicParquet = []byte("PAR1")
)

// nextPart begins the next part of this file: io.EOF if there is none.
func (r *Reader) nextPart() error {
	for {
		first, err := r.source.Peek(1)
		if err != nil {
			if err != io.EOF || r.fault.err != nil || r.parts == 0 {
				if err == io.EOF {
					err = ErrCut
					if r.parts == 0 {
						err = fmt.Errorf("%w (no input at all)", err)
					}
				}
				return r.fail(r.cause(err))
			}
			return io.EOF
		}
		if first[0] == '\n' || first[0] == '\r' || first[0] == ' ' || first[0] == '\t' {
			r.source.Discard(1)
			continue
		}
		if first[0] == magicBOM[0] {
			if mark, _ := r.source.Peek(3); bytes.Equal(mark, magicBOM) {
				r.source.Discard(3)
				continue
			}
		}
		magic, _ := r.source.Peek(4)
		if r.unzip == nil && (bytes.Equal(magic, magicZstd) || len(magic) == 4 && magic[0]&0xf0 == 0x50 && bytes.Equal(magic[1:], []byte{0x2a, 0x4d, 0x18})) {
			// Concurrency 1 decodes as it reads: a block is delivered
			// before the next one is asked for.
			unzip, err := zstd.NewReader(r.source, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<27))
			if err != nil {
				return r.fail(r.cause(err))
			}
			r.unzip = unzip
			r.source = bufio.NewReaderSize(unzip, 1<<16)
			continue
		}
		break
	}
	after := r.record
	if r.parts > 0 {
		r.record = 0 // the record before is whole
	}
	var next part
	var err error
	switch magic, _ := r.source.Peek(6); {
	case bytes.HasPrefix(magic, magicArrow):
		next, err = newArrowPart(r.source)
	case bytes.HasPrefix(magic, []byte("{")):
		next, err = newJSONLPart(r.source)
	case bytes.HasPrefix(magic, magicFile):
		err = errors.New("an Arrow file, not an Arrow stream; write it with the stream writer of its program")
	case bytes.HasPrefix(magic, magicGzip):
		err = errors.New("gzip data; decompress it first, or use zstd")
	case bytes.HasPrefix(magic, magicParquet):
		err = errors.New("a Parquet file, not a stream")
	case len(magic) < 4 && (bytes.HasPrefix(magicZstd, magic) || bytes.HasPrefix(magicArrow, magic)):
		err = ErrCut
	default:
		err = fmt.Errorf("neither JSONL nor an Arrow stream: it begins with %q", magic)
	}
	if err != nil && after > 0 {
		err = fmt.Errorf("after the end of the stream of %d records: %w", after, err)
	}
	if err != nil {
		return r.fail(r.cause(err))
	}
	header := next.header()
	if r.header.Kind == "" {
		if len(r.kinds) > 0 && !slices.Contains(r.kinds, header.Kind) {
			wanted := make([]string, len(r.kinds))
			for i, kind := range r.kinds {
				wanted[i] = string(kind)
			}
			return r.fail(fmt.Errorf("a stream of kind %q; this command reads %s", header.Kind, strings.Join(wanted, " or ")))
		}
		r.header = header
	} else if err := r.header.agrees(header); err != nil {
		return r.fail(err)
	}
	r.part = next
	r.parts++
	r.record = after
	return nil
}

// faultKeeper remembers a read error other than the end: the zstd decoder
// drops one that falls on the boundary of two frames.
type faultKeeper struct {
	source io.Reader
	err    error
}

func (k *faultKeeper) Read(into []byte) (int, error) {
	if k.err != nil {
		return 0, k.err
	}
	n, err := k.source.Read(into)
	if err != nil && err != io.EOF {
		k.err = err
	}
	return n, err
}

// jsonlPart reads the lines of a JSONL stream.
type jsonlPart struct {
	source *bufio.Reader
	head   Header
	node   *node
	line   []byte
	count  int
}

func newJSONLPart(source *bufio.Reader) (*jsonlPart, error) {
	p := &jsonlPart{source: source}
	line, whole, err := p.read()
	if err != nil {
		return nil, err
	}
	if p.head, err = parseHeader(line); err != nil {
		if !whole {
			return nil, ErrCut
		}
		return nil, err
	}
	p.node = rowNodes[p.head.Kind]
	return p, nil
}

func (p *jsonlPart) header() Header { return p.head }

// read returns the next line that is not blank, a view until the next call,
// and whether it ended with a line break. At the end of the source it returns
// ErrCut, for the end record comes before.
func (p *jsonlPart) read() (line []byte, whole bool, err error) {
	for {
		p.line = p.line[:0]
		for {
			piece, err := p.source.ReadSlice('\n')
			if err == nil && len(p.line) == 0 {
				line = piece
				whole = true
				break
			}
			p.line = append(p.line, piece...)
			if err == bufio.ErrBufferFull {
				continue
			}
			if err != nil && err != io.EOF {
				return nil, false, err
			}
			line, whole = p.line, err == nil
			break
		}
		line = bytes.TrimRight(line, " \t\r\n")
		if len(line) > 0 {
			return line, whole, nil
		}
		if !whole {
			return nil, false, ErrCut
		}
	}
}

func (p *jsonlPart) next(r row) error {
	line, whole, err := p.read()
	if err != nil {
		return err
	}
	if count, ok := parseEnd(line); ok {
		if count != p.count {
			return fmt.Errorf("the end record counts %d records, but %d were read", count, p.count)
		}
		return io.EOF
	}
	if isHeader(line) {
		return fmt.Errorf("%w before the next header", ErrCut)
	}
	if err := parseRow(line, p.node, r); err != nil {
		if !whole {
			return ErrCut
		}
		return err
	}
	p.count++
	return nil
}

// parseEnd reads an end record, {"end": n} and nothing else.
func parseEnd(line []byte) (count int, ok bool) {
	p := parser{text: line}
	if p.expect('{') != nil || p.peek() != '"' {
		return 0, false
	}
	if !bytes.HasPrefix(p.text[p.at:], []byte(`"end"`)) {
		return 0, false
	}
	if _, err := p.name(); err != nil {
		return 0, false
	}
	x, err := p.integer(0, 1<<62)
	if err != nil || p.expect('}') != nil || p.end() != nil {
		return 0, false
	}
	return int(x), true
}

func isHeader(line []byte) bool {
	p := parser{text: line}
	if p.expect('{') != nil || p.peek() != '"' || !bytes.HasPrefix(p.text[p.at:], []byte(`"format"`)) {
		return false
	}
	_, err := parseHeader(line)
	return err == nil
}
