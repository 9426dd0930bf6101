package model

import "github.com/odyssey-rl/odyssey/internal/kernel"

// ropeTable holds kernel.RopeTables for the positions met so far.
type ropeTable struct {
	positions int
	cos, sin  []float32 // [positions][headDim/2]
}

// reach extends the table to at least n positions.
func (t *ropeTable) reach(n int, c Config) {
	if n <= t.positions {
		return
	}
	t.positions = min(max(n, 2*t.positions, 512), c.MaxPositionEmbeddings)
	t.cos, t.sin = kernel.RopeTables(t.positions, c.HeadDim, c.RopeTheta)
}
