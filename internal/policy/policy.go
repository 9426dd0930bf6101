// Package policy keeps the policy directory: one folder per version in the
// layout of Hugging Face, a link "latest" that is the only commit point, locks
// for one trainer and one rollout, and the settings the run was begun with. It
// also reads and writes safetensors and holds the weights in the binary.
package policy

import (
	"context"
	"io"

	"github.com/odyssey-rl/odyssey/internal/model"
)

// Builtin is the name that Open takes for the policy in the binary: version 0,
// read-only.
const Builtin = "builtin"

// Names of files in a version folder. Beside them stand config.json,
// tokenizer.json, tokenizer_config.json and generation_config.json.
const (
	WeightsFile   = "model.safetensors"
	OptimizerFile = "optimizer.safetensors" // state of the optimizer; only the latest version needs it
	MetricsFile   = "metrics.jsonl"         // the metric rows of the step that made the version; never pruned
)

// Policy is an open policy directory, or the one in the binary.
type Policy struct{ path string }

// Open opens the policy directory at path, or the one in the binary for
// Builtin. It fails if the directory has no committed version; see Create.
func Open(path string) (*Policy, error) { panic("not yet") }

// Create makes the directory at path, which must not hold a version yet, for a
// first Commit of version 0.
func Create(path string) (*Policy, error) { panic("not yet") }

// Path is what was given to Open.
func (p *Policy) Path() string { return p.path }

// Latest is the newest committed version. It reads the link each time.
func (p *Policy) Latest() (int, error) { panic("not yet") }

// Wait blocks until version is committed or ctx is done.
func (p *Policy) Wait(ctx context.Context, version int) error { panic("not yet") }

// Snapshot is one version of a policy.
type Snapshot struct {
	Version   int
	Config    model.Config  // DefinedVocab set from the tokenizer
	Weights   model.Weights // float32 whatever the stored type, in the order of Config.Layout
	Tokenizer []byte        // tokenizer.json
	Template  string        // name of the chat template: the odyssey_template of tokenizer_config.json
	Digest    string        // sha256 of model.safetensors, hex
}

// Load reads a version that is committed and not pruned.
func (p *Policy) Load(version int) (*Snapshot, error) { panic("not yet") }

// ReadFile reads another file of a version, such as MetricsFile. The error of a
// missing file is fs.ErrNotExist.
func (p *Policy) ReadFile(version int, name string) ([]byte, error) { panic("not yet") }

// Files are the contents of a version folder: each writes one file.
type Files map[string]func(io.Writer) error

// Add puts a file of fixed contents into f.
func (f Files) Add(name string, contents []byte) {
	f[name] = func(w io.Writer) error {
		_, err := w.Write(contents)
		return err
	}
}

// Files are the files of a version folder that holds s, in the layout of
// Hugging Face, weights stored as dtype. The weights are read when the files are
// written.
func (s *Snapshot) Files(dtype Dtype) Files { panic("not yet") }

// Commit makes version, which must be Latest()+1 or, after Create, 0: it writes
// files into a temporary folder, syncs them, renames the folder and switches
// "latest". Until the switch, nothing has happened.
func (p *Policy) Commit(version int, files Files) error { panic("not yet") }

// Prune removes the files of versions below keepFrom, all but their
// MetricsFile, and OptimizerFile of every version below the latest.
func (p *Policy) Prune(keepFrom int) error { panic("not yet") }

// LockTrainer makes this process the trainer of p until release is called or
// the process ends, and removes what lies above the latest version. It fails at
// once if there is one already.
func (p *Policy) LockTrainer() (release func(), err error) { panic("not yet") }

// LockRollout makes this process the rollout of p until release is called or
// the process ends. It fails at once if there is one already.
func (p *Policy) LockRollout() (release func(), err error) { panic("not yet") }

// Setting is one flag or digest that a run on a policy directory must keep.
type Setting struct{ Name, Value string }

// Agree records the settings of one side ("rollout" or "train") of the run on
// p, the first time, and after that fails with a *Difference unless they are the
// same. Call it under the side's lock. On the builtin policy it does nothing.
func (p *Policy) Agree(side string, settings []Setting) error { panic("not yet") }

// Difference says that a policy directory was begun with other settings.
type Difference struct {
	Path, Side, Name string
	Begun, Now       string // the two values; "" where the setting is absent
}

func (d *Difference) Error() string { panic("not yet") }
