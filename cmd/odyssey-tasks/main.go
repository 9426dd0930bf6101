// Command odyssey-tasks gives environments tasks over their tools, the third
// stage of synthesis.
package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/cmdline"
	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/sandbox"
	"github.com/odyssey-rl/odyssey/internal/stream"
	"github.com/odyssey-rl/odyssey/internal/tasks"
)

func main() {
	sandbox.MaybeWorker()
	cmdline.Main(command())
}

func command() *cmdline.Command {
	c := &cmdline.Command{
		Name:     "odyssey-tasks",
		Summary:  "give environments tasks over their tools",
		Shared:   cmdline.Output | cmdline.Threads | cmdline.Seed | cmdline.Shard | cmdline.KeepGoing,
		Examples: "odyssey-seed --builtin | odyssey-tools | odyssey-tasks --per 12 --levels 1,2,3 > tasks.jsonl",
	}
	o := tasks.Options{Levels: []int{1, 2, 3}}
	var protection string
	c.Int(&o.Per, "per", 12, 1, "tasks per environment, at most")
	c.Int(&o.Rounds, "rounds", 3, 1, "designs tried for a task before it is given up")
	c.Func("levels", "LEVEL,...", "1,2,3", "levels of the tasks", func(text string) (err error) {
		o.Levels, err = parseLevels(text)
		return err
	})
	c.Choice(&protection, "sandbox", "filtered", []string{"filtered", "none"}, "none: run generated code even where no system-call filter exists").Neutral()
	c.Run = func(ctx context.Context, inv *cmdline.Invocation) error {
		o.Seed = inv.Seed
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
		environments, count, failed := 0, 0, 0
		err = cmdline.EachEnvironment(ctx, inv, in,
			func(ctx context.Context, e *episode.Environment) (int, error) {
				return tasks.Make(ctx, pool, e, o)
			},
			func(e *episode.Environment, failures int) error {
				environments++
				count += len(e.Tasks)
				failed += failures
				return out.WriteEnvironment(e)
			})
		if err == nil {
			inv.Logf("%d environments, %d tasks, %d designs that did not hold", environments, count, failed)
		}
		return err
	}
	return c
}

// maxLevel is the highest level that the builtin designer has operations for.
const maxLevel = 3

func parseLevels(text string) ([]int, error) {
	var levels []int
	for _, part := range strings.Split(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > maxLevel || slices.Contains(levels, n) {
			return nil, errors.New("want different levels from 1 to 3, such as 1,2")
		}
		levels = append(levels, n)
	}
	return levels, nil
}
