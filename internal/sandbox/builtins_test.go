package sandbox

import (
	"context"
	"testing"
)

func TestBuiltinsAgreeWithPython(t *testing.T) {
	s := open(t, Options{})
	for expression, want := range map[string]string{
		`sum([1, 2.5])`:                      `3.5`,
		`sum([])`:                            `0`,
		`sum([1], 10)`:                       `11`,
		`round(2.5)`:                         `2`,
		`round(3.5)`:                         `4`,
		`round(-0.5)`:                        `0`,
		`round(2.675, 2)`:                    `2.67`,
		`round(1e20)`:                        `100000000000000000000`,
		`round(7, 2)`:                        `7`,
		`fixed(2.0, 2)`:                      `"2.00"`,
		`fixed(1, 1)`:                        `"1.0"`,
		`json.decode('{"b": 1, "a": [2]}')`:  `{"b": 1, "a": [2]}`,
		`json.encode({"b": 1.0, "a": None})`: `"{\"b\": 1.0, \"a\": null}"`,
		`(1, "x", [True])`:                   `[1, "x", [true]]`,
		`"%d of %s" % (3, "x")`:              `"3 of x"`,
	} {
		r := s.Run(context.Background(), DataOnly, "def main():\n    return "+expression+"\n", "main", "{}")
		if r.Value != want {
			t.Errorf("%s = %+v, want %s", expression, r, want)
		}
	}
	for _, expression := range []string{`sum(["a"])`, `round("x")`, `round(float("nan"))`, `round(1.5, -1)`, `fixed(1.5, 999)`, `fixed("x", 1)`, `json.encode({1: 2})`, `json.decode("{")`, `table("x.json")`} {
		r := s.Run(context.Background(), DataOnly, "def main():\n    return "+expression+"\n", "main", "{}")
		if r.Status != Raised || r.Code != CodeException {
			t.Errorf("%s = %+v, want it to raise", expression, r)
		}
	}
}
