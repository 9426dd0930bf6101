package designer

// The Starlark of solutions and verifiers.

import (
	"encoding/json"
	"fmt"
	"strings"
)

// quote writes s as a Starlark string literal.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c < 0x20 || c == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// literal writes a value of a row as a Starlark literal.
func literal(v any) string {
	switch v := v.(type) {
	case string:
		return quote(v)
	case bool:
		if v {
			return "True"
		}
		return "False"
	case json.Number:
		return v.String()
	}
	return "None"
}

// callExpression is a call of a tool in a solution. Arguments are Starlark
// expressions.
func callExpression(tool string, arguments ...[2]string) string {
	parts := make([]string, len(arguments))
	for i, a := range arguments {
		parts[i] = quote(a[0]) + ": " + a[1]
	}
	return "call(" + quote(tool) + ", {" + strings.Join(parts, ", ") + "})"
}

// solution writes a script whose solve returns the submission. lines set the
// variable found to the value of the answer.
func solution(lines ...string) string {
	return "def solve():\n    " + strings.Join(lines, "\n    ") + "\n" +
		"    return {\"answer\": found if type(found) == \"string\" else json.encode(found)}\n"
}

// verifier writes a script whose verify judges a submission. lines set the
// variable expected to the value of the answer, from raw rows.
func verifier(numeric, fractional bool, lines ...string) string {
	compare, helper := "same_text", sameText
	switch {
	case fractional:
		compare, helper = "same_number", sameNumber
	case numeric:
		compare, helper = "same_integer", sameInteger
	}
	return helper + "\ndef verify(answer):\n    " + strings.Join(lines, "\n    ") + "\n" +
		"    return " + compare + "(answer, expected)\n"
}

// The comparisons of answers. They are part of each verifier, so that a task
// can be judged by its own text alone.
const (
	sameText = `def same_text(given, expected):
    # Case and blanks do not matter.
    return " ".join(given.lower().split()) == " ".join(expected.lower().split())
`
	decimal = `def decimal(text):
    # The parts of a decimal number (sign, whole, fraction, exponent), None for other text.
    mantissa, e, exponent = text.strip().lower().partition("e")
    sign = mantissa[:1] if mantissa[:1] in ["-", "+"] else ""
    whole, dot, fraction = mantissa[len(sign):].partition(".")
    power = exponent[1:] if exponent[:1] in ["-", "+"] else exponent
    digits = whole + fraction + power
    if not (whole + fraction) or len(digits) > 40 or len(power) > 2 or bool(e) != bool(power):
        return None
    if not all([c in "0123456789" for c in digits.elems()]):
        return None
    return sign, whole, fraction, exponent
`
	sameInteger = decimal + `
def same_integer(given, expected):
    # By value: 7, +7 and 7.0 are the same.
    parts = decimal(given)
    if not parts or parts[3] or parts[2].strip("0"):
        return False
    return int(parts[0] + (parts[1] or "0")) == expected
`
	sameNumber = decimal + `
def same_number(given, expected):
    # By value, within a millionth of the expected one.
    if not decimal(given):
        return False
    return abs(float(given.strip()) - expected) <= abs(expected) * 0.000001
`
)
