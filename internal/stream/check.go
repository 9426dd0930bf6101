// The invariants of a record, checked where it is read and where it is written.

package stream

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

func checkEnvironment(e *episode.Environment) error {
	if e.EnvironmentID == "" {
		return &fieldError{"environment_id", errors.New("is empty")}
	}
	return nil
}

func checkTrajectory(t *episode.Trajectory, kind Kind) error {
	if t.TrajectoryID == "" {
		return &fieldError{"trajectory_id", errors.New("is empty")}
	}
	if err := checkWord("finish_reason", t.FinishReason, finishReasons); err != nil {
		return err
	}
	for _, number := range []struct {
		name  string
		value float64
	}{
		{"step", float64(t.Step)}, {"sample", float64(t.Sample)}, {"level", float64(t.Level)}, {"policy_version", float64(t.PolicyVersion)},
		{"retries", float64(t.Retries)}, {"temperature", t.Temperature},
	} {
		if number.value < 0 {
			return &fieldError{number.name, fmt.Errorf("%v is negative", number.value)}
		}
	}
	n := len(t.TokenIDs)
	length := func(name string, got int) error {
		if got != n {
			return &fieldError{name, fmt.Errorf("has %d values, but token_ids has %d", got, n)}
		}
		return nil
	}
	if err := length("loss_mask", len(t.LossMask)); err != nil {
		return err
	}
	if err := length("rollout_logprobs", len(t.RolloutLogprobs)); err != nil {
		return err
	}
	for i, id := range t.TokenIDs {
		if id < 0 {
			return &fieldError{"token_ids", fmt.Errorf("[%d] is %d: a token id is not negative", i, id)}
		}
	}
	if err := checkMask("loss_mask", t.LossMask); err != nil {
		return err
	}
	for i, span := range t.Segments {
		if err := checkSpan(span.TokenStart, span.TokenEnd, n); err != nil {
			return at("segments", atIndex(i, err))
		}
	}
	before := 0
	for i := range t.Turns {
		turn := &t.Turns[i]
		if err := checkWord("role", turn.Role, roles); err != nil {
			return at("turns", atIndex(i, err))
		}
		if err := checkSpan(turn.TokenStart, turn.TokenEnd, n); err != nil {
			return at("turns", atIndex(i, err))
		}
		if turn.TokenStart < before {
			return at("turns", atIndex(i, fmt.Errorf("token range [%d, %d) begins before the end of the turn before it, %d", turn.TokenStart, turn.TokenEnd, before)))
		}
		before = turn.TokenEnd
		for j := range turn.Calls {
			if err := checkSpan(turn.Calls[j].TokenStart, turn.Calls[j].TokenEnd, n); err != nil {
				return at("turns", atIndex(i, at("calls", atIndex(j, err))))
			}
		}
	}
	for i := range t.Failures {
		failure := &t.Failures[i]
		if err := checkWord("fault", failure.Fault, faults); err != nil {
			return at("failures", atIndex(i, err))
		}
		if failure.Turn < 0 || failure.Turn >= len(t.Turns) {
			return at("failures", atIndex(i, &fieldError{"turn", fmt.Errorf("there is no turn %d of %d", failure.Turn, len(t.Turns))}))
		}
		if failure.ByteStart < 0 || failure.ByteEnd < failure.ByteStart {
			return at("failures", atIndex(i, fmt.Errorf("byte range [%d, %d) is none", failure.ByteStart, failure.ByteEnd)))
		}
		if err := checkSpan(failure.TokenStart, failure.TokenEnd, n); err != nil {
			return at("failures", atIndex(i, err))
		}
		if err := checkSpan(failure.CallTokenStart, failure.CallTokenEnd, n); err != nil {
			return at("failures", atIndex(i, err))
		}
	}
	if kind != KindCredit {
		return nil
	}
	if t.Credit == nil {
		return &fieldError{"credit_mask", errors.New("a credit stream needs the trajectory's credit")}
	}
	if err := length("credit_mask", len(t.Credit.CreditMask)); err != nil {
		return err
	}
	for i, m := range t.Credit.CreditMask {
		if m > t.LossMask[i] {
			return &fieldError{"credit_mask", fmt.Errorf("[%d] is %d where loss_mask is %d", i, m, t.LossMask[i])}
		}
	}
	if turn := t.Credit.ResponsibleTurn; turn < -1 || turn >= len(t.Turns) {
		return &fieldError{"responsible_turn", fmt.Errorf("there is no turn %d of %d", turn, len(t.Turns))}
	}
	if t.Credit.Weight < 0 {
		return &fieldError{"weight", fmt.Errorf("%v is negative", t.Credit.Weight)}
	}
	span := t.Credit.ErrorSpan
	if err := checkSpan(span.TokenStart, span.TokenEnd, n); err != nil {
		return at("error_span", err)
	}
	return nil
}

// The words of the fields that hold one of a few; a field that is absent is
// empty. Kinds of failure are not among them: who assigns credit knows those,
// and demands what it needs.
var (
	finishReasons = []string{episode.FinishSubmitted, episode.FinishAbnormal, episode.FinishBudget, episode.FinishFault, episode.FinishCancelled}
	roles         = []string{episode.RoleSystem, episode.RoleUser, episode.RoleAssistant, episode.RoleTool}
	faults        = []string{episode.FaultAgent, episode.FaultEnvironment, episode.FaultVerifier, episode.FaultInfrastructure}
)

func checkWord(name, word string, words []string) error {
	if word != "" && !slices.Contains(words, word) {
		return &fieldError{name, fmt.Errorf("%q is none of %s", word, strings.Join(words, ", "))}
	}
	return nil
}

func checkMask(name string, mask []uint8) error {
	for i, m := range mask {
		if m > 1 {
			return &fieldError{name, fmt.Errorf("[%d] is %d: a mask holds 0 and 1", i, m)}
		}
	}
	return nil
}

func checkSpan(start, end, n int) error {
	if start < 0 || end < start || end > n {
		return fmt.Errorf("token range [%d, %d) does not lie in the %d tokens", start, end, n)
	}
	return nil
}

var errNotFinite = errors.New("is not a finite number")

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
