package model

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strings"
	"testing"
)

func TestConfigSurvivesItsFile(t *testing.T) {
	for _, c := range []Config{PicoConfig(), tinyConfig()} {
		data := c.JSON("float32")
		got, err := ParseConfig(data)
		if err != nil || got != c {
			t.Errorf("%s reads as %+v, error %v", data, got, err)
		}
	}
}

func TestConfigOfAPublishedModelIsRead(t *testing.T) {
	const published = `{
  "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
  "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
  "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
  "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true,
  "use_sliding_window": false, "vocab_size": 151936}`
	c, err := ParseConfig([]byte(published))
	if err != nil || c.HeadDim != 128 || c.RopeTheta != 1e6 || !c.TieWordEmbeddings || c.Vocab() != 151936 {
		t.Errorf("%+v, error %v", c, err)
	}
	newer := strings.Replace(published, `"rope_theta": 1000000`, `"rope_parameters": {"rope_theta": 5000000, "rope_type": "default"}`, 1)
	if c, err := ParseConfig([]byte(newer)); err != nil || c.RopeTheta != 5e6 {
		t.Errorf("rope_parameters: %+v, error %v", c, err)
	}
}

func TestConfigThatWouldComputeSomethingElseIsRefused(t *testing.T) {
	for want, change := range map[string][2]string{
		"model_type is \"llama\"":      {`"qwen3"`, `"llama"`},
		"hidden_act":                   {`"silu"`, `"gelu"`},
		"attention_bias":               {`"attention_bias": false`, `"attention_bias": true`},
		"use_sliding_window":           {`"use_sliding_window": false`, `"use_sliding_window": true`},
		"rope_scaling":                 {`"rope_scaling": null`, `"rope_scaling": {"rope_type": "yarn"}`},
		"hidden_size is 0":             {`"hidden_size": 128`, `"hidden_size": 0`},
		"num_hidden_layers is -1":      {`"num_hidden_layers": 4`, `"num_hidden_layers": -1`},
		"not a multiple":               {`"num_key_value_heads": 2`, `"num_key_value_heads": 3`},
		"head_dim 33 is odd":           {`"head_dim": 32`, `"head_dim": 33`},
		"rms_norm_eps":                 {`"rms_norm_eps": 0.000001`, `"rms_norm_eps": 0`},
		"rope_theta":                   {`"rope_theta": 10000`, `"rope_theta": 0`},
		"vocab_size is 99999999999999": {`"vocab_size": 1024`, `"vocab_size": 99999999999999`},
		"cannot unmarshal":             {`"vocab_size": 1024`, `"vocab_size": "many"`},
	} {
		text := string(PicoConfig().JSON("float32"))
		changed := strings.Replace(text, change[0], change[1], 1)
		if changed == text {
			t.Fatalf("%q does not occur in %s", change[0], text)
		}
		if _, err := ParseConfig([]byte(changed)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add(PicoConfig().JSON("float32"))
	f.Add([]byte(`{"model_type":"qwen3","rope_parameters":{"rope_theta":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig(data)
		if err != nil {
			return
		}
		if again, err := ParseConfig(c.JSON("float32")); err != nil || again != c {
			t.Errorf("%+v is written and read as %+v, error %v", c, again, err)
		}
	})
}

func TestWeightsThatDoNotFitAreRefusedByName(t *testing.T) {
	c := tinyConfig()
	for want, change := range map[string]func(Weights) Weights{
		"model.norm.weight is missing":                                  func(w Weights) Weights { return w[:len(w)-1] },
		"tensor extra is not part":                                      func(w Weights) Weights { return append(w, Tensor{"extra", []int{1}, []float32{0}}) },
		"input_layernorm.weight has shape [11]":                         func(w Weights) Weights { w[1] = Tensor{w[1].Name, []int{11}, make([]float32, 11)}; return w },
		"occurs twice":                                                  func(w Weights) Weights { return append(w, w[3]) },
		"model.layers.0.mlp.down_proj.weight has shape [14 10], want [": func(w Weights) Weights { w[11].Shape = []int{14, 10}; return w },
	} {
		if _, err := New(c, change(RandomWeights(c, 1)), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	tied := append(RandomWeights(c, 1), Tensor{Name: "lm_head.weight", Shape: []int{c.VocabSize, c.HiddenSize}})
	if _, err := c.Arrange(tied); err != nil {
		t.Errorf("a copy of the tied head: %v", err)
	}
}

func TestRandomWeightsDependOnTheSeedAlone(t *testing.T) {
	digest := func(seed uint64) string {
		hash := sha256.New()
		for _, tensor := range RandomWeights(PicoConfig(), seed) {
			for _, x := range tensor.Data {
				hash.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(x)))
			}
		}
		return hex.EncodeToString(hash.Sum(nil))[:16]
	}
	if got, want := digest(1), "1c558ce8feb38984"; got != want {
		t.Errorf("seed 1 gives %s, want %s", got, want)
	}
	if digest(1) == digest(2) {
		t.Error("seeds 1 and 2 give the same weights")
	}
	count := 0
	for _, tensor := range RandomWeights(PicoConfig(), 1) {
		count += len(tensor.Data)
		if len(tensor.Shape) != 2 {
			continue
		}
		sum, squares := 0.0, 0.0
		for _, x := range tensor.Data {
			sum += float64(x)
			squares += float64(x) * float64(x)
		}
		n := float64(len(tensor.Data))
		deviation := math.Sqrt(squares / n)
		if math.Abs(sum/n) > 5*deviation/math.Sqrt(n) {
			t.Errorf("%s has mean %v", tensor.Name, sum/n)
		}
		if tensor.Name == "model.layers.2.mlp.down_proj.weight" && math.Abs(deviation*math.Sqrt(384)-0.4) > 0.01 {
			t.Errorf("%s has deviation %v", tensor.Name, deviation)
		}
	}
	if count != 918912 {
		t.Errorf("pico has %d parameters", count)
	}
}
