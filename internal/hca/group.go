// Cutting a stream of trajectories into groups: the rows of a group are
// adjacent and complete, or the stream is refused.
package hca

import (
	"fmt"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// Groups collects the rows of a stream until a group is complete. The zero
// value is ready to use.
type Groups struct {
	open []*episode.Trajectory
	done map[string]bool // group ids that were complete
}

// Add takes the next row. It returns the group that the row completes, else
// nil. Rows of a group that are missing, doubled or not adjacent are an error
// that names the group.
func (g *Groups) Add(tr *episode.Trajectory) ([]*episode.Trajectory, error) {
	if tr.GroupID == "" {
		return nil, fmt.Errorf("trajectory %s: group_id is empty", tr.TrajectoryID)
	}
	if tr.GroupSize < 1 {
		return nil, fmt.Errorf("group %s: group_size %d", tr.GroupID, tr.GroupSize)
	}
	if len(g.open) > 0 && g.open[0].GroupID != tr.GroupID {
		return nil, fmt.Errorf("group %s: only %d of its %d rows stand together before group %s", g.open[0].GroupID, len(g.open), g.open[0].GroupSize, tr.GroupID)
	}
	if g.done[tr.GroupID] {
		return nil, fmt.Errorf("group %s: a further row after its group was complete or was interrupted by others", tr.GroupID)
	}
	g.open = append(g.open, tr)
	if len(g.open) < g.open[0].GroupSize {
		return nil, nil
	}
	group := g.open
	g.open = nil
	if g.done == nil {
		g.done = map[string]bool{}
	}
	g.done[tr.GroupID] = true
	return group, checkGroup(group)
}

// End is to be called when the stream ends, however it ends: an open group is
// an error.
func (g *Groups) End() error {
	if len(g.open) == 0 {
		return nil
	}
	return fmt.Errorf("group %s: the stream ends after %d of its %d rows", g.open[0].GroupID, len(g.open), g.open[0].GroupSize)
}

// checkGroup refuses rows that are not the samples 0..G-1 of one task.
func checkGroup(group []*episode.Trajectory) error {
	if len(group) == 0 {
		return fmt.Errorf("a group without rows")
	}
	first := group[0]
	if len(group) != first.GroupSize {
		return fmt.Errorf("group %s: %d rows of %d", first.GroupID, len(group), first.GroupSize)
	}
	seen := make([]bool, len(group))
	for _, tr := range group {
		switch {
		case tr.GroupID != first.GroupID || tr.GroupSize != first.GroupSize:
			return fmt.Errorf("group %s: a row of group %s (size %d) among its %d", first.GroupID, tr.GroupID, tr.GroupSize, first.GroupSize)
		case tr.Step != first.Step || tr.TaskID != first.TaskID || tr.EnvironmentID != first.EnvironmentID:
			return fmt.Errorf("group %s: rows of different steps or tasks (trajectories %s and %s)", first.GroupID, first.TrajectoryID, tr.TrajectoryID)
		case tr.Sample < 0 || tr.Sample >= len(group):
			return fmt.Errorf("group %s: sample %d in a group of %d", first.GroupID, tr.Sample, len(group))
		case seen[tr.Sample]:
			return fmt.Errorf("group %s: sample %d occurs twice", first.GroupID, tr.Sample)
		}
		seen[tr.Sample] = true
	}
	return nil
}
