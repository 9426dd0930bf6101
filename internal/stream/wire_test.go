package stream

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/klauspost/compress/zstd"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

func randomRecords(kind Kind, seed uint64, first, n int) []any {
	random := rand.New(rand.NewPCG(seed, 7))
	var records []any
	for id := range n {
		records = append(records, randomRecord(random, kind, first+id))
	}
	return records
}

func sameRecords(t *testing.T, got, want []any) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range want {
		if !sameBits(got[i], want[i]) {
			t.Fatalf("record %d differs: got\n%+v\nwant\n%+v", i, got[i], want[i])
		}
	}
}

// Any prefix of a stream is a cut stream, in every encoding, but for blanks at
// its end. No prefix reads as fewer rows.
func TestEveryPrefixIsACutStream(t *testing.T) {
	for _, kind := range kinds {
		records := randomRecords(kind, 5, 0, 3)
		for _, format := range formats {
			data := encode(t, Header{Kind: kind}, format, records)
			whole := len(data)
			if !format.Arrow && !format.Zstd {
				whole-- // the last line break may be missing
			}
			step := max(1, whole/100)
			for n := 0; n < whole; n++ {
				if n%step != 0 && n < whole-40 {
					continue
				}
				_, _, err := decode(data[:n])
				if !errors.Is(err, ErrCut) {
					t.Fatalf("%s %s: prefix of %d of %d bytes: %v, want a cut stream", kind, format, n, len(data), err)
				}
			}
		}
	}
}

// cat a b is one stream, whatever the encodings of a and b are.
func TestConcatenatedStreamsAreOne(t *testing.T) {
	for _, kind := range kinds {
		a, b := randomRecords(kind, 1, 0, 4), randomRecords(kind, 2, 4, 5)
		want := append(append([]any{}, a...), b...)
		for _, first := range formats {
			for _, second := range formats {
				if first == (Format{Zstd: true}) && second != first {
					continue // what follows a zstd frame must be zstd
				}
				data := append(encode(t, Header{Kind: kind}, first, a), encode(t, Header{Kind: kind}, second, b)...)
				_, got, err := decode(data)
				if err != nil {
					t.Fatalf("%s, %s and %s: %v", kind, first, second, err)
				}
				sameRecords(t, got, want)
			}
		}
	}
}

func TestOperandsAreOneStream(t *testing.T) {
	folder := t.TempDir()
	var operands []string
	var want []any
	for i, format := range formats {
		records := randomRecords(KindTrajectory, uint64(i), 10*i, 4)
		want = append(want, records...)
		name := filepath.Join(folder, fmt.Sprint(i))
		if err := os.WriteFile(name, encode(t, Header{Kind: KindTrajectory}, format, records), 0o666); err != nil {
			t.Fatal(err)
		}
		operands = append(operands, name)
	}
	records := randomRecords(KindTrajectory, 99, 100, 2)
	want = append(want, records...)
	stdin := bytes.NewReader(encode(t, Header{Kind: KindTrajectory}, JSONL, records))
	r, err := OpenReader(append(operands, "-"), stdin, KindTrajectory)
	if err != nil {
		t.Fatal(err)
	}
	var got []any
	for {
		record, err := r.Trajectory()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, record)
	}
	sameRecords(t, got, want)
}

const jsonlHead = `{"format":"odyssey-stream","kind":"trajectory","version":"1.0"}` + "\n"

func wantError(t *testing.T, data, want string) {
	t.Helper()
	_, _, err := decode([]byte(data))
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%.200q:\n got %v\nwant %s", data, err, want)
	}
}

// What cannot be kept exactly is refused with the number of the record and the
// name of the field.
func TestDamagedRecordsAreNamed(t *testing.T) {
	good := `{"trajectory_id":"a"}` + "\n"
	for _, c := range []struct{ record, want string }{
		{`{"trajectory_id":"b","step":1,"step":2}`, "test: record 2: step: stands twice"},
		{`{"trajectory_id":"b","new":1,"new":2}`, "test: record 2: new: stands twice"},
		{`{"trajectory_id":"b","new":{"x":1,"x":2}}`, "test: record 2: new: duplicate object member name"},
		{`{"trajectory_id":"b","turns":[{"role":"a"},{"role":"a","role":"b"}]}`, "record 2: turns[1].role: stands twice"},
		{`{"trajectory_id":"b","turns":[{"calls":[{"colour":1}]}]}`, "record 2: turns[0].calls[0].colour: is unknown"},
		{"{\"trajectory_id\":\"b\",\"domain\":\"\xff\"}", "record 2: domain: is not valid UTF-8"},
		{"{\"trajectory_id\":\"b\",\"new\":\"\xff\"}", "record 2: new: "},
		{"{\"trajectory_id\":\"b\",\"\xff\":1}", "record 2: is not valid UTF-8"},
		{`{"trajectory_id":"b","domain":"\ud800"}`, "half of a surrogate pair"},
		{`{"trajectory_id":"b","domain":"\ud800\u0041"}`, "half of a surrogate pair"},
		{`{"trajectory_id":"b","new":"\udc00"}`, "record 2: new: "},
		{"{\"trajectory_id\":\"b\",\"domain\":\"a\tb\"}", "control character 0x09"},
		{`{"trajectory_id":"b","rollout_logprobs":[NaN]}`, "record 2: rollout_logprobs[0]: column 42: want a number"},
		{`{"trajectory_id":"b","reward":1e999}`, "record 2: reward: 1e999 does not fit a float of 64 bits"},
		{`{"trajectory_id":"b","reward":9007199254740993}`, "record 2: reward: the integer 9007199254740993 does not fit"},
		{`{"trajectory_id":"b","rollout_logprobs":[16777217]}`, "rollout_logprobs[0]: the integer 16777217 does not fit a float of 32 bits"},
		{`{"trajectory_id":"b","step":9223372036854775808}`, "record 2: step: 9223372036854775808 is not an integer from"},
		{`{"trajectory_id":"b","step":1.0}`, "record 2: step: 1.0 is not an integer"},
		{`{"trajectory_id":"b","step":01}`, "record 2: column 30: want ','"},
		{`{"trajectory_id":"b","step":null}`, "record 2: step: "},
		{`{"trajectory_id":"b","seed":-1}`, "record 2: seed: -1 is not an integer from 0"},
		{`{"trajectory_id":"b","loss_mask":[256]}`, "loss_mask[0]: 256 is not an integer from 0 to 255"},
		{`{"trajectory_id":"b","token_ids":[1,2],"loss_mask":[1],"rollout_logprobs":[0,0]}`, "record 2: loss_mask: has 1 values, but token_ids has 2"},
		{`{"trajectory_id":"b","token_ids":[1],"loss_mask":[1],"rollout_logprobs":[]}`, "record 2: rollout_logprobs: has 0 values, but token_ids has 1"},
		{`{"trajectory_id":"b","token_ids":[1],"loss_mask":[2],"rollout_logprobs":[0]}`, "record 2: loss_mask: [0] is 2"},
		{`{"trajectory_id":"b","token_ids":[-1],"loss_mask":[1],"rollout_logprobs":[0]}`, "record 2: token_ids: [0] is -1"},
		{`{"trajectory_id":"b","turns":[{"token_start":0,"token_end":1}]}`, "record 2: turns[0]: token range [0, 1) does not lie in the 0 tokens"},
		{`{"trajectory_id":"a"}`, "record 2: trajectory_id: a stands in an earlier record too"},
		{`{"trajectory_id":""}`, "record 2: trajectory_id: is empty"},
		{`{"trajectory_id":"b"} x`, "record 2: column 23: want the end of the line"},
		{`{"trajectory_id":"b",}`, "record 2: column 22: want a value"},
		{`["trajectory_id"]`, "record 2: column 1: want '{'"},
		{`{"end":2}`, "record 2: the end record counts 2 records, but 1 were read"},
	} {
		wantError(t, jsonlHead+good+c.record+"\n"+`{"end":2}`+"\n", c.want)
	}
}

func TestStreamsOfAnotherKindOrVersionAreRefused(t *testing.T) {
	wantError(t, `{"format":"odyssey-stream","kind":"trajectory","version":"2.0"}`+"\n"+`{"end":0}`, "stream version 2.0 is newer")
	wantError(t, `{"format":"odyssey-stream","kind":"potato","version":"1.0"}`+"\n"+`{"end":0}`, `no kind of stream is called "potato"`)
	wantError(t, `{"kind":"trajectory","version":"1.0"}`+"\n"+`{"end":0}`, "not an odyssey stream")
	wantError(t, "id,name\n1,a\n", `neither JSONL nor an Arrow stream: it begins with "id,nam"`)
	wantError(t, "\x1f\x8b\x08", "gzip data")
	wantError(t, "ARROW1\x00\x00", "an Arrow file, not an Arrow stream")
	wantError(t, jsonlHead+`{"end":0}`+"\n"+`{"format":"odyssey-stream","kind":"metric","version":"1.0"}`+"\n"+`{"end":0}`+"\n",
		`the header's kind is "metric", but the stream began with "trajectory"`)
	wantError(t, jsonlHead+jsonlHead+`{"end":0}`, ErrCut.Error()+" before the next header")
	_, err := NewReader(strings.NewReader(jsonlHead+`{"end":0}`), "test", KindEnvironment)
	if err == nil || !strings.Contains(err.Error(), `a stream of kind "trajectory"; this command reads environment`) {
		t.Error(err)
	}
	// A newer minor version is read; its new fields pass through.
	_, got, err := decode([]byte(strings.Replace(jsonlHead, "1.0", "1.9", 1) + `{"trajectory_id":"a","new":[1]}` + "\n" + `{"end":1}`))
	if err != nil || string(got[0].(*episode.Trajectory).Extra["new"]) != "[1]" {
		t.Error(got, err)
	}
}

// Byte order mark, CRLF, blank lines, blanks and a missing last line break are
// no part of the content.
func TestLineEndingsDoNotMatter(t *testing.T) {
	data := "\ufeff" + strings.ReplaceAll(jsonlHead+` { "trajectory_id" : "a" , "token_ids" : [ 0 , 7 ] , "loss_mask":[0,1],"rollout_logprobs":[-0.0, -1e-3] } `+"\n\n"+`{ "end" : 1 }`, "\n", "\r\n")
	_, got, err := decode([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	tr := got[0].(*episode.Trajectory)
	if tr.TrajectoryID != "a" || tr.TokenIDs[1] != 7 || tr.RolloutLogprobs[1] != -1e-3 || !math.Signbit(float64(tr.RolloutLogprobs[0])) {
		t.Errorf("%+v", tr)
	}
}

// What follows a whole stream and is none is no fault of its last record.
func TestWhatFollowsAStreamIsNamed(t *testing.T) {
	whole := encode(t, Header{Kind: KindEnvironment}, Format{}, []any{&episode.Environment{EnvironmentID: "a"}})
	other := encode(t, Header{Kind: KindMetric}, Format{}, nil)
	for want, rest := range map[string][]byte{
		"test: after the end of the stream of 1 records: neither JSONL nor": []byte("garbage\n"),
		"test: the header's kind is \"metric\"":                             other,
	} {
		_, records, err := decode(append(bytes.Clone(whole), rest...))
		if len(records) != 1 || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%d records, %v; want %s", len(records), err, want)
		}
	}
}

// A header whose figures cannot be is refused.
func TestHeadersThatCannotBe(t *testing.T) {
	for _, field := range []string{`"groups_per_step":-1`, `"group_size":-1`, `"staleness":-1`, `"steps":-1`, `"logprob_convention":"x"`, `"reward_min":2,"reward_max":1`} {
		text := `{"format":"odyssey-stream","kind":"trajectory","version":"1.0",` + field + "}\n{\"end\":0}\n"
		if _, _, err := decode([]byte(text)); err == nil || !strings.Contains(err.Error(), "header: ") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestALineHasNoLengthLimit(t *testing.T) {
	e := &episode.Environment{EnvironmentID: "a", Files: []episode.File{{Path: "x", Content: strings.Repeat("0123456789abcdé\n", 1<<20)}}}
	for _, format := range formats {
		_, got, err := decode(encode(t, Header{Kind: KindEnvironment}, format, []any{e}))
		if err != nil || len(got) != 1 || got[0].(*episode.Environment).Files[0].Content != e.Files[0].Content {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// A writer refuses what a reader would, and keeps the stream whole.
func TestWriterRefusesWhatCannotBeKept(t *testing.T) {
	nan := math.NaN()
	for _, format := range formats {
		var out bytes.Buffer
		w, err := NewWriter(&out, Header{Kind: KindCredit}, format)
		if err != nil {
			t.Fatal(err)
		}
		good := func(id string) *episode.Trajectory {
			return &episode.Trajectory{TrajectoryID: id, TokenIDs: []int32{1}, LossMask: []uint8{1}, RolloutLogprobs: []float32{0},
				Turns: []episode.Turn{{Role: episode.RoleUser}}, Credit: &episode.Credit{CreditMask: []uint8{1}}}
		}
		for want, damage := range map[string]func(*episode.Trajectory){
			"rollout_logprobs[0]: is not a finite number": func(t *episode.Trajectory) { t.RolloutLogprobs[0] = float32(nan) },
			"advantage: is not a finite number":           func(t *episode.Trajectory) { t.Credit.Advantage = &nan },
			"turns[0].stop_reason: is not valid UTF-8":    func(t *episode.Trajectory) { t.Turns[0].StopReason = "\xff" },
			"credit_mask: [0] is 1 where loss_mask is 0":  func(t *episode.Trajectory) { t.LossMask[0] = 0 },
			"credit_mask: has 0 values":                   func(t *episode.Trajectory) { t.Credit.CreditMask = nil },
			"finish_reason: \"x\" is none of":             func(t *episode.Trajectory) { t.FinishReason = "x" },
			"turns[0].role: \"x\" is none of":             func(t *episode.Trajectory) { t.Turns[0].Role = "x" },
			"failures[0].fault: \"x\" is none of":         func(t *episode.Trajectory) { t.Failures = []episode.Failure{{Fault: "x"}} },
			"failures[0].turn: there is no turn 1 of 1":   func(t *episode.Trajectory) { t.Failures = []episode.Failure{{Turn: 1}} },
			"failures[0]: byte range [2, 1) is none":      func(t *episode.Trajectory) { t.Failures = []episode.Failure{{ByteStart: 2, ByteEnd: 1}} },
			"turns[1]: token range [0, 1) begins before":  func(t *episode.Trajectory) { t.Turns = []episode.Turn{{TokenEnd: 1}, {TokenEnd: 1}} },
			"step: -1 is negative":                        func(t *episode.Trajectory) { t.Step = -1 },
			"level: -1 is negative":                       func(t *episode.Trajectory) { t.Level = -1 },
			"policy_version: -1 is negative":              func(t *episode.Trajectory) { t.PolicyVersion = -1 },
			"temperature: -0.5 is negative":               func(t *episode.Trajectory) { t.Temperature = -0.5 },
			"responsible_turn: there is no turn 1 of 1":   func(t *episode.Trajectory) { t.Credit.ResponsibleTurn = 1 },
			"responsible_turn: there is no turn -2 of 1":  func(t *episode.Trajectory) { t.Credit.ResponsibleTurn = -2 },
			"weight: -1 is negative":                      func(t *episode.Trajectory) { t.Credit.Weight = -1 },
			"needs the trajectory's credit":               func(t *episode.Trajectory) { t.Credit = nil },
			"advantage: is a field of this kind": func(t *episode.Trajectory) {
				t.Extra = map[string]json.RawMessage{"advantage": json.RawMessage("1")}
			},
			"note: is not a JSON value": func(t *episode.Trajectory) {
				t.Extra = map[string]json.RawMessage{"note": json.RawMessage("{")}
			},
		} {
			tr := good("bad")
			damage(tr)
			if err := w.WriteTrajectory(tr); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %s", format, err, want)
			}
		}
		if err := w.WriteTrajectory(good("fine")); err != nil {
			t.Fatal(err)
		}
		if err := w.WriteMetric(&episode.Metric{}); err == nil {
			t.Error("a metric row on a credit stream")
		}
		w.Close()
		_, got, err := decode(out.Bytes())
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %d records, %v", format, len(got), err)
		}
	}
}

// A group is delivered before the input goes on, so that a filter can serve as
// a coprocess.
func TestAGroupIsDeliveredBeforeTheInputGoesOn(t *testing.T) {
	for _, kind := range []Kind{KindEnvironment, KindTrajectory, KindCredit} {
		for _, format := range formats {
			reading, writing := io.Pipe()
			delivered := make(chan struct{})
			var records []any
			for i := range 6 {
				record := randomRecord(rand.New(rand.NewPCG(9, uint64(i))), kind, i)
				if tr, ok := record.(*episode.Trajectory); ok {
					tr.GroupID, tr.GroupSize = fmt.Sprint(i/2), 2
				}
				records = append(records, record)
			}
			go func() {
				w, err := NewWriter(writing, Header{Kind: kind}, format)
				if err != nil {
					writing.CloseWithError(err)
					return
				}
				for i, record := range records {
					if err := write(w, record); err != nil {
						writing.CloseWithError(err)
						return
					}
					if kind == KindEnvironment || i%2 == 1 {
						<-delivered // blocks for ever if the group stays behind
					}
				}
				w.Close()
				writing.Close()
			}()
			r, err := NewReader(reading, "pipe")
			if err != nil {
				t.Fatal(err)
			}
			for i := range records {
				if _, err := read(r); err != nil {
					t.Fatalf("%s %s: %v", kind, format, err)
				}
				if kind == KindEnvironment || i%2 == 1 {
					delivered <- struct{}{}
				}
			}
			if _, err := read(r); err != io.EOF {
				t.Fatal(err)
			}
		}
	}
}

// failing gives an error, or the end, after its data.
type failing struct {
	data io.Reader
	err  error
}

func (f *failing) Read(into []byte) (int, error) {
	n, err := f.data.Read(into)
	if err == io.EOF {
		err = f.err
	}
	return n, err
}

// The zstd decoder drops a read error that falls between two frames and takes
// an empty input for a good one.
func TestReadErrorsBetweenFramesAreKept(t *testing.T) {
	whole := encode(t, Header{Kind: KindMetric}, Format{Zstd: true}, nil)
	broken := errors.New("the disk is on fire")
	r, err := NewReader(&failing{bytes.NewReader(whole), broken}, "test")
	if err == nil {
		_, err = r.Metric()
	}
	if !errors.Is(err, broken) {
		t.Errorf("after a whole frame: %v, want the read error", err)
	}
	var empty bytes.Buffer
	encoder, _ := zstd.NewWriter(&empty)
	encoder.Close()
	for name, data := range map[string][]byte{"nothing": nil, "an empty frame": empty.Bytes(), "blanks": []byte(" \n")} {
		if _, _, err := decode(data); !errors.Is(err, ErrCut) {
			t.Errorf("%s: %v, want a cut stream", name, err)
		}
	}
	for _, format := range formats {
		data := encode(t, Header{Kind: KindMetric}, format, randomRecords(KindMetric, 1, 0, 3))
		for n := 1; n < len(data); n += 1 + len(data)/50 {
			r, err := NewReader(&failing{bytes.NewReader(data[:n]), broken}, "test")
			for err == nil {
				_, err = r.Metric()
			}
			if !errors.Is(err, broken) {
				t.Errorf("%s after %d bytes: %v, want the read error", format, n, err)
			}
		}
	}
}

// Array data that looks like the end-of-stream marker does not end a stream.
func TestArrowDataThatImitatesTheMarker(t *testing.T) {
	eos := string([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	ids := make([]int32, 16)
	for i := range ids {
		ids[i] = int32(binary.LittleEndian.Uint32([]byte{0, 0, 0, 0}))
	}
	tr := &episode.Trajectory{TrajectoryID: "a", TokenIDs: ids, LossMask: make([]uint8, 16), RolloutLogprobs: make([]float32, 16)}
	data := encode(t, Header{Kind: KindTrajectory}, Arrow, []any{tr})
	if !strings.HasSuffix(string(data), eos) {
		t.Fatal("no end-of-stream marker")
	}
	forged := append(data[:len(data)-8:len(data)-8], 0xff, 0xff, 0xff)
	if _, _, err := decode(forged); !errors.Is(err, ErrCut) {
		t.Errorf("%v, want a cut stream", err)
	}
	if _, _, err := decode(data[:len(data)-8]); !errors.Is(err, ErrCut) {
		t.Errorf("without marker: %v, want a cut stream", err)
	}
}

// Streams that other programs rewrote, with 32-bit offsets and columns in
// another order, some left out, some added, read the same.
func TestArrowOfOtherPrograms(t *testing.T) {
	header, err := Header{Kind: KindTrajectory}.marshal()
	if err != nil {
		t.Fatal(err)
	}
	turn := arrow.StructOf(arrow.Field{Name: "token_end", Type: arrow.PrimitiveTypes.Int32}, arrow.Field{Name: "role", Type: arrow.BinaryTypes.String})
	metadata := arrow.NewMetadata([]string{headerKey}, []string{string(header)})
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "turns", Type: arrow.ListOf(turn), Nullable: true},
		{Name: "loss_mask", Type: arrow.ListOf(arrow.PrimitiveTypes.Uint8)},
		{Name: "token_ids", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32)},
		{Name: "rollout_logprobs", Type: arrow.ListOf(arrow.PrimitiveTypes.Float32)},
		{Name: "trajectory_id", Type: arrow.BinaryTypes.String},
		{Name: "mine", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64), Nullable: true},
	}, &metadata)
	b := array.NewRecordBuilder(allocator, schema)
	turns := b.Field(0).(*array.ListBuilder)
	turns.Append(true)
	turns.ValueBuilder().(*array.StructBuilder).Append(true)
	turns.ValueBuilder().(*array.StructBuilder).FieldBuilder(0).(*array.Int32Builder).Append(2)
	turns.ValueBuilder().(*array.StructBuilder).FieldBuilder(1).(*array.StringBuilder).Append("user")
	b.Field(1).(*array.ListBuilder).Append(true)
	b.Field(1).(*array.ListBuilder).ValueBuilder().(*array.Uint8Builder).AppendValues([]uint8{0, 1}, nil)
	b.Field(2).(*array.ListBuilder).Append(true)
	b.Field(2).(*array.ListBuilder).ValueBuilder().(*array.Int32Builder).AppendValues([]int32{5, 6}, nil)
	b.Field(3).(*array.ListBuilder).Append(true)
	b.Field(3).(*array.ListBuilder).ValueBuilder().(*array.Float32Builder).AppendValues([]float32{0, -1}, nil)
	b.Field(4).(*array.StringBuilder).Append("x")
	b.Field(5).(*array.ListBuilder).Append(true)
	b.Field(5).(*array.ListBuilder).ValueBuilder().(*array.Int64Builder).AppendValues([]int64{1 << 60}, nil)
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(schema), ipc.WithLZ4())
	if err := w.Write(b.NewRecord()); err != nil {
		t.Fatal(err)
	}
	w.Close()
	_, got, err := decode(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	want := &episode.Trajectory{TrajectoryID: "x", TokenIDs: []int32{5, 6}, LossMask: []uint8{0, 1}, RolloutLogprobs: []float32{0, -1},
		Turns: []episode.Turn{{Role: "user", TokenEnd: 2}}, Extra: map[string]json.RawMessage{"mine": json.RawMessage("[1152921504606846976]")}}
	sameRecords(t, got, []any{want})
}

// Memory follows the input: a message that claims more than is there is
// refused before anything is allocated for it.
func TestArrowClaimsAreChecked(t *testing.T) {
	data := encode(t, Header{Kind: KindMetric}, Format{Arrow: true, Zstd: true}, randomRecords(KindMetric, 1, 0, 2))
	length := binary.LittleEndian.Uint32(data[4:])
	for _, claim := range []uint32{0x7fffffff, 0x80000000, 0x0fffffff} {
		forged := bytes.Clone(data)
		binary.LittleEndian.PutUint32(forged[4:], claim)
		if _, _, err := decode(forged); err == nil {
			t.Errorf("metadata of %d bytes, not %d, was accepted", claim, length)
		}
	}
	for position := range 2000 { // every byte of the schema message and the first batch
		if position >= len(data) {
			break
		}
		forged := bytes.Clone(data)
		forged[position] ^= 0x80
		decode(forged) // must return; the fuzz test looks further
	}
}

// Unknown fields of the header stand at its top level and pass through.
func TestUnknownHeaderFieldsPassThrough(t *testing.T) {
	head := `{"format":"odyssey-stream","kind":"metric","version":"1.0","steps":3,"note":{"b":1,"a":[2]}}`
	for _, format := range formats {
		header, _, err := decode([]byte(head + "\n" + `{"end":0}`))
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := decode(encode(t, header, format, nil))
		if err != nil {
			t.Fatal(err)
		}
		text, err := again.marshal()
		if err != nil || string(text) != head {
			t.Errorf("%s: %s, %v, want %s", format, text, err, head)
		}
	}
	text, err := Header{Kind: KindMetric}.marshal()
	if want := `{"format":"odyssey-stream","kind":"metric","version":"1.0"}`; err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	wantError(t, `{"format":"odyssey-stream","kind":"metric","version":"1.0","steps":1,"steps":2}`+"\n", `header: duplicate object member name "steps"`)
}
