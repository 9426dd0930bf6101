package model

import (
	"fmt"
	"math"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/kernel"
)

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
type Optimizer struct {
	options OptimizerOptions
	steps   int
	slots   []slot // per tensor of the model
	muon    muonScratch
}

// slot is the state of one tensor: first and second moment of AdamW, or the
// momentum of Muon alone.
type slot struct {
	name          string
	shape         []int
	muon          bool
	first, second []float32
}

// NewOptimizer makes an optimizer with empty state for models of m's shape.
func NewOptimizer(m *Model, options OptimizerOptions) *Optimizer {
	for _, constant := range []struct {
		value   *float32
		usually float32
	}{
		{&options.Beta1, 0.9}, {&options.Beta2, 0.95}, {&options.Eps, 1e-8}, {&options.Momentum, 0.95},
	} {
		if *constant.value == 0 {
			*constant.value = constant.usually
		}
	}
	o := &Optimizer{options: options}
	for _, tensor := range m.weights {
		s := slot{name: tensor.Name, shape: tensor.Shape, first: make([]float32, len(tensor.Data))}
		s.muon = options.Muon != 0 && len(tensor.Shape) == 2 && strings.HasPrefix(tensor.Name, "model.layers.")
		if !s.muon {
			s.second = make([]float32, len(tensor.Data))
		}
		o.slots = append(o.slots, s)
	}
	return o
}

// Step increases the objective: it moves the weights of m along g, whose global
// norm is first scaled down to clip if it is larger (clip 0: never). It returns
// the norm before. A gradient that is not finite changes nothing and gives a
// norm that is not finite.
func (o *Optimizer) Step(m *Model, g *Gradient, learningRate, clip float32) (gradNorm float32) {
	tensors := g.Tensors()
	sum := float32(0)
	for _, tensor := range tensors {
		sum += m.backend.SumSquares(tensor.Data)
	}
	gradNorm = kernel.Sqrt(sum)
	if math.IsNaN(float64(gradNorm)) || math.IsInf(float64(gradNorm), 0) {
		return gradNorm
	}
	scale := float32(1)
	if clip > 0 && gradNorm > clip {
		scale = clip / gradNorm
	}
	o.steps++
	p := kernel.AdamWParams{
		LR: learningRate, Beta1: o.options.Beta1, Beta2: o.options.Beta2, Eps: o.options.Eps,
		GradScale: -scale, // AdamW descends
		C1:        biasCorrection(o.options.Beta1, o.steps), C2: biasCorrection(o.options.Beta2, o.steps),
	}
	for i := range o.slots {
		s, weights, gradient := &o.slots[i], m.weights[i].Data, tensors[i].Data
		if s.muon {
			o.muon.step(m.backend, s, weights, gradient, scale, o.options.Momentum, learningRate*o.options.Muon)
			continue
		}
		p.Decay = 0
		if len(s.shape) == 2 {
			p.Decay = o.options.Decay
		}
		m.backend.AdamW(weights, gradient, s.first, s.second, p)
	}
	m.Changed()
	return gradNorm
}

// biasCorrection is 1 - beta^n, by repeated squaring in float64.
func biasCorrection(beta float32, n int) float32 {
	power, factor := 1.0, float64(beta)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			power = float64(power * factor)
		}
		factor = float64(factor * factor)
	}
	return float32(1 - power)
}

// Steps is the number of steps taken.
func (o *Optimizer) Steps() int { return o.steps }

// State is everything that Step depends on beside its arguments: tensors to be
// stored beside the weights. It shares the optimizer's memory. The number of
// steps is two tensors of one element, so that float32 holds it exactly.
func (o *Optimizer) State() []Tensor {
	state := []Tensor{
		{"steps_low", []int{1}, []float32{float32(o.steps % (1 << 20))}},
		{"steps_high", []int{1}, []float32{float32(o.steps >> 20)}},
	}
	for i := range o.slots {
		state = append(state, o.slots[i].state()...)
	}
	return state
}

// state lists the tensors of s.
func (s *slot) state() []Tensor {
	if s.muon {
		return []Tensor{{"momentum." + s.name, s.shape, s.first}}
	}
	return []Tensor{{"first_moment." + s.name, s.shape, s.first}, {"second_moment." + s.name, s.shape, s.second}}
}

// SetState restores what State gave. It refuses a missing or misshapen tensor
// by name, changing nothing.
func (o *Optimizer) SetState(state []Tensor) error {
	byName := make(map[string]Tensor, len(state))
	for _, tensor := range state {
		byName[tensor.Name] = tensor
	}
	wanted := o.State()
	for _, want := range wanted {
		have, ok := byName[want.Name]
		if !ok {
			return fmt.Errorf("optimizer state: tensor %s is missing; was it another optimizer?", want.Name)
		}
		if !sameShape(have.Shape, want.Shape) || len(have.Data) != len(want.Data) {
			return fmt.Errorf("optimizer state: tensor %s has shape %v, want %v", want.Name, have.Shape, want.Shape)
		}
	}
	low, high := byName["steps_low"].Data[0], byName["steps_high"].Data[0]
	if !(low >= 0 && low < 1<<20 && high >= 0 && high < 1<<20) {
		return fmt.Errorf("optimizer state: %v and %v are no number of steps", low, high)
	}
	o.steps = int(low) + int(high)<<20
	for _, want := range wanted[2:] {
		copy(want.Data, byName[want.Name].Data)
	}
	return nil
}
