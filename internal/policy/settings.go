package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Setting is one flag or digest that a run on a policy directory must keep.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Agree records the settings of one side ("rollout" or "train") of the run on
// p, the first time, and after that fails with a *Difference unless they are the
// same. Call it under the side's lock. On the builtin policy it does nothing.
func (p *Policy) Agree(side string, settings []Setting) error {
	if p.builtin {
		return nil
	}
	path := filepath.Join(p.path, side+".json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := p.record(path, settings); err != nil {
			return fmt.Errorf("policy %s: %w", p.path, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("policy %s: %w", p.path, err)
	}
	var begun []Setting
	decoder := json.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&begun); err != nil {
		return fmt.Errorf("policy %s: %s.json: %w", p.path, side, err)
	}
	before, now := byName(begun), byName(settings)
	for _, list := range [][]Setting{settings, begun} {
		for _, setting := range list {
			if name := setting.Name; before[name] != now[name] {
				return &Difference{Path: p.path, Side: side, Name: name, Begun: before[name], Now: now[name]}
			}
		}
	}
	return nil
}

func byName(settings []Setting) map[string]string {
	values := make(map[string]string, len(settings))
	for _, setting := range settings {
		values[setting.Name] = setting.Value
	}
	return values
}

// record writes settings so that the file is whole or absent.
func (p *Policy) record(path string, settings []Setting) error {
	temporary := path + ".partial" // a trainer that starts may remove what begins with temporaryPrefix
	err := writeSynced(temporary, func(w io.Writer) error {
		_, err := w.Write(encode(settings))
		return err
	})
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncFolder(p.path)
}

// Difference says that a policy directory was begun with other settings.
type Difference struct {
	Path, Side, Name string
	Begun, Now       string // the two values; "" where the setting is absent
}

func (d *Difference) Error() string {
	return fmt.Sprintf("policy %s: its odyssey-%s was begun with %s %q, not %q; hint: use the same flags or another directory", d.Path, d.Side, d.Name, d.Begun, d.Now)
}
