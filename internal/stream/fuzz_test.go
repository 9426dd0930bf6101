package stream

import (
	"bytes"
	stdjson "encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// referenceParse reads a row with a general JSON parser: slow, and strict about
// duplicates and UTF-8. It reads byte arrays as arrays, like the stream.
func referenceParse(text []byte, n *node, r row) error {
	decoder := jsontext.NewDecoder(bytes.NewReader(text))
	if token, err := decoder.ReadToken(); err != nil || token.Kind() != '{' {
		return errIncomplete
	}
	for decoder.PeekKind() == '"' {
		token, err := decoder.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		value, err := decoder.ReadValue()
		if err != nil {
			return err
		}
		i := n.lookup(name)
		if i < 0 {
			if err := addExtra(r, name, bytes.Clone(value)); err != nil {
				return err
			}
			continue
		}
		masks := json.WithUnmarshalers(json.UnmarshalFromFunc(func(d *jsontext.Decoder, into *[]byte) error {
			var wide []uint8Number
			if err := json.UnmarshalDecode(d, &wide); err != nil {
				return err
			}
			*into = make([]byte, len(wide))
			for i, x := range wide {
				(*into)[i] = byte(x)
			}
			return nil
		}))
		if err := json.Unmarshal(value, r.value(&n.fields[i]).Addr().Interface(), masks, json.RejectUnknownMembers(true)); err != nil {
			return err
		}
	}
	if _, err := decoder.ReadToken(); err != nil {
		return err
	}
	if len(bytes.TrimSpace(text[decoder.InputOffset():])) > 0 {
		return errIncomplete
	}
	return nil
}

type uint8Number uint8

// FuzzRow holds the parser of one record against a general one: what it reads
// it reads alike, and it reads nothing that the other refuses.
func FuzzRow(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 1))
	for id := range 8 {
		text, err := appendRow(nil, rowNodes[KindCredit], trajectoryRow(randomTrajectory(random, id, true)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{
		`{"token_ids":[1,-0,2147483647],"loss_mask":[0,255],"advantage":null,"x":{"y":[1e5,"\ud83d\ude00"]}}`,
		`{"rollout_logprobs":[1.5e-3,-0.0,3.4028235e38]}`, `{"seed":18446744073709551615,"reward":9007199254740992}`,
		` { "turns" : [ { "calls" : [ { "name" : "\u0041\/" } ] } ] } `, `{"step":01}`, `{"step":1}{`, `{"a":1,"a":2}`,
	} {
		f.Add([]byte(text))
	}
	n := rowNodes[KindCredit]
	f.Fuzz(func(t *testing.T, text []byte) {
		got := &episode.Trajectory{Credit: &episode.Credit{}}
		err := parseRow(text, n, trajectoryRow(got))
		if err != nil {
			return // the parser is the stricter one: null, exact integers, case
		}
		want := &episode.Trajectory{Credit: &episode.Credit{}}
		if err := referenceParse(text, n, trajectoryRow(want)); err != nil {
			t.Fatalf("accepted %q, which the reference refuses: %v", text, err)
		}
		if !sameContent(got, want) {
			t.Fatalf("%q reads as\n%+v\nreference\n%+v", text, got, want)
		}
	})
}

// sameContent is sameBits, nil and empty lists alike.
func sameContent(a, b *episode.Trajectory) bool {
	return sameBits(a, b) && reflect.DeepEqual(mapOf(a.Extra), mapOf(b.Extra))
}

func mapOf(extra map[string]stdjson.RawMessage) map[string]string {
	texts := map[string]string{}
	for name, value := range extra {
		texts[name] = string(value)
	}
	return texts
}

// survives checks that what was read once is written and read again unchanged
// in both encodings.
func survives(t *testing.T, data []byte) {
	header, records, err := decode(data)
	if err != nil {
		return
	}
	for _, format := range []Format{JSONL, Arrow} {
		_, again, err := decode(encode(t, header, format, records))
		if err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		if len(again) != len(records) {
			t.Fatalf("%s: %d records, want %d", format, len(again), len(records))
		}
		for i := range records {
			if !sameBits(plain(records[i]), plain(again[i])) {
				t.Fatalf("%s: record %d: got\n%+v\nwant\n%+v", format, i, again[i], records[i])
			}
		}
	}
}

// plain takes the unknown fields away, whose blanks may change with the
// encoding.
func plain(record any) any {
	switch r := record.(type) {
	case *episode.Environment:
		r.Extra = nil
	case *episode.Trajectory:
		r.Extra = nil
	case *episode.Metric:
		r.Extra = nil
	}
	return record
}

// FuzzJSONL: whatever the input, a reader returns an error or records that
// survive both encodings.
func FuzzJSONL(f *testing.F) {
	for _, kind := range kinds {
		f.Add(encode(f, sampleHeader(kind), JSONL, randomRecords(kind, 1, 0, 2)))
	}
	f.Add([]byte(strings.ReplaceAll(jsonlHead+`{"trajectory_id":"a","x":[ 1 ,2]}`+"\n"+`{"end":1}`, "\n", "\r\n")))
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.HasPrefix(data, magicZstd) || bytes.HasPrefix(data, magicArrow) {
			return // FuzzArrow's
		}
		survives(t, data)
	})
}

// FuzzArrow does the same for Arrow streams, compressed or not.
func FuzzArrow(f *testing.F) {
	for _, kind := range kinds {
		for _, format := range formats[2:] {
			f.Add(encode(f, sampleHeader(kind), format, randomRecords(kind, 1, 0, 2)))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.HasPrefix(data, magicArrow) {
			survives(t, data)
		}
	})
}
