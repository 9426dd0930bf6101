// The text of episodes, for training a vocabulary.
package main

import (
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/stream"
	"github.com/odyssey-rl/odyssey/internal/token"
)

// episodeTexts yields the text of episodes in the environments of a stream. It
// renders them with a tokenizer that has no merges and decodes the ids, so the
// text is byte for byte what a renderer will encode.
func episodeTexts(in *stream.Reader, failure *error) iter.Seq[string] {
	return func(yield func(string) bool) {
		bytesOnly, err := token.Train(slices.Values([]string{""}), token.TrainOptions{
			VocabSize: 256 + len(token.ControlTokens()), ControlTokens: token.ControlTokens()})
		if err != nil {
			*failure = err
			return
		}
		tokenizer, err := token.Load(bytesOnly)
		if err != nil {
			*failure = err
			return
		}
		renderer, err := token.NewRenderer(tokenizer, token.TemplatePico)
		if err != nil {
			*failure = err
			return
		}
		for {
			environment, err := in.Environment()
			if err == io.EOF {
				return
			}
			if err == nil {
				var more bool
				if more, err = environmentTexts(environment, renderer, yield); err == nil && !more {
					return
				}
			}
			if err != nil {
				*failure = err
				return
			}
		}
	}
}

func environmentTexts(e *episode.Environment, r *token.Renderer, yield func(string) bool) (more bool, err error) {
	say := func(ids []int32) bool { return yield(string(r.Tokenizer().Decode(ids))) }
	tools := slices.Clone(e.Tools)
	var submit *episode.Tool
	if i := slices.IndexFunc(tools, func(t episode.Tool) bool { return t.Name == e.SubmitTool }); i >= 0 {
		tool := tools[i]
		submit = &tool
		tools = slices.Delete(tools, i, i+1)
	}
	for _, task := range e.Tasks {
		if task.Status == episode.StatusRejected {
			continue
		}
		ids, _, err := r.Prompt(tools, submit, task.Query)
		if err != nil {
			return false, fmt.Errorf("environment %s: %w", e.EnvironmentID, err)
		}
		for _, call := range task.Solution.Calls {
			ids = append(ids, r.Assistant(callText(call.Name, call.Arguments))...)
		}
		if task.Solution.Answer != "" {
			ids = append(ids, r.Assistant(callText(e.SubmitTool, task.Solution.Answer))...)
		}
		if !say(ids) {
			return false, nil
		}
	}
	for _, tool := range tools {
		for _, example := range tool.Examples {
			if ids, _ := r.Observation([]string{example.Result}); !say(ids) {
				return false, nil
			}
		}
	}
	for _, file := range e.Files {
		for row := range strings.Lines(file.Content) {
			row = strings.TrimRight(row, ",\n")
			if !strings.HasPrefix(row, "{") {
				continue
			}
			if ids, _ := r.Observation([]string{row}); !say(ids) {
				return false, nil
			}
		}
	}
	return true, nil
}

func callText(name, arguments string) string {
	return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>"
}
