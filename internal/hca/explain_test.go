package hca

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/token"
)

func byteTokenizer(t *testing.T) *token.Tokenizer {
	t.Helper()
	file, err := token.Train(slices.Values([]string{"<|im_start|>user\nget_movie get_movie"}), token.TrainOptions{VocabSize: 256 + len(token.ControlTokens()), ControlTokens: token.ControlTokens()})
	if err != nil {
		t.Fatal(err)
	}
	tokenizer, err := token.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return tokenizer
}

// movieGroup is a clean success and the paper's example beside it: get_moive
// where get_movie is offered. One token per byte.
func movieGroup(t *testing.T, tokenizer *token.Tokenizer) []*episode.Trajectory {
	t.Helper()
	build := func(sample int, name string) *episode.Trajectory {
		tr := &episode.Trajectory{TrajectoryID: fmt.Sprint("movie", sample), GroupID: "g", GroupSize: 2, Sample: sample,
			TaskID: "t", EnvironmentID: "e", Family: episode.FamilyToolUse, Domain: "film", Temperature: 1, FinishReason: episode.FinishSubmitted}
		add := func(role, text string, sampled uint8) {
			ids := tokenizer.EncodeTrusted(text)
			start := len(tr.TokenIDs)
			for range ids {
				tr.LossMask = append(tr.LossMask, sampled)
				tr.RolloutLogprobs = append(tr.RolloutLogprobs, -0.01*float32(sampled))
			}
			tr.TokenIDs = append(tr.TokenIDs, ids...)
			tr.Turns = append(tr.Turns, episode.Turn{Role: role, TokenStart: start, TokenEnd: len(tr.TokenIDs)})
		}
		add(episode.RoleUser, "which year?", 0)
		add(episode.RoleAssistant, "<tool_call>\n{\"name\": \"list_movie\", \"arguments\": {}}\n</tool_call><|im_end|>", 1)
		add(episode.RoleTool, "[\"A\ttab\"]", 0)
		add(episode.RoleAssistant, "<tool_call>\n{\"name\": \""+name+"\", \"arguments\": {}}\n</tool_call><|im_end|>", 1)
		return tr
	}
	group := []*episode.Trajectory{build(0, "get_movie"), build(1, "get_moive")}
	group[0].Reward = 1
	bad := group[1]
	turn := bad.Turns[3]
	offsets := tokenizer.Offsets(bad.TokenIDs[turn.TokenStart:turn.TokenEnd])
	text := string(tokenizer.Decode(bad.TokenIDs[turn.TokenStart:turn.TokenEnd]))
	from := strings.Index(text, "moive")
	lo, hi := token.Span(offsets, from, from+len("moive"))
	bad.FinishReason = episode.FinishAbnormal
	bad.Failures = []episode.Failure{{Turn: 3, Kind: episode.KindUnknownTool, Fault: episode.FaultAgent, Detail: "get_moive is not offered",
		ByteStart: from, ByteEnd: from + len("moive"), TokenStart: turn.TokenStart + lo, TokenEnd: turn.TokenStart + hi,
		CallTokenStart: turn.TokenStart, CallTokenEnd: turn.TokenEnd - 1}}
	return group
}

func explain(t *testing.T, group []*episode.Trajectory, i int, s Settings, tokenizer *token.Tokenizer) (*Explanation, string) {
	t.Helper()
	if err := Assign(group, s); err != nil {
		t.Fatal(err)
	}
	e, err := Explain(group, i, s, tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := e.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	return e, text.String()
}

func TestExplainAnswersEveryQuestionOfTheRule(t *testing.T) {
	tokenizer := byteTokenizer(t)
	group := movieGroup(t, tokenizer)
	s := preset(t, "hca")
	s.Span = "culprit"
	group[1].Reward = 1 // a log that went on and was rewarded
	_, text := explain(t, group, 1, s, tokenizer)
	for _, want := range []string{
		"which year?", `["A\ttab"]`, // every turn, decoded
		"<-- e_t, t* = this turn",
		"failure: unknown_tool (Invalid tool call), the fault of the agent, in turn t* = 3 (policy turn 1)",
		"get_moive is not offered",
		fmt.Sprintf("error span C_i (span culprit, mask span): tokens [%d, %d)", group[1].Failures[0].TokenStart, group[1].Failures[0].TokenEnd),
		`"moive"; tokens [`,
		fmt.Sprintf("b = 1 on %d of %d tokens (sampled); m = 1 on 5 of them (trained)", Count(group[1].LossMask), len(group[1].TokenIDs)),
		"returns of the group: 1 >0*",
		"observed reward 1, set to 0",
		"B_x: the clean rows, size 1, mu = 1, sigma = 0 (population), degenerate: no division",
		"advantage = 0 - 1 = -1",
		"warning: every blamed token was sampled with a probability above 0.95",
		"plain GRPO: B_x: all live rows, size 2, mu = 0.5, sigma = 0.5",
		fmt.Sprintf("on all %d sampled tokens", Count(group[1].LossMask)),
		fmt.Sprintf("the %d sampled tokens of the turns before t* would be pushed down; here 0 of them are trained", group[1].Turns[1].TokenEnd-group[1].Turns[1].TokenStart),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %q in:\n%s", want, text)
		}
	}
	// The culprit is marked under its own letters.
	lines := strings.Split(text, "\n")
	i := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "get_moive") && strings.HasPrefix(l, "  | ") })
	if i < 0 || strings.Index(lines[i+1], "^^^^^") != strings.Index(lines[i], "moive") || strings.Count(lines[i+1], "^") != 5 {
		t.Errorf("culprit not marked:\n%s", text)
	}
}

func TestExplainOfALongCallListsItsEnds(t *testing.T) {
	tokenizer := byteTokenizer(t)
	group := movieGroup(t, tokenizer)
	e, text := explain(t, group, 1, preset(t, "hca"), tokenizer)
	if want := fmt.Sprintf("  ... %d more\n", e.TokensTrained-16); !strings.Contains(text, want) {
		t.Errorf("missing %q in:\n%s", want, text)
	}
	if rows := strings.Count(text, "0.9900  "); rows != 16 {
		t.Errorf("%d rows, want 8 and 8:\n%s", rows, text)
	}
}

func TestExplainOfASolutionDoesNotWarn(t *testing.T) {
	tokenizer := byteTokenizer(t)
	group := movieGroup(t, tokenizer)
	clear(group[1].RolloutLogprobs)
	_, text := explain(t, group, 1, preset(t, "hca"), tokenizer)
	if !strings.Contains(text, "not sampled by a policy") || strings.Contains(text, "warning:") {
		t.Errorf("a solution explained as sampled:\n%s", text)
	}
}

func TestExplainOfACleanRow(t *testing.T) {
	tokenizer := byteTokenizer(t)
	group := movieGroup(t, tokenizer)
	e, text := explain(t, group, 0, preset(t, "hca"), tokenizer)
	if e.Abnormal || e.Failure != nil || e.TokensTrained != e.TokensSampled {
		t.Errorf("clean row explained as %+v", e)
	}
	for _, want := range []string{"failure: none; the trajectory is clean", "this row carries no signal: the advantage is 0"} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %q in:\n%s", want, text)
		}
	}
}

func TestExplainJSONHasTheFixedKeys(t *testing.T) {
	tokenizer := byteTokenizer(t)
	group := movieGroup(t, tokenizer)
	e, _ := explain(t, group, 1, preset(t, "hca"), tokenizer)
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"trajectory_id", "abnormal", "failure", "also", "tokens_trained", "tokens_sampled", "advantage", "baseline"} {
		if _, ok := got[key]; !ok {
			t.Errorf("no key %q in %s", key, text)
		}
	}
	failure := got["failure"].(map[string]any)
	for key, want := range map[string]any{"kind": "unknown_tool", "fault": "agent", "turn": 1.0, "text": "moive", "byte_start": float64(group[1].Failures[0].ByteStart), "byte_end": float64(group[1].Failures[0].ByteEnd)} {
		if failure[key] != want {
			t.Errorf("failure.%s = %v, want %v", key, failure[key], want)
		}
	}
	if n := len(failure["tokens"].([]any)); n != 5 {
		t.Errorf("%d culprit tokens, want 5", n)
	}
}

func TestExplainRefusesAnotherVocabulary(t *testing.T) {
	tokenizer := byteTokenizer(t)
	group := movieGroup(t, tokenizer)
	group[1].TokenIDs[0] = int32(tokenizer.VocabSize())
	if err := Assign(group, preset(t, "hca")); err != nil {
		t.Fatal(err)
	}
	if _, err := Explain(group, 1, preset(t, "hca"), tokenizer); err == nil {
		t.Error("an id outside the vocabulary was explained")
	}
}

func TestStatsCount(t *testing.T) {
	s := preset(t, "hca")
	stats := NewStats(s)
	groups := [][]*episode.Trajectory{
		makeGroup("a", []outcome{{reward: 1}, {abnormal: true}, {fault: episode.FaultVerifier}}),
		makeGroup("b", []outcome{{abnormal: true}, {abnormal: true}}), // no signal
	}
	groups[1][0].Failures[0].Kind = episode.KindBudgetExhausted
	for _, group := range groups {
		assigned(t, group, s)
		if err := stats.Add(group); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	if err := stats.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"5 trajectories in 2 groups; 1 groups worth training (0.500)",
		"abnormal                2  0.500 of the live (budget apart: 1)", // as abnormal_rate of the metrics
		"without signal        2  0.667 of the rows with an error span",
		"left out                1  0.200",
		"unknown_tool                2  0.400",
		"budget_exhausted            1  0.200",
		"verifier                    1  0.200",
		"tool-use                     5     0.600     0.200",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("missing %q in:\n%s", want, b.String())
		}
	}
}

func TestToolWhoseFaultsRiseAlarms(t *testing.T) {
	stats := func(lateFaults int) string {
		s := NewStats(preset(t, "hca"))
		for step := range 40 {
			group := makeGroup(fmt.Sprint("g", step), []outcome{{reward: 1}, {reward: 1}})
			for i, tr := range group {
				tr.Step = step
				tr.Turns[1].Calls = []episode.Call{{Name: "get_movie", Outcome: episode.CallOK}}
				if i == 1 && step >= 40-lateFaults {
					tr.Turns[1].Calls[0].Outcome = episode.CallError
					tr.FinishReason = episode.FinishFault
					tr.Failures = []episode.Failure{{Turn: 1, Kind: episode.KindRuntimeError, Fault: episode.FaultEnvironment}}
				}
			}
			assigned(t, group, preset(t, "hca"))
			if err := s.Add(group); err != nil {
				t.Fatal(err)
			}
		}
		var b strings.Builder
		if err := s.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if text := stats(2); strings.Contains(text, "ALARM") || !strings.Contains(text, "get_movie") {
		t.Errorf("two faults of 80 calls:\n%s", text)
	}
	if text := stats(15); !strings.Contains(text, "ALARM") {
		t.Errorf("15 faults, all late, do not alarm:\n%s", text)
	}
}

func TestAdvantageTextShowsTheClamp(t *testing.T) {
	s := preset(t, "hca")
	got := advantageText(0, episode.Baseline{Size: 2, Mean: 0.805, Std: 0.005}, -math.Sqrt(3), s)
	if !strings.HasSuffix(got, "clamped to -1.73205") {
		t.Errorf("%q", got)
	}
}
