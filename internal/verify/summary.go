package verify

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// Summary counts what was verified. Its JSON is what odyssey-verify --summary
// writes.
type Summary struct {
	Environments   int            `json:"environments"`     // with a verified task
	Tasks          int            `json:"tasks"`            // proposed
	Verified       int            `json:"verified"`         // accepted by every gate
	ByLevel        map[string]int `json:"by_level"`         // verified tasks
	ByOperation    map[string]int `json:"by_operation"`     // verified tasks
	RejectedByGate map[string]int `json:"rejected_by_gate"` // tasks, by the first gate that failed
	ToolCalls      int            `json:"tool_calls"`       // made while verifying
}

// Add counts a checked environment.
func (s *Summary) Add(e *episode.Environment, toolCalls int) {
	if s.ByLevel == nil {
		s.ByLevel, s.ByOperation, s.RejectedByGate = map[string]int{}, map[string]int{}, map[string]int{}
	}
	s.ToolCalls += toolCalls
	verified := 0
	for i := range e.Tasks {
		t := &e.Tasks[i]
		s.Tasks++
		if t.Status == episode.StatusVerified {
			verified++
			s.ByLevel[strconv.Itoa(t.Level)]++
			s.ByOperation[t.Operation]++
			continue
		}
		for _, v := range t.Verdicts {
			if v.Outcome == episode.OutcomeFail {
				s.RejectedByGate[v.Gate]++
				break
			}
		}
	}
	s.Verified += verified
	if verified > 0 {
		s.Environments++
	}
}

// String is the summary on one line.
func (s *Summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d environments, %d of %d tasks verified", s.Environments, s.Verified, s.Tasks)
	if s.Verified > 0 {
		b.WriteString(" (" + counts(s.ByLevel, "level ") + ")")
	}
	if len(s.RejectedByGate) > 0 {
		b.WriteString("; rejected: " + counts(s.RejectedByGate, ""))
	}
	return b.String()
}

func counts(of map[string]int, prefix string) string {
	var parts []string
	for name, n := range of {
		parts = append(parts, fmt.Sprintf("%s%s: %d", prefix, name, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// Audit accounts for a whole stream: what each stage spent, and how many
// rounds and gates the tasks took.
type Audit struct {
	environments int
	tasks        int
	status       map[string]int
	stages       []episode.Audit // summed by stage, in the order in which they appear
	rounds       map[int]int     // tasks by the round of their design
	gates        map[string][2]int
	rejected     []string // a line per rejected task: where, which gate, its counterexample
}

// Add counts an environment as it stands in the stream.
func (a *Audit) Add(e *episode.Environment) {
	if a.rounds == nil {
		a.status, a.rounds, a.gates = map[string]int{}, map[int]int{}, map[string][2]int{}
	}
	a.environments++
	a.tasks += len(e.Tasks)
	for _, spent := range e.Audit {
		i := slices.IndexFunc(a.stages, func(s episode.Audit) bool { return s.Stage == spent.Stage && s.Model == spent.Model })
		if i < 0 {
			i = len(a.stages)
			a.stages = append(a.stages, episode.Audit{Stage: spent.Stage, Model: spent.Model})
		}
		s := &a.stages[i]
		s.Calls += spent.Calls
		s.PromptTokens += spent.PromptTokens
		s.CompletionTokens += spent.CompletionTokens
		s.USD += spent.USD
		s.Rounds += spent.Rounds
	}
	for i := range e.Tasks {
		t := &e.Tasks[i]
		a.status[t.Status]++
		round := 0
		for _, v := range t.Verdicts {
			round = max(round, v.Round)
			n := a.gates[v.Gate]
			if v.Outcome == episode.OutcomePass {
				n[0]++
			} else {
				n[1]++
			}
			a.gates[v.Gate] = n
		}
		if i := slices.IndexFunc(t.Verdicts, func(v episode.Verdict) bool { return v.Outcome == episode.OutcomeFail }); i >= 0 && t.Status == episode.StatusRejected {
			a.rejected = append(a.rejected, fmt.Sprintf("%s  %s  %s  %s", e.EnvironmentID, t.TaskID, t.Verdicts[i].Gate, t.Verdicts[i].Detail))
		}
		a.rounds[round]++
	}
}

// Write writes the account as tables for people.
func (a *Audit) Write(w io.Writer) error {
	fmt.Fprintf(w, "%d environments, %d tasks: %d verified, %d rejected, %d unchecked\n\n", a.environments, a.tasks,
		a.status[episode.StatusVerified], a.status[episode.StatusRejected], a.status[""])
	per := func(n float64) string {
		if a.tasks == 0 {
			return "-"
		}
		return strconv.FormatFloat(n/float64(a.tasks), 'f', 2, 64)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "stage\tmodel\tcalls\tprompt tokens\tcompletion tokens\tUSD\trounds\ta task: calls\ttokens\tUSD\trounds\t")
	for _, s := range a.stages {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%.2f\t%d\t%s\t%s\t%s\t%s\t\n", s.Stage, s.Model, s.Calls, s.PromptTokens, s.CompletionTokens, s.USD, s.Rounds,
			per(float64(s.Calls)), per(float64(s.PromptTokens+s.CompletionTokens)), per(s.USD), per(float64(s.Rounds)))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprint(w, "\nround of the design  tasks\n")
	for round, left := 0, a.tasks; left > 0; round++ {
		fmt.Fprintf(w, "%19d  %5d\n", round, a.rounds[round])
		left -= a.rounds[round]
	}
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "gate\tpassed\tfailed\t")
	for _, gate := range Gates {
		if n, ok := a.gates[gate]; ok {
			fmt.Fprintf(t, "%s\t%d\t%d\t\n", gate, n[0], n[1])
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(a.rejected) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\nrejected: environment, task, gate, evidence\n%s\n", strings.Join(a.rejected, "\n"))
	return err
}
