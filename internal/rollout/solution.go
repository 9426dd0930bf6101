package rollout

import (
	"context"
	"sync"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/sampler"
)

// Solution plays the solutions of tasks as a policy would have sampled them:
// the text for a warm-up. Calls are run and failures found as in sampled
// episodes; log-probabilities are 0.
type Solution struct {
	Tasks    *Tasks
	Mistakes float64 // share of episodes in which one call is corrupted
	Threads  int

	mutex sync.Mutex
	turns map[sampler.Choice][][]int32 // uncorrupted turns, encoded
}

// Run plays the episodes of a step and emits their rows in the order of group
// and sample.
func (s *Solution) Run(ctx context.Context, step Step, emit Emit) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	size := s.Tasks.settings.GroupSize
	order := newInOrder(emit)
	var mutex sync.Mutex
	forEach(len(step.Groups)*size, s.Threads, func(i int) {
		if ctx.Err() != nil {
			return
		}
		row, err := s.play(ctx, step, i/size, i%size)
		if err == nil {
			mutex.Lock()
			err = order.put(i, row)
			mutex.Unlock()
		}
		if err != nil {
			cancel(err)
		}
	})
	return context.Cause(ctx)
}

// play runs one slot with its retries.
func (s *Solution) play(ctx context.Context, step Step, group, sample int) (*episode.Trajectory, error) {
	turns := s.encoded(step.Groups[group])
	e := s.Tasks.environments[step.Groups[group].Environment]
	task := &e.row.Tasks[step.Groups[group].Task]
	key := s.Tasks.settings.key("mistake", step.DrawAs, group, sample)
	draws := newGenerator(key)
	wrong := -1
	if draws.float() < s.Mistakes {
		wrong = draws.below(len(turns))
		text := corrupted(solutionCalls(task, e.row.SubmitTool)[wrong], e.row.Tools, draws)
		turns = append([][]int32(nil), turns...)
		turns[wrong] = s.Tasks.renderer.Assistant(asTurn(text))
	}
	for current := (slot{group: group, sample: sample}); ; {
		a, err := s.Tasks.newAttempt(ctx, step, &current)
		if err != nil {
			return nil, err
		}
		current.attempt = a
		err = a.write(ctx, turns)
		a.close()
		if err != nil {
			return nil, err
		}
		if !current.again(s.Tasks) {
			return a.row, nil
		}
	}
}

// write feeds an attempt whole turns until it is over.
func (a *attempt) write(ctx context.Context, turns [][]int32) error {
	for _, turn := range turns {
		if a.finished() {
			return nil
		}
		stop := ""
		for _, id := range turn {
			if stop = a.appendSampled(id, 0); stop != "" {
				break
			}
		}
		if _, err := a.endTurn(ctx, stop); err != nil {
			return err
		}
	}
	if !a.finished() {
		a.otherFault(episode.FaultEnvironment, "the solution ended without a submission")
	}
	return nil
}

// encoded are the turns of a task's solution as ids, one per call.
func (s *Solution) encoded(choice sampler.Choice) [][]int32 {
	s.mutex.Lock()
	turns, ok := s.turns[choice]
	s.mutex.Unlock()
	if ok {
		return turns
	}
	e := s.Tasks.environments[choice.Environment]
	for _, c := range solutionCalls(&e.row.Tasks[choice.Task], e.row.SubmitTool) {
		turns = append(turns, s.Tasks.renderer.Assistant(asTurn(c.text())))
	}
	s.mutex.Lock()
	if s.turns == nil || len(s.turns) > 1<<16 {
		s.turns = map[sampler.Choice][][]int32{}
	}
	s.turns[choice] = turns
	s.mutex.Unlock()
	return turns
}

// call is a tool call in the form in which turns write it.
type call struct{ name, arguments string }

func (c call) text() string {
	return `{"name": "` + c.name + `", "arguments": ` + c.arguments + `}`
}

func asTurn(text string) string { return "<tool_call>\n" + text + "\n</tool_call>" }

// solutionCalls are the calls of a solution and its submission.
func solutionCalls(task *episode.Task, submit string) []call {
	var calls []call
	for _, c := range task.Solution.Calls {
		calls = append(calls, call{c.Name, c.Arguments})
	}
	return append(calls, call{submit, task.Solution.Answer})
}
