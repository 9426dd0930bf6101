package model

import "math"

// The decoder once more, in float64 and with no care for speed or order: the
// independent statement of what the forward pass computes.

type exactModel struct {
	config  Config
	weights map[string][]float64
}

func newExactModel(c Config, weights Weights) *exactModel {
	m := &exactModel{c, map[string][]float64{}}
	for _, tensor := range weights {
		for _, x := range tensor.Data {
			m.weights[tensor.Name] = append(m.weights[tensor.Name], float64(x))
		}
	}
	return m
}

func (m *exactModel) linear(name string, x []float64) []float64 {
	w := m.weights[name]
	y := make([]float64, len(w)/len(x))
	for o := range y {
		for i, v := range x {
			y[o] += w[o*len(x)+i] * v
		}
	}
	return y
}

func (m *exactModel) norm(name string, x []float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	r := 1 / math.Sqrt(sum/float64(len(x))+m.config.RMSNormEps)
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v * r * m.weights[name][i]
	}
	return y
}

func (m *exactModel) rotate(x []float64, position int) {
	half := len(x) / 2
	for i := range half {
		angle := float64(position) * math.Pow(m.config.RopeTheta, -2*float64(i)/float64(len(x)))
		sin, cos := math.Sincos(angle)
		x[i], x[i+half] = x[i]*cos-x[i+half]*sin, x[i+half]*cos+x[i]*sin
	}
}

// logits of every position of ids, [len(ids)][Vocab()].
func (m *exactModel) logits(ids []int32) [][]float64 {
	c := m.config
	hd, group := c.HeadDim, c.NumAttentionHeads/c.NumKeyValueHeads
	keys := make([][][]float64, c.NumHiddenLayers)
	values := make([][][]float64, c.NumHiddenLayers)
	var all [][]float64
	for position, id := range ids {
		x := append([]float64(nil), m.weights["model.embed_tokens.weight"][int(id)*c.HiddenSize:(int(id)+1)*c.HiddenSize]...)
		for layer := range c.NumHiddenLayers {
			prefix := "model.layers." + string(rune('0'+layer)) + "."
			h := m.norm(prefix+"input_layernorm.weight", x)
			q, k := m.linear(prefix+"self_attn.q_proj.weight", h), m.linear(prefix+"self_attn.k_proj.weight", h)
			for head := range c.NumAttentionHeads {
				part := q[head*hd : (head+1)*hd]
				copy(part, m.norm(prefix+"self_attn.q_norm.weight", part))
				m.rotate(part, position)
			}
			for head := range c.NumKeyValueHeads {
				part := k[head*hd : (head+1)*hd]
				copy(part, m.norm(prefix+"self_attn.k_norm.weight", part))
				m.rotate(part, position)
			}
			keys[layer] = append(keys[layer], k)
			values[layer] = append(values[layer], m.linear(prefix+"self_attn.v_proj.weight", h))
			attended := make([]float64, c.NumAttentionHeads*hd)
			for head := range c.NumAttentionHeads {
				kv := head / group * hd
				scores, total := make([]float64, position+1), 0.0
				for j := range scores {
					for i := range hd {
						scores[j] += q[head*hd+i] * keys[layer][j][kv+i]
					}
					scores[j] = math.Exp(scores[j] / math.Sqrt(float64(hd)))
					total += scores[j]
				}
				for j, s := range scores {
					for i := range hd {
						attended[head*hd+i] += s / total * values[layer][j][kv+i]
					}
				}
			}
			for i, v := range m.linear(prefix+"self_attn.o_proj.weight", attended) {
				x[i] += v
			}
			h = m.norm(prefix+"post_attention_layernorm.weight", x)
			gate, up := m.linear(prefix+"mlp.gate_proj.weight", h), m.linear(prefix+"mlp.up_proj.weight", h)
			for i, g := range gate {
				up[i] *= g / (1 + math.Exp(-g))
			}
			for i, v := range m.linear(prefix+"mlp.down_proj.weight", up) {
				x[i] += v
			}
		}
		head := "lm_head.weight"
		if c.TieWordEmbeddings {
			head = "model.embed_tokens.weight"
		}
		all = append(all, m.linear(head, m.norm("model.norm.weight", x))[:c.Vocab()])
	}
	return all
}

// logprobs and entropies of ids[i] given ids[:i]; 0 at i = 0.
func (m *exactModel) measure(ids []int32, temperature float64) (logprobs, entropies []float64) {
	logprobs, entropies = make([]float64, len(ids)), make([]float64, len(ids))
	for i, logits := range m.logits(ids) {
		if i+1 == len(ids) {
			break
		}
		total := 0.0
		for _, z := range logits {
			total += math.Exp(z / temperature)
		}
		for id, z := range logits {
			logprob := z/temperature - math.Log(total)
			entropies[i+1] -= math.Exp(logprob) * logprob
			if int32(id) == ids[i+1] {
				logprobs[i+1] = logprob
			}
		}
	}
	return logprobs, entropies
}

func (m *exactModel) objective(examples []Example, temperature float64) float64 {
	sum := 0.0
	for _, e := range examples {
		logprobs, _ := m.measure(e.IDs, temperature)
		for i, weight := range e.Weights {
			sum += float64(weight) * logprobs[i]
		}
	}
	return sum
}
