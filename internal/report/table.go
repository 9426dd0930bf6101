package report

// The table that a run ends with, for people at a terminal.

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// Table writes the figures of a run as plain text: the synthesis if given, the
// first and last Window training steps, and the held-out evaluations before
// and after. Values are those of the rows; nothing is recomputed.
func Table(w io.Writer, rows []episode.Metric, synthesis *Synthesis) error {
	var b strings.Builder
	if synthesis != nil {
		writeSynthesis(&b, synthesis)
	}
	train, evaluations := split(rows)
	if len(train) > 0 {
		first, last := train[:min(Window, len(train))], train[max(0, len(train)-Window):]
		fmt.Fprintf(&b, "\ntraining, mean of %d steps\n", len(first))
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(t, "\tsteps %d-%d\tsteps %d-%d\t\n", first[0].Step, first[len(first)-1].Step, last[0].Step, last[len(last)-1].Step)
		for _, q := range measures {
			fmt.Fprintf(t, "%s\t%s\t%s\t\n", q.name, q.text(first), q.text(last))
		}
		t.Flush()
	}
	for _, e := range evaluations {
		fmt.Fprintf(&b, "\nheld-out evaluation, %s, %d episodes\n", temperatureName(e.temperature), e.before.Trajectories)
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(t, "\tversion %d", e.before.Step)
		if e.after != nil {
			fmt.Fprintf(t, "\tversion %d", e.after.Step)
		}
		fmt.Fprint(t, "\t\n")
		for _, q := range measures {
			if q.training {
				continue
			}
			fmt.Fprintf(t, "%s\t%s", q.name, q.text([]episode.Metric{*e.before}))
			if e.after != nil {
				fmt.Fprintf(t, "\t%s", q.text([]episode.Metric{*e.after}))
			}
			fmt.Fprint(t, "\t\n")
		}
		t.Flush()
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeSynthesis(b *strings.Builder, s *Synthesis) {
	fmt.Fprintf(b, "environments  %d\n", s.Environments)
	fmt.Fprintf(b, "tasks         %d verified of %d", s.Verified, s.Tasks)
	for _, level := range sortedKeys(s.ByLevel) {
		fmt.Fprintf(b, "; level %s: %d", level, s.ByLevel[level])
	}
	b.WriteString("\nrejected      ")
	if len(s.RejectedByGate) == 0 {
		b.WriteString("none")
	}
	for i, gate := range sortedKeys(s.RejectedByGate) {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(b, "%s: %d", gate, s.RejectedByGate[gate])
	}
	b.WriteString("\n")
}

func temperatureName(t float64) string {
	if t == 0 {
		return "greedy"
	}
	return fmt.Sprintf("T = %g", t)
}
