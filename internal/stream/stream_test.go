package stream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

var formats = []Format{JSONL, {Zstd: true}, Arrow, {Arrow: true, Zstd: true}}

func (f Format) String() string {
	name := "jsonl"
	if f.Arrow {
		name = "arrow"
	}
	if f.Zstd {
		name += "+zstd"
	}
	return name
}

// fill sets v to random content that a stream can hold.
func fill(random *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(randomText(random))
	case reflect.Int:
		v.SetInt(int64(random.Uint64()) >> random.IntN(64))
	case reflect.Uint64:
		v.SetUint(random.Uint64() >> random.IntN(64))
	case reflect.Float64:
		v.SetFloat(randomFloat(random, func() float64 { return math.Float64frombits(random.Uint64()) }))
	case reflect.Bool:
		v.SetBool(random.IntN(2) == 0)
	case reflect.Pointer:
		if random.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(random, v.Elem())
		}
	case reflect.Slice:
		n := random.IntN(4)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(random, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") != "-" {
				fill(random, v.Field(i))
			}
		}
	case reflect.Uint8, reflect.Int32, reflect.Float32: // per-token arrays: tokens fills them
	default:
		panic(v.Type())
	}
}

func randomFloat(random *rand.Rand, bits func() float64) float64 {
	switch random.IntN(4) {
	case 0:
		return 0
	case 1:
		return math.Copysign(0, -1)
	case 2:
		return random.NormFloat64()
	}
	for {
		if x := bits(); finite(x) {
			return x
		}
	}
}

func randomText(random *rand.Rand) string {
	pieces := []string{"", "a", "Côte d'Ivoire", "\x00", "\n", "\r\n", "\"", "\\", "\u2028", "\U0001f600", "\u007f", "{\"a\": 1}", "<|im_end|>", "\t", "/"}
	var b strings.Builder
	for range random.IntN(6) {
		b.WriteString(pieces[random.IntN(len(pieces))])
	}
	return b.String()
}

var extras = []map[string]json.RawMessage{
	nil,
	nil,
	{"x": json.RawMessage(`123456789012345678901234567890`), "a note": json.RawMessage(`{"b":1,"a":[1.0,"\u00e9",null]}`)},
	{"extra": json.RawMessage(`"named like the column"`), "": json.RawMessage(`true`), "é\"\\": json.RawMessage(`-0.10e+5`)},
}

func randomEnvironment(random *rand.Rand, id int) *episode.Environment {
	e := &episode.Environment{}
	fill(random, reflect.ValueOf(e).Elem())
	e.EnvironmentID = fmt.Sprintf("e%d", id)
	e.Extra = extras[random.IntN(len(extras))]
	return e
}

func randomTrajectory(random *rand.Rand, id int, credit bool) *episode.Trajectory {
	t := &episode.Trajectory{}
	fill(random, reflect.ValueOf(t).Elem())
	t.TrajectoryID, t.GroupID, t.GroupSize = fmt.Sprintf("t%d", id), fmt.Sprintf("g%d", id/3), 4-random.IntN(2)
	t.Extra = extras[random.IntN(len(extras))]
	n := random.IntN(40)
	t.TokenIDs, t.LossMask, t.RolloutLogprobs = make([]int32, n), make([]uint8, n), make([]float32, n)
	for i := range n {
		t.TokenIDs[i] = int32(random.Uint32() >> (1 + random.IntN(31)))
		t.LossMask[i] = uint8(random.IntN(2))
		t.RolloutLogprobs[i] = float32(randomFloat(random, func() float64 { return float64(math.Float32frombits(random.Uint32())) }))
	}
	span := func(start, end *int) {
		*start = random.IntN(n + 1)
		*end = *start + random.IntN(n+1-*start)
	}
	for i := range t.Segments {
		span(&t.Segments[i].TokenStart, &t.Segments[i].TokenEnd)
	}
	pick := func(words []string) string { return words[random.IntN(len(words))] }
	t.FinishReason = pick(finishReasons)
	for _, number := range []*int{&t.Step, &t.Sample, &t.Level, &t.PolicyVersion, &t.Retries} {
		*number &= math.MaxInt
	}
	t.Temperature = math.Abs(t.Temperature)
	for i := range t.Turns {
		span(&t.Turns[i].TokenStart, &t.Turns[i].TokenEnd)
		if i > 0 {
			t.Turns[i].TokenStart = max(t.Turns[i].TokenStart, t.Turns[i-1].TokenEnd)
			t.Turns[i].TokenEnd = max(t.Turns[i].TokenEnd, t.Turns[i].TokenStart)
		}
		t.Turns[i].Role = pick(roles)
		for j := range t.Turns[i].Calls {
			span(&t.Turns[i].Calls[j].TokenStart, &t.Turns[i].Calls[j].TokenEnd)
		}
	}
	if len(t.Turns) == 0 {
		t.Failures = t.Failures[:0]
	}
	for i := range t.Failures {
		t.Failures[i].Turn, t.Failures[i].Fault = random.IntN(len(t.Turns)), pick(faults)
		t.Failures[i].ByteStart = random.IntN(9)
		t.Failures[i].ByteEnd = t.Failures[i].ByteStart + random.IntN(9)
		span(&t.Failures[i].TokenStart, &t.Failures[i].TokenEnd)
		span(&t.Failures[i].CallTokenStart, &t.Failures[i].CallTokenEnd)
	}
	if credit {
		t.Credit = &episode.Credit{}
		fill(random, reflect.ValueOf(t.Credit).Elem())
		t.Credit.ResponsibleTurn = random.IntN(len(t.Turns)+1) - 1
		t.Credit.Weight = math.Abs(t.Credit.Weight)
		t.Credit.CreditMask = make([]uint8, n)
		for i := range n {
			t.Credit.CreditMask[i] = t.LossMask[i] & uint8(random.IntN(2))
		}
		span(&t.Credit.ErrorSpan.TokenStart, &t.Credit.ErrorSpan.TokenEnd)
	}
	return t
}

func randomMetric(random *rand.Rand) *episode.Metric {
	m := &episode.Metric{}
	fill(random, reflect.ValueOf(m).Elem())
	m.Extra = extras[random.IntN(len(extras))]
	return m
}

func randomRecord(random *rand.Rand, kind Kind, id int) any {
	switch kind {
	case KindEnvironment:
		return randomEnvironment(random, id)
	case KindMetric:
		return randomMetric(random)
	}
	return randomTrajectory(random, id, kind == KindCredit)
}

func write(w *Writer, record any) error {
	switch r := record.(type) {
	case *episode.Environment:
		return w.WriteEnvironment(r)
	case *episode.Trajectory:
		return w.WriteTrajectory(r)
	case *episode.Metric:
		return w.WriteMetric(r)
	}
	panic(record)
}

func read(r *Reader) (any, error) {
	switch r.Header().Kind {
	case KindEnvironment:
		return r.Environment()
	case KindMetric:
		return r.Metric()
	}
	return r.Trajectory()
}

func encode(t testing.TB, header Header, format Format, records []any) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, header, format)
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range records {
		if err := write(w, record); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func decode(data []byte) (Header, []any, error) {
	r, err := NewReader(bytes.NewReader(data), "test")
	if err != nil {
		return Header{}, nil, err
	}
	defer r.Close()
	var records []any
	for {
		record, err := read(r)
		if err == io.EOF {
			return r.Header(), records, nil
		}
		if err != nil {
			return r.Header(), records, err
		}
		records = append(records, record)
	}
}

func sampleHeader(kind Kind) Header {
	seed := uint64(math.MaxUint64)
	h := Header{Kind: kind, Tokenizer: "sha", GroupSize: 4, GroupsPerStep: 2, RewardMax: 1, Version: Version,
		Extra:      map[string]json.RawMessage{"note": json.RawMessage(`[1,{"a":2}]`)},
		Provenance: []Provenance{{Program: "odyssey-x", Version: "1", Arguments: []string{"--a=b c"}, Seed: &seed}}}
	return h
}

var kinds = []Kind{KindEnvironment, KindTrajectory, KindCredit, KindMetric}

// Every record comes back from every encoding with the bits it had.
func TestRecordsSurviveEveryEncoding(t *testing.T) {
	for _, kind := range kinds {
		random := rand.New(rand.NewPCG(1, 2))
		var records []any
		for id := range 60 {
			records = append(records, randomRecord(random, kind, id))
		}
		for _, format := range formats {
			header, back, err := decode(encode(t, sampleHeader(kind), format, records))
			if err != nil {
				t.Fatalf("%s %s: %v", kind, format, err)
			}
			if !reflect.DeepEqual(header, sampleHeader(kind)) {
				t.Errorf("%s %s: header %+v, want %+v", kind, format, header, sampleHeader(kind))
			}
			if len(back) != len(records) {
				t.Fatalf("%s %s: %d records, want %d", kind, format, len(back), len(records))
			}
			for i := range records {
				if !sameBits(records[i], back[i]) {
					t.Fatalf("%s %s: record %d: got\n%+v\nwant\n%+v", kind, format, i, back[i], records[i])
				}
			}
		}
	}
}

// sameBits compares two values, floats by their bits.
func sameBits(a, b any) bool {
	return bitwise(reflect.ValueOf(a), reflect.ValueOf(b))
}

func bitwise(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Float32, reflect.Float64:
		return math.Float64bits(a.Float()) == math.Float64bits(b.Float())
	case reflect.Pointer:
		return a.IsNil() == b.IsNil() && (a.IsNil() || bitwise(a.Elem(), b.Elem()))
	case reflect.Struct:
		for i := range a.NumField() {
			if !bitwise(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !bitwise(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}
