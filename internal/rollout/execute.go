package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/sandbox"
	"github.com/odyssey-rl/odyssey/internal/toolcall"
)

// answer is what an agent reads after a call.
type answer struct {
	text    string
	outcome string // an episode.Call outcome
	isError bool
}

// codeInvalidArgument is the refusal that a tool may not give to arguments
// which its schema allows.
const codeInvalidArgument = "invalid_argument"

// execute runs call number i of the turn just closed. The detector found it
// valid, so whatever goes wrong now is judged by section 3 of the rules: the
// episode may be over when it returns.
func (a *attempt) execute(ctx context.Context, i int, c toolcall.Call) (answer, error) {
	switch {
	case c.Notice:
		return answer{toolcall.NoticeResult, episode.CallNotice, false}, nil
	case c.Problem != "":
		text, err := json.Marshal(c.Problem)
		return answer{`{"error": ` + string(text) + `}`, episode.CallError, true}, err
	}
	r := a.session.Call(ctx, c.Name, c.Arguments)
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	switch r.Status {
	case sandbox.OK:
		return answer{r.Value, episode.CallOK, false}, nil
	case sandbox.Refused:
		if r.Code == codeInvalidArgument {
			a.blame(i, episode.FaultEnvironment, fmt.Sprintf("%s refused arguments that its schema allows: %s", c.Name, r.Error))
		}
		return answer{r.Value, episode.CallRefused, true}, nil
	}
	fault, detail, err := a.judge(ctx, c, r)
	if err != nil {
		return answer{}, err
	}
	a.blame(i, fault, detail)
	return answer{"", episode.CallError, true}, nil
}

// blame ends the episode with a runtime error of call number i.
func (a *attempt) blame(i int, fault, detail string) {
	a.fail([]episode.Failure{a.detector.RuntimeError(i, fault, detail)})
}

// judge says whose fault a call is that neither answered nor refused.
func (a *attempt) judge(ctx context.Context, c toolcall.Call, r sandbox.Result) (fault, detail string, err error) {
	detail = fmt.Sprintf("%s(%s): %s", c.Name, c.Arguments, r.Error)
	if unanswered(r) {
		return episode.FaultInfrastructure, detail, nil
	}
	again, err := a.replay(ctx, c)
	if err != nil {
		return "", "", err
	}
	switch {
	case unanswered(again):
		return episode.FaultInfrastructure, detail + " (replayed: " + again.Error + ")", nil
	case again.Status != r.Status || again.Code != r.Code || again.Error != r.Error:
		return episode.FaultEnvironment, detail + " (not reproducible)", nil
	case a.declares(c.Name, r) || a.task.Status != episode.StatusVerified:
		return episode.FaultAgent, detail, nil
	}
	// The tool was verified to answer everything its schema allows; these
	// arguments are the counterexample.
	return episode.FaultEnvironment, detail, nil
}

// unanswered says that a result tells nothing about the program: the clock or
// the machine ended it.
func unanswered(r sandbox.Result) bool {
	return r.Status == sandbox.Infrastructure || r.Status == sandbox.Limit && r.Code == sandbox.CodeTime
}

// replay runs a call once more where nothing ran before. Tools are pure
// functions of the data, so there is no state to bring back first.
func (a *attempt) replay(ctx context.Context, c toolcall.Call) (sandbox.Result, error) {
	s, err := a.tasks.pool.OpenFresh(ctx, program(a.environment.row))
	if err != nil {
		return sandbox.Result{Status: sandbox.Infrastructure, Error: err.Error()}, ctx.Err()
	}
	defer s.Close()
	r := s.Call(ctx, c.Name, c.Arguments)
	return r, ctx.Err()
}

// declares says whether a tool lists the error among those it raises: by the
// code of the result, or as "code: ..." in its message.
func (a *attempt) declares(tool string, r sandbox.Result) bool {
	i := slices.IndexFunc(a.environment.row.Tools, func(t episode.Tool) bool { return t.Name == tool })
	if i < 0 {
		return false
	}
	for _, code := range a.environment.row.Tools[i].Raises {
		if code == r.Code || strings.HasPrefix(r.Error, code+":") || r.Error == code {
			return true
		}
	}
	return false
}

// openFault ends an episode whose program cannot be loaded.
func (a *attempt) openFault(err error) {
	fault := episode.FaultInfrastructure
	if _, ok := err.(*sandbox.LoadError); ok {
		fault = episode.FaultEnvironment
	}
	a.otherFault(fault, err.Error())
}

// otherFault ends the episode by a fault that stands at no place in its text.
func (a *attempt) otherFault(fault, detail string) {
	last := max(0, len(a.row.Turns)-1)
	end := len(a.row.TokenIDs)
	a.fail([]episode.Failure{{
		Turn: last, Kind: episode.KindRuntimeError, Fault: fault, Detail: detail,
		TokenStart: end, TokenEnd: end, CallTokenStart: end, CallTokenEnd: end,
	}})
}

// verify judges the submission by the task's verifier, which sees the data and
// no tools, and ends the episode.
func (a *attempt) verify(ctx context.Context) error {
	row := a.row
	r := a.session.Run(ctx, sandbox.DataOnly, a.task.Verifier.Source, "verify", row.Submission)
	if err := ctx.Err(); err != nil {
		return err
	}
	if unanswered(r) {
		a.otherFault(episode.FaultInfrastructure, "verifier: "+r.Error)
		return nil
	}
	if r.Status != sandbox.OK {
		a.otherFault(episode.FaultVerifier, "verifier: "+r.Error)
		return nil
	}
	reward, ok := rewardOf(r.Value)
	if !ok {
		a.otherFault(episode.FaultVerifier, "verifier returned "+r.Value+", want true, false or a number from 0 to 1")
		return nil
	}
	row.Reward = reward
	row.FinishReason = episode.FinishSubmitted
	return nil
}

func rewardOf(value string) (float64, bool) {
	switch value {
	case "true":
		return 1, true
	case "false":
		return 0, true
	}
	var x float64
	if err := json.Unmarshal([]byte(value), &x); err != nil || x < 0 || x > 1 {
		return 0, false
	}
	return x, true
}
