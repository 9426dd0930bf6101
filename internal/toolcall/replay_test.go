package toolcall

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// record plays texts through a detector as rollout does and keeps the
// trajectory.
func record(t *testing.T, s Settings, texts []string, stops []string) *episode.Trajectory {
	t.Helper()
	set := testToolset(t)
	tr := &episode.Trajectory{Tools: set.JSON(), SubmitTool: set.SubmitTool(), Family: s.Family, RequiresTool: s.RequiresTool}
	d := NewDetector(s, testTokenizer, set)
	for i, text := range texts {
		tr.Turns = append(tr.Turns, episode.Turn{Role: episode.RoleUser, TokenStart: len(tr.TokenIDs), TokenEnd: len(tr.TokenIDs) + 3})
		tr.TokenIDs = append(tr.TokenIDs, 1, 2, 3)
		ids := sample(text, stops[i] == episode.StopEnd)
		turn := episode.Turn{Role: episode.RoleAssistant, TokenStart: len(tr.TokenIDs), StopReason: stops[i]}
		tr.TokenIDs = append(tr.TokenIDs, ids...)
		turn.TokenEnd = len(tr.TokenIDs)
		out := d.Turn(ids, stops[i], len(tr.Turns), turn.TokenStart)
		outcomes := make([]string, len(out.Calls))
		for j, c := range out.Calls {
			if c.Outcome == "" {
				c.Outcome = episode.CallOK
				if strings.Contains(c.Arguments, "Atlantis") {
					c.Outcome = episode.CallError
				}
			}
			outcomes[j] = c.Outcome
			turn.Calls = append(turn.Calls, c.Call)
		}
		d.Observed(outcomes)
		tr.Turns = append(tr.Turns, turn)
		tr.Failures = out.Failures
		if len(out.Failures) > 0 || out.Submission != "" {
			break
		}
	}
	return tr
}

func TestReplayEqualsTheRun(t *testing.T) {
	atlantis := call(`{"name": "get_country", "arguments": {"name": "Atlantis"}}`)
	fragments := []string{getChad, getMali, submitChad, diceRoll, atlantis, atlantis, getChad, "Well. ", "<think>hm</think>", "<think>",
		call(`{"name": "get_county", "arguments": {"name": "Chad"}}`), call(`{"name": "note", "arguments": {"n": 1,}}`),
		"<tool_call>{", "<tool_response>x</tool_response>"}
	random := rand.New(rand.NewPCG(1, 2))
	failed := 0
	const trajectories = 500
	for range trajectories {
		s := Settings{RequiresTool: random.IntN(2) == 0, RepeatStrikes: 1 + random.IntN(2), MaxTurns: random.IntN(5)}
		if random.IntN(2) == 0 {
			s.Family = episode.FamilyToolUse
		}
		var texts, stops []string
		for range 1 + random.IntN(5) {
			var b strings.Builder
			for range 1 + random.IntN(2) {
				b.WriteString(fragments[random.IntN(len(fragments))])
			}
			texts = append(texts, b.String())
			stop := episode.StopEnd
			if random.IntN(12) == 0 {
				stop = episode.StopLength
			}
			stops = append(stops, stop)
		}
		tr := record(t, s, texts, stops)
		got, err := Replay(tr, testTokenizer, s)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, tr.Failures) {
			t.Fatalf("%q: replay %+v, run %+v", texts, got, tr.Failures)
		}
		if len(got) > 0 {
			failed++
		}
	}
	if failed < trajectories/10 || failed > trajectories*19/20 {
		t.Errorf("%d of %d failed: the trajectories show too little", failed, trajectories)
	}
}

func TestReplayKeepsWhatOnlyTheRunSaw(t *testing.T) {
	tr := record(t, Settings{}, []string{getMali, getChad}, []string{episode.StopEnd, episode.StopEnd})
	tr.Failures = []episode.Failure{{Turn: 3, Kind: episode.KindRuntimeError, Fault: episode.FaultEnvironment, Detail: "boom"}}
	got, err := Replay(tr, testTokenizer, Settings{})
	if err != nil || !reflect.DeepEqual(got, tr.Failures) {
		t.Errorf("%+v, %v, want the recorded failure", got, err)
	}
	if got, err := Replay(tr, testTokenizer, Settings{RepeatStrikes: 1, Off: []string{episode.KindRuntimeError}}); err != nil || len(got) > 0 {
		t.Errorf("%+v, %v, want nothing: the kind is off", got, err)
	}
	tr.Turns[1].TokenEnd = len(tr.TokenIDs) + 1
	if _, err := Replay(tr, testTokenizer, Settings{}); err == nil {
		t.Error("a turn beyond the tokens passed")
	}
	tr.Tools = "["
	if _, err := Replay(tr, testTokenizer, Settings{}); err == nil {
		t.Error("tools that are no JSON passed")
	}
}

func FuzzTurn(f *testing.F) {
	for _, c := range singleTurnCases {
		text, _, _ := splitMarks(c.turn)
		f.Add(text, true, false)
		f.Add(text, false, true)
	}
	set := testToolset(f)
	f.Fuzz(func(t *testing.T, text string, ended, thinkingOpen bool) {
		ids := sample(text, ended)
		s := Settings{ThinkingOpen: thinkingOpen, RequiresTool: true, RepetitionMin: 20, Coerce: len(text)%2 == 0}
		d := NewDetector(s, testTokenizer, set)
		out := d.Turn(ids, episode.StopEnd, 0, 0)
		checkPlaces(t, ids, 0, out)
		end := 0
		for _, c := range out.Calls {
			if c.ByteStart < end || c.ByteEnd <= c.ByteStart || c.ByteEnd > len(text) {
				t.Fatalf("call at [%d, %d) after %d", c.ByteStart, c.ByteEnd, end)
			}
			end = c.ByteEnd
		}
		if len(out.Failures) == 0 && len(ids) > 0 {
			for i, c := range out.Calls {
				if c.Problem != "" {
					t.Fatalf("call %d has a problem and is no failure: %s", i, c.Problem)
				}
				if set.Schema(c.Name).Validate(c.Arguments) != nil {
					t.Fatalf("call %d does not fit its schema: %s", i, c.Arguments)
				}
				d.RuntimeError(i, episode.FaultAgent, "")
			}
			d.BudgetExhausted(LimitTurns)
		}
		if len(ids) > 0 {
			cut := NewDetector(s, testTokenizer, set)
			checkPlaces(t, ids, 0, cut.Turn(ids, episode.StopLength, 0, 0))
		}
	})
}

// FuzzTurnIDs feeds ids that no encoder would give, undefined ones too.
func FuzzTurnIDs(f *testing.F) {
	f.Add([]byte{1, 2, 3})
	set := testToolset(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		ids := make([]int32, len(raw))
		for i, b := range raw {
			ids[i] = int32(b) + 80*int32(i%2) // control tokens and ids past the vocabulary among them
		}
		if len(ids) == 0 {
			return
		}
		d := NewDetector(Settings{RepetitionMin: 20}, testTokenizer, set)
		checkPlaces(t, ids, 0, d.Turn(ids, episode.StopEnd, 0, 0))
	})
}

func BenchmarkTurn(b *testing.B) {
	set := testToolset(b)
	good := sample(getChad, true)
	bad := sample(call(`{"name": "list_country", "arguments": {"sort_by": "size", "limit": 3}}`), true)
	for _, c := range []struct {
		name string
		ids  []int32
	}{{"clean", good}, {"wrong", bad}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				NewDetector(Settings{}, testTokenizer, set).Turn(c.ids, episode.StopEnd, 0, 0)
			}
		})
	}
	b.Run("schema", func(b *testing.B) {
		schema := set.Schema("list_country")
		for b.Loop() {
			schema.Validate(`{"continent": "Africa", "sort_by": "area", "limit": 3}`)
		}
	})
	b.Run("1000-tokens", func(b *testing.B) {
		random := rand.New(rand.NewPCG(1, 2))
		var text strings.Builder
		for text.Len() < 3000 {
			text.WriteByte(byte('a' + random.IntN(26)))
			if random.IntN(5) == 0 {
				text.WriteByte(' ')
			}
		}
		ids := sample("<think>"+text.String()+"</think>"+getChad, true)
		b.ReportMetric(float64(len(ids)), "tokens")
		for b.Loop() {
			NewDetector(Settings{}, testTokenizer, set).Turn(ids, episode.StopEnd, 0, 0)
		}
	})
}
