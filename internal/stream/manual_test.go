package stream

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// odyssey-stream(5) lists every field of every record with its type, in the
// order of the schema, and no other.
func TestManualListsEveryField(t *testing.T) {
	page, err := os.ReadFile("../../man/odyssey-stream.5")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	section := ""
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, ".Sh "); ok {
			section = title
		}
		if item, ok := strings.CutPrefix(line, ".It Va "); ok {
			documented[section] = append(documented[section], item)
		}
	}
	credit := &node{shape: shapeObject}
	for _, f := range rowNodes[KindCredit].fields {
		if f.credit {
			credit.fields = append(credit.fields, f)
		}
	}
	for section, n := range map[string]*node{
		"HEADER":              headerNode(),
		"ENVIRONMENT RECORDS": rowNodes[KindEnvironment],
		"TRAJECTORY RECORDS":  rowNodes[KindTrajectory],
		"CREDIT RECORDS":      credit,
		"METRIC RECORDS":      rowNodes[KindMetric],
	} {
		want := documentedFields("", n)
		got := documented[section]
		for _, item := range want {
			if !slices.Contains(got, item) {
				t.Errorf("%s lacks .It Va %s", section, item)
			}
		}
		for _, item := range got {
			if !slices.Contains(want, item) {
				t.Errorf("%s has .It Va %s, which is no field", section, item)
			}
		}
		if !t.Failed() && !slices.Equal(got, want) {
			t.Errorf("%s: not in the order of the schema", section)
		}
	}
}

func documentedFields(prefix string, n *node) []string {
	var items []string
	for i := range n.fields {
		f := &n.fields[i]
		name := prefix + f.name
		items = append(items, name+" Pq "+documentedType(f.node))
		inner := f.node
		if inner.shape == shapeList {
			inner = inner.element
		}
		if inner.shape == shapeObject {
			items = append(items, documentedFields(name+".", inner)...)
		}
	}
	return items
}

func documentedType(n *node) string {
	switch n.shape {
	case shapeText:
		return "text"
	case shapeWhole, shapeUnsigned:
		return "integer"
	case shapeNumber:
		return "float"
	case shapeSwitch:
		return "bool"
	case shapeMaybeNumber:
		return "float or null"
	case shapeIDs, shapeMask:
		return "list of integer"
	case shapeLogprobs:
		return "list of float"
	case shapeList:
		return "list of " + documentedType(n.element)
	case shapeObject:
		return "object"
	}
	panic("unreachable")
}

// headerNode describes wireHeader, which is not a row: its Extra is no field
// and a seed may be missing.
func headerNode() *node {
	n := &node{shape: shapeObject}
	var walk func(n *node, t reflect.Type)
	walk = func(n *node, t reflect.Type) {
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			kind := t.Field(i).Type
			if name == "" {
				continue
			}
			inner := &node{}
			switch {
			case kind.Kind() == reflect.Pointer:
				inner.shape = shapeUnsigned
			case kind.Kind() == reflect.Slice && kind.Elem().Kind() == reflect.Struct:
				element := &node{shape: shapeObject}
				walk(element, kind.Elem())
				inner.shape, inner.element = shapeList, element
			default:
				inner = nodeOf(kind)
			}
			n.fields = append(n.fields, field{name: name, node: inner})
		}
	}
	walk(n, reflect.TypeFor[wireHeader]())
	return n
}
