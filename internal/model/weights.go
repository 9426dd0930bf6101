package model

import (
	"fmt"
	"strconv"
)

// Tensor is a named array of float32, row-major.
type Tensor struct {
	Name  string
	Shape []int
	Data  []float32
}

// Weights are the parameters of a model by their Hugging Face names, such as
// model.layers.0.self_attn.q_proj.weight. A linear layer is stored
// [out][in].
type Weights []Tensor

// Find returns the tensor of that name.
func (w Weights) Find(name string) (Tensor, bool) {
	for _, tensor := range w {
		if tensor.Name == name {
			return tensor, true
		}
	}
	return Tensor{}, false
}

// Clone copies w with its data.
func (w Weights) Clone() Weights {
	clone := make(Weights, len(w))
	for i, tensor := range w {
		clone[i] = Tensor{tensor.Name, append([]int(nil), tensor.Shape...), append([]float32(nil), tensor.Data...)}
	}
	return clone
}

// Zeros are tensors of the names and shapes of w, all zero.
func (w Weights) Zeros() Weights {
	zeros := make(Weights, len(w))
	for i, tensor := range w {
		zeros[i] = Tensor{tensor.Name, append([]int(nil), tensor.Shape...), make([]float32, len(tensor.Data))}
	}
	return zeros
}

// Layout lists the tensors that a model of shape c has, in file order, without
// data.
func (c Config) Layout() Weights {
	hidden, inner := c.HiddenSize, c.IntermediateSize
	query, keyValue := c.NumAttentionHeads*c.HeadDim, c.NumKeyValueHeads*c.HeadDim
	layout := Weights{{Name: "model.embed_tokens.weight", Shape: []int{c.VocabSize, hidden}}}
	for i := range c.NumHiddenLayers {
		prefix := "model.layers." + strconv.Itoa(i) + "."
		layout = append(layout,
			Tensor{Name: prefix + "input_layernorm.weight", Shape: []int{hidden}},
			Tensor{Name: prefix + "self_attn.q_proj.weight", Shape: []int{query, hidden}},
			Tensor{Name: prefix + "self_attn.k_proj.weight", Shape: []int{keyValue, hidden}},
			Tensor{Name: prefix + "self_attn.v_proj.weight", Shape: []int{keyValue, hidden}},
			Tensor{Name: prefix + "self_attn.q_norm.weight", Shape: []int{c.HeadDim}},
			Tensor{Name: prefix + "self_attn.k_norm.weight", Shape: []int{c.HeadDim}},
			Tensor{Name: prefix + "self_attn.o_proj.weight", Shape: []int{hidden, query}},
			Tensor{Name: prefix + "post_attention_layernorm.weight", Shape: []int{hidden}},
			Tensor{Name: prefix + "mlp.gate_proj.weight", Shape: []int{inner, hidden}},
			Tensor{Name: prefix + "mlp.up_proj.weight", Shape: []int{inner, hidden}},
			Tensor{Name: prefix + "mlp.down_proj.weight", Shape: []int{hidden, inner}},
		)
	}
	layout = append(layout, Tensor{Name: "model.norm.weight", Shape: []int{hidden}})
	if !c.TieWordEmbeddings {
		layout = append(layout, Tensor{Name: "lm_head.weight", Shape: []int{c.VocabSize, hidden}})
	}
	return layout
}

// Arrange puts weights into the order of c.Layout. It refuses a missing tensor
// and a wrong shape by name, and shares the data. Of tensors that c does not
// know, only a lm_head.weight beside a tied head is let pass.
func (c Config) Arrange(weights Weights) (Weights, error) {
	byName := make(map[string]Tensor, len(weights))
	for _, tensor := range weights {
		if _, twice := byName[tensor.Name]; twice {
			return nil, fmt.Errorf("weights: tensor %s occurs twice", tensor.Name)
		}
		byName[tensor.Name] = tensor
	}
	layout := c.Layout()
	for i, want := range layout {
		have, ok := byName[want.Name]
		if !ok {
			return nil, fmt.Errorf("weights: tensor %s is missing", want.Name)
		}
		if !sameShape(have.Shape, want.Shape) || len(have.Data) != size(want.Shape) {
			return nil, fmt.Errorf("weights: tensor %s has shape %v, want %v", want.Name, have.Shape, want.Shape)
		}
		layout[i].Data = have.Data
		delete(byName, want.Name)
	}
	if c.TieWordEmbeddings {
		delete(byName, "lm_head.weight")
	}
	for _, tensor := range weights {
		if _, unknown := byName[tensor.Name]; unknown {
			return nil, fmt.Errorf("weights: tensor %s is not part of this model", tensor.Name)
		}
	}
	return layout, nil
}

func sameShape(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// size is the number of elements of a shape.
func size(shape []int) int {
	n := 1
	for _, dim := range shape {
		n *= dim
	}
	return n
}
