// The Arrow IPC stream: the same schema in columns, one record batch for each
// environment or group, the header in the schema's metadata.

package stream

import (
	"bufio"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	// headerKey names the header's JSON in the schema metadata.
	headerKey = "odyssey_stream"
	// extraColumn holds the unknown top-level fields of a row as the text of
	// a JSON object, null if there are none.
	extraColumn = "extra"
)

// allocator leaves memory to the garbage collector, so that views of a batch
// stay valid for as long as somebody holds them.
var allocator = memory.NewGoAllocator()

func arrowType(n *node) arrow.DataType {
	switch n.shape {
	case shapeText:
		return arrow.BinaryTypes.LargeString
	case shapeWhole:
		return arrow.PrimitiveTypes.Int64
	case shapeUnsigned:
		return arrow.PrimitiveTypes.Uint64
	case shapeNumber, shapeMaybeNumber:
		return arrow.PrimitiveTypes.Float64
	case shapeSwitch:
		return arrow.FixedWidthTypes.Boolean
	case shapeIDs:
		return arrow.LargeListOfNonNullable(arrow.PrimitiveTypes.Int32)
	case shapeMask:
		return arrow.LargeListOfNonNullable(arrow.PrimitiveTypes.Uint8)
	case shapeLogprobs:
		return arrow.LargeListOfNonNullable(arrow.PrimitiveTypes.Float32)
	case shapeList:
		return arrow.LargeListOfNonNullable(arrowType(n.element))
	case shapeObject:
		return arrow.StructOf(arrowFields(n)...)
	}
	panic("unreachable")
}

func arrowFields(n *node) []arrow.Field {
	fields := make([]arrow.Field, len(n.fields))
	for i, f := range n.fields {
		fields[i] = arrow.Field{Name: f.name, Type: arrowType(f.node), Nullable: f.node.shape == shapeMaybeNumber}
	}
	return fields
}

// arrowEncoder writes the record batches of an Arrow stream.
type arrowEncoder struct {
	out     *bufio.Writer
	writer  *ipc.Writer
	node    *node
	builder *array.RecordBuilder
	pending int
}

func newArrowEncoder(out io.Writer, header Header, compress bool) (*arrowEncoder, error) {
	text, err := header.marshal()
	if err != nil {
		return nil, err
	}
	n := rowNodes[header.Kind]
	fields := append(arrowFields(n), arrow.Field{Name: extraColumn, Type: arrow.BinaryTypes.LargeString, Nullable: true})
	metadata := arrow.NewMetadata([]string{headerKey}, []string{string(text)})
	schema := arrow.NewSchema(fields, &metadata)
	options := []ipc.Option{ipc.WithSchema(schema), ipc.WithAllocator(allocator)}
	if compress {
		options = append(options, ipc.WithZstd(), ipc.WithCompressConcurrency(1))
	}
	buffered := bufio.NewWriterSize(out, 1<<16)
	return &arrowEncoder{
		out: buffered, writer: ipc.NewWriter(buffered, options...), node: n,
		builder: array.NewRecordBuilder(allocator, schema),
	}, nil
}

func (e *arrowEncoder) append(r row) error {
	// A record that cannot be written must not stand half in the columns.
	if err := verifyValues(e.node, r); err != nil {
		return err
	}
	for i := range e.node.fields {
		f := &e.node.fields[i]
		appendArrow(e.builder.Field(i), f.node, r.value(f))
	}
	extra := e.builder.Field(len(e.node.fields)).(*array.LargeStringBuilder)
	if len(*r.extra) == 0 {
		extra.AppendNull()
	} else {
		text, err := appendExtra([]byte("{}"), *r.extra)
		if err != nil {
			return err // verifyValues has been through it
		}
		extra.Append(string(text))
	}
	e.pending++
	return nil
}

// verifyValues finds what neither encoding can hold.
func verifyValues(n *node, r row) error {
	for i := range n.fields {
		f := &n.fields[i]
		if err := verifyValue(f.node, r.value(f)); err != nil {
			return at(f.name, err)
		}
	}
	for name := range *r.extra {
		if n.lookup(name) >= 0 {
			return at(name, errKnown)
		}
	}
	_, err := appendExtra([]byte("{}"), *r.extra)
	return err
}

func verifyValue(n *node, v reflect.Value) error {
	switch n.shape {
	case shapeText:
		if !utf8.ValidString(v.String()) {
			return errNotUTF8
		}
	case shapeNumber:
		if !finite(v.Float()) {
			return errNotFinite
		}
	case shapeMaybeNumber:
		if !v.IsNil() && !finite(v.Elem().Float()) {
			return errNotFinite
		}
	case shapeLogprobs:
		for i, x := range *v.Addr().Interface().(*[]float32) {
			if !finite(float64(x)) {
				return atIndex(i, errNotFinite)
			}
		}
	case shapeList:
		for i := range v.Len() {
			if err := verifyValue(n.element, v.Index(i)); err != nil {
				return atIndex(i, err)
			}
		}
	case shapeObject:
		for i := range n.fields {
			if err := verifyValue(n.fields[i].node, v.Field(n.fields[i].index)); err != nil {
				return at(n.fields[i].name, err)
			}
		}
	}
	return nil
}

func appendArrow(builder array.Builder, n *node, v reflect.Value) {
	switch b := builder.(type) {
	case *array.LargeStringBuilder:
		b.Append(v.String())
	case *array.Int64Builder:
		b.Append(v.Int())
	case *array.Uint64Builder:
		b.Append(v.Uint())
	case *array.Float64Builder:
		switch {
		case n.shape == shapeNumber:
			b.Append(v.Float())
		case v.IsNil():
			b.AppendNull()
		default:
			b.Append(v.Elem().Float())
		}
	case *array.BooleanBuilder:
		b.Append(v.Bool())
	case *array.LargeListBuilder:
		b.Append(true)
		switch values := b.ValueBuilder().(type) {
		case *array.Int32Builder:
			values.AppendValues(*v.Addr().Interface().(*[]int32), nil)
		case *array.Uint8Builder:
			values.AppendValues(*v.Addr().Interface().(*[]uint8), nil)
		case *array.Float32Builder:
			values.AppendValues(*v.Addr().Interface().(*[]float32), nil)
		default:
			for i := range v.Len() {
				appendArrow(values, n.element, v.Index(i))
			}
		}
	case *array.StructBuilder:
		b.Append(true)
		for i := range n.fields {
			appendArrow(b.FieldBuilder(i), n.fields[i].node, v.Field(n.fields[i].index))
		}
	default:
		panic(fmt.Sprintf("stream: no builder for %T", builder))
	}
}

func (e *arrowEncoder) flush() error {
	if e.pending > 0 {
		record := e.builder.NewRecord()
		err := e.writer.Write(record)
		record.Release()
		e.pending = 0
		if err != nil {
			return err
		}
	}
	return e.out.Flush()
}

func (e *arrowEncoder) close(int) error {
	if err := e.flush(); err != nil {
		return err
	}
	if err := e.writer.Close(); err != nil {
		return err
	}
	return e.out.Flush()
}

// arrowPart reads one Arrow IPC stream up to its end-of-stream marker.
type arrowPart struct {
	messages *framing
	reader   *ipc.Reader
	head     Header
	columns  []column
	batch    arrow.Record
	at       int // next row of batch
}

// column binds a column of the part's schema to the field it fills.
type column struct {
	name    string
	field   *field  // nil: extra, or a column that this version does not know
	binding binding // of a known field
}

// binding binds the children of an Arrow type to the fields of a node.
type binding struct {
	element  *binding
	children []int // by child of a struct, the index among node.fields
	inner    []binding
}

func newArrowPart(source *bufio.Reader) (*arrowPart, error) {
	p := &arrowPart{messages: &framing{source: source}}
	reader, err := ipc.NewReaderFromMessageReader(p.messages, ipc.WithAllocator(allocator))
	if err != nil {
		return nil, p.messages.cause(err)
	}
	p.reader = reader
	schema := reader.Schema()
	metadata := schema.Metadata()
	text, ok := metadata.GetValue(headerKey)
	if !ok {
		return nil, fmt.Errorf("not an odyssey stream: its Arrow schema has no metadata %q", headerKey)
	}
	if p.head, err = parseHeader([]byte(text)); err != nil {
		return nil, err
	}
	n := rowNodes[p.head.Kind]
	seen := map[string]bool{}
	for _, f := range schema.Fields() {
		if seen[f.Name] {
			return nil, fmt.Errorf("column %s: stands twice in the schema", f.Name)
		}
		seen[f.Name] = true
		if !utf8.ValidString(f.Name) {
			return nil, fmt.Errorf("column %q: %w", f.Name, errNotUTF8)
		}
		c := column{name: f.Name}
		if i := n.lookup(f.Name); i >= 0 {
			c.field = &n.fields[i]
			if c.binding, err = bind(c.field.node, f.Type); err != nil {
				return nil, fmt.Errorf("column %w", at(f.Name, err))
			}
		} else if f.Name == extraColumn && !isText(f.Type) {
			return nil, fmt.Errorf("column %s: is %v, want text", f.Name, f.Type)
		}
		p.columns = append(p.columns, c)
	}
	return p, nil
}

func (p *arrowPart) header() Header { return p.head }

func isText(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW:
		return true
	}
	return false
}

// bind checks that values of t can fill n.
func bind(n *node, t arrow.DataType) (binding, error) {
	refuse := func(want string) (binding, error) {
		return binding{}, fmt.Errorf("is %v, want %s", t, want)
	}
	switch n.shape {
	case shapeText:
		if !isText(t) {
			return refuse("text")
		}
	case shapeWhole, shapeUnsigned:
		if !arrow.IsInteger(t.ID()) {
			return refuse("an integer")
		}
	case shapeNumber, shapeMaybeNumber:
		if t.ID() != arrow.FLOAT64 && t.ID() != arrow.FLOAT32 {
			return refuse("a float")
		}
	case shapeSwitch:
		if t.ID() != arrow.BOOL {
			return refuse("a bool")
		}
	case shapeIDs, shapeMask, shapeLogprobs, shapeList:
		list, ok := t.(arrow.ListLikeType)
		if !ok || t.ID() != arrow.LIST && t.ID() != arrow.LARGE_LIST {
			return refuse("a list")
		}
		element := list.Elem()
		want := arrow.Type(arrow.INT32)
		switch n.shape {
		case shapeMask:
			want = arrow.UINT8
		case shapeLogprobs:
			want = arrow.FLOAT32
		case shapeList:
			inner, err := bind(n.element, element)
			return binding{element: &inner}, err
		}
		if element.ID() != want {
			return refuse("a list of " + strings.ToLower(want.String()))
		}
	case shapeObject:
		object, ok := t.(*arrow.StructType)
		if !ok {
			return refuse("a struct")
		}
		b := binding{}
		seen, bounded := map[string]bool{}, false
		for _, child := range object.Fields() {
			i := n.lookup(child.Name)
			if i < 0 {
				return b, at(child.Name, errUnknownInside)
			}
			if seen[child.Name] {
				return b, at(child.Name, errTwice)
			}
			seen[child.Name] = true
			inner, err := bind(n.fields[i].node, child.Type)
			if err != nil {
				return b, at(child.Name, err)
			}
			b.children = append(b.children, i)
			b.inner = append(b.inner, inner)
			bounded = bounded || n.fields[i].node.shape != shapeSwitch
		}
		if !bounded { // else a small input could claim any number of values
			return b, errors.New("is a struct without fields")
		}
		return b, nil
	}
	return binding{}, nil
}

func (p *arrowPart) next(r row) (err error) {
	defer func() {
		if fault := recover(); fault != nil { // arrow panics on damaged data
			err = fmt.Errorf("damaged Arrow data: %v", fault)
		}
	}()
	for p.batch == nil || p.at >= int(p.batch.NumRows()) {
		if !p.reader.Next() {
			if err := p.messages.cause(p.reader.Err()); err != nil {
				return err
			}
			return io.EOF
		}
		p.batch, p.at = p.reader.Record(), 0
		for i, c := range p.columns {
			if err := validate(p.batch.Column(i)); err != nil {
				return fmt.Errorf("column %s: damaged Arrow data: %w", c.name, err)
			}
		}
	}
	i := p.at
	p.at++
	for j := range p.columns {
		c, values := &p.columns[j], p.batch.Column(j)
		switch {
		case c.field != nil:
			err = readArrow(values, i, c.field.node, &c.binding, r.value(c.field))
		case values.IsNull(i):
		case c.name == extraColumn:
			err = readExtra(values.(array.StringLike).Value(i), p.head.Kind, r)
		default:
			var text []byte
			if text, err = appendUnknown(nil, values, i); err == nil {
				if !jsontext.Value(text).IsValid() { // two fields of one name
					err = errTwice
				}
			}
			if err == nil {
				err = addExtra(r, c.name, text)
			}
		}
		if err != nil {
			return at(c.name, err)
		}
	}
	return nil
}

// readExtra restores the fields that the text column "extra" carries.
func readExtra(text string, kind Kind, r row) error {
	unknown := map[string]stdjson.RawMessage{}
	if err := parseRow([]byte(text), &node{shape: shapeObject}, row{extra: &unknown}); err != nil {
		return err
	}
	for name, value := range unknown {
		if rowNodes[kind].lookup(name) >= 0 {
			return at(name, errKnown)
		}
		if err := addExtra(r, name, value); err != nil {
			return err
		}
	}
	return nil
}

// appendUnknown writes the i-th value of a column that the schema does not
// know as JSON.
func appendUnknown(text []byte, values arrow.Array, i int) ([]byte, error) {
	if values.IsNull(i) {
		return append(text, "null"...), nil
	}
	switch a := values.(type) {
	case array.StringLike:
		return appendText(text, a.Value(i))
	case *array.Boolean:
		return strconv.AppendBool(text, a.Value(i)), nil
	case *array.Float64:
		return appendNumber(text, a.Value(i), 64)
	case *array.Float32:
		return appendNumber(text, float64(a.Value(i)), 32)
	case *array.Uint64:
		return strconv.AppendUint(text, a.Value(i), 10), nil
	case array.ListLike:
		text = append(text, '[')
		from, to := a.ValueOffsets(i)
		for j := from; j < to; j++ {
			if j > from {
				text = append(text, ',')
			}
			var err error
			if text, err = appendUnknown(text, a.ListValues(), int(j)); err != nil {
				return nil, atIndex(int(j-from), err)
			}
		}
		return append(text, ']'), nil
	case *array.Struct:
		text = append(text, '{')
		for j, f := range a.DataType().(*arrow.StructType).Fields() {
			if j > 0 {
				text = append(text, ',')
			}
			var err error
			if text, err = appendText(text, f.Name); err != nil {
				return nil, err
			}
			if text, err = appendUnknown(append(text, ':'), a.Field(j), i); err != nil {
				return nil, at(f.Name, err)
			}
		}
		return append(text, '}'), nil
	}
	x, ok := wholeAt(values, i)
	if !ok {
		return nil, fmt.Errorf("a column of type %v cannot pass through", values.DataType())
	}
	return strconv.AppendInt(text, x, 10), nil
}

func addExtra(r row, name string, text []byte) error {
	if _, twice := (*r.extra)[name]; twice {
		return at(name, errTwice)
	}
	if *r.extra == nil {
		*r.extra = map[string]stdjson.RawMessage{}
	}
	(*r.extra)[name] = text
	return nil
}

var errNull = errors.New("is null")

// readArrow sets v from the i-th value. Slices and strings are views of the
// batch.
func readArrow(values arrow.Array, i int, n *node, b *binding, v reflect.Value) error {
	if values.IsNull(i) {
		if n.shape == shapeMaybeNumber {
			v.SetZero()
			return nil
		}
		return errNull
	}
	switch n.shape {
	case shapeText:
		s := values.(array.StringLike).Value(i)
		if !utf8.ValidString(s) {
			return errNotUTF8
		}
		v.SetString(s)
	case shapeWhole:
		x, ok := wholeAt(values, i)
		if !ok {
			return errors.New("does not fit 64 bits with a sign")
		}
		v.SetInt(x)
	case shapeUnsigned:
		if u, isUint := values.(*array.Uint64); isUint {
			v.SetUint(u.Value(i))
			return nil
		}
		x, ok := wholeAt(values, i)
		if !ok || x < 0 {
			return errors.New("is negative")
		}
		v.SetUint(uint64(x))
	case shapeNumber, shapeMaybeNumber:
		x := 0.0
		switch floats := values.(type) {
		case *array.Float64:
			x = floats.Value(i)
		case *array.Float32:
			x = float64(floats.Value(i))
		}
		if !finite(x) {
			return errNotFinite
		}
		if n.shape == shapeNumber {
			v.SetFloat(x)
		} else {
			v.Set(reflect.ValueOf(&x))
		}
	case shapeSwitch:
		v.SetBool(values.(*array.Boolean).Value(i))
	case shapeObject:
		object := values.(*array.Struct)
		for j, f := range b.children {
			child := &n.fields[f]
			if err := readArrow(object.Field(j), i, child.node, &b.inner[j], v.Field(child.index)); err != nil {
				return at(child.name, err)
			}
		}
	default:
		list := values.(array.ListLike)
		from, to := list.ValueOffsets(i)
		inner := list.ListValues()
		if inner.NullN() > 0 {
			for j := from; j < to; j++ {
				if inner.IsNull(int(j)) {
					return atIndex(int(j-from), errNull)
				}
			}
		}
		switch n.shape {
		case shapeIDs:
			*v.Addr().Interface().(*[]int32) = inner.(*array.Int32).Int32Values()[from:to:to]
		case shapeMask:
			*v.Addr().Interface().(*[]uint8) = inner.(*array.Uint8).Uint8Values()[from:to:to]
		case shapeLogprobs:
			floats := inner.(*array.Float32).Float32Values()[from:to:to]
			for j, x := range floats {
				if !finite(float64(x)) {
					return atIndex(j, errNotFinite)
				}
			}
			*v.Addr().Interface().(*[]float32) = floats
		case shapeList:
			v.Set(reflect.MakeSlice(n.kind, int(to-from), int(to-from)))
			for j := range v.Len() {
				if err := readArrow(inner, int(from)+j, n.element, b.element, v.Index(j)); err != nil {
					return atIndex(j, err)
				}
			}
		}
	}
	return nil
}

func wholeAt(values arrow.Array, i int) (int64, bool) {
	switch a := values.(type) {
	case *array.Int64:
		return a.Value(i), true
	case *array.Int32:
		return int64(a.Value(i)), true
	case *array.Int16:
		return int64(a.Value(i)), true
	case *array.Int8:
		return int64(a.Value(i)), true
	case *array.Uint64:
		return int64(a.Value(i)), a.Value(i) <= math.MaxInt64
	case *array.Uint32:
		return int64(a.Value(i)), true
	case *array.Uint16:
		return int64(a.Value(i)), true
	case *array.Uint8:
		return int64(a.Value(i)), true
	}
	return 0, false
}

// validate checks what arrow takes on trust: that the buffers of an array are
// as long as its length says and its offsets lie within them.
func validate(values arrow.Array) error {
	data := values.Data()
	count := data.Offset() + data.Len()
	if data.Offset() < 0 || data.Len() < 0 || count < 0 {
		return errors.New("negative length")
	}
	buffers := data.Buffers()
	bits := func(i int) int {
		if i >= len(buffers) || buffers[i] == nil {
			return 0
		}
		return buffers[i].Len() * 8
	}
	if bits(0) > 0 && bits(0) < count || data.NullN() > 0 && bits(0) == 0 && data.DataType().ID() != arrow.NULL {
		return errors.New("validity shorter than the array")
	}
	offsets := func(i func(int) (int64, int64), length int) error {
		previous := int64(0)
		for j := range data.Len() {
			from, to := i(j)
			if from < previous || to < from || to > int64(length) {
				return errors.New("offsets outside their data")
			}
			previous = from
		}
		return nil
	}
	switch a := values.(type) {
	case *array.Null:
	case *array.String:
		return offsets(func(j int) (int64, int64) { return int64(a.ValueOffset(j)), int64(a.ValueOffset(j + 1)) }, bits(2)/8)
	case *array.LargeString:
		return offsets(func(j int) (int64, int64) { return a.ValueOffset(j), a.ValueOffset(j + 1) }, bits(2)/8)
	case *array.Struct:
		if a.NumField() == 0 && a.Len() > 0 { // any length would be as short
			return errors.New("a struct without fields")
		}
		for i := range a.NumField() {
			if a.Field(i).Len() < a.Len() {
				return errors.New("a child shorter than its struct")
			}
			if err := validate(a.Field(i)); err != nil {
				return err
			}
		}
	case *array.List:
		if bits(1) < (count+1)*32 && data.Len() > 0 {
			return errors.New("offsets shorter than the array")
		}
		if err := offsets(a.ValueOffsets, a.ListValues().Len()); err != nil {
			return err
		}
		return validate(a.ListValues())
	case *array.LargeList:
		if bits(1) < (count+1)*64 && data.Len() > 0 {
			return errors.New("offsets shorter than the array")
		}
		if err := offsets(a.ValueOffsets, a.ListValues().Len()); err != nil {
			return err
		}
		return validate(a.ListValues())
	default:
		if t, ok := data.DataType().(arrow.FixedWidthDataType); ok && bits(1)/max(1, t.BitWidth()) < count {
			return errors.New("values shorter than the array")
		}
	}
	return nil
}
