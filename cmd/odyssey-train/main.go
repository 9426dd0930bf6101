// Command odyssey-train reads credits, takes one optimizer step per complete
// step of the stream, commits each version into the policy directory and writes
// metrics. It also makes policy directories and tokenizers, rescores and
// evaluates streams, and draws curves.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/odyssey-rl/odyssey/internal/cmdline"
	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/model"
	"github.com/odyssey-rl/odyssey/internal/policy"
	"github.com/odyssey-rl/odyssey/internal/stream"
	"github.com/odyssey-rl/odyssey/internal/token"
	"github.com/odyssey-rl/odyssey/internal/train"
)

func main() { cmdline.Main(command()) }

// options are the flags as given.
type options struct {
	policy  string
	train   train.Options
	timings bool

	init          string
	config        model.Config // of --init random:...
	tokenizer     string
	template      string
	checkParity   bool
	parity        float64 // largest difference allowed; 0: equal bits
	eval          bool
	plot          string
	synthesis     string
	makeTokenizer int

	optimizer string
	warmup    float64
}

func command() *cmdline.Command {
	o := &options{}
	t := &o.train
	c := &cmdline.Command{
		Name:    "odyssey-train",
		Summary: "train a policy on credits, one optimizer step per complete step",
		Shared:  cmdline.Output | cmdline.Threads | cmdline.Seed,
		Examples: `odyssey-train --init pico --policy P
odyssey-rollout --policy P --steps 40 envs.arrows | odyssey-hca | odyssey-train --policy P -o metrics.jsonl
odyssey-rollout --policy P --eval envs.arrows | odyssey-train --check-parity --policy P
odyssey-train --plot report.html metrics.jsonl`,
		NoInputWhen: func() bool { return o.init != "" },
	}
	once := func(f *cmdline.Flag) *cmdline.Flag { return f.Neutral().NoEnvironment() }

	c.String(&o.policy, "policy", "", "policy directory; with --check-parity and --eval also builtin").Metavar("DIR").Neutral()
	c.Choice(&t.Objective, "objective", train.ObjectivePolicy, []string{train.ObjectivePolicy, train.ObjectiveSFT}, "what is maximised")
	number(c, &t.LearningRate, "learning-rate", "X", "0.0005, sft: 0.003", 10, "learning rate of AdamW")
	c.Choice(&o.optimizer, "optimizer", "adamw", []string{"adamw", "muon"}, "optimizer of the matrices; the rest has AdamW")
	c.Float(&t.Muon, "muon-rate", 0.02, 0, 10, "learning rate of Muon")
	c.Float(&t.Beta1, "beta1", 0.9, 0, 1, "decay of AdamW's first moment")
	c.Float(&t.Beta2, "beta2", 0.95, 0, 1, "decay of AdamW's second moment")
	c.Float(&t.WeightDecay, "weight-decay", 0, 0, 10, "decoupled weight decay of the matrices")
	c.Float(&t.MaxGradNorm, "max-grad-norm", 1, 0, 1e9, "scale the gradient down to this norm; 0: never")
	number(c, &o.warmup, "warmup", "STEPS", "0, sft: 30", 1e9, "steps over which the learning rate rises")
	number(c, &t.DecayShare, "decay-share", "X", "0, sft: 0.4", 1, "last share of the steps over which it falls")
	c.Float(&t.Ratio.Low, "clip-low", 0.2, 0, 1, "clip importance ratios below 1 - X; stale steps only")
	c.Float(&t.Ratio.High, "clip-high", 0.2, 0, 100, "clip importance ratios above 1 + X; stale steps only")
	c.Float(&t.Ratio.Dual, "dual-clip", 3, 1, 1000, "clip ratios above X where the advantage is negative")
	c.Float(&t.ContextWeight, "context-weight", 0.2, 0, 1, "sft: weight of tokens that the policy did not sample")
	c.Float(&t.Drill, "drill", 0, 0, 1, "sft: share of the first 30% of sequences replaced by copy drills")
	c.Int(&t.CommitEvery, "commit-every", 1, 1, "steps from one version to the next; more than 1 only with sft").Metavar("STEPS").Neutral()
	c.Switch(&o.timings, "timings", "measure tokens_per_s and seconds").Neutral()

	once(c.Func("init", "pico|random:SHAPE", "", "make version 0 of the policy directory; SHAPE is d,layers,heads,kv,head_dim,ff", func(text string) error {
		var err error
		o.init = text
		o.config, err = parseInit(text)
		return err
	}))
	once(c.String(&o.tokenizer, "tokenizer", "", "with --init random: the tokenizer.json").Metavar("FILE"))
	once(c.Choice(&o.template, "template", string(token.TemplatePico), []string{string(token.TemplatePico), string(token.TemplateQwen3)}, "with --init random: the chat template"))
	once(c.Switch(&o.checkParity, "check-parity", "rescore trajectories with the policy that made them"))
	once(c.Func("parity", "exact|X", "exact", "the log-probability difference that --check-parity allows", func(text string) error {
		o.parity = 0
		if text == "exact" {
			return nil
		}
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !(x >= 0) {
			return fmt.Errorf("want exact or a number")
		}
		o.parity = x
		return nil
	}))
	once(c.Switch(&o.eval, "eval", "write the metric rows of a stream without training"))
	once(c.String(&o.plot, "plot", "", "draw the metric streams into FILE and print their table").Metavar("FILE.html"))
	once(c.String(&o.synthesis, "synthesis", "", "with --plot: the summary that odyssey-verify wrote").Metavar("FILE.json"))
	once(c.Int(&o.makeTokenizer, "make-tokenizer", 0, 0, "train a tokenizer of N tokens on environments"))

	c.Validate = func(inv *cmdline.Invocation) error { return o.validate(inv) }
	c.Run = func(ctx context.Context, inv *cmdline.Invocation) error {
		switch {
		case o.init != "":
			return o.runInit(inv)
		case o.makeTokenizer > 0:
			return o.runMakeTokenizer(inv)
		case o.plot != "":
			return o.runPlot(inv)
		case o.checkParity:
			return o.runParity(ctx, inv)
		case o.eval:
			return o.runEval(ctx, inv)
		}
		return o.runTrain(ctx, inv)
	}
	return c
}

// trainingFlags say nothing to the modes that train nothing.
var trainingFlags = []string{"objective", "learning-rate", "optimizer", "muon-rate", "beta1", "beta2", "weight-decay", "max-grad-norm",
	"warmup", "decay-share", "clip-low", "clip-high", "dual-clip", "context-weight", "drill", "commit-every", "timings"}

// number declares a flag from 0 to most whose default depends on the objective.
func number(c *cmdline.Command, target *float64, name, metavar, standard string, most float64, usage string) {
	c.Func(name, metavar, standard, usage, func(text string) error {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !(x >= 0 && x <= most) {
			return fmt.Errorf("want a number from 0 to %g", most)
		}
		*target = x
		return nil
	})
}

func (o *options) validate(inv *cmdline.Invocation) error {
	var modes []string
	for _, m := range []struct {
		name string
		on   bool
	}{
		{"--init", o.init != ""}, {"--make-tokenizer", o.makeTokenizer > 0}, {"--plot", o.plot != ""},
		{"--check-parity", o.checkParity}, {"--eval", o.eval},
	} {
		if m.on {
			modes = append(modes, m.name)
		}
	}
	if len(modes) > 1 {
		return cmdline.Usagef("%s exclude each other", strings.Join(modes, " and "))
	}
	mode := strings.Join(modes, "")
	random := strings.HasPrefix(o.init, "random:")
	switch {
	case o.synthesis != "" && o.plot == "":
		return cmdline.Usagef("--synthesis belongs to --plot")
	case o.policy == "" && (mode == "" || o.init != ""):
		return cmdline.Hint(cmdline.Usagef("--policy is missing"), "odyssey-train --init pico --policy DIR makes a policy directory")
	case o.policy == policy.Builtin && (mode == "" || o.init != ""):
		return cmdline.Hint(cmdline.Usagef("the policy in the binary is read-only"), "odyssey-train --init pico --policy DIR copies it")
	case random && o.tokenizer == "":
		return cmdline.Usagef("--init random needs --tokenizer FILE")
	case o.tokenizer != "" && !random:
		return cmdline.Usagef("--tokenizer belongs to --init random")
	case inv.IsSet("parity") && !o.checkParity:
		return cmdline.Usagef("--parity belongs to --check-parity")
	case len(inv.Operands) > 0 && o.init != "":
		return cmdline.Usagef("--init reads no FILE")
	case o.train.CommitEvery > 1 && o.train.Objective != train.ObjectiveSFT:
		return cmdline.Usagef("--commit-every belongs to --objective sft: the rollout waits for each version")
	case o.train.Beta1 >= 1 || o.train.Beta2 >= 1:
		return cmdline.Usagef("--beta1 and --beta2 must be below 1")
	}
	for _, name := range trainingFlags {
		if mode != "" && inv.IsSet(name) {
			return cmdline.Usagef("--%s belongs to training: leave it out with %s", name, mode)
		}
	}
	sft := o.train.Objective == train.ObjectiveSFT
	if !inv.IsSet("learning-rate") {
		o.train.LearningRate = 5e-4
		if sft {
			o.train.LearningRate = 3e-3
		}
	}
	if sft && !inv.IsSet("warmup") {
		o.warmup = 30
	}
	if o.train.Warmup = int(o.warmup); float64(o.train.Warmup) != o.warmup {
		return cmdline.Usagef("--warmup %g is not a whole number of steps", o.warmup)
	}
	if sft && !inv.IsSet("decay-share") {
		o.train.DecayShare = 0.4
	}
	if o.optimizer == "adamw" {
		if inv.IsSet("muon-rate") {
			return cmdline.Usagef("--muon-rate belongs to --optimizer muon")
		}
		o.train.Muon = 0
	} else if o.train.LearningRate == 0 || o.train.Muon == 0 {
		return cmdline.Usagef("--optimizer muon needs a --learning-rate and a --muon-rate above 0")
	}
	o.train.Seed = inv.Seed
	return nil
}

// runTrain is the trainer's end of the pipe.
func (o *options) runTrain(ctx context.Context, inv *cmdline.Invocation) error {
	cmdline.WatchStdout(ctx)
	p, err := policy.Open(o.policy)
	if err != nil {
		return err
	}
	kinds := []stream.Kind{stream.KindCredit}
	if o.train.Objective == train.ObjectiveSFT {
		kinds = append(kinds, stream.KindTrajectory)
	}
	in, err := inv.Reader(kinds...)
	if err != nil {
		return err
	}
	defer in.Close()
	header := in.Header()
	if err := checkTokenizer(p, header.Tokenizer); err != nil {
		return err
	}
	if o.train.Objective == train.ObjectivePolicy && header.LogprobConvention == stream.LogprobRaw {
		return fmt.Errorf("the stream's log-probabilities are those of the raw logits; the trainer needs them with the temperature applied")
	}
	settings := []policy.Setting{{Name: "tokenizer", Value: header.Tokenizer}}
	if o.train.Objective == train.ObjectivePolicy {
		settings = append(settings,
			policy.Setting{Name: "estimator", Value: header.Estimator},
			policy.Setting{Name: "normalization", Value: header.Normalization})
	}
	// Opened by the first row: a refused run writes nothing.
	var out *stream.Writer
	open := func() (err error) {
		if out == nil {
			out, err = inv.Writer(metricHeader(header))
		}
		return err
	}
	options := o.train
	options.GroupsPerStep, options.GroupSize = header.GroupsPerStep, header.GroupSize
	options.Staleness, options.Steps = header.Staleness, header.Steps
	if options.Steps > 0 {
		inv.ExpectRecords(options.Steps)
	}
	options.Emit = func(m episode.Metric) error {
		if err := open(); err != nil {
			return err
		}
		return out.WriteMetric(&m)
	}
	if o.timings {
		start := time.Now()
		options.Seconds = func() float64 { return time.Since(start).Seconds() }
	}
	if err := train.Run(ctx, p, newBackend(inv.Threads), options, settings, in.Trajectory); err != nil {
		var difference *policy.Difference
		if errors.As(err, &difference) && (slices.Contains(trainingFlags, difference.Name) || difference.Name == "seed") {
			difference.Name = "--" + difference.Name // as it is typed
			return difference
		}
		return err
	}
	return open() // a stream without steps is a whole one too
}

// metricHeader heads the metrics of a stream.
func metricHeader(in stream.Header) stream.Header {
	return stream.Header{Kind: stream.KindMetric, Tokenizer: in.Tokenizer, GroupsPerStep: in.GroupsPerStep, GroupSize: in.GroupSize,
		Staleness: in.Staleness, Steps: in.Steps, Estimator: in.Estimator, Normalization: in.Normalization, Provenance: in.Provenance}
}

// checkTokenizer refuses a stream of another tokenizer than the policy's.
func checkTokenizer(p *policy.Policy, stream string) error {
	version, err := p.Latest()
	if err != nil {
		return err
	}
	snapshot, err := p.Load(version)
	if err != nil {
		return err
	}
	tokenizer, err := token.Load(snapshot.Tokenizer)
	if err != nil {
		return fmt.Errorf("policy %s: %w", p.Path(), err)
	}
	if tokenizer.Hash() != stream {
		return fmt.Errorf("the stream's tokenizer is %.12s, but the policy %s has %.12s", stream, p.Path(), tokenizer.Hash())
	}
	return nil
}
