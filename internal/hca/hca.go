// Package hca is heuristic credit assignment: it turns the failures observed in
// a group of trajectories into training returns, masks, advantages and weights.
//
// This file is the whole algorithm, to be read from top to bottom in the order
// and with the letters of the paper:
//
//	failures e_t -> responsible turn t* -> error span C_i -> credit mask m
//	-> clean set, baseline B_x, mu, sigma -> advantage -> weight of the objective
//
// The symbols: a group holds the G trajectories of one task x. b (loss_mask)
// marks the tokens that the policy sampled, m (credit_mask) those that carry
// gradient, and m <= b always: credit assignment only removes tokens.
//
// The other files of the package present the result: group.go cuts a stream
// into groups, explain.go tells one trajectory in words, stats.go counts.
package hca

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/toolcall"
)

// Epsilon is added to sigma before an advantage is divided by it; below
// DegenerateStd there is no division at all.
const (
	Epsilon       = 1e-6
	DegenerateStd = 1e-8
)

// Settings are the factors of the estimator. Preset gives the named
// combinations; every factor may then be set singly.
type Settings struct {
	Mask      string // which tokens of an abnormal trajectory are trained: span, turn or trajectory
	Span      string // what C_i is under mask span: call, culprit or turn
	Budget    string // what an exhausted budget means: last-call, zero or none
	Recovered string // an episode that went on after t*: zero (the paper) or keep
	Baseline  string // B_x: clean, all, others (all but the row itself) or none
	Sigma     string // population, sample or none
	Norm      string // trajectory, prompt or constant
	Constant  float64
	Fallback  string // none (the paper) or batch

	GroupsPerStep int     // groups in the mean of the objective; 0 counts as 1
	RewardMin     float64 // the declared range of rewards; both 0 mean [0, 1]
	RewardMax     float64
}

// The values of each factor, the default first.
var (
	Estimators = []string{"hca", "grpo", "rloo", "reinforce", "drgrpo", "turn"}
	Masks      = []string{"span", "turn", "trajectory"}
	Spans      = []string{"call", "culprit", "turn"}
	Budgets    = []string{"last-call", "zero", "none"}
	Recoveries = []string{"zero", "keep"}
	Baselines  = []string{"clean", "all", "others", "none"}
	Sigmas     = []string{"population", "sample", "none"}
	Norms      = []string{"trajectory", "prompt", "constant"}
	Fallbacks  = []string{"none", "batch"}
)

// DrGRPOConstant is the divisor of the preset drgrpo, in tokens. Only its
// product with the learning rate matters.
const DrGRPOConstant = 256

// Preset returns the factors of a named estimator.
func Preset(estimator string) (Settings, error) {
	s := Settings{Mask: "span", Span: "call", Budget: "last-call", Recovered: "zero",
		Baseline: "clean", Sigma: "population", Norm: "trajectory", Fallback: "none"}
	switch estimator {
	case "hca":
	case "turn":
		s.Mask = "turn"
	case "grpo":
		s.Mask, s.Baseline = "trajectory", "all"
	case "rloo":
		s.Mask, s.Baseline, s.Sigma = "trajectory", "others", "none"
	case "reinforce":
		s.Mask, s.Baseline, s.Sigma = "trajectory", "none", "none"
	case "drgrpo":
		s.Mask, s.Baseline, s.Sigma = "trajectory", "all", "none"
		s.Norm, s.Constant = "constant", DrGRPOConstant
	default:
		return s, fmt.Errorf("unknown estimator %q (one of %s)", estimator, strings.Join(Estimators, ", "))
	}
	return s, nil
}

// SetNorm reads a normalisation as the flag spells it: trajectory, prompt or
// constant:K with K > 0 tokens.
func (s *Settings) SetNorm(text string) error {
	name, number, has := strings.Cut(text, ":")
	switch {
	case name == "constant" && has:
		k, err := strconv.ParseFloat(number, 64)
		if err != nil || !(k > 0) || math.IsInf(k, 0) {
			return fmt.Errorf("normalisation %q: K must be a positive number", text)
		}
		s.Norm, s.Constant = name, k
	case !has && (name == "trajectory" || name == "prompt"):
		s.Norm, s.Constant = name, 0
	default:
		return fmt.Errorf("unknown normalisation %q (trajectory, prompt or constant:K)", text)
	}
	return nil
}

// NormText is the normalisation as the flag spells it; stream headers carry it.
func (s Settings) NormText() string {
	if s.Norm == "constant" {
		return "constant:" + strconv.FormatFloat(s.Constant, 'g', -1, 64)
	}
	return s.Norm
}

// Validate says which factor has a value that does not exist.
func (s Settings) Validate() error {
	for _, f := range []struct {
		name, value string
		values      []string
	}{
		{"mask", s.Mask, Masks}, {"span", s.Span, Spans}, {"budget", s.Budget, Budgets},
		{"recovered", s.Recovered, Recoveries}, {"baseline", s.Baseline, Baselines},
		{"sigma", s.Sigma, Sigmas}, {"norm", s.Norm, Norms}, {"fallback", s.Fallback, Fallbacks},
	} {
		if !slices.Contains(f.values, f.value) {
			return fmt.Errorf("unknown %s %q (one of %s)", f.name, f.value, strings.Join(f.values, ", "))
		}
	}
	return nil
}

// Assign sets Credit on every row of one complete group. The rows may stand in
// any order. With Fallback batch, call Batch afterwards on the whole step.
func Assign(group []*episode.Trajectory, s Settings) error {
	credits, err := assign(group, s)
	if err != nil {
		return err
	}
	for i, tr := range group {
		tr.Credit = &credits[i]
	}
	return nil
}

// row is one trajectory on its way through the algorithm.
type row struct {
	tr       *episode.Trajectory
	out      bool             // left out: another side's fault, or cancelled
	failure  *episode.Failure // the agent's charged failure, nil if there is none
	abnormal bool             // returns 0 and stays out of the clean set
	ret      float64          // training return
}

// assign is the algorithm. credits[i] belongs to group[i].
func assign(group []*episode.Trajectory, s Settings) ([]episode.Credit, error) {
	if err := checkGroup(group); err != nil {
		return nil, err
	}
	rows := make([]row, len(group))
	credits := make([]episode.Credit, len(group))

	// Failures, t*, C_i and m of each trajectory.
	for i, tr := range group {
		r, err := judge(tr, s)
		if err != nil {
			return nil, err
		}
		rows[i] = r
		credits[i].Return = r.ret
		credits[i].ResponsibleTurn = -1
		if r.failure != nil {
			credits[i].ResponsibleTurn = r.failure.Turn
			credits[i].ErrorSpan = errorSpan(r, s)
		}
		credits[i].CreditMask = creditMask(r, credits[i].ErrorSpan, s)
	}

	// Sums run in the order of the samples, so the order of rows cannot matter.
	order := make([]int, len(group))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return group[a].Sample - group[b].Sample })

	// B_x, mu, sigma and the advantage.
	for i, r := range rows {
		if r.out {
			continue
		}
		b := baseline(rows, order, i, s)
		a := advantage(r, b, s)
		credits[i].Baseline, credits[i].Advantage = b, &a
	}

	// The weight: 1/groups, times 1/G over live rows, times 1/max(1, N_i).
	live, sampled := 0, 0
	for _, r := range rows {
		if !r.out {
			live++
			sampled += Count(r.tr.LossMask)
		}
	}
	groups := float64(max(1, s.GroupsPerStep))
	for i, r := range rows {
		if r.out {
			continue
		}
		var divisor float64
		switch s.Norm {
		case "prompt":
			divisor = float64(max(1, sampled))
		case "constant":
			divisor = float64(live) * s.Constant
		default:
			divisor = float64(live) * float64(max(1, Count(credits[i].CreditMask)))
		}
		credits[i].Weight = 1 / (groups * divisor)
	}
	return credits, nil
}

// judge decides whose fault a trajectory ended by, and its training return: 0
// if abnormal, else the reward. Only the agent's faults make it abnormal; the
// faults of the other sides leave the row out of the baseline and the loss.
func judge(tr *episode.Trajectory, s Settings) (row, error) {
	r := row{tr: tr}
	if err := checkFailures(tr); err != nil {
		return r, err
	}
	reward, err := scaleReward(tr.Reward, s)
	if err != nil {
		return r, fmt.Errorf("trajectory %s: %w", tr.TrajectoryID, err)
	}
	if LeftOut(tr) {
		r.out = true
		return r, nil
	}
	if len(tr.Failures) > 0 {
		r.failure = &tr.Failures[0] // exactly one failure is charged
	}
	switch {
	case r.failure == nil:
		r.ret = reward
	case r.failure.Kind == episode.KindBudgetExhausted && s.Budget == "zero":
		r.failure = nil // an ordinary return 0
	case s.Recovered == "keep" && wentOn(tr):
		r.ret = reward // abnormal stays false; the error span is untrained
	default:
		r.abnormal = true
	}
	return r, nil
}

// LeftOut tells whether a row is outside the baseline and the loss: an
// environment's, verifier's or infrastructure's fault, or a cancelled episode.
func LeftOut(tr *episode.Trajectory) bool {
	if len(tr.Failures) > 0 && tr.Failures[0].Fault != episode.FaultAgent {
		return true
	}
	return tr.FinishReason == episode.FinishFault || tr.FinishReason == episode.FinishCancelled
}

// wentOn tells whether the policy was asked again after the turn t*.
func wentOn(tr *episode.Trajectory) bool {
	for _, turn := range tr.Turns[tr.Failures[0].Turn+1:] {
		if turn.Role == episode.RoleAssistant {
			return true
		}
	}
	return false
}

// scaleReward divides a reward by the largest magnitude of the declared range,
// so that 0 stays 0 and a plain [0, 1] reward keeps its bits.
func scaleReward(reward float64, s Settings) (float64, error) {
	low, high := s.RewardMin, s.RewardMax
	if low == 0 && high == 0 {
		high = 1
	}
	if !(reward >= low && reward <= high) { // also refuses NaN
		return 0, fmt.Errorf("reward %v outside the declared range [%v, %v]", reward, low, high)
	}
	return reward / max(math.Abs(low), math.Abs(high)), nil
}

// errorSpan is C_i in token indices of the trajectory. The failure carries the
// token ranges of its culprit (the decision token included where the rule asks
// for it) and of its call; here one of them is chosen.
func errorSpan(r row, s Settings) episode.Span {
	f, turn := r.failure, r.tr.Turns[r.failure.Turn]
	switch {
	case s.Mask == "turn" || s.Mask == "span" && s.Span == "turn":
		return episode.Span{TokenStart: turn.TokenStart, TokenEnd: turn.TokenEnd}
	case s.Span == "culprit":
		return episode.Span{TokenStart: f.TokenStart, TokenEnd: f.TokenEnd}
	default:
		return episode.Span{TokenStart: f.CallTokenStart, TokenEnd: f.CallTokenEnd}
	}
}

// creditMask is m: b on clean trajectories; b AND [t = t*] AND [j in C_i] on
// abnormal ones; 0 on the faults of other sides. A kept recovered episode is
// the reverse: b without the spans of its errors.
func creditMask(r row, span episode.Span, s Settings) []uint8 {
	b := r.tr.LossMask
	m := make([]uint8, len(b))
	switch {
	case r.out:
	case r.abnormal && r.failure.Kind == episode.KindBudgetExhausted && s.Budget == "none":
	case r.failure == nil, r.abnormal && s.Mask == "trajectory":
		copy(m, b)
	case !r.abnormal:
		copy(m, b)
		for i := range r.tr.Failures {
			if f := &r.tr.Failures[i]; f.Fault == episode.FaultAgent {
				c := errorSpan(row{tr: r.tr, failure: f}, s)
				clear(m[c.TokenStart:c.TokenEnd])
			}
		}
	default:
		turn := r.tr.Turns[r.failure.Turn]
		for j := max(span.TokenStart, turn.TokenStart); j < min(span.TokenEnd, turn.TokenEnd); j++ {
			m[j] = b[j]
		}
	}
	return m
}

// inBaseline tells whether row j belongs to the set that centres row i. The
// clean set C_x holds the rows that are neither abnormal nor left out; if it is
// empty, all abnormal ones stand in for it.
func inBaseline(rows []row, i, j int, s Settings) bool {
	switch {
	case rows[j].out:
		return false
	case s.Baseline == "all":
		return true
	case s.Baseline == "others":
		return i != j
	case s.Baseline == "none":
		return false
	}
	return !rows[j].abnormal || cleanSize(rows) == 0
}

func cleanSize(rows []row) (n int) {
	for _, r := range rows {
		if !r.out && !r.abnormal {
			n++
		}
	}
	return n
}

// baseline gives mu and sigma of the returns over B_x. The squares are rounded
// before they are added: the bits do not depend on fused instructions.
func baseline(rows []row, order []int, i int, s Settings) episode.Baseline {
	var returns []float64
	for _, j := range order {
		if inBaseline(rows, i, j, s) {
			returns = append(returns, rows[j].ret)
		}
	}
	b := episode.Baseline{Size: len(returns)}
	if len(returns) == 0 {
		b.Degenerate = true
		return b
	}
	n := float64(len(returns))
	sum := 0.0
	for _, r := range returns {
		sum += r
	}
	b.Mean = sum / n
	squares := 0.0
	for _, r := range returns {
		d := r - b.Mean
		squares += float64(d * d)
	}
	if s.Sigma == "sample" {
		n = max(1, n-1)
	}
	b.Std = math.Sqrt(squares / n)
	b.Degenerate = b.Std < DegenerateStd
	return b
}

// advantage is (return - mu) / (sigma + epsilon), without the division where
// sigma vanishes. An abnormal one is clamped.
func advantage(r row, b episode.Baseline, s Settings) float64 {
	if s.Baseline == "others" && b.Size == 0 {
		return 0 // a group of one has nothing to compare with
	}
	a := r.ret - b.Mean
	if s.Sigma != "none" && !b.Degenerate {
		a /= b.Std + Epsilon
	}
	if r.abnormal {
		a = clamp(a, r.tr.GroupSize)
	}
	return a
}

// clamp holds the advantage of an abnormal trajectory in [-sqrt(G-1), 0]: 0
// because an error is never reinforced (mu can be negative under penalties),
// -sqrt(G-1) because plain group normalisation can give no less.
func clamp(a float64, groupSize int) float64 {
	return min(0, max(a, -math.Sqrt(float64(max(0, groupSize-1))))) + 0 // -0 becomes 0
}

// Batch applies the fallback "batch" to all groups of one step, after Assign:
// where a group has no clean row or mu = 0, its abnormal rows are compared with
// the clean mean of the other groups of their family. Sigma is not used: it
// belongs to another set of tasks.
func Batch(groups [][]*episode.Trajectory, s Settings) error {
	if s.Fallback != "batch" {
		return nil
	}
	type cleanSum struct {
		sum float64
		n   int
	}
	clean := make([]cleanSum, len(groups))
	judged := make([][]row, len(groups))
	for g, group := range groups {
		for _, tr := range group {
			r, err := judge(tr, s)
			if err != nil {
				return err
			}
			judged[g] = append(judged[g], r)
			if !r.out && !r.abnormal {
				clean[g].sum += r.ret
				clean[g].n++
			}
		}
	}
	for g, group := range groups {
		if clean[g].n > 0 && clean[g].sum != 0 {
			continue
		}
		var others cleanSum
		for o := range groups {
			if o != g && groups[o][0].Family == group[0].Family {
				others.sum += clean[o].sum
				others.n += clean[o].n
			}
		}
		if others.n == 0 {
			continue
		}
		mean := others.sum / float64(others.n)
		for i, tr := range group {
			if judged[g][i].abnormal {
				a := clamp(0-mean, tr.GroupSize)
				tr.Credit.Advantage = &a
				tr.Credit.Baseline = episode.Baseline{Size: others.n, Mean: mean, Degenerate: true}
			}
		}
	}
	return nil
}

// HasSignal tells whether a row with Credit moves the policy: any token with
// m = 1 and an advantage that is not 0.
func HasSignal(tr *episode.Trajectory) bool {
	c := tr.Credit
	return c != nil && c.Advantage != nil && *c.Advantage != 0 && Count(c.CreditMask) > 0
}

// WorthTraining tells whether any row of the group has signal. It never looks
// at the spread of rewards: one clean success among crashes trains.
func WorthTraining(group []*episode.Trajectory) bool {
	return slices.ContainsFunc(group, HasSignal)
}

// Count is the number of ones of a mask.
func Count(mask []uint8) (n int) {
	for _, v := range mask {
		n += int(v)
	}
	return n
}

var sides = []string{episode.FaultAgent, episode.FaultEnvironment, episode.FaultVerifier, episode.FaultInfrastructure}

// checkFailures refuses failures that point outside the trajectory, and a
// charged failure that is not the first: t* is the first turn with one.
func checkFailures(tr *episode.Trajectory) error {
	n := len(tr.TokenIDs)
	if len(tr.LossMask) != n {
		return fmt.Errorf("trajectory %s: loss_mask has %d values for %d tokens", tr.TrajectoryID, len(tr.LossMask), n)
	}
	for _, v := range tr.LossMask {
		if v > 1 {
			return fmt.Errorf("trajectory %s: loss_mask holds %d; only 0 and 1 are allowed", tr.TrajectoryID, v)
		}
	}
	if tr.FinishReason == "" {
		return fmt.Errorf("trajectory %s: finish_reason is empty", tr.TrajectoryID)
	}
	if tr.FinishReason == episode.FinishAbnormal && len(tr.Failures) == 0 {
		return fmt.Errorf("trajectory %s: finish_reason abnormal without a failure", tr.TrajectoryID)
	}
	for i, f := range tr.Failures {
		if !slices.Contains(sides, f.Fault) {
			return fmt.Errorf("trajectory %s: failure %d (%s) is the fault of %q, which is none of %s", tr.TrajectoryID, i, f.Kind, f.Fault, strings.Join(sides, ", "))
		}
		if !slices.Contains(toolcall.Kinds(), f.Kind) {
			return fmt.Errorf("trajectory %s: failure %d is of the unknown kind %q", tr.TrajectoryID, i, f.Kind)
		}
		if f.Turn < 0 || f.Turn >= len(tr.Turns) {
			return fmt.Errorf("trajectory %s: failure %d (%s) names turn %d of %d", tr.TrajectoryID, i, f.Kind, f.Turn, len(tr.Turns))
		}
		if f.Turn < tr.Failures[0].Turn {
			return fmt.Errorf("trajectory %s: failure %d (%s) stands in turn %d, before the charged one in turn %d", tr.TrajectoryID, i, f.Kind, f.Turn, tr.Failures[0].Turn)
		}
		turn := tr.Turns[f.Turn]
		if f.Fault == episode.FaultAgent && turn.Role != episode.RoleAssistant {
			return fmt.Errorf("trajectory %s: failure %d (%s) blames the agent for turn %d, which is of role %q", tr.TrajectoryID, i, f.Kind, f.Turn, turn.Role)
		}
		for _, span := range [][2]int{{f.TokenStart, f.TokenEnd}, {f.CallTokenStart, f.CallTokenEnd}} {
			if f.Fault == episode.FaultAgent && (span[0] < turn.TokenStart || span[1] > turn.TokenEnd) {
				return fmt.Errorf("trajectory %s: failure %d (%s) spans tokens [%d, %d), outside its turn [%d, %d)", tr.TrajectoryID, i, f.Kind, span[0], span[1], turn.TokenStart, turn.TokenEnd)
			}
			if span[0] < 0 || span[1] < span[0] || span[1] > n {
				return fmt.Errorf("trajectory %s: failure %d (%s) spans tokens [%d, %d) of %d", tr.TrajectoryID, i, f.Kind, span[0], span[1], n)
			}
		}
	}
	for i, t := range tr.Turns {
		if t.TokenStart < 0 || t.TokenEnd < t.TokenStart || t.TokenEnd > n {
			return fmt.Errorf("trajectory %s: turn %d spans tokens [%d, %d) of %d", tr.TrajectoryID, i, t.TokenStart, t.TokenEnd, n)
		}
	}
	return nil
}
