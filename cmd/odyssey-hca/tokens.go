// What needs a tokenizer: opening it, and running the detector again.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/odyssey-rl/odyssey/internal/cmdline"
	"github.com/odyssey-rl/odyssey/internal/episode"
	"github.com/odyssey-rl/odyssey/internal/policy"
	"github.com/odyssey-rl/odyssey/internal/token"
	"github.com/odyssey-rl/odyssey/internal/toolcall"
)

// openTokenizer opens a tokenizer.json, the one of a folder or of a policy
// directory, or the builtin one, and demands that it is the stream's.
func openTokenizer(name, streamHash string) (*token.Tokenizer, error) {
	file, err := readTokenizer(name)
	if err != nil {
		return nil, err
	}
	tokenizer, err := token.Load(file)
	if err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", name, err)
	}
	if tokenizer.Hash() != streamHash {
		return nil, cmdline.Hint(fmt.Errorf("the stream's tokenizer is %.12s, but %s is %.12s", streamHash, name, tokenizer.Hash()),
			"--tokenizer DIR names the policy that made the stream")
	}
	return tokenizer, nil
}

func readTokenizer(name string) ([]byte, error) {
	if name == policy.Builtin {
		p, err := policy.Open(policy.Builtin)
		if err != nil {
			return nil, err
		}
		snapshot, err := p.Load(0)
		if err != nil {
			return nil, err
		}
		return snapshot.Tokenizer, nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return os.ReadFile(name)
	}
	file, err := os.ReadFile(filepath.Join(name, "tokenizer.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return os.ReadFile(filepath.Join(name, "latest", "tokenizer.json"))
	}
	return file, err
}

// redetect runs the detector over the recorded tokens and demands the recorded
// failures.
func redetect(tr *episode.Trajectory, tokenizer *token.Tokenizer, settings toolcall.Settings) error {
	failures, err := toolcall.Replay(tr, tokenizer, settings)
	if err != nil {
		return err
	}
	if slices.Equal(failures, tr.Failures) {
		return nil
	}
	err = cmdline.Refusedf("trajectory %s: recorded %s, detected %s", tr.TrajectoryID, failureText(tr.Failures), failureText(failures))
	return cmdline.Hint(err, "a rollout with --off KIND,... needs the same --off here")
}

func failureText(failures []episode.Failure) string {
	if len(failures) == 0 {
		return "no failure"
	}
	text := ""
	for i, f := range failures {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s in turn %d at bytes [%d, %d) tokens [%d, %d) call [%d, %d)", f.Kind, f.Turn, f.ByteStart, f.ByteEnd, f.TokenStart, f.TokenEnd, f.CallTokenStart, f.CallTokenEnd)
	}
	return text
}
