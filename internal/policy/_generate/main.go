// Embeds the policy that examples/pico.sh made: its latest version, rounded to
// bfloat16.
//
//	go run ./internal/policy/_generate run/pico/policy
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/odyssey-rl/odyssey/internal/policy"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./internal/policy/_generate POLICY")
		os.Exit(2)
	}
	if err := embed(os.Args[1], filepath.Join("internal", "policy", "pico")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

func embed(from, to string) error {
	directory, err := policy.Open(from)
	if err != nil {
		return err
	}
	version, err := directory.Latest()
	if err != nil {
		return err
	}
	snapshot, err := directory.Load(version)
	if err != nil {
		return err
	}
	for name, write := range snapshot.Files(policy.BFloat16) {
		var contents bytes.Buffer
		if err := write(&contents); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), contents.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
