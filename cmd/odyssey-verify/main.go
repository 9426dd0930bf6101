// Command odyssey-verify puts the tasks of environments through gates, the
// last stage of synthesis.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/odyssey-rl/odyssey/internal/cmdline"
	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/sandbox"
	"github.com/odyssey-rl/odyssey/internal/stream"
	"github.com/odyssey-rl/odyssey/internal/verify"
)

func main() {
	sandbox.MaybeWorker()
	cmdline.Main(command())
}

func command() *cmdline.Command {
	c := &cmdline.Command{
		Name:    "odyssey-verify",
		Summary: "put the tasks of environments through gates",
		Shared:  cmdline.Output | cmdline.Threads | cmdline.Shard | cmdline.KeepGoing,
		Examples: "odyssey-verify --summary summary.json -o envs.arrows tasks.jsonl\n" +
			"odyssey-verify --strict tasks.jsonl > envs.jsonl\n" +
			"odyssey-verify --audit envs.jsonl",
	}
	var strict, keepRejected, audit bool
	var summaryFile, protection string
	c.Switch(&strict, "strict", "exit with 1 if a task was rejected").Neutral()
	c.Switch(&keepRejected, "keep-rejected", "keep rejected tasks, with their verdicts, in the output")
	c.Switch(&audit, "audit", "print what each stage spent on the stream, as it stands, instead of checking it").Neutral()
	c.String(&summaryFile, "summary", "", "write the counts as JSON to FILE").Metavar("FILE").Neutral().NoEnvironment()
	c.Choice(&protection, "sandbox", "filtered", []string{"filtered", "none"}, "none: run generated code even where no system-call filter exists").Neutral()
	c.Validate = func(*cmdline.Invocation) error {
		if audit && (strict || keepRejected || summaryFile != "") {
			return errors.New("--audit checks nothing: it goes with none of --strict, --keep-rejected and --summary")
		}
		return nil
	}
	c.Run = func(ctx context.Context, inv *cmdline.Invocation) error {
		in, err := inv.Reader(stream.KindEnvironment)
		if err != nil {
			return err
		}
		defer in.Close()
		if audit {
			return printAudit(ctx, inv, in)
		}
		out, err := inv.Writer(in.Header())
		if err != nil {
			return err
		}
		pool := sandbox.NewPool(sandbox.Options{Workers: inv.Threads, Unprotected: protection == "none"})
		defer pool.Close()
		var summary verify.Summary
		err = cmdline.EachEnvironment(ctx, inv, in,
			func(ctx context.Context, e *episode.Environment) (int, error) { return verify.Check(ctx, pool, e) },
			func(e *episode.Environment, toolCalls int) error {
				summary.Add(e, toolCalls)
				switch {
				case len(e.Tools) == 0:
					inv.Warnf("environment %s has no tools; odyssey-tools makes them", e.EnvironmentID)
				case len(e.Tasks) == 0:
					inv.Warnf("environment %s has no tasks; odyssey-tasks makes them", e.EnvironmentID)
				}
				if !keepRejected {
					if verify.DropRejected(e); len(e.Tasks) == 0 {
						return nil
					}
				}
				return out.WriteEnvironment(e)
			})
		if err != nil {
			return err
		}
		if err := writeSummary(inv, summaryFile, &summary); err != nil {
			return err
		}
		inv.Logf("%s", &summary)
		if rejected := summary.Tasks - summary.Verified; strict && rejected > 0 {
			return cmdline.Refusedf("%d of %d tasks were rejected", rejected, summary.Tasks)
		}
		return nil
	}
	return c
}

func printAudit(ctx context.Context, inv *cmdline.Invocation, in *stream.Reader) error {
	w, err := inv.Text()
	if err != nil {
		return err
	}
	var audit verify.Audit
	err = cmdline.EachEnvironment(ctx, inv, in,
		func(context.Context, *episode.Environment) (struct{}, error) { return struct{}{}, nil },
		func(e *episode.Environment, _ struct{}) error { audit.Add(e); return nil })
	if err != nil {
		return err
	}
	return audit.Write(w)
}

func writeSummary(inv *cmdline.Invocation, name string, s *verify.Summary) error {
	if name == "" {
		return nil
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return inv.WriteFile(name, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}
