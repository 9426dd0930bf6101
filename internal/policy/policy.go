// Package policy keeps the policy directory: one folder per version in the
// layout of Hugging Face, a link "latest" that is the only commit point, locks
// for one trainer and one rollout, and the settings the run was begun with. It
// also reads and writes safetensors and holds the weights in the binary.
//
//	P/v000012/         config.json, model.safetensors, tokenizer.json, ...
//	P/latest           -> v000012
//	P/train.json       settings of the trainer; P/rollout.json those of the rollout
//	P/train.lock       held by the trainer; P/rollout.lock by the rollout
package policy

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// Builtin is the name that Open takes for the policy in the binary: version 0,
// read-only.
const Builtin = "builtin"

// builtinFiles is the policy in the binary, made by examples/pico.sh.
//
//go:embed pico
var builtinFiles embed.FS

// Names of files in a version folder. Beside them stand config.json,
// tokenizer.json, tokenizer_config.json and generation_config.json.
const (
	WeightsFile   = "model.safetensors"
	OptimizerFile = "optimizer.safetensors" // state of the optimizer; only the latest version needs it
	MetricsFile   = "metrics.jsonl"         // the metric rows of the step that made the version; never pruned
)

// latestLink names the newest committed version.
const latestLink = "latest"

// Policy is an open policy directory, or the one in the binary.
type Policy struct {
	path    string
	builtin bool
}

// Open opens the policy directory at path, or the one in the binary for
// Builtin. It fails if the directory has no committed version; see Create.
func Open(path string) (*Policy, error) {
	if path == Builtin {
		return &Policy{path: path, builtin: true}, nil
	}
	p := &Policy{path: path}
	switch _, err := p.Latest(); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &Missing{Path: path}
	case err != nil:
		return nil, err
	}
	return p, nil
}

// Missing says that a directory has no committed version. It is an
// fs.ErrNotExist.
type Missing struct{ Path string }

func (m *Missing) Error() string {
	return fmt.Sprintf("policy %s: no committed version; hint: odyssey-train --init pico --policy %s makes one", m.Path, m.Path)
}

// Is tells errors.Is.
func (m *Missing) Is(target error) bool { return target == fs.ErrNotExist }

// Pruned says that the weights of a committed version were removed, as no step
// needed them any more. It is an fs.ErrNotExist.
type Pruned struct {
	Path            string
	Version, Latest int
}

func (p *Pruned) Error() string {
	return fmt.Sprintf("version %d was pruned; %s holds version %d; hint: --policy builtin has version 0 of pico, odyssey-rollout --eval samples the latest version", p.Version, p.Path, p.Latest)
}

// Is tells errors.Is.
func (p *Pruned) Is(target error) bool { return target == fs.ErrNotExist }

// Create makes the directory at path, which must not hold a version yet, for a
// first Commit of version 0.
func Create(path string) (*Policy, error) {
	if path == Builtin {
		return nil, errors.New("policy builtin: read-only")
	}
	p := &Policy{path: path}
	switch latest, err := p.Latest(); {
	case err == nil:
		return nil, fmt.Errorf("policy %s: has version %d already", path, latest)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return p, nil
}

// Path is what was given to Open.
func (p *Policy) Path() string { return p.path }

// versionName matches the name of a version folder.
var versionName = regexp.MustCompile(`^v([0-9]{6,9})$`)

// folderName is the name of the folder of version: six digits, or more if it
// needs them.
func folderName(version int) string { return fmt.Sprintf("v%06d", version) }

// parseFolderName is the version of a folder's name.
func parseFolderName(name string) (version int, ok bool) {
	match := versionName.FindStringSubmatch(name)
	if match == nil {
		return 0, false
	}
	version, err := strconv.Atoi(match[1])
	return version, err == nil && folderName(version) == name
}

// Latest is the newest committed version. It reads the link each time. Before
// the first commit the error is fs.ErrNotExist.
func (p *Policy) Latest() (int, error) {
	if p.builtin {
		return 0, nil
	}
	name, err := os.Readlink(filepath.Join(p.path, latestLink))
	if err != nil {
		return 0, fmt.Errorf("policy: %w", err)
	}
	version, ok := parseFolderName(name)
	if !ok {
		return 0, fmt.Errorf("policy %s: %s points to %q, which is no version", p.path, latestLink, name)
	}
	return version, nil
}

// pollInterval is how often Wait looks.
const pollInterval = 5 * time.Millisecond

// Wait blocks until version or a later one is committed or ctx is done.
func (p *Policy) Wait(ctx context.Context, version int) error {
	if p.builtin && version > 0 {
		return errors.New("policy builtin: has version 0 only")
	}
	var ticker *time.Ticker
	for {
		latest, err := p.Latest()
		if err != nil {
			if _, gone := os.Stat(p.path); gone != nil || !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err == nil && latest >= version {
			return nil
		}
		if ticker == nil {
			ticker = time.NewTicker(pollInterval)
			defer ticker.Stop()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// versionFiles are the files of a version.
func (p *Policy) versionFiles(version int) (fs.FS, error) {
	if p.builtin {
		if version != 0 {
			return nil, fmt.Errorf("policy builtin: no version %d: %w", version, fs.ErrNotExist)
		}
		return fs.Sub(builtinFiles, "pico")
	}
	latest, err := p.Latest()
	if err != nil {
		return nil, err
	}
	if version < 0 || version > latest {
		return nil, fmt.Errorf("policy %s: version %d is not committed, the latest is %d: %w", p.path, version, latest, fs.ErrNotExist)
	}
	return os.DirFS(filepath.Join(p.path, folderName(version))), nil
}

// Load reads a version that is committed and not pruned.
func (p *Policy) Load(version int) (*Snapshot, error) {
	files, err := p.versionFiles(version)
	if err != nil {
		return nil, err
	}
	snapshot, err := loadFrom(files)
	if errors.Is(err, fs.ErrNotExist) && lacks(files, "config.json") && lacks(files, WeightsFile) {
		if latest, failure := p.Latest(); failure == nil && version < latest {
			return nil, &Pruned{Path: p.path, Version: version, Latest: latest}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("policy %s: version %d: %w", p.path, version, err)
	}
	snapshot.Version = version
	return snapshot, nil
}

// lacks tells whether the file is absent.
func lacks(files fs.FS, name string) bool {
	_, err := fs.Stat(files, name)
	return errors.Is(err, fs.ErrNotExist)
}

// ReadFile reads another file of a version, such as MetricsFile. The error of a
// missing file or version is fs.ErrNotExist.
func (p *Policy) ReadFile(version int, name string) ([]byte, error) {
	files, err := p.versionFiles(version)
	if err != nil {
		return nil, err
	}
	data, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, fmt.Errorf("policy %s: version %d: %w", p.path, version, err)
	}
	return data, nil
}
