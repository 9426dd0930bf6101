package train

import (
	"math"
	"slices"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/model"
)

func creditRow(advantage *float64, mask ...uint8) *episode.Trajectory {
	n := len(mask)
	return &episode.Trajectory{TrajectoryID: "t", TokenIDs: make([]int32, n), LossMask: []uint8{0, 1, 1, 0, 1}[:n], RolloutLogprobs: make([]float32, n),
		Credit: &episode.Credit{CreditMask: mask, Advantage: advantage, Weight: 0.25}}
}

func TestPolicyExampleWeighsCreditedTokensOnly(t *testing.T) {
	advantage := -2.0
	e, err := policyExample(creditRow(&advantage, 0, 0, 1, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	if want := []float32{0, 0, -0.5, 0, -0.5}; !slices.Equal(e.Weights, want) {
		t.Errorf("weights %v, want %v", e.Weights, want)
	}
	if !slices.Equal(e.Mask, []uint8{0, 1, 1, 0, 1}) {
		t.Errorf("all sampled tokens are to be measured, but the mask is %v", e.Mask)
	}
}

func TestRowsWithoutSignalOnlyRunForward(t *testing.T) {
	zero := 0.0
	for name, row := range map[string]*episode.Trajectory{
		"left out": creditRow(nil, 0, 0, 0, 0, 0), "advantage 0": creditRow(&zero, 0, 1, 1, 0, 1)} {
		if e, err := policyExample(row); err != nil || e.Weights != nil {
			t.Errorf("%s: weights %v, error %v", name, e.Weights, err)
		}
	}
}

func TestPolicyExampleRefusesBrokenCredit(t *testing.T) {
	one, nan := 1.0, math.NaN()
	short := creditRow(&one, 0, 1, 1, 0, 1)
	short.Credit.CreditMask = short.Credit.CreditMask[:4]
	none := creditRow(&one, 0, 1, 1, 0, 1)
	none.Credit = nil
	for name, row := range map[string]*episode.Trajectory{
		"m > b": creditRow(&one, 0, 1, 1, 1, 1), "NaN advantage": creditRow(&nan, 0, 1, 1, 0, 1), "short mask": short, "no credit": none} {
		if _, err := policyExample(row); err == nil {
			t.Errorf("%s accepted", name)
		}
	}
}

func TestImportanceRatiosClip(t *testing.T) {
	r := Ratio{Low: 0.2, High: 0.2, Dual: 3}
	ratios := []float64{1, 1.1, 1.5, 0.9, 0.5, 2.9, 3.5}
	for sign, want := range map[float32][]float64{
		1:  {1, 1.1, 0, 0.9, 0.5, 0, 0},        // a good token is not pushed beyond 1.2
		-1: {-1, -1.1, -1.5, -0.9, 0, -2.9, 0}, // a bad one not below 0.8, nor when it has become 3 times as likely
	} {
		e := model.Example{Mask: make([]uint8, len(ratios)), Weights: make([]float32, len(ratios))}
		measured := make([]float32, len(ratios))
		for j, x := range ratios {
			e.Mask[j], e.Weights[j], measured[j] = 1, sign, float32(math.Log(x))
		}
		outside := r.correct(e, measured, make([]float32, len(ratios)))
		for j := range want {
			if math.Abs(float64(e.Weights[j])-want[j]) > 1e-6 {
				t.Errorf("sign %v, ratio %v: weight %v, want %v", sign, ratios[j], e.Weights[j], want[j])
			}
		}
		if outside != 4 {
			t.Errorf("%d ratios outside the clip range, want 4", outside)
		}
	}
}

func TestRatioOfTheSamePolicyIsExactlyOne(t *testing.T) {
	e := model.Example{Mask: []uint8{0, 1}, Weights: []float32{0, 0.3}}
	same := []float32{0, -1.2345678}
	Ratio{0.2, 0.2, 3}.correct(e, same, same)
	if e.Weights[1] != 0.3 {
		t.Errorf("weight %v", e.Weights[1])
	}
}

func TestSFTWeightsAreAMeanOverTheStep(t *testing.T) {
	examples := []model.Example{sftExample(creditRow(nil, 0, 0, 0, 0, 0), 0.2), sftExample(creditRow(nil, 0, 0, 0), 0.2)}
	if !slices.Equal(examples[0].Weights, []float32{0, 1, 1, 0.2, 1}) {
		t.Errorf("weights %v", examples[0].Weights)
	}
	normalize(examples)
	sum := 0.0
	for _, e := range examples {
		for _, w := range e.Weights {
			sum += float64(w)
		}
	}
	if math.Abs(sum-1) > 1e-6 {
		t.Errorf("weights sum to %v", sum)
	}
}

func TestDrillRepeatsThreeTimesAndDependsOnItsKeyAlone(t *testing.T) {
	distinct := map[int]bool{}
	for k := range uint64(200) {
		a, b := drillExample(key(7, k), 100), drillExample(key(7, k), 100)
		if !slices.Equal(a.IDs, b.IDs) {
			t.Fatal("two drills of one key differ")
		}
		n := len(a.IDs) / 3
		if n < drillLeast || n > drillMost || !slices.Equal(a.IDs[:n], a.IDs[n:2*n]) || !slices.Equal(a.IDs[:n], a.IDs[2*n:]) {
			t.Fatalf("not three rounds: %v", a.IDs)
		}
		if a.Weights[n-1] != 0 || a.Weights[n] != drillWeight {
			t.Fatal("the first round cannot be foretold and must not be trained")
		}
		for _, id := range a.IDs {
			if id < 0 || id >= 100 {
				t.Fatalf("id %d outside the vocabulary", id)
			}
		}
		distinct[n] = true
	}
	if len(distinct) < 20 {
		t.Errorf("only %d lengths in 200 drills", len(distinct))
	}
}

func TestLearningRateSchedule(t *testing.T) {
	o := Options{Warmup: 10, DecayShare: 0.4, Steps: 100}
	for s, want := range map[int]float64{0: 0.1, 9: 1, 50: 1, 60: 1, 80: 0.5, 99: 0.03} {
		if got := o.rate(s); math.Abs(got-want) > 1e-9 {
			t.Errorf("step %d: %v, want %v", s, got, want)
		}
	}
	constant := Options{}
	if constant.rate(0) != 1 || constant.rate(1000) != 1 {
		t.Error("without warm-up and decay the rate is constant")
	}
}

func TestSummaryCountsByTheRule(t *testing.T) {
	row := func(reward float64, finish string, failures ...episode.Failure) *episode.Trajectory {
		return &episode.Trajectory{Reward: reward, FinishReason: finish, Failures: failures, Split: "train", Temperature: 1,
			TokenIDs: make([]int32, 6), LossMask: []uint8{0, 1, 1, 0, 1, 1},
			Turns: []episode.Turn{{Role: "user"}, {Role: "assistant"}, {Role: "tool"}, {Role: "assistant"}}}
	}
	agent := func(turn int, kind string) episode.Failure {
		return episode.Failure{Turn: turn, Kind: kind, Fault: episode.FaultAgent}
	}
	var s Summary
	for _, tr := range []*episode.Trajectory{
		row(1, episode.FinishSubmitted),
		row(0, episode.FinishAbnormal, agent(3, episode.KindMalformedJSON), agent(3, episode.KindRepetition)),
		row(0, episode.FinishAbnormal, agent(3, episode.KindNoAction)),
		row(0, episode.FinishBudget, agent(3, episode.KindBudgetExhausted)),
		row(0, episode.FinishFault, episode.Failure{Turn: 1, Kind: episode.KindRuntimeError, Fault: episode.FaultEnvironment}),
	} {
		s.Add(tr)
	}
	m := s.Metric()
	want := episode.Metric{Split: "train", Temperature: 1, Reward: 0.25, CompletionRate: 0.25, AbnormalRate: 0.5,
		MalformedRate: 1. / 8, Turns: 2, ResponseTokens: 4, Trajectories: 5, Tokens: 30}
	m.Extra, want.Extra = nil, nil
	if m.Reward != want.Reward || m.CompletionRate != want.CompletionRate || m.AbnormalRate != want.AbnormalRate || m.MalformedRate != want.MalformedRate ||
		m.Turns != want.Turns || m.ResponseTokens != want.ResponseTokens || m.Trajectories != want.Trajectories || m.Tokens != want.Tokens {
		t.Errorf("got %+v\nwant %+v", m, want)
	}
}

func TestDifferenceCountsBits(t *testing.T) {
	var d Difference
	d.Add([]uint8{0, 1, 1, 1}, []float32{9, -1, -2, 0}, []float32{0, -1, -2.5, float32(math.Copysign(0, -1))})
	if d.Tokens != 3 || d.Exact != 1 || d.Max != 0.5 || math.Abs(d.Mean()-0.5/3) > 1e-12 {
		t.Errorf("%+v mean %v", d, d.Mean())
	}
	d.Add([]uint8{1}, []float32{0}, []float32{float32(math.NaN())})
	if !math.IsInf(d.Max, 1) {
		t.Error("NaN is no difference")
	}
}
