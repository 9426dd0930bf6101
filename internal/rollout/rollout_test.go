package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/kernel/ref"
	"github.com/odyssey-rl/odyssey/internal/model"
	"github.com/odyssey-rl/odyssey/internal/sampler"
	"github.com/odyssey-rl/odyssey/internal/sandbox"
	"github.com/odyssey-rl/odyssey/internal/token"
)

func TestMain(m *testing.M) {
	sandbox.MaybeWorker()
	os.Exit(m.Run())
}

const rows = `[{"name": "Chad", "area": 1284}, {"name": "Peru", "area": 1285}, {"name": "Mali", "area": 1240}]`

const source = `
def get_country(name):
    if name == "crash":
        return 1 // 0
    if name == "slow":
        while True:
            pass
    if name == "breach":
        refuse("invalid_argument", "no")
    if name == "declared":
        fail("too_old: data")
    row = lookup("country.json", "name", name)
    if row == None:
        refuse("not_found", "no such country")
    return row

def count_country():
    return len(table("country.json"))

def submit(answer):
    return "received"
`

const verifier = `
def verify(answer):
    if answer == "verifier crash":
        return 1 // 0
    if answer == "verifier nonsense":
        return "maybe"
    return answer == str([r for r in table("country.json") if r["name"] == "Peru"][0]["area"])
`

func country(status string) *episode.Environment {
	name := `{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": false}`
	answer := `{"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"], "additionalProperties": false}`
	none := `{"type": "object", "properties": {}, "additionalProperties": false}`
	e := &episode.Environment{
		EnvironmentID: "env-" + status, Domain: "travel", Family: episode.FamilyToolUse, Split: episode.SplitTrain,
		Files: []episode.File{{Path: "country.json", MediaType: "application/json", Content: rows}},
		Tools: []episode.Tool{
			{Name: "get_country", Description: "one country", Parameters: name, Pure: true, Raises: []string{"not_found", "too_old"}, Source: source},
			{Name: "count_country", Description: "how many", Parameters: none, Pure: true, Source: source},
			{Name: "submit", Description: "answer", Parameters: answer, Pure: true, Source: source},
		},
		SubmitTool: "submit", RequiresTool: true,
	}
	task := func(id, query string, level int, answer string, calls ...episode.SolutionCall) {
		e.Tasks = append(e.Tasks, episode.Task{
			TaskID: id, Query: query, Level: level, Operation: "lookup", Status: status, SubmitSchema: answer,
			Solution: episode.Solution{Answer: answer, Calls: calls},
			Verifier: episode.Verifier{Language: "starlark", Source: verifier},
		})
	}
	task("t0", `What is the area of the country "Peru"?`, 1, `{"answer": "1285"}`, episode.SolutionCall{Name: "get_country", Arguments: `{"name": "Peru"}`})
	task("t1", `How large is "Peru"? Count first.`, 2, `{"answer": "1285"}`,
		episode.SolutionCall{Name: "count_country", Arguments: `{}`}, episode.SolutionCall{Name: "get_country", Arguments: `{"name": "Peru"}`})
	return e
}

var tokenizerFile []byte // of renderer

// renderer trains a small vocabulary, once.
var renderer = func() *token.Renderer {
	text := iter.Seq[string](func(yield func(string) bool) {
		for range 3 {
			if !yield(rows + source + verifier) {
				return
			}
		}
	})
	var err error
	tokenizerFile, err = token.Train(text, token.TrainOptions{VocabSize: 320, ControlTokens: token.ControlTokens()})
	if err != nil {
		panic(err)
	}
	t, err := token.Load(tokenizerFile)
	if err != nil {
		panic(err)
	}
	r, err := token.NewRenderer(t, token.TemplatePico)
	if err != nil {
		panic(err)
	}
	return r
}()

func settings() Settings {
	return Settings{Seed: 5, GroupSize: 1, Temperature: 1, TurnTokens: 200, MaxTurns: 4, MaxContext: 900, FaultRetries: 2, Policy: "p"}
}

func tasks(t testing.TB, s Settings, environments ...*episode.Environment) *Tasks {
	t.Helper()
	pool := sandbox.NewPool(sandbox.Options{Workers: 2, Steps: 100_000})
	t.Cleanup(pool.Close)
	ts, err := NewTasks(environments, Selection{}, s, renderer, pool, 2)
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

// say plays turns given as text in task 0 and returns the row.
func say(t testing.TB, s Settings, status string, texts ...string) *episode.Trajectory {
	t.Helper()
	ts := tasks(t, s, country(status))
	a, err := ts.newAttempt(context.Background(), Step{Groups: []sampler.Choice{{}}}, &slot{})
	if err != nil {
		t.Fatal(err)
	}
	var turns [][]int32
	for _, text := range texts {
		turns = append(turns, renderer.Assistant(text))
	}
	if err := a.write(context.Background(), turns); err != nil {
		t.Fatal(err)
	}
	a.close()
	checkRow(t, a.row)
	return a.row
}

// checkRow holds for every row, however it ended.
func checkRow(t testing.TB, row *episode.Trajectory) {
	t.Helper()
	n := len(row.TokenIDs)
	if len(row.LossMask) != n || len(row.RolloutLogprobs) != n {
		t.Errorf("arrays of %d, %d and %d", n, len(row.LossMask), len(row.RolloutLogprobs))
	}
	if len(row.Segments) != 1 || row.Segments[0].TokenEnd != n {
		t.Errorf("segments %v of %d tokens", row.Segments, n)
	}
	sampled := make([]uint8, n)
	last := 0
	for _, turn := range row.Turns {
		if turn.TokenStart < last || turn.TokenEnd < turn.TokenStart || turn.TokenEnd > n {
			t.Errorf("turn %+v does not follow %d", turn, last)
		}
		last = turn.TokenEnd
		if turn.Role == episode.RoleAssistant {
			for i := turn.TokenStart; i < turn.TokenEnd; i++ {
				sampled[i] = 1
			}
		}
	}
	if !slices.Equal(sampled, row.LossMask) {
		t.Error("loss_mask is not 1 exactly in assistant turns")
	}
	for i, b := range row.LossMask {
		if b == 0 && row.RolloutLogprobs[i] != 0 {
			t.Errorf("token %d was not sampled and has a log-probability", i)
		}
	}
	if row.FinishReason == "" {
		t.Error("no finish_reason")
	}
}

func turn(name, arguments string) string { return asTurn(call{name, arguments}.text()) }

var peru = turn("get_country", `{"name": "Peru"}`)

func TestAnEpisodeEndsAsItsRuleSays(t *testing.T) {
	for _, c := range []struct {
		name    string
		status  string
		texts   []string
		finish  string
		kind    string // of the charged failure, "" if none
		fault   string
		reward  float64
		outcome string // of the last call
	}{
		{"right answer", "verified", []string{peru, turn("submit", `{"answer": "1285"}`)}, episode.FinishSubmitted, "", "", 1, episode.CallSubmitted},
		{"wrong answer", "verified", []string{peru, turn("submit", `{"answer": "7"}`)}, episode.FinishSubmitted, "", "", 0, episode.CallSubmitted},
		{"refusal is an observation", "verified", []string{turn("get_country", `{"name": "Oz"}`), turn("submit", `{"answer": "1285"}`)}, episode.FinishSubmitted, "", "", 1, episode.CallSubmitted},
		{"malformed", "verified", []string{peru, "<tool_call>\n{\"name\": \"submit\", \"arguments\": {\"answer\": \"1285\"}\n</tool_call>"}, episode.FinishAbnormal, episode.KindMalformedJSON, episode.FaultAgent, 0, ""},
		{"unknown tool", "verified", []string{turn("fetch_country", `{"name": "Peru"}`)}, episode.FinishAbnormal, episode.KindUnknownTool, episode.FaultAgent, 0, ""},
		{"submission first", "verified", []string{turn("submit", `{"answer": "1285"}`)}, episode.FinishAbnormal, episode.KindDirectSubmit, episode.FaultAgent, 0, ""},
		{"repeat twice", "verified", []string{peru, peru, peru}, episode.FinishAbnormal, episode.KindRepeatedQuery, episode.FaultAgent, 0, ""},
		{"repeat once", "verified", []string{peru, peru, turn("submit", `{"answer": "1285"}`)}, episode.FinishSubmitted, "", "", 1, episode.CallSubmitted},
		{"no submission in time", "verified", []string{peru, turn("count_country", `{}`), peru, turn("count_country", `{}`)}, episode.FinishBudget, episode.KindBudgetExhausted, episode.FaultAgent, 0, episode.CallNotRun},
		{"crash of a verified tool", "verified", []string{turn("get_country", `{"name": "crash"}`)}, episode.FinishFault, episode.KindRuntimeError, episode.FaultEnvironment, 0, episode.CallError},
		{"crash of an unverified tool", "", []string{turn("get_country", `{"name": "crash"}`)}, episode.FinishAbnormal, episode.KindRuntimeError, episode.FaultAgent, 0, episode.CallError},
		{"declared crash", "verified", []string{turn("get_country", `{"name": "declared"}`)}, episode.FinishAbnormal, episode.KindRuntimeError, episode.FaultAgent, 0, episode.CallError},
		{"endless tool", "verified", []string{turn("get_country", `{"name": "slow"}`)}, episode.FinishFault, episode.KindRuntimeError, episode.FaultEnvironment, 0, episode.CallError},
		{"breach of the schema", "verified", []string{turn("get_country", `{"name": "breach"}`)}, episode.FinishFault, episode.KindRuntimeError, episode.FaultEnvironment, 0, episode.CallRefused},
		{"verifier crashes", "verified", []string{peru, turn("submit", `{"answer": "verifier crash"}`)}, episode.FinishFault, episode.KindRuntimeError, episode.FaultVerifier, 0, episode.CallSubmitted},
		{"verifier talks nonsense", "verified", []string{peru, turn("submit", `{"answer": "verifier nonsense"}`)}, episode.FinishFault, episode.KindRuntimeError, episode.FaultVerifier, 0, episode.CallSubmitted},
	} {
		t.Run(c.name, func(t *testing.T) {
			row := say(t, settings(), c.status, c.texts...)
			kind, fault := "", ""
			if len(row.Failures) > 0 {
				kind, fault = row.Failures[0].Kind, row.Failures[0].Fault
			}
			if row.FinishReason != c.finish || kind != c.kind || fault != c.fault || row.Reward != c.reward {
				t.Errorf("%s with %s of %s, reward %v; want %s with %s of %s, %v; failures %+v", row.FinishReason, kind, fault, row.Reward, c.finish, c.kind, c.fault, c.reward, row.Failures)
			}
			calls := row.Turns[len(row.Turns)-1].Calls
			if c.outcome != "" && (len(calls) == 0 || calls[len(calls)-1].Outcome != c.outcome) {
				t.Errorf("calls %+v, want the last %s", calls, c.outcome)
			}
		})
	}
}

func TestATurnCutByItsBudgetIsCharged(t *testing.T) {
	s := settings()
	s.TurnTokens = 5
	row := say(t, s, "verified", peru)
	last := row.Turns[len(row.Turns)-1]
	if row.FinishReason != episode.FinishBudget || last.StopReason != episode.StopLength || last.TokenEnd-last.TokenStart != 5 {
		t.Errorf("%s, %+v", row.FinishReason, last)
	}
}

func TestAnObservationThatDoesNotFitEndsTheEpisode(t *testing.T) {
	s := settings()
	s.MaxContext = 260
	s.TurnTokens = 80
	row := say(t, s, "verified", peru, turn("get_country", `{"name": "Mali"}`), turn("get_country", `{"name": "Chad"}`), turn("submit", `{"answer": "1285"}`))
	if row.FinishReason != episode.FinishBudget || len(row.TokenIDs) > s.MaxContext {
		t.Errorf("%s with %d tokens of %d", row.FinishReason, len(row.TokenIDs), s.MaxContext)
	}
}

func TestSampledIDsAndObservationsAreTheWholeHistory(t *testing.T) {
	row := say(t, settings(), "verified", peru, turn("submit", `{"answer": "1285"}`))
	text := string(renderer.Tokenizer().Decode(row.TokenIDs))
	want := "<|im_start|>system\nget_country(name:str)\ncount_country()\nsubmit(answer:str)<|im_end|>\n<|im_start|>user\nWhat is the area of the country \"Peru\"?<|im_end|>\n<|im_start|>assistant\n" +
		peru + "<|im_end|>\n<|im_start|>user\n<tool_response>\n{\"name\": \"Peru\", \"area\": 1285}\n</tool_response><|im_end|>\n<|im_start|>assistant\n" +
		turn("submit", `{"answer": "1285"}`) + "<|im_end|>"
	if text != want {
		t.Errorf("history:\n%s\nwant:\n%s", text, want)
	}
}

// tiny is a model of random weights over the test vocabulary.
func tiny(t testing.TB, seed uint64) *model.Model {
	t.Helper()
	c := model.Config{
		HiddenSize: 32, IntermediateSize: 32, NumHiddenLayers: 1, NumAttentionHeads: 2, NumKeyValueHeads: 1, HeadDim: 16,
		VocabSize: renderer.Tokenizer().VocabSize(), MaxPositionEmbeddings: 512, RMSNormEps: 1e-6, RopeTheta: 10000, TieWordEmbeddings: true,
	}
	m, err := model.New(c, model.RandomWeights(c, seed), ref.New())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// collect runs a step and returns its rows as text.
func collect(t testing.TB, run func(Emit) error) (rows []*episode.Trajectory, text string) {
	t.Helper()
	var b strings.Builder
	err := run(func(row *episode.Trajectory) error {
		checkRow(t, row)
		line, err := json.Marshal(row)
		fmt.Fprintf(&b, "%s\n", line)
		rows = append(rows, row)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows, b.String()
}

func TestRowsDoNotDependOnTheBatch(t *testing.T) {
	s := settings()
	s.GroupSize, s.TurnTokens, s.MaxContext = 3, 40, 300
	environments := []*episode.Environment{country("verified")}
	deal, err := sampler.New(environments, s.Seed, func(int, int) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	step := ChooseStep(deal, 2, 3, 1)
	var first string
	for _, batch := range []int{1, 4, 100} {
		local := &Local{Tasks: tasks(t, s, environments...), Model: tiny(t, 3), Batch: batch}
		rows, text := collect(t, func(emit Emit) error { return local.Run(context.Background(), step, emit) })
		if len(rows) != 9 {
			t.Fatalf("%d rows", len(rows))
		}
		for i, row := range rows {
			if row.Sample != i%3 || row.Step != 2 || row.PolicyVersion != 1 || row.GroupSize != 3 {
				t.Errorf("row %d: step %d version %d sample %d", i, row.Step, row.PolicyVersion, row.Sample)
			}
			if i%3 > 0 && slices.Equal(row.TokenIDs, rows[i-1].TokenIDs) {
				t.Errorf("rows %d and %d are twins at temperature 1", i-1, i)
			}
			if row.GroupID != rows[i-i%3].GroupID {
				t.Errorf("row %d is not in the group of its fellows", i)
			}
		}
		if first == "" {
			first = text
		} else if text != first {
			t.Errorf("batch of %d changes the rows", batch)
		}
	}
}

func TestRecordedLogprobsAreThoseOfScoring(t *testing.T) {
	s := settings()
	s.GroupSize, s.TurnTokens, s.MaxContext = 4, 40, 300
	local := &Local{Tasks: tasks(t, s, country("verified")), Model: tiny(t, 3), Batch: 8}
	rows, _ := collect(t, func(emit Emit) error {
		return local.Run(context.Background(), Step{Groups: []sampler.Choice{{Task: 0}, {Task: 1}}}, emit)
	})
	for _, row := range rows {
		scored, err := local.Model.Score(row.TokenIDs, row.LossMask, 1)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(scored, row.RolloutLogprobs) {
			t.Errorf("%s: recorded and scored log-probabilities differ", row.TrajectoryID)
		}
	}
}

func TestGreedySiblingsAreTwins(t *testing.T) {
	s := settings()
	s.GroupSize, s.Temperature, s.TurnTokens, s.MaxContext = 2, 0, 20, 300
	local := &Local{Tasks: tasks(t, s, country("verified")), Model: tiny(t, 3), Batch: 8}
	rows, _ := collect(t, func(emit Emit) error {
		return local.Run(context.Background(), Step{Groups: []sampler.Choice{{}}}, emit)
	})
	if !slices.Equal(rows[0].TokenIDs, rows[1].TokenIDs) {
		t.Error("two greedy samples differ")
	}
}

func TestSolutionsEarnTheirReward(t *testing.T) {
	s := settings()
	s.GroupSize = 2
	solution := &Solution{Tasks: tasks(t, s, country("verified")), Threads: 2}
	rows, first := collect(t, func(emit Emit) error {
		return solution.Run(context.Background(), Step{Groups: []sampler.Choice{{Task: 0}, {Task: 1}}}, emit)
	})
	for _, row := range rows {
		if row.Reward != 1 || row.FinishReason != episode.FinishSubmitted {
			t.Errorf("%s: %s, reward %v, %+v", row.TaskID, row.FinishReason, row.Reward, row.Failures)
		}
	}
	solution = &Solution{Tasks: tasks(t, s, country("verified")), Threads: 1}
	if _, again := collect(t, func(emit Emit) error {
		return solution.Run(context.Background(), Step{Groups: []sampler.Choice{{Task: 0}, {Task: 1}}}, emit)
	}); again != first {
		t.Error("the number of threads changes the rows")
	}
}

func TestPlantedMistakesAreFoundAndEndTheEpisode(t *testing.T) {
	s := settings()
	solution := &Solution{Tasks: tasks(t, s, country("verified")), Threads: 2, Mistakes: 1}
	kinds := map[string]int{}
	for number := range 30 {
		rows, _ := collect(t, func(emit Emit) error {
			return solution.Run(context.Background(), Step{Number: number, DrawAs: number, Groups: []sampler.Choice{{Task: 0}, {Task: 1}}}, emit)
		})
		for _, row := range rows {
			if row.FinishReason != episode.FinishAbnormal {
				t.Errorf("step %d: %s\n%s", number, row.FinishReason, renderer.Tokenizer().Decode(row.TokenIDs))
				continue
			}
			kinds[row.Failures[0].Kind]++
		}
	}
	if kinds[episode.KindUnknownTool] < 10 || kinds[episode.KindMalformedJSON]+kinds[episode.KindUnclosedCall] < 5 || len(kinds) < 4 {
		t.Errorf("kinds of planted mistakes: %v", kinds)
	}
}

func TestAFaultySlotIsTriedAgainThenKept(t *testing.T) {
	s := settings()
	e := country("verified")
	e.Tasks[0].Solution.Calls[0].Arguments = `{"name": "crash"}`
	solution := &Solution{Tasks: tasks(t, s, e), Threads: 1}
	rows, _ := collect(t, func(emit Emit) error {
		return solution.Run(context.Background(), Step{Groups: []sampler.Choice{{Task: 0}}}, emit)
	})
	if rows[0].FinishReason != episode.FinishFault || rows[0].Retries != s.FaultRetries {
		t.Errorf("%s after %d retries", rows[0].FinishReason, rows[0].Retries)
	}
}

// The machine's faults come and go; rows must not tell of those that a retry
// made good.
func TestAFaultOfTheMachineLeavesNoTraceOnceMadeGood(t *testing.T) {
	ts := tasks(t, settings(), country("verified"))
	s := &slot{}
	for _, fault := range []string{episode.FaultInfrastructure, episode.FaultVerifier, ""} {
		a, err := ts.newAttempt(context.Background(), Step{Groups: []sampler.Choice{{}}}, s)
		if err != nil {
			t.Fatal(err)
		}
		s.attempt = a
		if fault != "" {
			a.otherFault(fault, "test")
		} else {
			a.row.FinishReason = episode.FinishSubmitted
		}
		a.close()
		if again := s.again(ts); again != (fault != "") {
			t.Errorf("after a fault of %q: again %v", fault, again)
		}
	}
	if s.attempt.row.Retries != 1 || ts.Retries() != 2 {
		t.Errorf("the row tells of %d retries of %d, want 1 of 2", s.attempt.row.Retries, ts.Retries())
	}
}

func TestAProgramThatCannotBeLoadedIsItsEnvironmentsFault(t *testing.T) {
	s := settings()
	s.FaultRetries = 1
	e := country("verified")
	e.Tools[0].Source = "def get_country(name): return missing\n"
	for name, run := range map[string]func(Emit) error{
		"solution": func(emit Emit) error {
			return (&Solution{Tasks: tasks(t, s, e), Threads: 1}).Run(context.Background(), Step{Groups: []sampler.Choice{{}}}, emit)
		},
		"local": func(emit Emit) error {
			return (&Local{Tasks: tasks(t, s, e), Model: tiny(t, 1), Batch: 2}).Run(context.Background(), Step{Groups: []sampler.Choice{{}}}, emit)
		},
	} {
		rows, _ := collect(t, run)
		if len(rows) != 1 || rows[0].FinishReason != episode.FinishFault || rows[0].Failures[0].Fault != episode.FaultEnvironment || rows[0].Retries != 1 {
			t.Errorf("%s: %+v", name, rows)
		}
	}
}

func TestTasksAreLeftOutForAReason(t *testing.T) {
	pool := sandbox.NewPool(sandbox.Options{})
	defer pool.Close()
	rejected, other := country("verified"), country("verified")
	rejected.Tasks[0].Status = episode.StatusRejected
	other.Split = episode.SplitHeldout
	s := settings()
	ts, err := NewTasks([]*episode.Environment{rejected, other}, Selection{Split: episode.SplitTrain, Levels: []int{1}}, s, renderer, pool, 1)
	if err != nil {
		t.Fatal(err)
	}
	if ts.Choosable(0, 0) || ts.Choosable(0, 1) || ts.Choosable(1, 0) || ts.Left() != (Left{OtherSplit: 1, OtherLevel: 1, Rejected: 1}) {
		t.Errorf("left out %+v", ts.Left())
	}
	s.MaxContext = 210
	ts, err = NewTasks([]*episode.Environment{country("verified")}, Selection{}, s, renderer, pool, 1)
	if err != nil {
		t.Fatal(err)
	}
	if ts.Left().TooLong != 2 {
		t.Errorf("left out %+v, want two too long", ts.Left())
	}
}

func TestACancelledStepReturns(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	ts := tasks(t, settings(), country("verified"))
	step := Step{Groups: []sampler.Choice{{}}}
	none := func(*episode.Trajectory) error { return nil }
	if err := (&Local{Tasks: ts, Model: tiny(t, 1), Batch: 2}).Run(ctx, step, none); err == nil {
		t.Error("local ran on")
	}
	if err := (&Solution{Tasks: ts, Threads: 1}).Run(ctx, step, none); err == nil {
		t.Error("solution ran on")
	}
}

func BenchmarkSolution(b *testing.B) {
	s := settings()
	solution := &Solution{Tasks: tasks(b, s, country("verified")), Threads: 1, Mistakes: 0.3}
	tokens := 0
	b.ResetTimer()
	for i := range b.N {
		err := solution.Run(context.Background(), Step{Number: i, DrawAs: i, Groups: []sampler.Choice{{Task: 0}, {Task: 1}}}, func(row *episode.Trajectory) error {
			tokens += len(row.TokenIDs)
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
}
