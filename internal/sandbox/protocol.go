// The pipe between parent and worker: frames of a four-byte little-endian
// length and a body. Bodies are one kind byte and fields; strings and lists
// carry their length, so no content can be taken for structure.
package sandbox

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	kindLoad   = 'L'
	kindCall   = 'C'
	kindRun    = 'R'
	kindHello  = 'H'
	kindResult = 'K'
)

// maxRequestBytes bounds a frame that a worker accepts.
const maxRequestBytes = 512 << 20

// maxCallBytes bounds the text of all tool calls that one script makes.
func maxCallBytes(resultBytes int) int { return 8 * resultBytes }

// maxAnswer bounds a frame that the parent accepts: a result, its calls, and
// room for messages and lengths.
func maxAnswer(resultBytes int) int { return resultBytes + 2*maxCallBytes(resultBytes) + 1<<20 }

type request interface{ append(b []byte) []byte }

type sourceFile struct{ Path, MediaType, Content string }

type sourceTool struct{ Name, Source string }

type loadRequest struct {
	Digest string // 32 bytes over everything below
	Files  []sourceFile
	Tools  []sourceTool
}

type callRequest struct{ Digest, Tool, Arguments string }

type runRequest struct {
	Digest                      string
	Mode                        Mode
	Source, Function, Arguments string
}

// helloRequest is the first frame a worker reads: its limits.
type helloRequest struct {
	Steps, MemoryBytes, ResultBytes, CacheBytes uint64
	Unprotected                                 bool
}

func newLoadRequest(program Program) *loadRequest {
	l := &loadRequest{}
	for _, f := range program.Files {
		l.Files = append(l.Files, sourceFile{f.Path, f.MediaType, f.Content})
	}
	for _, t := range program.Tools {
		l.Tools = append(l.Tools, sourceTool{t.Name, t.Source})
	}
	h := sha256.New()
	var b [8]byte
	field := func(s string) {
		binary.LittleEndian.PutUint64(b[:], uint64(len(s)))
		h.Write(b[:])
		io.WriteString(h, s)
	}
	for _, f := range l.Files {
		field("file")
		field(f.Path)
		field(f.MediaType)
		field(f.Content)
	}
	for _, t := range l.Tools {
		field("tool")
		field(t.Name)
		field(t.Source)
	}
	l.Digest = string(h.Sum(nil))
	return l
}

func (l *loadRequest) bytes() int {
	n := 0
	for _, f := range l.Files {
		n += len(f.Content)
	}
	for _, t := range l.Tools {
		n += len(t.Source)
	}
	return n
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func (l *loadRequest) append(b []byte) []byte {
	b = appendString(append(b, kindLoad), l.Digest)
	b = binary.AppendUvarint(b, uint64(len(l.Files)))
	for _, f := range l.Files {
		b = appendString(appendString(appendString(b, f.Path), f.MediaType), f.Content)
	}
	b = binary.AppendUvarint(b, uint64(len(l.Tools)))
	for _, t := range l.Tools {
		b = appendString(appendString(b, t.Name), t.Source)
	}
	return b
}

func (c callRequest) append(b []byte) []byte {
	return appendString(appendString(appendString(append(b, kindCall), c.Digest), c.Tool), c.Arguments)
}

func (r runRequest) append(b []byte) []byte {
	b = append(appendString(append(b, kindRun), r.Digest), byte(r.Mode))
	return appendString(appendString(appendString(b, r.Source), r.Function), r.Arguments)
}

func (h helloRequest) append(b []byte) []byte {
	b = append(b, kindHello)
	for _, n := range []uint64{h.Steps, h.MemoryBytes, h.ResultBytes, h.CacheBytes} {
		b = binary.AppendUvarint(b, n)
	}
	return appendBool(b, h.Unprotected)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

var errFrame = errors.New("bad frame")

// fields reads the fields of a body; the first fault sticks.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) byte() byte {
	if len(f.rest) == 0 {
		f.bad = true
		return 0
	}
	c := f.rest[0]
	f.rest = f.rest[1:]
	return c
}

func (f *fields) uint() uint64 {
	v, n := binary.Uvarint(f.rest)
	if n <= 0 {
		f.bad = true
		f.rest = nil
		return 0
	}
	f.rest = f.rest[n:]
	return v
}

func (f *fields) string() string {
	n := f.uint()
	if f.bad || n > uint64(len(f.rest)) {
		f.bad = true
		f.rest = nil
		return ""
	}
	s := string(f.rest[:n])
	f.rest = f.rest[n:]
	return s
}

// count reads the length of a list whose items take at least one byte each.
func (f *fields) count() int {
	n := f.uint()
	if f.bad || n > uint64(len(f.rest)) {
		f.bad = true
		return 0
	}
	return int(n)
}

func (f *fields) end() error {
	if f.bad || len(f.rest) != 0 {
		return errFrame
	}
	return nil
}

// parseRequest reads a body that a parent sent.
func parseRequest(body []byte) (request, error) {
	f := &fields{rest: body}
	switch f.byte() {
	case kindLoad:
		l := &loadRequest{Digest: f.string()}
		for range f.count() {
			if f.bad {
				break
			}
			l.Files = append(l.Files, sourceFile{f.string(), f.string(), f.string()})
		}
		for range f.count() {
			if f.bad {
				break
			}
			l.Tools = append(l.Tools, sourceTool{f.string(), f.string()})
		}
		return l, f.end()
	case kindCall:
		c := callRequest{f.string(), f.string(), f.string()}
		return c, f.end()
	case kindRun:
		r := runRequest{Digest: f.string(), Mode: Mode(f.byte()), Source: f.string(), Function: f.string(), Arguments: f.string()}
		if r.Mode != WithTools && r.Mode != DataOnly {
			return nil, errFrame
		}
		return r, f.end()
	case kindHello:
		h := helloRequest{f.uint(), f.uint(), f.uint(), f.uint(), f.byte() == 1}
		return h, f.end()
	}
	return nil, errFrame
}

// absent is the status of a call on a program that the worker does not hold.
const absent Status = "absent"

var statuses = []Status{OK, Refused, Raised, Limit, Infrastructure, absent}

func appendStatus(b []byte, s Status) []byte {
	for i, known := range statuses {
		if s == known {
			return append(b, byte(i))
		}
	}
	panic("sandbox: unknown status " + string(s))
}

func (f *fields) status() Status {
	c := f.byte()
	if int(c) >= len(statuses) {
		f.bad = true
		return ""
	}
	return statuses[c]
}

func appendResult(b []byte, r Result) []byte {
	b = appendStatus(append(b, kindResult), r.Status)
	b = appendString(appendString(appendString(appendString(b, r.Value), r.Code), r.Error), r.Source)
	b = binary.AppendUvarint(b, uint64(r.Line))
	b = binary.AppendUvarint(b, uint64(r.Column))
	b = binary.AppendUvarint(b, r.Steps)
	b = binary.AppendUvarint(b, uint64(len(r.Calls)))
	for _, c := range r.Calls {
		b = appendStatus(appendString(appendString(b, c.Name), c.Arguments), c.Status)
		b = appendString(b, c.Value)
	}
	return b
}

// parseResult reads a body that a worker sent.
func parseResult(body []byte) (Result, error) {
	f := &fields{rest: body}
	if f.byte() != kindResult {
		return Result{}, errFrame
	}
	r := Result{Status: f.status(), Value: f.string(), Code: f.string(), Error: f.string(), Source: f.string()}
	r.Line, r.Column = int(uint32(f.uint())), int(uint32(f.uint()))
	r.Steps = f.uint()
	for range f.count() {
		if f.bad {
			break
		}
		r.Calls = append(r.Calls, Call{Name: f.string(), Arguments: f.string(), Status: f.status(), Value: f.string()})
	}
	return r, f.end()
}

// readFrame reads one body of at most limit bytes into buf.
func readFrame(r *bufio.Reader, buf []byte, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint32(head[:]))
	if n > limit {
		return nil, fmt.Errorf("%w: %d bytes", errFrame, n)
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	_, err := io.ReadFull(r, buf)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return buf, err
}

// finishFrame writes the length into the first four bytes of b.
func finishFrame(b []byte) []byte {
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	return b
}
