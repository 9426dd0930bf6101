package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/odyssey-rl/odyssey/internal/model"
)

// Snapshot is one version of a policy.
type Snapshot struct {
	Version   int
	Config    model.Config  // DefinedVocab set from the tokenizer
	Weights   model.Weights // float32 whatever the stored type, in the order of Config.Layout
	Tokenizer []byte        // tokenizer.json
	Template  string        // name of the chat template: odyssey_template of tokenizer_config.json, "qwen3" if absent
	Digest    string        // sha256 of the weight files, hex
}

// LoadFolder reads a model folder in the layout of Hugging Face that is no policy
// directory, as version 0.
func LoadFolder(path string) (*Snapshot, error) {
	snapshot, err := loadFrom(os.DirFS(path))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return snapshot, nil
}

// tokenizerConfig are the fields of tokenizer_config.json that matter here.
type tokenizerConfig struct {
	Class    string `json:"tokenizer_class"`
	EOSToken string `json:"eos_token"`
	PadToken string `json:"pad_token"`
	MaxLen   int    `json:"model_max_length"`
	Template string `json:"odyssey_template"`
}

// defaultTemplate is that of a folder that names none: the release's.
const defaultTemplate = "qwen3"

func loadFrom(files fs.FS) (*Snapshot, error) {
	configData, err := fs.ReadFile(files, "config.json")
	if err != nil {
		return nil, err
	}
	config, err := model.ParseConfig(configData)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{}
	if s.Tokenizer, err = fs.ReadFile(files, "tokenizer.json"); err != nil {
		return nil, err
	}
	if config.DefinedVocab, err = definedVocab(s.Tokenizer); err != nil {
		return nil, err
	}
	if err := config.Check(); err != nil {
		return nil, err
	}
	s.Config = config
	s.Template = defaultTemplate
	switch data, err := fs.ReadFile(files, "tokenizer_config.json"); {
	case err == nil:
		var tokenizer struct {
			Template string `json:"odyssey_template"`
		}
		if err := json.Unmarshal(data, &tokenizer); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: %w", err)
		}
		if tokenizer.Template != "" {
			s.Template = tokenizer.Template
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	tensors, digest, err := loadWeights(files)
	if err != nil {
		return nil, err
	}
	for _, tensor := range tensors {
		for i, x := range tensor.Data {
			if x-x != 0 { // NaN or infinite
				return nil, fmt.Errorf("tensor %s: element %d is %v", tensor.Name, i, x)
			}
		}
	}
	s.Digest = digest
	s.Weights, err = config.Arrange(tensors)
	return s, err
}

// definedVocab is the number of ids that a tokenizer.json defines: one more than
// the highest.
func definedVocab(tokenizer []byte) (int, error) {
	var file struct {
		Model struct {
			Vocab map[string]int `json:"vocab"`
		} `json:"model"`
		AddedTokens []struct {
			ID int `json:"id"`
		} `json:"added_tokens"`
	}
	if err := json.Unmarshal(tokenizer, &file); err != nil {
		return 0, fmt.Errorf("tokenizer.json: %w", err)
	}
	highest := -1
	for _, id := range file.Model.Vocab {
		highest = max(highest, id)
	}
	for _, token := range file.AddedTokens {
		highest = max(highest, token.ID)
	}
	if highest < 0 {
		return 0, errors.New("tokenizer.json: defines no ids")
	}
	return highest + 1, nil
}

// loadWeights reads WeightsFile, or the files that its index names.
func loadWeights(files fs.FS) (tensors []model.Tensor, digest string, err error) {
	names := []string{WeightsFile}
	index, err := fs.ReadFile(files, WeightsFile+".index.json")
	switch {
	case err == nil:
		if names, err = shards(index); err != nil {
			return nil, "", err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, "", err
	}
	hash := sha256.New()
	for _, name := range names {
		more, err := readWeightsFile(files, name, hash)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
		tensors = append(tensors, more...)
	}
	return tensors, hex.EncodeToString(hash.Sum(nil)), nil
}

// shards are the files that an index of weights names, in order.
func shards(index []byte) ([]string, error) {
	var file struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(index, &file); err != nil {
		return nil, fmt.Errorf("%s.index.json: %w", WeightsFile, err)
	}
	var names []string
	for _, name := range file.WeightMap {
		if path.Base(name) != name || !fs.ValidPath(name) {
			return nil, fmt.Errorf("%s.index.json: %q is no file name", WeightsFile, name)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func readWeightsFile(files fs.FS, name string, hash io.Writer) ([]model.Tensor, error) {
	file, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	reader, ok := file.(io.ReaderAt) // files on disk and in the binary are
	if !ok {
		return nil, errors.New("is no regular file")
	}
	if _, err := io.Copy(hash, io.NewSectionReader(reader, 0, info.Size())); err != nil {
		return nil, err
	}
	tensors, _, err := ReadSafetensors(reader, info.Size())
	return tensors, err
}

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
func (s *Snapshot) Files(dtype Dtype) Files {
	files := Files{
		WeightsFile: func(w io.Writer) error {
			return WriteSafetensors(w, s.Weights, dtype, map[string]string{"format": "pt"})
		},
	}
	files.Add("config.json", s.Config.JSON(dtype.configName()))
	files.Add("tokenizer.json", s.Tokenizer)
	files.Add("tokenizer_config.json", encode(tokenizerConfig{
		Class:    "PreTrainedTokenizerFast",
		EOSToken: "<|im_end|>",
		PadToken: "<|endoftext|>",
		MaxLen:   s.Config.MaxPositionEmbeddings,
		Template: s.Template,
	}))
	files.Add("generation_config.json", encode(struct {
		Sample      bool    `json:"do_sample"`
		Temperature float64 `json:"temperature"`
	}{true, 1}))
	return files
}

// encode is value as indented JSON with a line end.
func encode(value any) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		panic(err) // only plain structures are given
	}
	return buffer.Bytes()
}
