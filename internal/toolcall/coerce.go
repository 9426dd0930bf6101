package toolcall

// Coercion, off by default: scalars of the wrong type that can be read as the
// right one.

import (
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// coerce rewrites scalars that violate their type and checks the result. It
// returns the arguments as they should run, the pointers of what was changed,
// and the violations that are left.
func coerce(schema *Schema, turn string, arguments *jsonValue, violations []Violation) (text string, pointers []string, left []Violation) {
	var b strings.Builder
	at := arguments.start
	for _, v := range violations {
		if v.Kind != episode.KindArgumentType || v.Start < at {
			continue
		}
		value, _ := locate(arguments, splitPointer(v.Pointer))
		now, ok := reread(turn[value.start:value.end], value)
		if !ok {
			continue
		}
		b.WriteString(turn[at:value.start])
		b.WriteString(now)
		at = value.end
		pointers = append(pointers, v.Pointer)
	}
	b.WriteString(turn[at:arguments.end])
	text = b.String()
	return text, pointers, schema.Validate(text)
}

// reread returns a scalar in the other reading: a string that holds a number,
// true or false as that; a number, true or false as a string.
func reread(raw string, value *jsonValue) (string, bool) {
	switch value.kind {
	case '"':
		inner, syntax := scanJSON(value.text, 0)
		if syntax != nil || skipBlanks(value.text, inner.end) != len(value.text) {
			return "", false
		}
		switch inner.kind {
		case '0', 't', 'f':
			return value.text[inner.start:inner.end], true
		}
	case '0', 't', 'f':
		return `"` + raw + `"`, true
	}
	return "", false
}

func splitPointer(pointer string) []string {
	if pointer == "" {
		return nil
	}
	steps := strings.Split(pointer[1:], "/")
	for i, step := range steps {
		steps[i] = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
	}
	return steps
}
