package hca

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// A test trajectory has a prompt of 2 tokens, two assistant turns of 6 and 8
// tokens with an observation of 3 between them. The failure of an abnormal one
// stands in the second turn: call [13, 18), culprit [15, 17).
const (
	testTokens  = 19
	secondTurn  = 11
	callStart   = 13
	callEnd     = 18
	culpritFrom = 15
	culpritTo   = 17
)

type outcome struct {
	reward   float64
	abnormal bool
	fault    string // another side's
	kind     string
}

func trajectory(group string, size, sample int, o outcome) *episode.Trajectory {
	tr := &episode.Trajectory{TrajectoryID: group + string(rune('a'+sample)), GroupID: group, GroupSize: size, Sample: sample,
		TaskID: "task-" + group, Family: episode.FamilyToolUse, Reward: o.reward, FinishReason: episode.FinishSubmitted,
		TokenIDs: make([]int32, testTokens), LossMask: make([]uint8, testTokens), RolloutLogprobs: make([]float32, testTokens),
		Turns: []episode.Turn{
			{Role: episode.RoleUser, TokenEnd: 2},
			{Role: episode.RoleAssistant, TokenStart: 2, TokenEnd: 8},
			{Role: episode.RoleTool, TokenStart: 8, TokenEnd: 11},
			{Role: episode.RoleAssistant, TokenStart: secondTurn, TokenEnd: testTokens},
		}}
	for j := range tr.LossMask {
		if j >= 2 && j < 8 || j >= secondTurn {
			tr.LossMask[j] = 1
		}
	}
	kind := o.kind
	if kind == "" {
		kind = episode.KindUnknownTool
	}
	switch {
	case o.fault != "":
		tr.FinishReason = episode.FinishFault
		tr.Failures = []episode.Failure{{Turn: 3, Kind: episode.KindRuntimeError, Fault: o.fault}}
	case o.abnormal:
		tr.FinishReason = episode.FinishAbnormal
		tr.Failures = []episode.Failure{{Turn: 3, Kind: kind, Fault: episode.FaultAgent,
			TokenStart: culpritFrom, TokenEnd: culpritTo, CallTokenStart: callStart, CallTokenEnd: callEnd}}
	}
	return tr
}

func makeGroup(name string, outcomes []outcome) []*episode.Trajectory {
	group := make([]*episode.Trajectory, len(outcomes))
	for i, o := range outcomes {
		group[i] = trajectory(name, len(outcomes), i, o)
	}
	return group
}

func preset(t *testing.T, name string) Settings {
	t.Helper()
	s, err := Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	return s
}

func assigned(t *testing.T, group []*episode.Trajectory, s Settings) []float64 {
	t.Helper()
	if err := Assign(group, s); err != nil {
		t.Fatal(err)
	}
	advantages := make([]float64, len(group))
	for i, tr := range group {
		if tr.Credit.Advantage == nil {
			advantages[i] = math.NaN()
		} else {
			advantages[i] = *tr.Credit.Advantage
		}
	}
	return advantages
}

func close12(got, want float64) bool {
	return math.Abs(got-want) <= 1e-12*math.Max(math.Abs(want), 1e-300) || got == want
}

func TestWorkedValues(t *testing.T) {
	ok := func(r float64) outcome { return outcome{reward: r} }
	bad := outcome{abnormal: true}
	for _, c := range []struct {
		name       string
		group      []outcome
		mu, sigma  float64
		degenerate bool
		want       []float64 // before division by sigma + 1e-6 unless degenerate
	}{
		{"one of three clean succeeds, two abnormal", []outcome{ok(1), ok(0), ok(0), bad, bad}, 1. / 3, math.Sqrt2 / 3, false, []float64{2. / 3, -1. / 3, -1. / 3, -1. / 3, -1. / 3}},
		{"graded rewards", []outcome{ok(0.8), ok(0.2), ok(0.2), bad}, 0.4, math.Sqrt(0.08), false, []float64{0.4, -0.2, -0.2, -0.4}},
		{"one success among seven crashes", []outcome{ok(1), bad, bad, bad, bad, bad, bad, bad}, 1, 0, true, []float64{0, -1, -1, -1, -1, -1, -1, -1}},
		{"equal successes", []outcome{ok(1), ok(1), bad}, 1, 0, true, []float64{0, 0, -1}},
		{"only crashes", []outcome{bad, bad, bad}, 0, 0, true, []float64{0, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			group := makeGroup("g", c.group)
			advantages := assigned(t, group, preset(t, "hca"))
			for i, a := range advantages {
				want := c.want[i]
				if !c.degenerate {
					want /= c.sigma + Epsilon
				}
				if !close12(a, want) {
					t.Errorf("advantage %d = %.17g, want %.17g", i, a, want)
				}
				b := group[i].Credit.Baseline
				if !close12(b.Mean, c.mu) || !close12(b.Std, c.sigma) || b.Degenerate != c.degenerate {
					t.Errorf("baseline %d = %+v, want mean %v std %v degenerate %v", i, b, c.mu, c.sigma, c.degenerate)
				}
			}
		})
	}
}

func TestAbnormalAdvantageIsClamped(t *testing.T) {
	// Clean rewards of 0.80 and 0.81 have sigma 0.005: unclamped -161.
	a := assigned(t, makeGroup("g", []outcome{{reward: 0.80}, {reward: 0.81}, {abnormal: true}, {abnormal: true}}), preset(t, "hca"))
	if want := -math.Sqrt(3); a[2] != want || a[3] != want {
		t.Errorf("abnormal advantages %v, want %v", a[2:], want)
	}
	// With penalties mu is negative, and an error still is not reinforced.
	s := preset(t, "hca")
	s.RewardMin, s.RewardMax = -1, 1
	a = assigned(t, makeGroup("g", []outcome{{reward: -1}, {reward: -0.5}, {abnormal: true}}), s)
	if a[2] != 0 {
		t.Errorf("abnormal advantage under penalties = %v, want 0", a[2])
	}
}

func TestAnAbnormalGroupOfOneHasAdvantageZero(t *testing.T) {
	a := assigned(t, makeGroup("g", []outcome{{abnormal: true}}), preset(t, "hca"))
	if a[0] != 0 || math.Signbit(a[0]) {
		t.Errorf("advantage %v", a[0])
	}
}

func TestMaskOfEachFactor(t *testing.T) {
	ones := func(ranges ...[2]int) []uint8 {
		m := make([]uint8, testTokens)
		for _, r := range ranges {
			for j := r[0]; j < r[1]; j++ {
				m[j] = 1
			}
		}
		return m
	}
	both := ones([2]int{2, 8}, [2]int{secondTurn, testTokens})
	budget := outcome{abnormal: true, kind: episode.KindBudgetExhausted}
	for _, c := range []struct {
		name   string
		set    func(*Settings)
		row    outcome
		want   []uint8
		inBase int // size of B_x beside one clean row
	}{
		{"clean", func(*Settings) {}, outcome{reward: 1}, both, 2},
		{"call", func(*Settings) {}, outcome{abnormal: true}, ones([2]int{callStart, callEnd}), 1},
		{"culprit", func(s *Settings) { s.Span = "culprit" }, outcome{abnormal: true}, ones([2]int{culpritFrom, culpritTo}), 1},
		{"span turn", func(s *Settings) { s.Span = "turn" }, outcome{abnormal: true}, ones([2]int{secondTurn, testTokens}), 1},
		{"mask turn", func(s *Settings) { s.Mask = "turn" }, outcome{abnormal: true}, ones([2]int{secondTurn, testTokens}), 1},
		{"mask trajectory", func(s *Settings) { s.Mask = "trajectory" }, outcome{abnormal: true}, both, 1},
		{"budget last-call", func(*Settings) {}, budget, ones([2]int{callStart, callEnd}), 1},
		{"budget zero", func(s *Settings) { s.Budget = "zero" }, budget, both, 2},
		{"budget none", func(s *Settings) { s.Budget = "none" }, budget, ones(), 1},
		{"environment fault", func(*Settings) {}, outcome{fault: episode.FaultEnvironment}, ones(), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := preset(t, "hca")
			c.set(&s)
			group := makeGroup("g", []outcome{{reward: 1}, c.row})
			assigned(t, group, s)
			if got := group[1].Credit.CreditMask; !slices.Equal(got, c.want) {
				t.Errorf("m = %v\nwant %v", got, c.want)
			}
			if got := group[0].Credit.Baseline.Size; got != c.inBase {
				t.Errorf("size of B_x = %d, want %d", got, c.inBase)
			}
		})
	}
}

func TestRecoveredEpisode(t *testing.T) {
	recovered := func() []*episode.Trajectory {
		group := makeGroup("g", []outcome{{reward: 0}, {abnormal: true, reward: 1}})
		tr := group[1]
		tr.FinishReason = episode.FinishSubmitted
		f := &tr.Failures[0]
		f.Turn, f.TokenStart, f.TokenEnd, f.CallTokenStart, f.CallTokenEnd = 1, 4, 5, 3, 6
		return group
	}
	s := preset(t, "hca")
	group := recovered()
	assigned(t, group, s)
	if c := group[1].Credit; c.Return != 0 || Count(c.CreditMask) != 3 || c.ResponsibleTurn != 1 {
		t.Errorf("zero: return %v, %d tokens, t* %d; want 0, 3, 1", c.Return, Count(c.CreditMask), c.ResponsibleTurn)
	}
	s.Recovered = "keep"
	group = recovered()
	assigned(t, group, s)
	if c := group[1].Credit; c.Return != 1 || Count(c.CreditMask) != 14-3 || c.CreditMask[4] != 0 || c.Baseline.Size != 2 {
		t.Errorf("keep: return %v, %d tokens, B_x of %d; want 1, 11, 2", c.Return, Count(c.CreditMask), c.Baseline.Size)
	}
}

func TestFaultsOfOtherSidesStayInTheStreamWithoutWeight(t *testing.T) {
	for _, fault := range []string{episode.FaultEnvironment, episode.FaultVerifier, episode.FaultInfrastructure} {
		group := makeGroup("g", []outcome{{reward: 1}, {fault: fault}, {reward: 0}})
		assigned(t, group, preset(t, "hca"))
		c := group[1].Credit
		if c.Advantage != nil || c.Weight != 0 || Count(c.CreditMask) != 0 {
			t.Errorf("%s fault: advantage %v weight %v mask sum %d", fault, c.Advantage, c.Weight, Count(c.CreditMask))
		}
		if b := group[0].Credit.Baseline; b.Size != 2 || b.Mean != 0.5 {
			t.Errorf("%s fault in the baseline: %+v", fault, b)
		}
	}
}

func TestWeights(t *testing.T) {
	outcomes := []outcome{{reward: 1}, {abnormal: true}, {fault: episode.FaultEnvironment}}
	for norm, want := range map[string][]float64{
		"trajectory":  {1. / 4 / 2 / 14, 1. / 4 / 2 / 5, 0}, // 4 groups, 2 live rows, N = 14 and 5
		"prompt":      {1. / 4 / 28, 1. / 4 / 28, 0},
		"constant:50": {1. / 4 / 2 / 50, 1. / 4 / 2 / 50, 0},
	} {
		s := preset(t, "hca")
		s.GroupsPerStep = 4
		if err := s.SetNorm(norm); err != nil {
			t.Fatal(err)
		}
		if s.NormText() != norm {
			t.Errorf("NormText = %q, want %q", s.NormText(), norm)
		}
		group := makeGroup("g", outcomes)
		assigned(t, group, s)
		for i, tr := range group {
			if !close12(tr.Credit.Weight, want[i]) {
				t.Errorf("norm %s: weight %d = %v, want %v", norm, i, tr.Credit.Weight, want[i])
			}
		}
	}
	for _, bad := range []string{"", "constant", "constant:0", "constant:-1", "constant:x", "constant:Inf", "prompt:3", "mean"} {
		s := preset(t, "hca")
		if err := s.SetNorm(bad); err == nil {
			t.Errorf("normalisation %q accepted", bad)
		}
	}
}

func TestEstimators(t *testing.T) {
	outcomes := []outcome{{reward: 1}, {reward: 0}, {abnormal: true}, {reward: 1}}
	sigma := 0.5 + Epsilon
	for _, c := range []struct {
		estimator string
		want      []float64
		trained   int // tokens of the abnormal row
	}{
		{"grpo", []float64{0.5 / sigma, -0.5 / sigma, -0.5 / sigma, 0.5 / sigma}, 14},
		{"drgrpo", []float64{0.5, -0.5, -0.5, 0.5}, 14},
		{"rloo", []float64{1 - 1./3, -2. / 3, -2. / 3, 1 - 1./3}, 14},
		{"reinforce", []float64{1, 0, 0, 1}, 14},
		{"turn", []float64{(1. / 3) / (math.Sqrt2/3 + Epsilon), (-2. / 3) / (math.Sqrt2/3 + Epsilon), (-2. / 3) / (math.Sqrt2/3 + Epsilon), (1. / 3) / (math.Sqrt2/3 + Epsilon)}, 8},
	} {
		group := makeGroup("g", outcomes)
		for i, a := range assigned(t, group, preset(t, c.estimator)) {
			if !close12(a, c.want[i]) {
				t.Errorf("%s: advantage %d = %v, want %v", c.estimator, i, a, c.want[i])
			}
		}
		if n := Count(group[2].Credit.CreditMask); n != c.trained {
			t.Errorf("%s: %d tokens of the abnormal row trained, want %d", c.estimator, n, c.trained)
		}
	}
	if _, err := Preset("ppo"); err == nil {
		t.Error("unknown estimator accepted")
	}
}

func TestSampleSigmaOfOneRowIsNotNaN(t *testing.T) {
	s := preset(t, "hca")
	s.Sigma = "sample"
	a := assigned(t, makeGroup("g", []outcome{{reward: 1}, {abnormal: true}}), s)
	if a[0] != 0 || a[1] != -1 {
		t.Errorf("advantages %v, want 0 and -1", a)
	}
	b := makeGroup("g", []outcome{{reward: 1}, {reward: 0}})
	assigned(t, b, s)
	if got := b[0].Credit.Baseline.Std; !close12(got, math.Sqrt(0.5)) {
		t.Errorf("sample sigma %v, want sqrt(1/2)", got)
	}
}

func TestBatchFallback(t *testing.T) {
	s := preset(t, "hca")
	s.Fallback = "batch"
	step := [][]*episode.Trajectory{
		makeGroup("a", []outcome{{reward: 1}, {reward: 0.5}, {abnormal: true}}), // mu = 0.75: keeps its own baseline
		makeGroup("b", []outcome{{abnormal: true}, {abnormal: true}, {abnormal: true}}),
		makeGroup("c", []outcome{{reward: 0}, {reward: 0}, {abnormal: true}}),
	}
	for _, group := range step {
		assigned(t, group, s)
	}
	own := *step[0][2].Credit.Advantage
	if err := Batch(step, s); err != nil {
		t.Fatal(err)
	}
	if got := *step[0][2].Credit.Advantage; got != own {
		t.Errorf("group with its own baseline changed: %v, was %v", got, own)
	}
	// b: the clean rows of a and c, 1.5 over 4. c: those of a, 1.5 over 2; b has none.
	if got := *step[1][0].Credit.Advantage; !close12(got, -0.375) {
		t.Errorf("only crashes: %v, want -0.375", got)
	}
	if got := *step[2][2].Credit.Advantage; !close12(got, -0.75) {
		t.Errorf("mu = 0: %v, want -0.75", got)
	}
	if got := *step[2][0].Credit.Advantage; got != 0 {
		t.Errorf("clean row changed: %v", got)
	}
}

func TestGroupWorthTraining(t *testing.T) {
	for _, c := range []struct {
		group []outcome
		want  bool
	}{
		{[]outcome{{reward: 1}, {abnormal: true}, {abnormal: true}}, true}, // the clean row alone has advantage 0
		{[]outcome{{reward: 1}, {reward: 1}}, false},
		{[]outcome{{abnormal: true}, {abnormal: true}}, false},
		{[]outcome{{reward: 1}, {fault: episode.FaultEnvironment}}, false},
	} {
		group := makeGroup("g", c.group)
		assigned(t, group, preset(t, "hca"))
		if WorthTraining(group) != c.want {
			t.Errorf("%+v worth training: %v", c.group, !c.want)
		}
	}
}

func TestPropertiesOfRandomGroups(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for trial := range 3000 {
		size := 1 + rng.IntN(9)
		outcomes := make([]outcome, size)
		anyAbnormal, anyClean := false, false
		for i := range outcomes {
			switch rng.IntN(4) {
			case 0:
				outcomes[i] = outcome{abnormal: true}
				anyAbnormal = true
			case 1:
				if rng.IntN(4) == 0 {
					outcomes[i] = outcome{fault: episode.FaultEnvironment}
					continue
				}
				fallthrough
			default:
				outcomes[i] = outcome{reward: math.Round(rng.Float64()*float64(1+rng.IntN(100))) / 100}
				anyClean = true
			}
		}
		s := preset(t, "hca")
		s.Span = Spans[rng.IntN(len(Spans))]
		s.Sigma = []string{"population", "none"}[rng.IntN(2)]
		group := makeGroup("g", outcomes)
		advantages := assigned(t, group, s)
		bound := math.Sqrt(float64(size - 1))
		for i, tr := range group {
			for j, m := range tr.Credit.CreditMask {
				if m > tr.LossMask[j] {
					t.Fatalf("trial %d: m > b at token %d", trial, j)
				}
			}
			if outcomes[i].fault != "" {
				continue
			}
			if a := advantages[i]; math.IsNaN(a) || math.Abs(a) > bound*(1+1e-12) {
				t.Fatalf("trial %d: advantage %v beyond %v", trial, a, bound)
			}
			if outcomes[i].abnormal && advantages[i] > 0 {
				t.Fatalf("trial %d: an error is reinforced by %v", trial, advantages[i])
			}
		}

		// Without abnormal rows the result is plain group normalisation.
		if !anyAbnormal {
			plain := preset(t, "grpo")
			plain.Sigma = s.Sigma
			other := makeGroup("g", outcomes)
			assigned(t, other, plain)
			for i := range group {
				a, b := group[i].Credit, other[i].Credit
				if a.Weight != b.Weight || a.Baseline != b.Baseline || !slices.Equal(a.CreditMask, b.CreditMask) ||
					(a.Advantage == nil) != (b.Advantage == nil) || a.Advantage != nil && math.Float64bits(*a.Advantage) != math.Float64bits(*b.Advantage) {
					t.Fatalf("trial %d: row %d differs from the plain group baseline", trial, i)
				}
			}
		}

		// The order of rows does not matter.
		shuffled := makeGroup("g", outcomes)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		assigned(t, shuffled, s)
		for _, tr := range shuffled {
			a, b := tr.Credit.Advantage, group[tr.Sample].Credit.Advantage
			if (a == nil) != (b == nil) || a != nil && math.Float64bits(*a) != math.Float64bits(*b) {
				t.Fatalf("trial %d: sample %d depends on the order of rows", trial, tr.Sample)
			}
		}

		// Another number of abnormal rows leaves every other advantage as it is.
		if anyClean {
			more := makeGroup("g", append(slices.Clone(outcomes), outcome{abnormal: true}, outcome{abnormal: true}))
			for i, a := range assigned(t, more, s)[:size] {
				if !outcomes[i].abnormal && outcomes[i].fault == "" && a != advantages[i] {
					t.Fatalf("trial %d: two more abnormal rows changed advantage %d from %v to %v", trial, i, advantages[i], a)
				}
			}
		}
	}
}

func TestGroupsAreCutAndChecked(t *testing.T) {
	a := makeGroup("a", make([]outcome, 3))
	b := makeGroup("b", make([]outcome, 2))
	feed := func(rows ...*episode.Trajectory) (int, error) {
		var g Groups
		complete := 0
		for _, tr := range rows {
			group, err := g.Add(tr)
			if err != nil {
				return complete, err
			}
			if group != nil {
				complete++
			}
		}
		return complete, g.End()
	}
	if n, err := feed(a[0], a[1], a[2], b[0], b[1]); n != 2 || err != nil {
		t.Errorf("two whole groups: %d, %v", n, err)
	}
	twice := trajectory("a", 3, 1, outcome{})
	nameless := trajectory("", 1, 0, outcome{})
	for name, c := range map[string]struct {
		rows []*episode.Trajectory
		want string
	}{
		"cut at the end":      {[]*episode.Trajectory{a[0], a[1]}, "group a: the stream ends after 2 of its 3 rows"},
		"missing row":         {[]*episode.Trajectory{a[0], a[1], b[0], b[1]}, "group a: only 2 of its 3 rows"},
		"no group":            {[]*episode.Trajectory{nameless}, "group_id is empty"},
		"doubled sample":      {[]*episode.Trajectory{a[0], a[1], twice}, "group a: sample 1 occurs twice"},
		"a row after its end": {[]*episode.Trajectory{b[0], b[1], a[0], a[1], a[2], b[0]}, "group b: a further row"},
	} {
		if _, err := feed(c.rows...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestBadRowsAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*episode.Trajectory){
		"span past the end": func(tr *episode.Trajectory) { tr.Failures[0].CallTokenEnd = testTokens + 1 },
		"turn out of range": func(tr *episode.Trajectory) { tr.Failures[0].Turn = 4 },
		"loss_mask of 2":    func(tr *episode.Trajectory) { tr.LossMask[3] = 2 },
		"short loss_mask":   func(tr *episode.Trajectory) { tr.LossMask = tr.LossMask[1:] },
		"reward of NaN":     func(tr *episode.Trajectory) { tr.Reward = math.NaN() },
		"reward over range": func(tr *episode.Trajectory) { tr.Reward = 1.5 },
		"an earlier failure": func(tr *episode.Trajectory) {
			tr.Failures = append(tr.Failures, episode.Failure{Turn: 1, Kind: episode.KindNoAction, Fault: episode.FaultAgent, CallTokenStart: 2, CallTokenEnd: 2, TokenStart: 2, TokenEnd: 2})
		},
		"unknown kind":          func(tr *episode.Trajectory) { tr.Failures[0].Kind = "banana" },
		"no finish_reason":      func(tr *episode.Trajectory) { tr.FinishReason = "" },
		"blame in another turn": func(tr *episode.Trajectory) { tr.Failures[0].CallTokenStart = 0 },
		"blame of the tool":     func(tr *episode.Trajectory) { tr.Turns[3].Role = episode.RoleTool },
		"nobody's fault":        func(tr *episode.Trajectory) { tr.Failures[0].Fault = "" },
		"no failure":            func(tr *episode.Trajectory) { tr.Failures = nil },
	} {
		group := makeGroup("g", []outcome{{reward: 1}, {abnormal: true}})
		spoil(group[1])
		if err := Assign(group, preset(t, "hca")); err == nil {
			t.Errorf("%s accepted", name)
		}
	}
}
