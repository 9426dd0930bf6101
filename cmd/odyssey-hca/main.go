// Command odyssey-hca reads trajectories and adds to each the credit that its
// tokens deserve; on request it explains one trajectory or counts failures.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/cmdline"
	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/hca"
	"github.com/odyssey-rl/odyssey/internal/stream"
	"github.com/odyssey-rl/odyssey/internal/token"
	"github.com/odyssey-rl/odyssey/internal/toolcall"
)

func main() { cmdline.Main(command()) }

// options are the flags as given.
type options struct {
	estimator string
	factors   []factor
	settings  hca.Settings // after validation

	redetect bool
	off      string

	explain   bool
	json      bool
	stats     bool
	id        string
	kind      string
	group     string
	first     int
	tokenizer string
}

// factor is one flag that sets a field of hca.Settings singly.
type factor struct {
	name   string
	values []string
	value  string
	set    func(*hca.Settings, string)
}

func command() *cmdline.Command {
	o := &options{}
	c := &cmdline.Command{
		Name:    "odyssey-hca",
		Summary: "find the first failure and the guilty tokens, and assign credit",
		Shared:  cmdline.Output,
		Examples: `odyssey-rollout --policy P --steps 40 envs.arrows | odyssey-hca | odyssey-train --policy P
odyssey-hca --explain trajectories.jsonl | less
odyssey-hca --estimator grpo --stats trajectories.jsonl`,
	}
	c.Choice(&o.estimator, "estimator", hca.Estimators[0], hca.Estimators, "factors preset by name")
	o.factors = []factor{
		{name: "mask", values: hca.Masks, set: func(s *hca.Settings, v string) { s.Mask = v }},
		{name: "span", values: hca.Spans, set: func(s *hca.Settings, v string) { s.Span = v }},
		{name: "baseline", values: hca.Baselines, set: func(s *hca.Settings, v string) { s.Baseline = v }},
		{name: "sigma", values: hca.Sigmas, set: func(s *hca.Settings, v string) { s.Sigma = v }},
		{name: "budget", values: hca.Budgets, set: func(s *hca.Settings, v string) { s.Budget = v }},
		{name: "recovered", values: hca.Recoveries, set: func(s *hca.Settings, v string) { s.Recovered = v }},
		{name: "fallback", values: hca.Fallbacks, set: func(s *hca.Settings, v string) { s.Fallback = v }},
	}
	usage := map[string]string{
		"mask":      "tokens of an abnormal trajectory that are trained (default: the estimator's)",
		"span":      "what the error span is under --mask span (default: call)",
		"baseline":  "rows that centre the group (default: the estimator's)",
		"sigma":     "what divides the advantage (default: the estimator's)",
		"budget":    "what an exhausted budget means (default: last-call)",
		"recovered": "return of an episode that went on after its failure (default: zero)",
		"fallback":  "baseline of abnormal rows where the group has none (default: none)",
	}
	for i := range o.factors {
		f := &o.factors[i]
		c.Func(f.name, strings.Join(f.values, "|"), "", usage[f.name], func(text string) error {
			if !slices.Contains(f.values, text) {
				return fmt.Errorf("want %s", strings.Join(f.values, ", "))
			}
			f.value = text
			return nil
		})
	}
	norm := ""
	c.Func("norm", "trajectory|prompt|constant:K", "", "what divides the objective (default: the estimator's)", func(text string) error {
		norm = text
		return new(hca.Settings).SetNorm(text)
	})
	c.Switch(&o.redetect, "redetect", "run the detector again and demand the failures that were recorded")
	c.String(&o.off, "off", "", "with --redetect: the kinds that the rollout had switched off").Metavar("KIND,...")
	c.Switch(&o.explain, "explain", "explain trajectories in words instead of writing the stream").Neutral().NoEnvironment()
	c.Switch(&o.json, "json", "with --explain: one JSON object per trajectory").Neutral().NoEnvironment()
	c.Switch(&o.stats, "stats", "count failures instead of writing the stream").Neutral().NoEnvironment()
	c.String(&o.id, "id", "", "explain the trajectory whose id begins so").Metavar("ID").Neutral().NoEnvironment()
	c.String(&o.kind, "kind", "", "explain those with this failure kind, or clean").Metavar("KIND").Neutral().NoEnvironment()
	c.String(&o.group, "group", "", "explain the rows of the group whose id begins so").Metavar("ID").Neutral().NoEnvironment()
	c.Int(&o.first, "first", 3, 1, "explain so many, unless --id or --group is given").Neutral().NoEnvironment()
	c.String(&o.tokenizer, "tokenizer", "builtin", "tokenizer.json, or a folder that holds it, for decoding").Metavar("FILE|DIR|builtin").Neutral()

	c.Validate = func(inv *cmdline.Invocation) error {
		var err error
		if o.settings, err = hca.Preset(o.estimator); err != nil {
			return err
		}
		for _, f := range o.factors {
			if f.value != "" {
				f.set(&o.settings, f.value)
			}
		}
		if norm != "" {
			if err := o.settings.SetNorm(norm); err != nil {
				return err
			}
		}
		selecting := o.id != "" || o.kind != "" || o.group != "" || o.json || inv.IsSet("first")
		if selecting && !o.explain {
			return cmdline.Usagef("--id, --kind, --group, --first and --json belong to --explain")
		}
		if o.off != "" && !o.redetect {
			return cmdline.Usagef("--off belongs to --redetect")
		}
		for kind := range strings.SplitSeq(o.off, ",") {
			if kind != "" && !slices.Contains(toolcall.Kinds(), kind) {
				return cmdline.Usagef("--off: unknown failure kind %q", kind)
			}
		}
		if o.kind != "" && o.kind != "clean" && !slices.Contains(toolcall.Kinds(), o.kind) {
			return cmdline.Hint(cmdline.Usagef("--kind: unknown failure kind %q", o.kind), "the kinds are clean, %s", strings.Join(toolcall.Kinds(), ", "))
		}
		if o.explain && o.stats {
			return cmdline.Usagef("--explain and --stats exclude each other")
		}
		if o.json && o.stats {
			return cmdline.Usagef("--json and --stats exclude each other")
		}
		return o.settings.Validate()
	}
	c.Run = func(ctx context.Context, inv *cmdline.Invocation) error { return run(inv, o) }
	return c
}

// estimatorText names the estimator and the factors that differ from it.
func (o *options) estimatorText() string {
	text := o.estimator
	for _, f := range o.factors {
		if f.value != "" {
			text += " " + f.name + "=" + f.value
		}
	}
	return text
}

func run(inv *cmdline.Invocation, o *options) error {
	in, err := inv.Reader(stream.KindTrajectory, stream.KindCredit)
	if err != nil {
		return err
	}
	defer in.Close()
	header := in.Header()
	s := o.settings
	s.GroupsPerStep, s.RewardMin, s.RewardMax = header.GroupsPerStep, header.RewardMin, header.RewardMax

	var tokenizer *token.Tokenizer
	if o.explain || o.redetect {
		if tokenizer, err = openTokenizer(o.tokenizer, header.Tokenizer); err != nil {
			return err
		}
	}
	finish := func() error { return nil }
	var use func(group []*episode.Trajectory) error
	if o.explain || o.stats {
		use, finish, err = o.view(inv, s, tokenizer)
	} else {
		header.Kind = stream.KindCredit
		header.Normalization, header.Estimator = s.NormText(), o.estimatorText()
		var out *stream.Writer
		out, err = inv.Writer(header)
		use = func(group []*episode.Trajectory) error {
			for _, tr := range group {
				if err := out.WriteTrajectory(tr); err != nil {
					return err
				}
			}
			return out.Flush()
		}
	}
	if err != nil {
		return err
	}

	step := steps{settings: s, use: use}
	var groups hca.Groups
	for {
		tr, err := in.Trajectory()
		if err != nil {
			if open := groups.End(); open != nil && errors.Is(err, io.EOF) {
				return open
			} else if open != nil {
				return fmt.Errorf("%w (%v)", err, open)
			}
			if err != io.EOF {
				return err
			}
			if err := step.end(); err != nil {
				return err
			}
			return finish()
		}
		if o.redetect {
			if err := redetect(tr, tokenizer, toolcall.Settings{Off: strings.Split(o.off, ",")}); err != nil {
				return err
			}
		}
		group, err := groups.Add(tr)
		if err != nil {
			return err
		}
		if group == nil {
			continue
		}
		if err := hca.Assign(group, s); err != nil {
			return err
		}
		if err := step.add(group); err != nil {
			return err
		}
	}
}

// steps passes groups on: at once, or, under the fallback "batch", when their
// step is complete.
type steps struct {
	settings hca.Settings
	use      func([]*episode.Trajectory) error
	groups   [][]*episode.Trajectory
}

func (s *steps) add(group []*episode.Trajectory) error {
	if s.settings.Fallback != "batch" {
		return s.use(group)
	}
	if len(s.groups) > 0 && s.groups[0][0].Step != group[0].Step {
		if err := s.end(); err != nil {
			return err
		}
	}
	s.groups = append(s.groups, group)
	if len(s.groups) == s.settings.GroupsPerStep {
		return s.end() // at once: the trainer and then the rollout wait for it
	}
	return nil
}

func (s *steps) end() error {
	if err := hca.Batch(s.groups, s.settings); err != nil {
		return err
	}
	for _, group := range s.groups {
		if err := s.use(group); err != nil {
			return err
		}
	}
	s.groups = nil
	return nil
}

// view serves --explain and --stats.
func (o *options) view(inv *cmdline.Invocation, s hca.Settings, t *token.Tokenizer) (use func([]*episode.Trajectory) error, finish func() error, err error) {
	out, err := inv.Text()
	if err != nil {
		return nil, nil, err
	}
	stats := hca.NewStats(s)
	rows, explained := 0, 0
	use = func(group []*episode.Trajectory) error {
		for i, tr := range group {
			rows++
			if !o.explain || !o.wants(tr, explained) {
				continue
			}
			explained++
			e, err := hca.Explain(group, i, s, t)
			if err != nil {
				return err
			}
			if !o.json {
				if err := e.WriteText(out); err != nil {
					return err
				}
				continue
			}
			encoder := json.NewEncoder(out)
			encoder.SetEscapeHTML(false)
			if err := encoder.Encode(e); err != nil {
				return err
			}
		}
		return stats.Add(group)
	}
	finish = func() error {
		if o.explain && explained == 0 {
			if o.id != "" || o.group != "" || o.kind != "" {
				return fmt.Errorf("none of the %d trajectories is the one asked for", rows)
			}
			inv.Logf("none of the %d trajectories is abnormal", rows)
		}
		if o.stats {
			return stats.WriteText(out)
		}
		return nil
	}
	return use, finish, nil
}

// wants tells whether a row is to be explained: by id, group and kind, else the
// first abnormal ones.
func (o *options) wants(tr *episode.Trajectory, explained int) bool {
	kind := "clean"
	if len(tr.Failures) > 0 {
		kind = tr.Failures[0].Kind
	}
	switch {
	case !strings.HasPrefix(tr.TrajectoryID, o.id), !strings.HasPrefix(tr.GroupID, o.group):
		return false
	case o.kind != "" && o.kind != kind:
		return false
	case o.id != "" || o.group != "":
		return true
	case o.kind == "" && (kind == "clean" || hca.LeftOut(tr)):
		return false
	}
	return explained < o.first
}
