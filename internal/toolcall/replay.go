package toolcall

// Detection once more over a recorded trajectory.

import (
	"fmt"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/token"
)

// Replay runs the detector over a recorded trajectory and returns the failures
// of its first turn that has any, in the order of the rule. Thresholds come from
// settings, which must be those of the run for equal results; family,
// requirement and tools come from the trajectory.
//
// What the tokens cannot show is taken over from the record where the replay
// reaches its turn without a failure of its own: errors of running tools, faults
// of other sides, and budgets that settings does not watch. Kinds that settings
// switches off are left out either way.
func Replay(tr *episode.Trajectory, tokenizer *token.Tokenizer, settings Settings) ([]episode.Failure, error) {
	tools, err := ParseToolset(tr.Tools, tr.SubmitTool)
	if err != nil {
		return nil, fmt.Errorf("trajectory %s: %w", tr.TrajectoryID, err)
	}
	settings.Family, settings.RequiresTool = tr.Family, tr.RequiresTool
	d := NewDetector(settings, tokenizer, tools)
	for i, turn := range tr.Turns {
		if turn.Role != episode.RoleAssistant {
			continue
		}
		if turn.TokenStart < 0 || turn.TokenStart > turn.TokenEnd || turn.TokenEnd > len(tr.TokenIDs) {
			return nil, fmt.Errorf("trajectory %s: turn %d: tokens [%d, %d) of %d",
				tr.TrajectoryID, i, turn.TokenStart, turn.TokenEnd, len(tr.TokenIDs))
		}
		out := d.Turn(tr.TokenIDs[turn.TokenStart:turn.TokenEnd], turn.StopReason, i, turn.TokenStart)
		if len(out.Failures) > 0 {
			return out.Failures, nil
		}
		if recorded := d.recorded(tr.Failures, i); len(recorded) > 0 {
			return recorded, nil
		}
		outcomes := make([]string, len(turn.Calls))
		for j := range turn.Calls {
			outcomes[j] = turn.Calls[j].Outcome
		}
		d.Observed(outcomes)
	}
	return nil, nil
}

// recorded returns the failures of a turn that only the run could see.
func (d *Detector) recorded(failures []episode.Failure, turn int) []episode.Failure {
	var kept []episode.Failure
	for _, f := range failures {
		unseen := f.Kind == episode.KindRuntimeError || f.Kind == episode.KindBudgetExhausted || f.Fault != episode.FaultAgent
		if f.Turn == turn && unseen && !d.off[f.Kind] {
			kept = append(kept, f)
		}
	}
	return kept
}
