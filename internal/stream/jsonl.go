// JSONL: one JSON object a line, strict in both directions.

package stream

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

func marshalStrict(value any) ([]byte, error) {
	return json.Marshal(value, json.Deterministic(true))
}

// appendExtra adds the fields of extra, sorted by name, to the JSON object
// text. Their values keep their bytes, but for line breaks between tokens.
func appendExtra(text []byte, extra map[string]stdjson.RawMessage) ([]byte, error) {
	names := make([]string, 0, len(extra))
	for name := range extra {
		names = append(names, name)
	}
	slices.Sort(names)
	text = text[:len(text)-1]
	for _, name := range names {
		if len(text) > 1 {
			text = append(text, ',')
		}
		quoted, err := jsontext.AppendQuote(text, name)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", name, err)
		}
		value := jsontext.Value(extra[name])
		if !value.IsValid() {
			return nil, fmt.Errorf("field %q: not a JSON value", name)
		}
		if bytes.ContainsAny(value, "\r\n") {
			value = value.Clone()
			if err := value.Compact(); err != nil {
				return nil, err
			}
		}
		text = append(append(quoted, ':'), value...)
	}
	return append(text, '}'), nil
}

// unmarshalObject reads one JSON object into fields, pointers by name, and
// returns the fields that are not among them.
func unmarshalObject(text []byte, fields map[string]any) (map[string]stdjson.RawMessage, error) {
	decoder := jsontext.NewDecoder(bytes.NewBuffer(text))
	token, err := decoder.ReadToken()
	if err != nil {
		return nil, describe(err)
	}
	if token.Kind() != '{' {
		return nil, errors.New("not a JSON object")
	}
	var extra map[string]stdjson.RawMessage
	for decoder.PeekKind() != '}' {
		token, err := decoder.ReadToken()
		if err != nil {
			return nil, describe(err)
		}
		name := token.String()
		target, known := fields[name]
		if !known {
			value, err := decoder.ReadValue()
			if err != nil {
				return nil, describe(err)
			}
			if extra == nil {
				extra = map[string]stdjson.RawMessage{}
			}
			extra[name] = stdjson.RawMessage(bytes.Clone(value))
			continue
		}
		if err := json.UnmarshalDecode(decoder, target, json.RejectUnknownMembers(true)); err != nil {
			return nil, describe(err)
		}
	}
	if _, err := decoder.ReadToken(); err != nil {
		return nil, describe(err)
	}
	if _, err := decoder.ReadToken(); err != io.EOF {
		return nil, errors.New("text after the JSON object")
	}
	return extra, nil
}

// describe drops the package prefix of the JSON package's errors.
func describe(err error) error {
	if err == io.ErrUnexpectedEOF {
		return errors.New("the JSON object is not complete")
	}
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "jsontext: "), "json: ")
	return errors.New(text)
}

// structFields returns pointers to the tagged fields of the struct that
// pointer points to.
func structFields(pointer any, into map[string]any) {
	value := reflect.ValueOf(pointer).Elem()
	for i := range value.NumField() {
		name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		if name != "-" {
			into[name] = value.Field(i).Addr().Interface()
		}
	}
}

func marshalTrajectory(t *episode.Trajectory, kind Kind) ([]byte, error) {
	text, err := marshalStrict(t)
	if err != nil {
		return nil, err
	}
	if kind == KindCredit {
		credit, err := marshalStrict(t.Credit)
		if err != nil {
			return nil, err
		}
		text = append(append(text[:len(text)-1], ','), credit[1:]...)
	}
	return appendExtra(text, t.Extra)
}
