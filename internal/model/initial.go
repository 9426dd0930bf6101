package model

import (
	"math"
	"strings"
)

// RandomWeights draws the weights of a new model of shape c: the same for the
// same seed. Norms are 1. Embedding and head have standard deviation 0.02; a
// linear layer has 0.7/sqrt(in), and 0.4/sqrt(in) where it writes to the
// residual stream.
func RandomWeights(c Config, seed uint64) Weights {
	weights := c.Layout()
	for i := range weights {
		tensor := &weights[i]
		tensor.Data = make([]float32, size(tensor.Shape))
		if len(tensor.Shape) == 1 {
			for j := range tensor.Data {
				tensor.Data[j] = 1
			}
			continue
		}
		deviation := 0.02
		switch in := float64(tensor.Shape[1]); {
		case strings.HasSuffix(tensor.Name, "o_proj.weight"), strings.HasSuffix(tensor.Name, "down_proj.weight"):
			deviation = 0.4 / math.Sqrt(in)
		case strings.HasSuffix(tensor.Name, "_proj.weight"):
			deviation = 0.7 / math.Sqrt(in)
		}
		for j := range tensor.Data {
			tensor.Data[j] = float32(deviation * normal(seed, uint64(i), uint64(j)))
		}
	}
	return weights
}

// normal is a draw with mean 0 and variance 1, near enough to the normal
// distribution: the sum of twelve uniform numbers less 6, exact in float64 and
// so the same on every platform.
func normal(words ...uint64) float64 {
	key := mix(words...)
	sum := -6.0
	for k := range uint64(12) {
		sum += float64(mix(key, k)>>32) / (1 << 32)
	}
	return sum
}
