// Package report draws what a run measured: a table for the terminal and a
// page with the training curves. It computes nothing that is not in the rows
// it is given.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// Synthesis is the account of a verified environment stream, as
// `odyssey-verify --summary` writes it.
type Synthesis struct {
	Environments   int            `json:"environments"`
	Tasks          int            `json:"tasks"`    // proposed
	Verified       int            `json:"verified"` // accepted by every gate
	ByLevel        map[string]int `json:"by_level"`
	RejectedByGate map[string]int `json:"rejected_by_gate"`
	ToolCalls      int            `json:"tool_calls"` // executed while verifying
}

// ReadSynthesis reads the JSON of `odyssey-verify --summary`.
func ReadSynthesis(r io.Reader) (*Synthesis, error) {
	dec := json.NewDecoder(r)
	s := new(Synthesis)
	if err := dec.Decode(s); err != nil {
		return nil, fmt.Errorf("synthesis summary: %w; hint: write it with odyssey-verify --summary FILE", err)
	}
	return s, nil
}

// Window is the number of optimizer steps that the curves and the first and
// last columns average over: one step's reward has a standard deviation of
// about 0.14, so a single step says little.
const Window = 5

// evaluation groups the heldout rows of one temperature: before and after.
type evaluation struct {
	temperature   float64
	before, after *episode.Metric // after is nil when there is one version only
}

// split separates training rows, ascending by step, from evaluations,
// ascending by temperature.
func split(rows []episode.Metric) (train []episode.Metric, evaluations []evaluation) {
	held := map[float64][]episode.Metric{}
	var temperatures []float64
	for _, m := range rows {
		if m.Split != episode.SplitHeldout {
			train = append(train, m)
			continue
		}
		if _, seen := held[m.Temperature]; !seen {
			temperatures = append(temperatures, m.Temperature)
		}
		held[m.Temperature] = append(held[m.Temperature], m)
	}
	slices.SortStableFunc(train, func(a, b episode.Metric) int { return cmp.Compare(a.Step, b.Step) })
	slices.Sort(temperatures)
	for _, t := range temperatures {
		list := held[t]
		slices.SortStableFunc(list, func(a, b episode.Metric) int { return cmp.Compare(a.Step, b.Step) })
		e := evaluation{temperature: t, before: &list[0]}
		if len(list) > 1 {
			e.after = &list[len(list)-1]
		}
		evaluations = append(evaluations, e)
	}
	return train, evaluations
}

// measure is one quantity of a metric row. Quantities that a window must not
// average take its largest value instead.
type measure struct {
	name     string
	format   string
	largest  bool
	training bool // only training rows carry it
	value    func(episode.Metric) (float64, bool)
}

// measured is a quantity that a row may lack.
func measured(f func(episode.Metric) *float64) func(episode.Metric) (float64, bool) {
	return func(m episode.Metric) (float64, bool) {
		v := f(m)
		if v == nil {
			return 0, false
		}
		return *v, true
	}
}

func always(f func(episode.Metric) float64) func(episode.Metric) (float64, bool) {
	return func(m episode.Metric) (float64, bool) { return f(m), true }
}

// measures lists what the table and the page show, in their order.
var measures = []measure{
	{"reward", "%.3f", false, false, always(func(m episode.Metric) float64 { return m.Reward })},
	{"completion rate", "%.3f", false, false, always(func(m episode.Metric) float64 { return m.CompletionRate })},
	{"abnormal rate", "%.3f", false, false, always(func(m episode.Metric) float64 { return m.AbnormalRate })},
	{"malformed rate", "%.3f", false, false, always(func(m episode.Metric) float64 { return m.MalformedRate })},
	{"turns", "%.2f", false, false, always(func(m episode.Metric) float64 { return m.Turns })},
	{"response tokens", "%.1f", false, false, always(func(m episode.Metric) float64 { return m.ResponseTokens })},
	{"entropy", "%.3f", false, false, measured(func(m episode.Metric) *float64 { return m.Entropy })},
	{"gradient norm", "%.3f", false, true, measured(func(m episode.Metric) *float64 { return m.GradNorm })},
	{"log-probability difference, largest", "%g", true, true, measured(func(m episode.Metric) *float64 { return m.LogprobAbsDiffMax })},
	{"tokens/s", "%.0f", false, true, measured(func(m episode.Metric) *float64 { return m.TokensPerS })},
}

// over reduces one measure over a window of rows.
func (q measure) over(rows []episode.Metric) (float64, bool) {
	total, count := 0.0, 0
	for _, m := range rows {
		v, ok := q.value(m)
		if !ok {
			continue
		}
		count++
		if q.largest {
			total = max(total, v)
		} else {
			total += v
		}
	}
	if count == 0 {
		return 0, false
	}
	if q.largest {
		return total, true
	}
	return total / float64(count), true
}

func (q measure) text(rows []episode.Metric) string {
	if v, ok := q.over(rows); ok {
		return fmt.Sprintf(q.format, v)
	}
	return "-"
}

func sortedKeys(m map[string]int) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
