// Rescoring, evaluating and drawing: views of streams that train nothing.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/odyssey-rl/odyssey/internal/cmdline"
	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/policy"
	"github.com/odyssey-rl/odyssey/internal/report"
	"github.com/odyssey-rl/odyssey/internal/stream"
	"github.com/odyssey-rl/odyssey/internal/train"
)

// runParity rescores each row with the version that made it, over a key-value
// cache and with the training forward.
func (o *options) runParity(ctx context.Context, inv *cmdline.Invocation) error {
	name := o.policy
	if name == "" {
		name = policy.Builtin
	}
	p, err := policy.Open(name)
	if err != nil {
		return err
	}
	in, err := inv.Reader(stream.KindTrajectory, stream.KindCredit)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := checkTokenizer(p, in.Header().Tokenizer); err != nil {
		return err
	}
	r := train.NewRescorer(p, newBackend(inv.Threads))
	for {
		tr, err := in.Trajectory()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = r.Add(ctx, tr, true)
		}
		if err != nil {
			return err
		}
	}
	out, err := inv.Text()
	if err != nil {
		return err
	}
	if r.Rows > 0 && r.Score.Tokens > 0 && r.Sampled == 0 {
		return cmdline.Hint(fmt.Errorf("the trajectories were not sampled by a policy: all their log-probabilities are 0"), "odyssey-rollout --engine local samples")
	}
	fmt.Fprintf(out, "%d trajectories, %d sampled tokens\n", r.Rows, r.Score.Tokens)
	for _, d := range []struct {
		name string
		d    train.Difference
	}{{"scoring", r.Score}, {"training", r.Training}} {
		fmt.Fprintf(out, "rollout - %-8s  %d equal by bits, %d not; absolute difference max %g, mean %g\n",
			d.name, d.d.Exact, d.d.Tokens-d.d.Exact, d.d.Max, d.d.Mean())
	}
	worst := max(r.Score.Max, r.Training.Max)
	switch {
	case r.Rows == 0:
		return cmdline.Hint(fmt.Errorf("no trajectory to compare"), "the stream is empty")
	case o.parity == 0 && r.Score.Exact+r.Training.Exact < r.Score.Tokens+r.Training.Tokens:
		return cmdline.Refusedf("the log-probabilities differ")
	case worst > o.parity:
		return cmdline.Refusedf("the log-probabilities differ by up to %g, more than %g", worst, o.parity)
	}
	return nil
}

// runEval writes one metric row for each policy version, split and temperature,
// in the order in which they occur. With --policy it also rescores.
func (o *options) runEval(ctx context.Context, inv *cmdline.Invocation) error {
	in, err := inv.Reader(stream.KindTrajectory, stream.KindCredit)
	if err != nil {
		return err
	}
	defer in.Close()
	var p *policy.Policy
	if o.policy != "" {
		if p, err = policy.Open(o.policy); err != nil {
			return err
		}
		if err := checkTokenizer(p, in.Header().Tokenizer); err != nil {
			return err
		}
	}
	out, err := inv.Writer(metricHeader(in.Header()))
	if err != nil {
		return err
	}
	type key struct {
		version     int
		split       string
		temperature float64
	}
	type evaluation struct {
		summary  train.Summary
		rescorer *train.Rescorer // nil without a policy
	}
	evaluations := map[key]*evaluation{}
	var order []key
	for {
		tr, err := in.Trajectory()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		k := key{tr.PolicyVersion, tr.Split, tr.Temperature}
		e := evaluations[k]
		if e == nil {
			e = &evaluation{}
			if p != nil {
				e.rescorer = train.NewRescorer(p, newBackend(inv.Threads))
			}
			evaluations[k] = e
			order = append(order, k)
		}
		e.summary.Add(tr)
		if e.rescorer != nil {
			if err := e.rescorer.Add(ctx, tr, false); err != nil {
				return err
			}
		}
	}
	for _, k := range order {
		e := evaluations[k]
		m := e.summary.Metric()
		m.Step = k.version
		if r := e.rescorer; r != nil {
			r.Training.Into(&m)
			if r.Training.Tokens > 0 {
				entropy := r.Entropy / float64(r.Training.Tokens)
				m.Entropy = &entropy
			}
		}
		if err := out.WriteMetric(&m); err != nil {
			return err
		}
	}
	return nil
}

// runPlot draws the curves of metric streams and prints their table.
func (o *options) runPlot(inv *cmdline.Invocation) error {
	var synthesis *report.Synthesis
	if o.synthesis != "" {
		file, err := os.Open(o.synthesis)
		if err != nil {
			return err
		}
		defer file.Close()
		if synthesis, err = report.ReadSynthesis(file); err != nil {
			return fmt.Errorf("%s: %w", o.synthesis, err)
		}
	}
	operands := inv.Operands
	if len(operands) == 0 {
		operands = []string{"-"}
	}
	var rows []episode.Metric
	for _, name := range operands { // each a stream of its own: their headers may differ
		in, err := inv.ReaderOf([]string{name}, stream.KindMetric)
		if err != nil {
			return err
		}
		for {
			m, err := in.Metric()
			if err == io.EOF {
				break
			}
			if err != nil {
				in.Close()
				return err
			}
			rows = append(rows, *m)
		}
		in.Close()
	}
	out, err := inv.Text()
	if err != nil {
		return err
	}
	if err := inv.WriteFile(o.plot, func(w io.Writer) error { return report.Curves(w, rows, synthesis, "Odyssey: a training run") }); err != nil {
		return err
	}
	return report.Table(out, rows, synthesis)
}
