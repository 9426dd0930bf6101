package sandbox

import (
	"encoding/json"
	"reflect"
	"testing"

	"go.starlark.net/starlark"
)

func TestJSONIsWrittenAsPythonWould(t *testing.T) {
	for in, want := range map[string]string{
		`{"b":1,"a":[1,2.5,"x",null,true]}`:          `{"b": 1, "a": [1, 2.5, "x", null, true]}`,
		`"é\u00e9\/\u2028\u0001\"\\\n"`:              "\"éé/\u2028\\u0001\\\"\\\\\\n\"",
		`[1.0, 1e2, 1e16, 1e-5, 0.0001, -0.0, 3.14]`: `[1.0, 100.0, 1e+16, 1e-05, 0.0001, -0.0, 3.14]`,
		`[123456789012345678901234567890, -7, {}]`:   `[123456789012345678901234567890, -7, {}]`,
		`"\ud83d\ude00"`:                             `"😀"`,
	} {
		v, err := decodeJSON(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got, err := appendJSON(nil, v, 1<<20); err != nil || string(got) != want {
			t.Errorf("%s became %s (%v), want %s", in, got, err, want)
		}
	}
}

func TestJSONThatIsNotStrictIsRefused(t *testing.T) {
	for _, in := range []string{``, `{`, `{"a":1,"a":2}`, `[1,]`, `'a'`, `NaN`, `1 2`, "\"\xff\"", `"\ud800"`, "\"\n\"", `01`, `1e999`} {
		if v, err := decodeJSON(in); err == nil {
			t.Errorf("%q was read as %v", in, v)
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a": [1, -2.5e3, "x\u00e9"]}`, `"\ud83d\ude00"`, `[[[]]]`, `1e16`, `{"a":1,"a":2}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := decodeJSON(text)
		if err != nil {
			return
		}
		if !json.Valid([]byte(text)) {
			t.Fatalf("%q was read as %v but is not JSON", text, v)
		}
		written, err := appendJSON(nil, v, 1<<20)
		if err != nil {
			return
		}
		again, err := decodeJSON(string(written))
		if err != nil {
			t.Fatalf("%q was written as %q: %v", text, written, err)
		}
		if equal, err := starlark.Equal(v, again); err != nil || !equal {
			t.Fatalf("%q came back as %v (%v)", text, again, err)
		}
		var a, b any
		if json.Unmarshal([]byte(text), &a) == nil && json.Unmarshal(written, &b) == nil && !reflect.DeepEqual(a, b) {
			t.Fatalf("%q and %q differ", text, written)
		}
	})
}
