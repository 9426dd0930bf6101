// Command odyssey-tools gives environments the tools over their tables, the
// second stage of synthesis.
package main

import (
	"context"

	"github.com/odyssey-rl/odyssey/internal/cmdline"
	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/sandbox"
	"github.com/odyssey-rl/odyssey/internal/stream"
	"github.com/odyssey-rl/odyssey/internal/tools"
)

func main() {
	sandbox.MaybeWorker()
	cmdline.Main(command())
}

func command() *cmdline.Command {
	c := &cmdline.Command{
		Name:     "odyssey-tools",
		Summary:  "give environments tools over their tables",
		Shared:   cmdline.Output | cmdline.Threads | cmdline.Shard | cmdline.KeepGoing,
		Examples: "odyssey-seed --builtin | odyssey-tools > tools.jsonl",
	}
	var protection string
	c.Choice(&protection, "sandbox", "filtered", []string{"filtered", "none"}, "none: run generated code even where no system-call filter exists").Neutral()
	c.Run = func(ctx context.Context, inv *cmdline.Invocation) error {
		in, err := inv.Reader(stream.KindEnvironment)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := inv.Writer(in.Header())
		if err != nil {
			return err
		}
		pool := sandbox.NewPool(sandbox.Options{Workers: inv.Threads, Unprotected: protection == "none"})
		defer pool.Close()
		environments, count := 0, 0
		err = cmdline.EachEnvironment(ctx, inv, in,
			func(ctx context.Context, e *episode.Environment) (struct{}, error) {
				return struct{}{}, tools.Make(ctx, pool, e)
			},
			func(e *episode.Environment, _ struct{}) error {
				environments++
				count += len(e.Tools)
				return out.WriteEnvironment(e)
			})
		if err == nil {
			inv.Logf("%d environments, %d tools", environments, count)
		}
		return err
	}
	return c
}
