// The one schema of both encodings, derived from the structs of package
// episode: their JSON tags name the fields, their types say how each travels.

package stream

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// shape says how a value travels. The comment names its Go type, its JSON and
// its Arrow type.
type shape uint8

const (
	shapeText        shape = iota // string: string, large_utf8
	shapeWhole                    // int: integer, int64
	shapeUnsigned                 // uint64: integer, uint64
	shapeNumber                   // float64: number, double
	shapeSwitch                   // bool: true or false, bool
	shapeMaybeNumber              // *float64: number or null (left out if so tagged), nullable double
	shapeIDs                      // []int32: array of integers, large_list<int32>
	shapeMask                     // []uint8: array of integers, large_list<uint8>
	shapeLogprobs                 // []float32: array of numbers in their shortest float32 form, large_list<float>
	shapeList                     // slice: array, large_list
	shapeObject                   // struct: object, struct
)

// node describes a type; nodes form a tree.
type node struct {
	shape   shape
	element *node        // of a list
	fields  []field      // of an object
	kind    reflect.Type // of the Go value
}

type field struct {
	name     string
	index    int  // of the Go struct's field
	credit   bool // the field is one of row.credit
	omitNull bool // JSONL leaves the field out when it is null
	node     *node
}

func (n *node) lookup(name string) int {
	for i := range n.fields {
		if n.fields[i].name == name {
			return i
		}
	}
	return -1
}

func nodeOf(t reflect.Type) *node {
	n := &node{kind: t}
	switch t.Kind() {
	case reflect.String:
		n.shape = shapeText
	case reflect.Int:
		n.shape = shapeWhole
	case reflect.Uint64:
		n.shape = shapeUnsigned
	case reflect.Float64:
		n.shape = shapeNumber
	case reflect.Bool:
		n.shape = shapeSwitch
	case reflect.Pointer:
		if t.Elem().Kind() != reflect.Float64 {
			panic(fmt.Sprintf("stream: no encoding for %v", t))
		}
		n.shape = shapeMaybeNumber
	case reflect.Slice:
		switch t.Elem().Kind() {
		case reflect.Int32:
			n.shape = shapeIDs
		case reflect.Uint8:
			n.shape = shapeMask
		case reflect.Float32:
			n.shape = shapeLogprobs
		default:
			n.shape, n.element = shapeList, nodeOf(t.Elem())
		}
	case reflect.Struct:
		n.shape = shapeObject
		for i := range t.NumField() {
			name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			n.fields = append(n.fields, field{name: name, index: i, omitNull: options == "omitempty", node: nodeOf(t.Field(i).Type)})
		}
		if len(n.fields) > 64 {
			panic(fmt.Sprintf("stream: %v has more than 64 fields", t))
		}
	default:
		panic(fmt.Sprintf("stream: no encoding for %v", t))
	}
	return n
}

var rowNodes = func() map[Kind]*node {
	trajectory := nodeOf(reflect.TypeFor[episode.Trajectory]())
	credit := nodeOf(reflect.TypeFor[episode.Credit]())
	both := &node{shape: shapeObject, kind: trajectory.kind, fields: append([]field{}, trajectory.fields...)}
	for _, f := range credit.fields {
		f.credit = true
		both.fields = append(both.fields, f)
	}
	return map[Kind]*node{
		KindEnvironment: nodeOf(reflect.TypeFor[episode.Environment]()),
		KindTrajectory:  trajectory,
		KindCredit:      both,
		KindMetric:      nodeOf(reflect.TypeFor[episode.Metric]()),
	}
}()

// row is a record on its way in or out: the struct, on credit streams the
// Credit beside it, and the fields that this version does not know.
type row struct {
	main   reflect.Value
	credit reflect.Value
	extra  *map[string]json.RawMessage
}

func environmentRow(e *episode.Environment) row {
	return row{main: reflect.ValueOf(e).Elem(), extra: &e.Extra}
}

func trajectoryRow(t *episode.Trajectory) row {
	r := row{main: reflect.ValueOf(t).Elem(), extra: &t.Extra}
	if t.Credit != nil {
		r.credit = reflect.ValueOf(t.Credit).Elem()
	}
	return r
}

func metricRow(m *episode.Metric) row {
	return row{main: reflect.ValueOf(m).Elem(), extra: &m.Extra}
}

func (r row) value(f *field) reflect.Value {
	if f.credit {
		return r.credit.Field(f.index)
	}
	return r.main.Field(f.index)
}

// fieldError is an error with its place in a record, such as
// turns[3].calls[0].name.
type fieldError struct {
	path string
	err  error
}

func (e *fieldError) Error() string { return e.path + ": " + e.err.Error() }
func (e *fieldError) Unwrap() error { return e.err }

// at puts the name of a field, or an index in brackets, before the place of
// err.
func at(name string, err error) error {
	if inner, ok := err.(*fieldError); ok {
		if strings.HasPrefix(inner.path, "[") {
			return &fieldError{name + inner.path, inner.err}
		}
		return &fieldError{name + "." + inner.path, inner.err}
	}
	return &fieldError{name, err}
}

func atIndex(i int, err error) error { return at(fmt.Sprintf("[%d]", i), err) }
