// What scripts find predeclared besides Starlark's own universe.
//
//	table(path)                      the rows of a JSON table: a frozen list of frozen dicts
//	lookup(path, key, value, fold=False)  first row whose column equals value, or None; indexed;
//	                                 fold compares strings without case
//	refuse(code, message)            ends the call with an error value of the tool's contract
//	sum(items, start=0)
//	round(x, digits=None)            as Python: half to even on the exact value; an int without digits
//	fixed(x, digits)                 decimal text with that many digits (Starlark's % has no precision)
//	json.encode(x), json.decode(s)
//	call(name, arguments={})         WithTools scripts only
//
// Tools have all but call; WithTools scripts have neither table, lookup nor
// refuse; DataOnly scripts have table but not lookup, refuse or call.
package sandbox

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"
)

// refusal ends a tool call; it is an error only to the interpreter.
type refusal struct{ code, message string }

func (r *refusal) Error() string { return r.code + ": " + r.message }

type builtinFunc = func(*starlark.Thread, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error)

// commonBuiltins are the ones that touch no data.
func commonBuiltins(limit int) starlark.StringDict {
	return starlark.StringDict{
		"sum":   starlark.NewBuiltin("sum", builtinSum),
		"round": starlark.NewBuiltin("round", builtinRound),
		"fixed": starlark.NewBuiltin("fixed", builtinFixed),
		"json": &starlarkstruct.Module{Name: "json", Members: starlark.StringDict{
			"encode": starlark.NewBuiltin("json.encode", encodeBuiltin(limit)),
			"decode": starlark.NewBuiltin("json.decode", builtinDecode),
		}},
	}
}

func builtinRefuse(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var code, message string
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "code", &code, "message?", &message); err != nil {
		return nil, err
	}
	return nil, &refusal{code, message}
}

func builtinSum(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var items starlark.Iterable
	var total starlark.Value = starlark.MakeInt(0)
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "items", &items, "start?", &total); err != nil {
		return nil, err
	}
	it := items.Iterate()
	defer it.Done()
	var item starlark.Value
	for it.Next(&item) {
		switch item.(type) {
		case starlark.Int, starlark.Float:
		default:
			return nil, fmt.Errorf("sum: cannot add a %s", item.Type())
		}
		var err error
		if total, err = starlark.Binary(syntax.PLUS, total, item); err != nil {
			return nil, err
		}
	}
	return total, nil
}

const maxDigits = 300

func builtinRound(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var x, digits starlark.Value = nil, starlark.None
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "x", &x, "digits?", &digits); err != nil {
		return nil, err
	}
	n := 0
	if digits != starlark.None {
		if err := starlark.AsInt(digits, &n); err != nil || n < 0 || n > maxDigits {
			return nil, fmt.Errorf("round: digits must be an int in 0..%d", maxDigits)
		}
	}
	switch x := x.(type) {
	case starlark.Int:
		return x, nil
	case starlark.Float:
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return nil, fmt.Errorf("round: cannot round %v", float64(x))
		}
		if digits == starlark.None {
			n, _ := big.NewFloat(math.RoundToEven(float64(x))).Int(nil)
			return starlark.MakeBigInt(n), nil
		}
		// The decimal conversion rounds the exact value half to even.
		r, err := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'f', n, 64), 64)
		return starlark.Float(r), err
	}
	return nil, fmt.Errorf("round: want a number, got %s", x.Type())
}

func builtinFixed(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var x starlark.Value
	var digits int
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "x", &x, "digits", &digits); err != nil {
		return nil, err
	}
	if digits < 0 || digits > maxDigits {
		return nil, fmt.Errorf("fixed: digits must be in 0..%d", maxDigits)
	}
	f, ok := starlark.AsFloat(x)
	if !ok {
		return nil, fmt.Errorf("fixed: want a number, got %s", x.Type())
	}
	return starlark.String(strconv.FormatFloat(f, 'f', digits, 64)), nil
}

func encodeBuiltin(limit int) builtinFunc {
	return func(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var x starlark.Value
		if err := starlark.UnpackPositionalArgs(b.Name(), args, kwargs, 1, &x); err != nil {
			return nil, err
		}
		text, err := appendJSON(nil, x, limit)
		return starlark.String(text), err
	}
}

func builtinDecode(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var text string
	if err := starlark.UnpackPositionalArgs(b.Name(), args, kwargs, 1, &text); err != nil {
		return nil, err
	}
	return decodeJSON(text)
}

// data holds the tables of one program and the indexes made on demand.
type data struct {
	tables  map[string]*starlark.List
	indexes map[indexKey]*starlark.Dict
}

type indexKey struct {
	path, column string
	fold         bool
}

func (d *data) table(path string) (*starlark.List, error) {
	t, ok := d.tables[path]
	if !ok {
		return nil, fmt.Errorf("no table %q", path)
	}
	return t, nil
}

func (d *data) builtinTable(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var path string
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "path", &path); err != nil {
		return nil, err
	}
	return d.table(path)
}

func (d *data) builtinLookup(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var path, column string
	var value starlark.Value
	var fold bool
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "path", &path, "key", &column, "value", &value, "fold?", &fold); err != nil {
		return nil, err
	}
	key := indexKey{path, column, fold}
	index, ok := d.indexes[key]
	if !ok {
		var err error
		if index, err = d.buildIndex(key); err != nil {
			return nil, err
		}
		d.indexes[key] = index
	}
	if fold {
		value = folded(value)
	}
	row, found, err := index.Get(value)
	if err != nil {
		return nil, err
	}
	if !found {
		return starlark.None, nil
	}
	return row, nil
}

func (d *data) buildIndex(key indexKey) (*starlark.Dict, error) {
	rows, err := d.table(key.path)
	if err != nil {
		return nil, err
	}
	if len(d.indexes) >= 256 {
		return nil, errors.New("lookup: more than 256 different columns indexed")
	}
	index := starlark.NewDict(rows.Len())
	for i := range rows.Len() {
		row, ok := rows.Index(i).(*starlark.Dict)
		if !ok {
			return nil, fmt.Errorf("lookup: row %d of %q is not an object", i, key.path)
		}
		v, ok, _ := row.Get(starlark.String(key.column))
		if !ok {
			continue
		}
		if key.fold {
			v = folded(v)
		}
		if _, taken, err := index.Get(v); err != nil {
			return nil, err
		} else if taken {
			continue
		}
		if err := index.SetKey(v, row); err != nil {
			return nil, err
		}
	}
	return index, nil
}

func folded(v starlark.Value) starlark.Value {
	if s, ok := v.(starlark.String); ok {
		return starlark.String(strings.ToLower(string(s)))
	}
	return v
}
