// Package rollout runs episodes: a policy writes a turn, its tool calls are
// found, checked and run in the sandbox, their results are put behind it, and so
// on until it submits, fails or runs out of a budget.
//
// Ids are the truth. What a policy sampled is recorded as it was sampled, and a
// history only ever grows: by sampled ids and by the encoding of what is new.
// Text is made from ids to find calls in it, and never encoded back.
//
// Three files follow one episode: tasks.go prepares what all episodes of a task
// share, attempt.go is one episode as a state machine fed with ids, execute.go
// runs its calls and its verifier and says whose fault a failure is. Two engines
// feed it: local.go samples from a model, many episodes in one batch;
// solution.go plays the tasks' own solutions, with deliberate mistakes.
package rollout

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/sampler"
)

// Settings are what both engines are bound by.
type Settings struct {
	Seed         uint64   // of the whole run
	GroupSize    int      // G: episodes of one task in a step
	Temperature  float64  // 0: greedy
	TurnTokens   int      // sampled tokens of one turn, at most
	MaxTurns     int      // assistant turns of an episode, at most
	MaxContext   int      // tokens of an episode, at most
	FaultRetries int      // times a slot is tried again after a fault of another side
	Off          []string // failure kinds that go undetected

	// Policy names the weights in every row: a digest of the policy's
	// configuration and tokenizer.
	Policy string
}

// Check refuses settings under which no episode can run.
func (s Settings) Check() error {
	switch {
	case s.GroupSize < 1:
		return fmt.Errorf("group size is %d, want at least 1", s.GroupSize)
	case s.TurnTokens < 1:
		return fmt.Errorf("turn tokens are %d, want at least 1", s.TurnTokens)
	case s.MaxTurns < 1:
		return fmt.Errorf("turns are %d, want at least 1", s.MaxTurns)
	case s.MaxContext <= s.TurnTokens:
		return fmt.Errorf("context of %d tokens leaves no room beside a turn of %d", s.MaxContext, s.TurnTokens)
	case s.Temperature < 0:
		return fmt.Errorf("temperature is %v, want at least 0", s.Temperature)
	}
	return nil
}

// Step is the work of one optimizer step: a group of episodes for each choice.
type Step struct {
	Number        int // recorded in every row
	PolicyVersion int // recorded in every row
	Groups        []sampler.Choice

	// DrawAs is the step number that the draws are keyed by. It differs from
	// Number in evaluations, where every version meets the same draws.
	DrawAs int
}

// key names one slot for all draws that belong to it.
func (s Settings) key(purpose string, step, group, sample int) [32]byte {
	b := append([]byte("odyssey rollout\x00"), purpose...)
	for _, n := range []uint64{s.Seed, uint64(step), uint64(group), uint64(sample)} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return sha256.Sum256(b)
}

// identity is the first half of a sha256 over parts, as hexadecimal text.
func identity(parts ...any) string {
	h := sha256.New()
	for _, part := range parts {
		text := fmt.Sprint(part)
		fmt.Fprintf(h, "%d:", len(text))
		io.WriteString(h, text)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Emit receives finished rows in the order of group and sample.
type Emit func(*episode.Trajectory) error

// inOrder hands rows on in the order of their index, whatever order they are
// finished in.
type inOrder struct {
	emit  Emit
	next  int
	ready map[int]*episode.Trajectory
}

func newInOrder(emit Emit) *inOrder {
	return &inOrder{emit: emit, ready: map[int]*episode.Trajectory{}}
}

func (o *inOrder) put(index int, row *episode.Trajectory) error {
	o.ready[index] = row
	for {
		row, ok := o.ready[o.next]
		if !ok {
			return nil
		}
		delete(o.ready, o.next)
		o.next++
		if err := o.emit(row); err != nil {
			return err
		}
	}
}
