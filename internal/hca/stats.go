// Counting failures over a stream: rates by kind, side, domain, family, turn and
// policy version, the rows without signal, and the tools whose faults rise.
package hca

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// A tool is alarming when its share of calls that ended in another side's fault
// is greater in the later half of the steps by AlarmErrors standard errors and
// AlarmFaults faults or more stand behind it. Policies learn to crash what
// excuses them.
const (
	AlarmErrors = 3.0
	AlarmFaults = 3
)

// Stats accumulates over groups with Credit. The zero value is ready to use.
type Stats struct {
	settings Settings

	groups, worth                  int
	rows, abnormal, out, silent    int
	failed, budget                 int // live rows with a failure of the agent: budgets apart, as abnormal_rate of the metrics, and budgets
	sampled, trained               int
	kinds, sides                   map[string]int
	domains, families              map[string]*share
	versions, turns                map[int]*share
	tools                          map[string]map[int]*share // tool -> step -> calls and faults
	observedReward, returned, live float64
}

// share counts rows and those of them that are abnormal or left out.
type share struct{ rows, abnormal, out int }

// NewStats counts under the settings with which credit was assigned.
func NewStats(s Settings) *Stats {
	return &Stats{settings: s, kinds: map[string]int{}, sides: map[string]int{},
		domains: map[string]*share{}, families: map[string]*share{},
		versions: map[int]*share{}, turns: map[int]*share{}, tools: map[string]map[int]*share{}}
}

func entry[K comparable](m map[K]*share, key K) *share {
	if m[key] == nil {
		m[key] = &share{}
	}
	return m[key]
}

// Add counts one complete group.
func (s *Stats) Add(group []*episode.Trajectory) error {
	s.groups++
	if WorthTraining(group) {
		s.worth++
	}
	for _, tr := range group {
		r, err := judge(tr, s.settings)
		if err != nil {
			return err
		}
		s.rows++
		s.sampled += Count(tr.LossMask)
		s.trained += Count(tr.Credit.CreditMask)
		if !r.out {
			s.live++
			s.observedReward += tr.Reward
			s.returned += tr.Credit.Return
			if len(tr.Failures) > 0 {
				if tr.Failures[0].Kind == episode.KindBudgetExhausted {
					s.budget++
				} else {
					s.failed++
				}
			}
		}
		for _, c := range []*share{entry(s.domains, tr.Domain), entry(s.families, tr.Family), entry(s.versions, tr.PolicyVersion)} {
			c.rows++
			if r.abnormal {
				c.abnormal++
			}
			if r.out {
				c.out++
			}
		}
		if r.abnormal {
			s.abnormal++
			if !HasSignal(tr) {
				s.silent++
			}
		}
		if r.out {
			s.out++
		}
		if len(tr.Failures) > 0 {
			s.kinds[tr.Failures[0].Kind]++
			s.sides[tr.Failures[0].Fault]++
		} else if r.out {
			s.sides[episode.FaultInfrastructure]++ // cancelled
		}
		policyTurn := 0
		for t, turn := range tr.Turns {
			if turn.Role == episode.RoleAssistant {
				c := entry(s.turns, policyTurn)
				c.rows++
				if r.abnormal && tr.Failures[0].Turn == t {
					c.abnormal++
				}
				if r.out && len(tr.Failures) > 0 && tr.Failures[0].Turn == t {
					c.out++
				}
				policyTurn++
			}
			for _, call := range turn.Calls {
				if call.Outcome != episode.CallNotRun {
					s.tool(call.Name, tr.Step).rows++
				}
			}
		}
		if r.out && len(tr.Failures) > 0 {
			if name := faultyTool(tr); name != "" {
				s.tool(name, tr.Step).out++
			}
		}
	}
	return nil
}

func (s *Stats) tool(name string, step int) *share {
	if s.tools[name] == nil {
		s.tools[name] = map[int]*share{}
	}
	return entry(s.tools[name], step)
}

// faultyTool is the tool whose call ended in the charged fault, "" if none did.
func faultyTool(tr *episode.Trajectory) string {
	f := tr.Failures[0]
	name := ""
	for _, call := range tr.Turns[f.Turn].Calls {
		if call.Outcome == episode.CallNotRun {
			continue
		}
		if f.CallTokenEnd > f.CallTokenStart && call.TokenStart == f.CallTokenStart {
			return call.Name
		}
		if call.Outcome == episode.CallError {
			name = call.Name
		}
	}
	return name
}

// alarm compares the later half of the steps with the earlier one.
func alarm(steps map[int]*share) bool {
	order := slices.Sorted(maps.Keys(steps))
	var half [2]share
	for i, step := range order {
		h := &half[min(1, 2*i/len(order))]
		h.rows += steps[step].rows
		h.out += steps[step].out
	}
	early, late := half[0], half[1]
	if late.out < AlarmFaults || early.rows == 0 || late.rows == 0 {
		return false
	}
	n, m := float64(early.rows), float64(late.rows)
	pooled := float64(early.out+late.out) / (n + m)
	standardError := math.Sqrt(pooled * (1 - pooled) * (1/n + 1/m))
	return float64(late.out)/m-float64(early.out)/n > AlarmErrors*standardError
}

// WriteText prints the counts for people.
func (s *Stats) WriteText(w io.Writer) error {
	b := bufio.NewWriter(w)
	line := func(format string, arguments ...any) { fmt.Fprintf(b, format+"\n", arguments...) }
	line("%d trajectories in %d groups; %d groups worth training (%.3f)", s.rows, s.groups, s.worth, rate(s.worth, s.groups))
	line("abnormal           %6d  %.3f of the live (budget apart: %d)", s.failed, float64(s.failed)/max(1, s.live), s.budget)
	line("  without signal   %6d  %.3f of the rows with an error span", s.silent, rate(s.silent, s.abnormal))
	line("left out           %6d  %.3f", s.out, rate(s.out, s.rows))
	line("mean reward %.4f, mean return %.4f over %d live rows", s.observedReward/max(1, s.live), s.returned/max(1, s.live), int(s.live))
	line("tokens sampled %d, trained %d (%.3f)", s.sampled, s.trained, rate(s.trained, s.sampled))

	line("\nby kind of the charged failure")
	for _, kind := range byCount(s.kinds) {
		line("  %-22s %6d  %.3f", kind, s.kinds[kind], rate(s.kinds[kind], s.rows))
	}
	line("by side at fault")
	for _, side := range byCount(s.sides) {
		line("  %-22s %6d  %.3f", side, s.sides[side], rate(s.sides[side], s.rows))
	}
	writeShares(b, "domain", s.domains)
	writeShares(b, "family", s.families)
	writeShares(b, "policy turn", s.turns)
	writeShares(b, "policy version", s.versions)

	line("\ntools with faults of other sides")
	none := true
	for _, name := range slices.Sorted(maps.Keys(s.tools)) {
		var sum share
		for _, c := range s.tools[name] {
			sum.rows += c.rows
			sum.out += c.out
		}
		if sum.out == 0 {
			continue
		}
		none = false
		note := ""
		if alarm(s.tools[name]) {
			note = "  ALARM: the share rises over the steps"
		}
		line("  %-22s %6d of %d calls  %.3f%s", name, sum.out, sum.rows, rate(sum.out, sum.rows), note)
	}
	if none {
		line("  none")
	}
	return b.Flush()
}

func writeShares[K cmp.Ordered](b *bufio.Writer, title string, shares map[K]*share) {
	fmt.Fprintf(b, "\n%-24s %7s %9s %9s\n", "by "+title, "rows", "abnormal", "left out")
	for _, key := range slices.Sorted(maps.Keys(shares)) {
		c := shares[key]
		fmt.Fprintf(b, "  %-22v %7d %9.3f %9.3f\n", key, c.rows, rate(c.abnormal, c.rows), rate(c.out, c.rows))
	}
}

func byCount(m map[string]int) []string {
	keys := slices.Sorted(maps.Keys(m))
	slices.SortStableFunc(keys, func(a, b string) int { return m[b] - m[a] })
	return keys
}

func rate(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}
