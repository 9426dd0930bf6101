// The framing of an Arrow IPC stream, walked message by message, so that the
// end-of-stream marker is known from data that looks like it and damaged
// lengths are found before anything is allocated by them.

package stream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
)

// framing reads the messages of one Arrow stream and stops after its
// end-of-stream marker. It is the ipc package's MessageReader.
type framing struct {
	source *bufio.Reader
	ended  bool
	err    error
}

func (f *framing) Retain()  {}
func (f *framing) Release() {}

// cause prefers what framing found to what the ipc package made of it.
func (f *framing) cause(err error) error {
	if f.err != nil {
		return f.err
	}
	if err == nil {
		if !f.ended {
			return ErrCut
		}
		return nil
	}
	return fmt.Errorf("damaged Arrow data: %w", err)
}

// Message returns the next message, io.EOF after the end-of-stream marker.
func (f *framing) Message() (*ipc.Message, error) {
	if f.ended {
		return nil, io.EOF
	}
	if f.err != nil {
		return nil, f.err
	}
	message, err := f.read()
	if err == io.EOF {
		f.ended = true
	} else if err != nil {
		f.err = err
	}
	return message, err
}

const metadataMost = 1 << 28 // bytes

func (f *framing) read() (*ipc.Message, error) {
	prefix, err := f.take(8)
	if err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(prefix) != math.MaxUint32 {
		return nil, errors.New("damaged Arrow data: a message without continuation marker")
	}
	length := int64(int32(binary.LittleEndian.Uint32(prefix[4:])))
	if length == 0 {
		return nil, io.EOF
	}
	if length < 0 || length > metadataMost {
		return nil, fmt.Errorf("damaged Arrow data: message metadata of %d bytes", length)
	}
	metadata, err := f.take(length)
	if err != nil {
		return nil, err
	}
	check := flatbuffer{text: metadata, budget: 1 << 20}
	bodyLength := check.message()
	if check.err != nil {
		return nil, check.err
	}
	body, err := f.take(bodyLength)
	if err != nil {
		return nil, err
	}
	if check.buffers(body); check.err != nil {
		return nil, check.err
	}
	return ipc.NewMessage(memory.NewBufferBytes(metadata), memory.NewBufferBytes(body)), nil
}

// take reads n bytes. Memory grows with what arrives, not with what is
// claimed.
func (f *framing) take(n int64) ([]byte, error) {
	data := make([]byte, 0, min(n, 1<<20))
	for int64(len(data)) < n {
		if len(data) == cap(data) {
			grown := make([]byte, len(data), min(n, 2*int64(len(data))))
			copy(grown, data)
			data = grown
		}
		free := data[len(data):min(int64(cap(data)), n)]
		got, err := io.ReadFull(f.source, free)
		data = data[:len(data)+got]
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil, ErrCut
		}
		if err != nil {
			return nil, err
		}
	}
	return data, nil
}

// flatbuffer checks the metadata of a message before the ipc package reads it
// on trust: every table, string and vector that it will look at lies within
// the text, and what is nested is bounded. Layout: flatbuffers.dev/internals,
// the tables of Arrow's format/Message.fbs and Schema.fbs.
type flatbuffer struct {
	text   []byte
	budget int // tables still allowed
	err    error
	batch  int // position of the RecordBatch table, 0 if none
}

func (b *flatbuffer) fail() int {
	if b.err == nil {
		b.err = errors.New("damaged Arrow data: message metadata")
	}
	return 0
}

func (b *flatbuffer) bytes(position, n int) []byte {
	if b.err != nil || position < 0 || n < 0 || position > len(b.text)-n {
		b.fail()
		return make([]byte, 8)
	}
	return b.text[position : position+n]
}

func (b *flatbuffer) uint16(position int) int {
	return int(binary.LittleEndian.Uint16(b.bytes(position, 2)))
}

func (b *flatbuffer) uint32(position int) int {
	return int(binary.LittleEndian.Uint32(b.bytes(position, 4)))
}

func (b *flatbuffer) int64(position int) int64 {
	return int64(binary.LittleEndian.Uint64(b.bytes(position, 8)))
}

// field returns the position of a table's field, 0 if it is left out.
func (b *flatbuffer) field(table, id int) int {
	vtable := table - int(int32(b.uint32(table)))
	size := b.uint16(vtable)
	b.bytes(vtable, size)
	if b.err != nil || 4+2*id+2 > size {
		return 0
	}
	offset := b.uint16(vtable + 4 + 2*id)
	if offset == 0 {
		return 0
	}
	return table + offset
}

// follow returns where the offset at position points to.
func (b *flatbuffer) follow(position int) int {
	if position == 0 {
		return 0
	}
	target := position + b.uint32(position)
	b.bytes(target, 4)
	return target
}

// vector returns the first element and the length of a vector field whose
// elements have size bytes.
func (b *flatbuffer) vector(table, id, size int) (first, length int) {
	position := b.follow(b.field(table, id))
	if position == 0 || b.err != nil {
		return 0, 0
	}
	length = b.uint32(position)
	if length > len(b.text)/size {
		return b.fail(), 0
	}
	b.bytes(position+4, length*size)
	return position + 4, length
}

// Message headers of Arrow's format.
const (
	headerSchema          = 1
	headerDictionaryBatch = 2
	headerRecordBatch     = 3
)

// message checks the Message table and returns its body length.
func (b *flatbuffer) message() int64 {
	root := b.uint32(0)
	b.bytes(root, 4)
	kind := 0
	if position := b.field(root, 1); position != 0 {
		kind = int(b.bytes(position, 1)[0])
	}
	header := b.follow(b.field(root, 2))
	body := int64(0)
	if position := b.field(root, 3); position != 0 {
		body = b.int64(position)
	}
	if b.err != nil || header == 0 || body < 0 {
		b.fail()
		return 0
	}
	switch kind {
	case headerSchema:
		b.schema(header)
	case headerRecordBatch:
		b.batch = header
	case headerDictionaryBatch:
		b.err = errors.New("dictionary-encoded columns are not read; write plain text columns")
	default:
		b.err = fmt.Errorf("an Arrow message of kind %d, want a record batch", kind)
	}
	return body
}

func (b *flatbuffer) schema(table int) {
	if position := b.field(table, 0); position != 0 && b.uint16(position) != 0 {
		b.err = errors.New("a big-endian Arrow stream")
		return
	}
	b.metadata(table, 2)
	b.fields(table, 1, 0)
}

func (b *flatbuffer) metadata(table, id int) {
	first, length := b.vector(table, id, 4)
	for i := range length {
		entry := b.follow(first + 4*i)
		b.vector(entry, 0, 1)
		b.vector(entry, 1, 1)
		if b.err != nil {
			return
		}
	}
}

// arrowTypes are the types of Arrow's format, by number, that a stream may
// hold: Int, FloatingPoint, Utf8, Bool, List, Struct, LargeUtf8, LargeList,
// Utf8View.
const arrowTypes = 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<12 | 1<<13 | 1<<20 | 1<<21 | 1<<24

const nestingMost = 16

func (b *flatbuffer) fields(table, id, depth int) {
	first, length := b.vector(table, id, 4)
	for i := range length {
		if b.budget--; b.budget < 0 || depth > nestingMost {
			b.fail()
		}
		entry := b.follow(first + 4*i)
		if b.err != nil {
			return
		}
		b.vector(entry, 0, 1) // name
		if position := b.field(entry, 2); position != 0 {
			if kind := b.bytes(position, 1)[0]; b.err == nil && (kind > 31 || arrowTypes>>kind&1 == 0) {
				b.err = fmt.Errorf("an Arrow column of type %d, which is not read", kind)
			}
		}
		if b.field(entry, 4) != 0 {
			b.err = errors.New("dictionary-encoded columns are not read; write plain text columns")
		}
		if position := b.field(entry, 3); position != 0 {
			inner := b.follow(position)
			b.bytes(inner-int(int32(b.uint32(inner))), 4)
		}
		b.metadata(entry, 6)
		b.fields(entry, 5, depth+1)
		if b.err != nil {
			return
		}
	}
}

// expansionMost bounds how many bytes a compressed byte may become: a zstd
// block of 4 bytes can stand for 128 KiB.
const expansionMost = 1 << 15

// buffers checks the buffers of a record batch against its body.
func (b *flatbuffer) buffers(body []byte) {
	if b.batch == 0 {
		return
	}
	b.vector(b.batch, 1, 16)
	b.vector(b.batch, 4, 8)
	first, length := b.vector(b.batch, 2, 16)
	compressed := b.field(b.batch, 3) != 0
	total := int64(0)
	for i := range length {
		offset, size := b.int64(first+16*i), b.int64(first+16*i+8)
		if offset < 0 || size < 0 || offset > int64(len(body)) || size > int64(len(body))-offset {
			b.fail()
			return
		}
		if total += size; total > int64(len(body)) {
			b.fail()
			return
		}
		if !compressed || size == 0 {
			continue
		}
		if size < 8 {
			b.fail()
			return
		}
		expanded := int64(binary.LittleEndian.Uint64(body[offset:]))
		if expanded < -1 || expanded > size*expansionMost {
			b.err = fmt.Errorf("damaged Arrow data: a buffer of %d bytes claims to hold %d", size, expanded)
			return
		}
	}
}
