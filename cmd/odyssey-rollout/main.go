// Command odyssey-rollout runs episodes of a policy in environments and writes
// their trajectories, token by token.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/cmdline"
	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/kernel/simd"
	"github.com/odyssey-rl/odyssey/internal/model"
	"github.com/odyssey-rl/odyssey/internal/policy"
	"github.com/odyssey-rl/odyssey/internal/rollout"
	"github.com/odyssey-rl/odyssey/internal/sampler"
	"github.com/odyssey-rl/odyssey/internal/sandbox"
	"github.com/odyssey-rl/odyssey/internal/stream"
	"github.com/odyssey-rl/odyssey/internal/token"
	"github.com/odyssey-rl/odyssey/internal/toolcall"
)

func main() {
	sandbox.MaybeWorker()
	cmdline.Main(command())
}

// Engines: who writes the turns.
const (
	engineLocal    = "local"
	engineSolution = "solution"
)

// options are the flags as given.
type options struct {
	policy    string
	engine    string
	tokenizer string
	template  string

	groups, groupSize, steps, startStep, staleness int

	eval bool
	at   int

	split  string
	levels []int
	off    []string

	temperature                                    float64
	turnTokens, maxTurns, maxContext, faultRetries int

	mistakes, levelsFirst float64
	batch                 int
	sandbox               string
}

func command() *cmdline.Command {
	o := &options{}
	c := &cmdline.Command{
		Name:    "odyssey-rollout",
		Summary: "run episodes of a policy in environments",
		Shared:  cmdline.Output | cmdline.Threads | cmdline.Seed | cmdline.DryRun,
		Examples: `odyssey-rollout --policy P --steps 40 envs.arrows | odyssey-hca | odyssey-train --policy P
odyssey-rollout --policy P --eval --split heldout --groups 512 envs.arrows -o eval.jsonl
odyssey-rollout --policy P --engine solution --mistakes 0.3 --groups 16 -G 1 --steps 2000 envs.jsonl | odyssey-train --objective sft --policy P`,
	}
	c.String(&o.policy, "policy", policy.Builtin, "policy directory, or builtin: the weights in the binary").Metavar("DIR|builtin")
	c.Choice(&o.engine, "engine", engineLocal, []string{engineLocal, engineSolution}, "who writes the turns: the policy, or the tasks' own solutions")
	c.String(&o.tokenizer, "tokenizer", "", "with --engine solution: tokenizer.json in place of the policy's").Metavar("FILE")
	c.Choice(&o.template, "template", string(token.TemplatePico), []string{string(token.TemplatePico), string(token.TemplateQwen3)}, "with --tokenizer: the chat template")

	c.Int(&o.groups, "groups", 8, 1, "groups (tasks) per step; with --eval: tasks")
	c.Int(&o.groupSize, "group-size", 8, 1, "episodes per group (default with --eval: 1)").Short("G")
	c.Int(&o.steps, "steps", 1, 1, "run until this version of the policy")
	c.Int(&o.startStep, "start-step", -1, -1, "first step (-1: the latest version of the policy)")
	c.Int(&o.staleness, "staleness", 0, 0, "step s samples from version max(0, s-K)").Metavar("K")

	c.Switch(&o.eval, "eval", "one pass over a fixed choice of tasks, without locks or waiting")
	c.Int(&o.at, "at", -1, -1, "with --eval: the version to evaluate (-1: the latest)").Metavar("VERSION")

	c.Choice(&o.split, "split", episode.SplitTrain, []string{episode.SplitTrain, episode.SplitHeldout}, "environments to use")
	c.Func("levels", "1,2,...", "", "levels of tasks to use (default: all)", o.setLevels)
	c.Func("off", "KIND,...", "", "failure kinds that go undetected", o.setOff)

	c.Float(&o.temperature, "temperature", 1, 0, 100, "of sampling; 0 takes the most likely token")
	c.Int(&o.turnTokens, "turn-tokens", 80, 1, "sampled tokens of one turn, at most")
	c.Int(&o.maxTurns, "max-turns", 6, 1, "turns of an episode, at most")
	c.Int(&o.maxContext, "max-context", 640, 2, "tokens of an episode, at most")
	c.Int(&o.faultRetries, "fault-retries", 2, 0, "times an episode is tried again after a fault of another side")

	c.Float(&o.mistakes, "mistakes", 0, 0, 1, "with --engine solution: share of episodes in which one call is corrupted")
	c.Float(&o.levelsFirst, "levels-first", 0, 0, 1, "with --engine solution: share of the steps, from the first, with one-call tasks of levels 1 and 2 only")

	c.Int(&o.batch, "batch", 64, 1, "episodes decoded at once, at most").Neutral()
	c.Choice(&o.sandbox, "sandbox", "filtered", []string{"filtered", "none"}, "none: run generated code even where no system-call filter exists").Neutral()

	c.Validate = o.validate
	c.Run = o.run
	return c
}

func (o *options) setLevels(text string) error {
	o.levels = nil
	for _, part := range strings.Split(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > 4 {
			return fmt.Errorf("want levels from 1 to 4, separated by commas")
		}
		o.levels = append(o.levels, n)
	}
	slices.Sort(o.levels)
	o.levels = slices.Compact(o.levels)
	return nil
}

func (o *options) setOff(text string) error {
	o.off = nil
	for _, kind := range strings.Split(text, ",") {
		if !slices.Contains(toolcall.Kinds(), kind) {
			return fmt.Errorf("no failure kind %q; the kinds are %s", kind, strings.Join(toolcall.Kinds(), ", "))
		}
		o.off = append(o.off, kind)
	}
	slices.Sort(o.off)
	o.off = slices.Compact(o.off)
	return nil
}

// mostEpisodes bounds a step, which is held in memory as a whole.
const mostEpisodes = 1 << 24

func (o *options) validate(inv *cmdline.Invocation) error {
	solution := o.engine == engineSolution
	switch {
	case o.tokenizer != "" && !solution:
		return cmdline.Usagef("--tokenizer belongs to --engine solution: a policy brings its own")
	case inv.IsSet("template") && o.tokenizer == "":
		return cmdline.Usagef("--template belongs to --tokenizer")
	case (inv.IsSet("mistakes") || inv.IsSet("levels-first")) && !solution:
		return cmdline.Usagef("--mistakes and --levels-first belong to --engine solution")
	case o.eval && solution:
		return cmdline.Usagef("--eval needs a policy that writes: --engine local")
	case o.eval && (inv.IsSet("steps") || inv.IsSet("start-step") || inv.IsSet("staleness")):
		return cmdline.Usagef("--eval has no steps: leave out --steps, --start-step and --staleness")
	case inv.IsSet("at") && !o.eval:
		return cmdline.Usagef("--at belongs to --eval")
	}
	if o.eval && !inv.IsSet("group-size") {
		o.groupSize = 1
	}
	if o.groups > mostEpisodes || o.groupSize > mostEpisodes/o.groups {
		return cmdline.Usagef("--groups %d of --group-size %d are more than %d episodes, the most of one step", o.groups, o.groupSize, mostEpisodes)
	}
	return o.settings(inv, "").Check()
}

// settings bind the episodes of the policy with this identity.
func (o *options) settings(inv *cmdline.Invocation, identity string) rollout.Settings {
	return rollout.Settings{
		Seed: inv.Seed, GroupSize: o.groupSize, Temperature: o.temperature,
		TurnTokens: o.turnTokens, MaxTurns: o.maxTurns, MaxContext: o.maxContext,
		FaultRetries: o.faultRetries, Off: o.off, Policy: identity,
	}
}

func (o *options) run(ctx context.Context, inv *cmdline.Invocation) error {
	source, err := o.open()
	if err != nil {
		return err
	}
	in, err := inv.Reader(stream.KindEnvironment)
	if err != nil {
		return err
	}
	defer in.Close()
	var environments []*episode.Environment
	for {
		e, err := in.Environment()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		environments = append(environments, e)
	}

	pool := sandbox.NewPool(sandbox.Options{Workers: inv.Threads, Unprotected: o.sandbox == "none"})
	defer pool.Close()
	selection := rollout.Selection{Split: o.split, Levels: o.levels}
	tasks, err := rollout.NewTasks(environments, selection, o.settings(inv, source.identity), source.renderer, pool, inv.Threads)
	if err != nil {
		return err
	}
	deal, err := sampler.New(environments, inv.Seed, tasks.Choosable)
	if err != nil {
		return cmdline.Hint(fmt.Errorf("%w (%s)", err, describe(tasks.Left())), "%s", o.remedy(len(environments), tasks.Left()))
	}
	inv.Logf("%d tasks of split %s to choose from (%s)", deal.Len(), o.split, describe(tasks.Left()))
	if inv.DryRun {
		return nil
	}

	header := in.Header()
	header.Kind = stream.KindTrajectory
	header.Tokenizer = source.renderer.Tokenizer().Hash()
	header.GroupsPerStep, header.GroupSize = o.groups, o.groupSize
	header.Staleness, header.Steps = o.staleness, o.steps
	header.LogprobConvention = stream.LogprobProcessed
	header.RewardMin, header.RewardMax = 0, 1
	if o.eval {
		header.GroupsPerStep, header.Steps = min(o.groups, deal.Len()), 1
	}
	job := &job{options: o, inv: inv, source: source, tasks: tasks, deal: deal, header: header, environments: environments}
	switch {
	case o.engine == engineSolution:
		err = job.play(ctx)
	case o.eval:
		err = job.evaluate(ctx)
	default:
		err = job.follow(ctx)
	}
	if n := tasks.Retries(); n > 0 {
		inv.Warnf("%d episodes ended by a fault of a tool, a verifier or the sandbox and were tried again", n)
	}
	return err
}

// remedy is what to do where no task can be chosen: the reason that left most
// out is named.
func (o *options) remedy(environments int, left rollout.Left) string {
	switch most := max(left.OtherLevel, left.Rejected, left.TooLong); {
	case environments == 0:
		return "the stream has no environment"
	case left.OtherSplit == environments:
		other := episode.SplitHeldout
		if o.split == other {
			other = episode.SplitTrain
		}
		return "every environment is of the other split: --split " + other
	case most == 0:
		return "the environments have no tasks: odyssey-tasks proposes them, odyssey-verify accepts them"
	case most == left.Rejected:
		return "odyssey-verify rejected the tasks: its record of each names the gate"
	case most == left.OtherLevel:
		return "--levels leaves the tasks out: name others"
	}
	return "the prompts do not fit: a greater --max-context or fewer --turn-tokens"
}

func describe(left rollout.Left) string {
	return fmt.Sprintf("left out: %d environments of the other split, %d tasks of other levels, %d rejected, %d too long", left.OtherSplit, left.OtherLevel, left.Rejected, left.TooLong)
}

// source is where turns come from: a policy, or only its tokenizer.
type source struct {
	policy   *policy.Policy   // nil with --tokenizer
	snapshot *policy.Snapshot // the version that was opened; nil with --tokenizer
	latest   int
	renderer *token.Renderer
	identity string // of the configuration, the tokenizer and the template
}

func (o *options) open() (*source, error) {
	s := &source{}
	var tokenizer []byte
	var configuration []byte
	template := o.template
	if o.tokenizer != "" {
		var err error
		if tokenizer, err = os.ReadFile(o.tokenizer); err != nil {
			return nil, err
		}
	} else {
		var err error
		if s.policy, err = policy.Open(o.policy); err != nil {
			return nil, err
		}
		if s.latest, err = s.policy.Latest(); err != nil {
			return nil, err
		}
		version := s.latest
		if o.eval && o.at >= 0 {
			version = o.at
		}
		if s.snapshot, err = s.policy.Load(version); err != nil {
			return nil, err
		}
		tokenizer, template = s.snapshot.Tokenizer, s.snapshot.Template
		configuration = s.snapshot.Config.JSON("float32")
		if limit := s.snapshot.Config.MaxPositionEmbeddings; o.engine == engineLocal && o.maxContext > limit {
			return nil, cmdline.Usagef("--max-context is %d, the policy reads at most %d tokens", o.maxContext, limit)
		}
	}
	t, err := token.Load(tokenizer)
	if err != nil {
		return nil, err
	}
	if s.renderer, err = token.NewRenderer(t, token.Template(template)); err != nil {
		return nil, err
	}
	digest := sha256.New()
	for _, part := range [][]byte{configuration, tokenizer, []byte(template)} {
		fmt.Fprintf(digest, "%d:", len(part))
		digest.Write(part)
	}
	s.identity = hex.EncodeToString(digest.Sum(nil)[:16])
	return s, nil
}

// job is a run that is ready to begin.
type job struct {
	*options
	inv          *cmdline.Invocation
	source       *source
	tasks        *rollout.Tasks
	deal         *sampler.Sampler
	header       stream.Header
	environments []*episode.Environment
}

// emit opens the output and returns what writes to it, group by group.
func (j *job) emit(steps int) (rollout.Emit, error) {
	out, err := j.inv.Writer(j.header)
	if err != nil {
		return nil, err
	}
	j.inv.ExpectRecords(steps * j.header.GroupsPerStep * j.groupSize)
	return func(row *episode.Trajectory) error {
		if err := out.WriteTrajectory(row); err != nil {
			return err
		}
		if row.Sample == j.groupSize-1 {
			return out.Flush()
		}
		return nil
	}, nil
}

func (j *job) local() (*rollout.Local, error) {
	m, err := model.New(j.source.snapshot.Config, j.source.snapshot.Weights, simd.New(j.inv.Threads))
	if err != nil {
		return nil, err
	}
	return &rollout.Local{Tasks: j.tasks, Model: m, Batch: j.batch}, nil
}

// from is the first step of a run.
func (j *job) from() int {
	if j.startStep >= 0 {
		return j.startStep
	}
	return j.source.latest
}

// follow is the training run: one lock on the policy, one version per step.
func (j *job) follow(ctx context.Context) error {
	p := j.source.policy
	if j.policy != policy.Builtin {
		release, err := p.LockRollout()
		if err != nil {
			return err
		}
		defer release()
		settings, err := j.agreed()
		if err != nil {
			return err
		}
		if err := p.Agree("rollout", settings); err != nil {
			return err
		}
	}
	if j.policy != policy.Builtin && j.from() >= j.steps {
		j.inv.Logf("%s is at version %d already: no step is left until --steps %d", j.policy, j.source.latest, j.steps)
	}
	local, err := j.local()
	if err != nil {
		return err
	}
	emit, err := j.emit(max(0, j.steps-j.from()))
	if err != nil {
		return err
	}
	cmdline.WatchStdout(ctx)
	return rollout.Follow{
		Policy: p, Sampler: j.deal, Groups: j.groups,
		From: j.from(), Until: j.steps, Staleness: j.staleness,
		Waiting: func(version int) { j.inv.Debugf("waiting for version %d", version) },
	}.Run(ctx, local, emit)
}

// agreed are the settings that every invocation on one policy directory must
// share.
func (j *job) agreed() ([]policy.Setting, error) {
	digest, err := rollout.Digest(j.environments)
	if err != nil {
		return nil, err
	}
	levels := make([]string, len(j.levels))
	for i, level := range j.levels {
		levels[i] = strconv.Itoa(level)
	}
	return []policy.Setting{
		{Name: "environments", Value: digest},
		{Name: "--seed", Value: strconv.FormatUint(j.inv.Seed, 10)},
		{Name: "--groups", Value: strconv.Itoa(j.groups)},
		{Name: "--group-size", Value: strconv.Itoa(j.groupSize)},
		{Name: "--staleness", Value: strconv.Itoa(j.staleness)},
		{Name: "--split", Value: j.split},
		{Name: "--levels", Value: strings.Join(levels, ",")},
		{Name: "--off", Value: strings.Join(j.off, ",")},
		{Name: "--temperature", Value: strconv.FormatFloat(j.temperature, 'g', -1, 64)},
		{Name: "--turn-tokens", Value: strconv.Itoa(j.turnTokens)},
		{Name: "--max-turns", Value: strconv.Itoa(j.maxTurns)},
		{Name: "--max-context", Value: strconv.Itoa(j.maxContext)},
		{Name: "--fault-retries", Value: strconv.Itoa(j.faultRetries)},
	}, nil
}

// evaluate is one pass over the first tasks of a fixed order. Its draws do not
// depend on the version, so that versions are compared on equal terms.
func (j *job) evaluate(ctx context.Context) error {
	local, err := j.local()
	if err != nil {
		return err
	}
	emit, err := j.emit(1)
	if err != nil {
		return err
	}
	version := j.source.snapshot.Version
	return local.Run(ctx, rollout.Step{Number: version, PolicyVersion: version, Groups: j.deal.Fixed(j.header.GroupsPerStep)}, emit)
}

// play writes the tasks' own solutions.
func (j *job) play(ctx context.Context) error {
	early := j.deal
	if j.levelsFirst > 0 {
		var err error
		early, err = sampler.New(j.environments, j.inv.Seed, func(e, t int) bool {
			task := &j.environments[e].Tasks[t]
			return j.tasks.Choosable(e, t) && task.Level <= 2 && len(task.Solution.Calls) <= 1
		})
		if err != nil {
			return fmt.Errorf("--levels-first: %w", err)
		}
	}
	emit, err := j.emit(max(0, j.steps-j.from()))
	if err != nil {
		return err
	}
	solution := &rollout.Solution{Tasks: j.tasks, Mistakes: j.mistakes, Threads: j.inv.Threads}
	for s := j.from(); s < j.steps; s++ {
		deal := j.deal
		if float64(s) < j.levelsFirst*float64(j.steps) {
			deal = early
		}
		if err := solution.Run(ctx, rollout.ChooseStep(deal, s, j.groups, max(0, s-j.staleness)), emit); err != nil {
			return err
		}
	}
	return nil
}
