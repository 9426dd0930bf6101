package rollout

import (
	"context"
	"encoding/binary"

	"github.com/odyssey-rl/odyssey/internal/model"
)

// Local samples episodes from a model in this process.
type Local struct {
	Tasks *Tasks
	Model *model.Model
	Batch int // episodes decoded at once, at most; changes no byte

	// Figures of all steps so far.
	Sampled  int // tokens sampled
	Prefixed int // tokens read without sampling: prompts and observations
	Batches  int // batches computed
}

// member is a slot while it is being decoded.
type member struct {
	slot
	cohort   *cohort
	sequence *model.Sequence
	pending  []int32 // ids that the sequence has not seen; empty: draw from the cohort's logits
	draw     uint64  // names the slot's draws
}

// cohort is a group in progress: its members share the prompt's cache and the
// logits after it.
type cohort struct {
	group      int
	prompt     *model.Sequence
	logits     []float32 // [vocab]
	unfinished int
}

// closed is a turn that the sandbox has dealt with.
type closed struct {
	member      *member
	observation []int32
	err         error
}

// Run samples the episodes of a step and emits their rows in the order of group
// and sample. Neither Batch nor the sandbox's pace changes a row: a draw is
// keyed by its place, and the bits of logits do not depend on the batch.
func (l *Local) Run(ctx context.Context, step Step, emit Emit) error {
	r := &localRun{
		local: l, step: step, ctx: ctx,
		order:  newInOrder(emit),
		closed: make(chan closed, len(step.Groups)*l.Tasks.settings.GroupSize),
		vocab:  l.Model.Vocab(),
	}
	defer r.release()
	return r.loop()
}

type localRun struct {
	local   *Local
	step    Step
	ctx     context.Context
	order   *inOrder
	closed  chan closed
	vocab   int
	begun   int       // groups begun
	ready   []*member // to be extended or drawn in the next batch
	waiting int       // in the sandbox
	logits  []float32
	draws   []float32
	live    map[*model.Sequence]bool
}

func (r *localRun) loop() error {
	r.live = map[*model.Sequence]bool{}
	size := r.local.Tasks.settings.GroupSize
	for {
		if err := r.collect(); err != nil {
			return err
		}
		var opened []*cohort
		for r.begun < len(r.step.Groups) {
			active := len(r.ready) + r.waiting + len(opened)*size
			if active > 0 && active+size > r.local.Batch {
				break
			}
			c := &cohort{group: r.begun, prompt: r.local.Model.NewSequence(), unfinished: size}
			r.live[c.prompt] = true
			opened = append(opened, c)
			r.begun++
		}
		if len(r.ready) == 0 && len(opened) == 0 {
			return nil
		}
		if err := r.batch(opened); err != nil {
			return err
		}
	}
}

// collect takes back the members whose turn the sandbox is done with. It waits
// only where there is nothing else to do.
func (r *localRun) collect() error {
	for r.waiting > 0 {
		var c closed
		if len(r.ready) == 0 {
			select {
			case c = <-r.closed:
			case <-r.ctx.Done():
				return r.ctx.Err()
			}
		} else {
			select {
			case c = <-r.closed:
			default:
				return nil
			}
		}
		r.waiting--
		if c.err != nil {
			return c.err
		}
		if c.member.attempt.finished() {
			if err := r.finish(c.member); err != nil {
				return err
			}
			continue
		}
		c.member.pending = append(c.member.pending, c.observation...)
		r.ready = append(r.ready, c.member)
	}
	return nil
}

// begin starts, or starts again, the episode of a member.
func (r *localRun) begin(m *member) error {
	a, err := r.local.Tasks.newAttempt(r.ctx, r.step, &m.slot)
	if err != nil {
		return err
	}
	m.attempt, m.pending = a, nil
	if a.finished() {
		return r.finish(m)
	}
	m.sequence = m.cohort.prompt.Fork()
	r.live[m.sequence] = true
	r.ready = append(r.ready, m)
	return nil
}

// finish hands a row on, or tries its slot again.
func (r *localRun) finish(m *member) error {
	m.attempt.close()
	r.drop(m.sequence)
	m.sequence = nil
	if m.again(r.local.Tasks) {
		return r.begin(m)
	}
	m.cohort.unfinished--
	if m.cohort.unfinished == 0 {
		r.drop(m.cohort.prompt)
	}
	return r.order.put(m.group*r.local.Tasks.settings.GroupSize+m.sample, m.attempt.row)
}

func (r *localRun) drop(s *model.Sequence) {
	if s != nil {
		delete(r.live, s)
		s.Release()
	}
}

// release gives back what an error left behind.
func (r *localRun) release() {
	for s := range r.live {
		s.Release()
	}
}

// batch extends every ready member by what it has pending and every new cohort
// by its prompt, draws one id for each member, and sends turns that ended to the
// sandbox.
func (r *localRun) batch(opened []*cohort) error {
	var appends []model.Append
	var extended, rest []*member
	for _, m := range r.ready {
		if len(m.pending) > 0 {
			extended = append(extended, m)
			appends = append(appends, model.Append{Sequence: m.sequence, IDs: m.pending})
			r.local.Prefixed += len(m.pending) - 1
		} else {
			rest = append(rest, m)
		}
	}
	for _, c := range opened {
		choice := r.step.Groups[c.group]
		ids := r.local.Tasks.environments[choice.Environment].prompts[choice.Task].ids
		appends = append(appends, model.Append{Sequence: c.prompt, IDs: ids})
		r.local.Prefixed += len(ids)
	}
	if len(appends) > 0 {
		r.logits = grown(r.logits, len(appends)*r.vocab)
		if err := r.local.Model.Extend(appends, r.logits); err != nil {
			return err
		}
		r.local.Batches++
	}
	r.ready = rest
	for i, c := range opened {
		row := len(extended) + i
		c.logits = append([]float32(nil), r.logits[row*r.vocab:(row+1)*r.vocab]...)
		for sample := range r.local.Tasks.settings.GroupSize {
			m := &member{slot: slot{group: c.group, sample: sample}, cohort: c}
			key := r.local.Tasks.settings.key("draw", r.step.DrawAs, c.group, sample)
			m.draw = binary.LittleEndian.Uint64(key[:])
			if err := r.begin(m); err != nil {
				return err
			}
		}
	}
	// Members at their first token draw from their cohort's logits.
	drawing := append(extended, r.ready...)
	if len(drawing) == 0 {
		return nil // no program of the new cohorts could be loaded
	}
	r.draws = grown(r.draws, len(drawing)*r.vocab)
	copy(r.draws, r.logits[:len(extended)*r.vocab])
	keys := make([]model.SampleKey, len(drawing))
	for i, m := range drawing {
		if i >= len(extended) {
			copy(r.draws[i*r.vocab:], m.cohort.logits)
		}
		keys[i] = model.SampleKey{Seed: r.local.Tasks.settings.Seed, Trajectory: m.draw, Token: len(m.attempt.row.TokenIDs)}
	}
	ids, logprobs := r.local.Model.Sample(r.draws, len(drawing), keys, float32(r.local.Tasks.settings.Temperature))
	r.local.Sampled += len(ids)
	r.ready = nil
	for i, m := range drawing {
		m.pending = append(m.pending[:0], ids[i])
		stop := m.attempt.appendSampled(ids[i], logprobs[i])
		if stop == "" {
			r.ready = append(r.ready, m)
			continue
		}
		r.waiting++
		go func() {
			observation, err := m.attempt.endTurn(r.ctx, stop)
			r.closed <- closed{m, observation, err}
		}()
	}
	return nil
}

func grown(s []float32, n int) []float32 {
	if cap(s) < n {
		return make([]float32, n)
	}
	return s[:n]
}
