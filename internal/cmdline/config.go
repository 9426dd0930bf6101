// The configuration file: "name = value" lines under sections.

package cmdline

import (
	"bufio"
	"bytes"
	"os"
	"slices"
	"strings"
)

// Commands are the seven commands, in the order of the pipeline.
var Commands = []string{
	"odyssey-seed", "odyssey-tools", "odyssey-tasks", "odyssey-verify",
	"odyssey-rollout", "odyssey-hca", "odyssey-train",
}

// sharedNames are the flags that may stand before the first section of a
// configuration file, where they speak to every command that has them.
var sharedNames = []string{
	"format", "zstd", "threads", "seed", "quiet", "verbose", "progress", "color", "no-provenance", "keep-going",
}

// configure sets the flags that neither arguments nor environment set from the
// file that --config names. The file has lines "name = value", "#" comments
// and sections "[odyssey-hca]"; a repeated name repeats the flag. Names before
// the first section are those of flags that all commands share. A name that no
// flag has is an error, so that a misspelt setting is never silently lost.
func (c *Command) configure(set map[string]bool) error {
	config := c.lookup("config")
	if config == nil || config.value.String() == "" {
		return nil
	}
	path := config.value.String()
	text, err := os.ReadFile(path)
	if err != nil {
		return Usagef("configuration file: %w", err)
	}
	return c.configureFrom(path, text, set)
}

func (c *Command) configureFrom(path string, text []byte, set map[string]bool) error {
	fromFile := map[string]bool{}
	section := ""
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			section = strings.TrimSuffix(line[1:], "]")
			if !strings.HasSuffix(line, "]") || !slices.Contains(Commands, section) && section != c.Name {
				return Usagef("%s: line %d: section %s is no command", path, number, line)
			}
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok {
			return Usagef("%s: line %d: want name = value", path, number)
		}
		f := c.lookup(name)
		switch {
		case section == "" && !slices.Contains(sharedNames, name):
			return Hint(Usagef("%s: line %d: %q is no flag that all commands share", path, number, name),
				"settings of one command stand under its section, such as [%s]", c.Name)
		case section != "" && section != c.Name:
			continue
		case section == "" && f == nil:
			continue // a shared flag that this command has no use for
		case f == nil || f.hidden || name == "config":
			return Usagef("%s: line %d: %s has no flag --%s to set", path, number, c.Name, name)
		}
		if set[name] && !fromFile[name] {
			continue
		}
		if err := f.value.Set(value); err != nil {
			return Usagef("%s: line %d: %s: %w", path, number, name, err)
		}
		set[name], fromFile[name] = true, true
	}
	return nil
}
