package model

// RandomWeights draws the weights of a new model of shape c: the same for the
// same seed.
func RandomWeights(c Config, seed uint64) Weights { panic("not yet") }
