package model

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Config is the shape of a decoder: the fields of a Hugging Face config.json of
// model type qwen3 that the arithmetic depends on.
type Config struct {
	HiddenSize            int     `json:"hidden_size"`
	IntermediateSize      int     `json:"intermediate_size"`
	NumHiddenLayers       int     `json:"num_hidden_layers"`
	NumAttentionHeads     int     `json:"num_attention_heads"`
	NumKeyValueHeads      int     `json:"num_key_value_heads"`
	HeadDim               int     `json:"head_dim"`
	VocabSize             int     `json:"vocab_size"`
	MaxPositionEmbeddings int     `json:"max_position_embeddings"`
	RMSNormEps            float64 `json:"rms_norm_eps"`
	RopeTheta             float64 `json:"rope_theta"`
	TieWordEmbeddings     bool    `json:"tie_word_embeddings"`

	// DefinedVocab is the number of ids that the tokenizer defines, counted
	// from 0. Rows of the embedding above it are padding: they are never
	// scored or sampled. 0 means VocabSize. It is not part of config.json;
	// policy.Load sets it from tokenizer.json.
	DefinedVocab int `json:"-"`
}

// PicoConfig is the shape of the policy in the binary: 0.92 million parameters.
func PicoConfig() Config {
	return Config{
		HiddenSize: 128, IntermediateSize: 384, NumHiddenLayers: 4,
		NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 32,
		VocabSize: 1024, MaxPositionEmbeddings: 1024,
		RMSNormEps: 1e-6, RopeTheta: 10000, TieWordEmbeddings: true,
	}
}

// configFile is config.json as other programs write it: Config and the fields
// that say which architecture it is.
type configFile struct {
	Architectures []string `json:"architectures"`
	ModelType     string   `json:"model_type"`
	Config
	HiddenAct       string          `json:"hidden_act"`
	AttentionBias   bool            `json:"attention_bias"`
	UseSliding      bool            `json:"use_sliding_window"`
	RopeScaling     json.RawMessage `json:"rope_scaling"`
	RopeParameters  json.RawMessage `json:"rope_parameters,omitempty"`
	TorchDtype      string          `json:"torch_dtype"`
	InitializerStd  float64         `json:"initializer_range"`
	AttentionDrop   float64         `json:"attention_dropout"`
	UseCache        bool            `json:"use_cache"`
	TransformersTag string          `json:"transformers_version,omitempty"`
}

// ParseConfig reads a config.json. It refuses by name what this package would
// compute differently: another model type, attention biases, a sliding window,
// scaled rotary embeddings.
func ParseConfig(data []byte) (Config, error) {
	var file configFile
	if err := json.Unmarshal(data, &file); err != nil {
		return Config{}, fmt.Errorf("config.json: %w", err)
	}
	if file.ModelType != "qwen3" {
		return Config{}, fmt.Errorf("config.json: model_type is %q, want \"qwen3\"", file.ModelType)
	}
	if file.HiddenAct != "" && file.HiddenAct != "silu" {
		return Config{}, fmt.Errorf("config.json: hidden_act is %q, want \"silu\"", file.HiddenAct)
	}
	if file.AttentionBias {
		return Config{}, fmt.Errorf("config.json: attention_bias is not supported")
	}
	if file.UseSliding {
		return Config{}, fmt.Errorf("config.json: use_sliding_window is not supported")
	}
	if scaling := bytes.TrimSpace(file.RopeScaling); len(scaling) > 0 && !bytes.Equal(scaling, []byte("null")) {
		return Config{}, fmt.Errorf("config.json: rope_scaling is not supported")
	}
	if len(file.RopeParameters) > 0 && !bytes.Equal(bytes.TrimSpace(file.RopeParameters), []byte("null")) {
		var parameters struct {
			RopeTheta float64 `json:"rope_theta"`
			RopeType  string  `json:"rope_type"`
		}
		if err := json.Unmarshal(file.RopeParameters, &parameters); err != nil {
			return Config{}, fmt.Errorf("config.json: rope_parameters: %w", err)
		}
		if parameters.RopeType != "" && parameters.RopeType != "default" {
			return Config{}, fmt.Errorf("config.json: rope_parameters: rope_type is %q, want \"default\"", parameters.RopeType)
		}
		file.Config.RopeTheta = parameters.RopeTheta
	}
	if file.Config.HeadDim == 0 && file.Config.NumAttentionHeads > 0 {
		file.Config.HeadDim = file.Config.HiddenSize / file.Config.NumAttentionHeads
	}
	if file.Config.NumKeyValueHeads == 0 {
		file.Config.NumKeyValueHeads = file.Config.NumAttentionHeads
	}
	return file.Config, file.Config.Check()
}

// Check refuses shapes that no model can have, naming the field.
func (c Config) Check() error {
	for _, field := range []struct {
		name  string
		value int
		limit int
	}{
		{"hidden_size", c.HiddenSize, 1 << 20},
		{"intermediate_size", c.IntermediateSize, 1 << 22},
		{"num_hidden_layers", c.NumHiddenLayers, 1 << 12},
		{"num_attention_heads", c.NumAttentionHeads, 1 << 12},
		{"num_key_value_heads", c.NumKeyValueHeads, 1 << 12},
		{"head_dim", c.HeadDim, 1 << 12},
		{"vocab_size", c.VocabSize, 1 << 24},
		{"max_position_embeddings", c.MaxPositionEmbeddings, 1 << 24},
	} {
		if field.value < 1 || field.value > field.limit {
			return fmt.Errorf("config.json: %s is %d, want 1 to %d", field.name, field.value, field.limit)
		}
	}
	if c.NumAttentionHeads%c.NumKeyValueHeads != 0 {
		return fmt.Errorf("config.json: num_attention_heads %d is not a multiple of num_key_value_heads %d", c.NumAttentionHeads, c.NumKeyValueHeads)
	}
	if c.HeadDim%2 != 0 {
		return fmt.Errorf("config.json: head_dim %d is odd", c.HeadDim)
	}
	if !(c.RMSNormEps > 0 && c.RMSNormEps < 1) {
		return fmt.Errorf("config.json: rms_norm_eps is %v, want a small positive number", c.RMSNormEps)
	}
	if !(c.RopeTheta > 1) {
		return fmt.Errorf("config.json: rope_theta is %v, want more than 1", c.RopeTheta)
	}
	if c.DefinedVocab < 0 || c.DefinedVocab > c.VocabSize {
		return fmt.Errorf("the tokenizer defines %d ids, the model has %d", c.DefinedVocab, c.VocabSize)
	}
	return nil
}

// Vocab is the number of ids that can be scored and sampled, and the width of a
// row of logits.
func (c Config) Vocab() int {
	if c.DefinedVocab > 0 {
		return c.DefinedVocab
	}
	return c.VocabSize
}

// JSON is the config.json of c, for weights stored in dtype ("float32" or
// "bfloat16"). Equal configurations give equal bytes.
func (c Config) JSON(dtype string) []byte {
	data, err := json.MarshalIndent(configFile{
		Architectures:  []string{"Qwen3ForCausalLM"},
		ModelType:      "qwen3",
		Config:         c,
		HiddenAct:      "silu",
		RopeScaling:    json.RawMessage("null"),
		TorchDtype:     dtype,
		InitializerStd: 0.02,
		UseCache:       true,
	}, "", "  ")
	if err != nil {
		panic(err) // only numbers and strings
	}
	return append(data, '\n')
}
