package model

// OptimizerOptions choose an optimizer and its constants.
type OptimizerOptions struct {
	Beta1, Beta2, Eps float32 // of AdamW; 0 means 0.9, 0.95 and 1e-8
	Decay             float32 // decoupled weight decay of AdamW, on matrices only

	// Muon, if not 0, updates the matrices of the layers by Muon with that
	// multiple of the learning rate, and only the rest by AdamW.
	Muon     float32
	Momentum float32 // of Muon; 0 means 0.95
}

// Optimizer changes the weights of a model along a gradient and keeps the state
// this needs.
type Optimizer struct{}

// NewOptimizer makes an optimizer with empty state for models of m's shape.
func NewOptimizer(m *Model, options OptimizerOptions) *Optimizer { panic("not yet") }

// Step increases the objective: it moves the weights of m along g, whose global
// norm is first scaled down to clip if it is larger (clip 0: never). It returns
// the norm before. A gradient that is not finite changes nothing and gives a
// norm that is not finite.
func (o *Optimizer) Step(m *Model, g *Gradient, learningRate, clip float32) (gradNorm float32) {
	panic("not yet")
}

// Steps is the number of steps taken.
func (o *Optimizer) Steps() int { panic("not yet") }

// State is everything that Step depends on beside its arguments: tensors to be
// stored beside the weights. It shares the optimizer's memory.
func (o *Optimizer) State() []Tensor { panic("not yet") }

// SetState restores what State gave. It refuses a missing or misshapen tensor
// by name.
func (o *Optimizer) SetState(state []Tensor) error { panic("not yet") }
