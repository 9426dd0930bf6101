package report

import (
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// run makes training rows whose reward is the step divided by ten, in falling
// order, and two greedy evaluations.
func run() []episode.Metric {
	var rows []episode.Metric
	for step := 10; step >= 1; step-- {
		rows = append(rows, episode.Metric{Step: step, Split: episode.SplitTrain, Reward: float64(step) / 10, Entropy: number(1), GradNorm: number(1), LogprobAbsDiffMax: number(float64(step))})
	}
	return append(rows,
		episode.Metric{Step: 10, Split: episode.SplitHeldout, Reward: 0.75, Trajectories: 64},
		episode.Metric{Step: 0, Split: episode.SplitHeldout, Reward: 0.25, Trajectories: 64})
}

func line(t *testing.T, text, prefix string) []string {
	t.Helper()
	for l := range strings.Lines(text) {
		if f := strings.TrimSpace(l); strings.HasPrefix(f, prefix) {
			return strings.Fields(strings.TrimPrefix(f, prefix))
		}
	}
	t.Fatalf("no line starts with %q in:\n%s", prefix, text)
	return nil
}

func TestTableAveragesTheFirstAndLastStepsWhateverTheOrderOfRows(t *testing.T) {
	var b strings.Builder
	if err := Table(&b, run(), nil); err != nil {
		t.Fatal(err)
	}
	if got := line(t, b.String(), "reward"); got[0] != "0.300" || got[1] != "0.800" {
		t.Errorf("reward of steps 1-5 and 6-10 is %v, want 0.300 and 0.800", got)
	}
	if got := line(t, b.String(), "log-probability difference, largest"); got[0] != "5" || got[1] != "10" {
		t.Errorf("largest difference %v, want 5 and 10: a window must not average it", got)
	}
}

func TestTableShowsEvaluationsBeforeAndAfter(t *testing.T) {
	var b strings.Builder
	if err := Table(&b, run(), &Synthesis{Environments: 3, Tasks: 9, Verified: 8, ByLevel: map[string]int{"2": 3, "1": 5}, RejectedByGate: map[string]int{"answer": 1}}); err != nil {
		t.Fatal(err)
	}
	_, held, _ := strings.Cut(b.String(), "held-out")
	if got := line(t, held, "reward"); got[0] != "0.250" || got[1] != "0.750" {
		t.Errorf("held-out reward %v, want 0.250 then 0.750", got)
	}
	for _, want := range []string{"greedy, 64 episodes", "8 verified of 9; level 1: 5; level 2: 3", "answer: 1"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("table lacks %q:\n%s", want, b.String())
		}
	}
}

func TestCurvesIsOneSelfContainedPage(t *testing.T) {
	var b strings.Builder
	if err := Curves(&b, run(), nil, "a <run>"); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	if strings.Contains(page, "a <run>") || !strings.Contains(page, "a &lt;run&gt;") {
		t.Error("the title is not escaped")
	}
	for _, reference := range []string{"http://", "https://", "src=", "href=", "@import", "url("} {
		if strings.Contains(page, reference) {
			t.Errorf("the page refers to something outside itself: %q", reference)
		}
	}
	if strings.Contains(page, "e+0") {
		t.Error("an axis label in scientific notation does not fit its margin")
	}
	if n := strings.Count(page, "class=\"mean\""); n < 8 {
		t.Errorf("%d curves, want one per measure that the rows carry", n)
	}
}

func TestNoRowsGiveAnEmptyReport(t *testing.T) {
	var b strings.Builder
	if err := Curves(&b, nil, nil, "empty"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "0 optimizer steps") {
		t.Error("an empty run does not say so")
	}
}

func number(x float64) *float64 { return &x }

// What was not measured is told apart from 0.
func TestNotMeasured(t *testing.T) {
	var table strings.Builder
	rows := []episode.Metric{{Step: 0, Split: episode.SplitHeldout}, {Step: 1, Split: episode.SplitHeldout, Entropy: number(0)}}
	if err := Table(&table, rows, nil); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(table.String()) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == "entropy" {
			if strings.Join(fields, " ") != "entropy - 0.000" {
				t.Errorf("%q", line)
			}
			return
		}
	}
	t.Errorf("no entropy in\n%s", table.String())
}
