// Package tools is the second stage of environment synthesis: it gives an
// environment the tools over its tables, with recorded examples, and lets none
// go that fails a check.
package tools

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/odyssey-rl/odyssey/internal/designer"
	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/sandbox"
	"github.com/odyssey-rl/odyssey/internal/toolcheck"
)

// Stage is this stage's name in Environment.Audit.
const Stage = "tools"

// Make designs the tools of an environment, records their examples and checks
// them. Tools that the environment has already are replaced, and its tasks,
// which were made for those, dropped. The error wraps a *toolcheck.Fault if a
// tool failed a check.
func Make(ctx context.Context, pool *sandbox.Pool, e *episode.Environment) error {
	database, err := designer.Read(e)
	if err != nil {
		return err
	}
	e.Tools, e.SubmitTool, e.Tasks = database.Tools(), designer.SubmitTool, []episode.Task{}
	session, err := pool.Open(ctx, toolcheck.Program(e))
	if err != nil {
		return fmt.Errorf("environment %s: %w", e.EnvironmentID, err)
	}
	fault, err := toolcheck.Record(ctx, session, e.Tools)
	if err == nil && fault == nil {
		var checked toolcheck.Checked
		checked, err = toolcheck.Check(ctx, pool, e)
		fault = checked.Fault
	}
	if fault != nil {
		err = errors.Join(err, fault)
	}
	if err != nil {
		return fmt.Errorf("environment %s: %w", e.EnvironmentID, err)
	}
	e.Audit = slices.DeleteFunc(e.Audit, func(a episode.Audit) bool { return a.Stage == Stage && a.Model == designer.Builtin }) // of an earlier run
	e.Audit = append(e.Audit, episode.Audit{Stage: Stage, Model: designer.Builtin, Rounds: 1})
	return nil
}
