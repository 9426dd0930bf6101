// Making a policy directory, and the tokenizer of a new one.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/cmdline"
	"github.com/odyssey-rl/odyssey/internal/model"
	"github.com/odyssey-rl/odyssey/internal/policy"
	"github.com/odyssey-rl/odyssey/internal/stream"
	"github.com/odyssey-rl/odyssey/internal/token"
)

// parseInit reads pico or random:d,layers,heads,kv,head_dim,ff.
func parseInit(text string) (model.Config, error) {
	config := model.PicoConfig()
	if text == "pico" {
		return config, nil
	}
	shape, ok := strings.CutPrefix(text, "random:")
	numbers := strings.Split(shape, ",")
	if !ok || len(numbers) != 6 {
		return config, fmt.Errorf("want pico or random:d,layers,heads,kv,head_dim,ff")
	}
	for i, field := range []*int{&config.HiddenSize, &config.NumHiddenLayers, &config.NumAttentionHeads, &config.NumKeyValueHeads, &config.HeadDim, &config.IntermediateSize} {
		n, err := strconv.Atoi(numbers[i])
		if err != nil {
			return config, fmt.Errorf("%q is not a number", numbers[i])
		}
		*field = n
	}
	return config, config.Check()
}

// runInit makes version 0.
func (o *options) runInit(inv *cmdline.Invocation) error {
	var snapshot *policy.Snapshot
	if o.init == "pico" {
		builtin, err := policy.Open(policy.Builtin)
		if err != nil {
			return err
		}
		if snapshot, err = builtin.Load(0); err != nil {
			return err
		}
	} else {
		file, err := os.ReadFile(o.tokenizer)
		if err != nil {
			return err
		}
		tokenizer, err := token.Load(file)
		if err != nil {
			return fmt.Errorf("%s: %w", o.tokenizer, err)
		}
		config := o.config
		config.VocabSize = tokenizer.VocabSize()
		config.DefinedVocab = tokenizer.VocabSize()
		snapshot = &policy.Snapshot{Config: config, Weights: model.RandomWeights(config, inv.Seed), Tokenizer: file, Template: o.template}
	}
	p, err := policy.Create(o.policy)
	if err != nil {
		return err
	}
	if err := p.Commit(0, snapshot.Files(policy.Float32)); err != nil {
		return err
	}
	inv.Logf("%s: version 0 of %s", o.policy, o.init)
	return nil
}

// runMakeTokenizer trains a vocabulary on the text that episodes in the given
// environments are made of: prompts, calls of the solutions, and rows of the
// data as the tools return them.
func (o *options) runMakeTokenizer(inv *cmdline.Invocation) error {
	in, err := inv.Reader(stream.KindEnvironment)
	if err != nil {
		return err
	}
	defer in.Close()
	var failure error
	file, err := token.Train(episodeTexts(in, &failure), token.TrainOptions{VocabSize: o.makeTokenizer, ControlTokens: token.ControlTokens()})
	if failure != nil {
		return failure
	}
	if err != nil {
		return err
	}
	out, err := inv.Text()
	if err != nil {
		return err
	}
	_, err = out.Write(file)
	return err
}
