package token

// Reading tokenizer.json. What this package does not do is refused by name, so
// that no file is ever encoded almost right.

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

type tokenizerFile struct {
	AddedTokens  []addedToken    `json:"added_tokens"`
	Normalizer   *normalizerFile `json:"normalizer"`
	PreTokenizer *preTokenizer   `json:"pre_tokenizer"`
	Model        modelFile       `json:"model"`
}

type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
}

type normalizerFile struct {
	Type        string           `json:"type"`
	Normalizers []normalizerFile `json:"normalizers"`
}

type preTokenizer struct {
	Type          string         `json:"type"`
	Pretokenizers []preTokenizer `json:"pretokenizers"`
	Pattern       struct {
		Regex  *string `json:"Regex"`
		String *string `json:"String"`
	} `json:"pattern"`
	Behavior       string `json:"behavior"`
	Invert         bool   `json:"invert"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	UseRegex       *bool  `json:"use_regex"`
}

type modelFile struct {
	Type         string           `json:"type"`
	Dropout      *float64         `json:"dropout"`
	Prefix       *string          `json:"continuing_subword_prefix"`
	Suffix       *string          `json:"end_of_word_suffix"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Vocab        map[string]int32 `json:"vocab"`
	Merges       jsontext.Value   `json:"merges"`
}

// Load reads a Hugging Face tokenizer.json: a byte-level BPE model with the word
// pattern of Qwen2/Qwen3 or of Train, and the NFC normaliser or none. Everything
// else is an error that names what is not supported.
func Load(tokenizerJSON []byte) (*Tokenizer, error) {
	var file tokenizerFile
	if err := json.Unmarshal(tokenizerJSON, &file); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	t := &Tokenizer{hash: hashOf(tokenizerJSON), ignoreMerges: file.Model.IgnoreMerges}
	for _, step := range []func(*tokenizerFile) error{
		checkModel, t.loadPreTokenizer, t.loadNormalizer, t.loadVocab, t.loadMerges, t.loadControl,
	} {
		if err := step(&file); err != nil {
			return nil, fmt.Errorf("tokenizer.json: %w", err)
		}
	}
	return t, nil
}

func checkModel(file *tokenizerFile) error {
	m := &file.Model
	switch {
	case m.Type != "BPE" && m.Type != "": // old files leave it out
		return fmt.Errorf("model.type %q is not supported, only BPE", m.Type)
	case m.Dropout != nil && *m.Dropout != 0:
		return errors.New("model.dropout is not supported: encoding must be deterministic")
	case m.Prefix != nil && *m.Prefix != "":
		return errors.New("model.continuing_subword_prefix is not supported")
	case m.Suffix != nil && *m.Suffix != "":
		return errors.New("model.end_of_word_suffix is not supported")
	case m.ByteFallback:
		return errors.New("model.byte_fallback is not supported, only byte-level vocabularies")
	}
	return nil
}

func (t *Tokenizer) loadPreTokenizer(file *tokenizerFile) error {
	if file.PreTokenizer == nil {
		return errors.New("pre_tokenizer is absent, so this is not byte-level")
	}
	steps := []preTokenizer{*file.PreTokenizer}
	if steps[0].Type == "Sequence" {
		steps = steps[0].Pretokenizers
	}
	split, byteLevel := false, false
	for _, step := range steps {
		switch {
		case step.Type == "Split" && !split && !byteLevel:
			split = true
			if step.Pattern.Regex == nil {
				return errors.New("pre_tokenizer Split without a regular expression is not supported")
			}
			if t.nextWord = splitters[*step.Pattern.Regex]; t.nextWord == nil {
				return fmt.Errorf("pre_tokenizer pattern %q is not supported, only that of Qwen2/Qwen3 and that of this project's trainer", *step.Pattern.Regex)
			}
			if step.Behavior != "Isolated" || step.Invert {
				return fmt.Errorf("pre_tokenizer Split with behavior %q, invert %v is not supported", step.Behavior, step.Invert)
			}
		case step.Type == "ByteLevel" && !byteLevel:
			byteLevel = true
			if step.AddPrefixSpace {
				return errors.New("pre_tokenizer ByteLevel with add_prefix_space is not supported")
			}
			if step.UseRegex == nil || *step.UseRegex {
				return errors.New("pre_tokenizer ByteLevel with its own pattern (use_regex) is not supported")
			}
		default:
			return fmt.Errorf("pre_tokenizer %q is not supported at its place", step.Type)
		}
	}
	if !split || !byteLevel {
		return errors.New("pre_tokenizer must be a Split and a ByteLevel")
	}
	return nil
}

func (t *Tokenizer) loadNormalizer(file *tokenizerFile) error {
	if file.Normalizer == nil {
		return nil
	}
	steps := []normalizerFile{*file.Normalizer}
	if steps[0].Type == "Sequence" {
		steps = steps[0].Normalizers
	}
	for _, step := range steps {
		if step.Type != "NFC" {
			return fmt.Errorf("normalizer %q is not supported, only NFC", step.Type)
		}
		t.normalizeNFC = true
	}
	return nil
}

func (t *Tokenizer) loadVocab(file *tokenizerFile) error {
	entries := len(file.Model.Vocab) + len(file.AddedTokens)
	size := int32(0)
	grow := func(id int32, spelling string) error {
		// Ids are dense but for a little padding; the bound keeps a wrong file
		// from asking for gigabytes.
		if id < 0 || int64(id) > 2*int64(entries)+4096 {
			return fmt.Errorf("token %q has id %d, out of range for %d tokens", spelling, id, entries)
		}
		size = max(size, id+1)
		return nil
	}
	for spelling, id := range file.Model.Vocab {
		if err := grow(id, spelling); err != nil {
			return err
		}
	}
	for _, a := range file.AddedTokens {
		if err := grow(a.ID, a.Content); err != nil {
			return err
		}
	}
	t.bytesOf = make([][]byte, size)
	t.isControl = make([]bool, size)
	if t.ignoreMerges {
		t.wordID = make(map[string]int32, len(file.Model.Vocab))
	}
	for i := range t.byteID {
		t.byteID[i] = -1
	}
	added := make(map[string]int32, len(file.AddedTokens))
	for _, a := range file.AddedTokens {
		added[a.Content] = a.ID
	}
	for spelling, id := range file.Model.Vocab {
		raw, err := fromAlphabet(spelling)
		if err != nil {
			if other, ok := added[spelling]; ok && other == id {
				continue // older files list their control tokens in the vocabulary too
			}
			return fmt.Errorf("token %q: %w", spelling, err)
		}
		if t.bytesOf[id] != nil {
			return fmt.Errorf("id %d belongs to two tokens", id)
		}
		t.bytesOf[id] = raw
		if t.ignoreMerges {
			t.wordID[string(raw)] = id
		}
		if len(raw) == 1 {
			t.byteID[raw[0]] = id
		}
	}
	for b, id := range t.byteID {
		if id < 0 {
			return fmt.Errorf("no token for byte 0x%02x, so not every text can be encoded", b)
		}
	}
	return nil
}

func (t *Tokenizer) loadMerges(file *tokenizerFile) error {
	var pairs [][]string
	if err := json.Unmarshal(file.Model.Merges, &pairs); err != nil {
		var joined []string // older files: "a b"
		if err := json.Unmarshal(file.Model.Merges, &joined); err != nil {
			return fmt.Errorf("model.merges: %w", err)
		}
		pairs = make([][]string, len(joined))
		for i, s := range joined {
			pairs[i] = strings.Split(s, " ")
		}
	}
	t.merges = newMergeTable(len(pairs))
	for rank, pair := range pairs {
		if len(pair) != 2 {
			return fmt.Errorf("merge %d has %d parts, want 2", rank, len(pair))
		}
		a, okA := file.Model.Vocab[pair[0]]
		b, okB := file.Model.Vocab[pair[1]]
		id, ok := file.Model.Vocab[pair[0]+pair[1]]
		if !okA || !okB || !ok {
			return fmt.Errorf("merge %d (%q, %q) is not in the vocabulary", rank, pair[0], pair[1])
		}
		t.merges.set(a, b, int32(rank), id)
	}
	return nil
}

func (t *Tokenizer) loadControl(file *tokenizerFile) error {
	t.controlID = make(map[string]int32, len(file.AddedTokens))
	for _, a := range file.AddedTokens {
		switch {
		case a.Content == "":
			return fmt.Errorf("added token %d is empty", a.ID)
		case a.LStrip, a.RStrip, a.SingleWord:
			return fmt.Errorf("added token %q with lstrip, rstrip or single_word is not supported", a.Content)
		case a.Normalized && t.normalizeNFC && !isASCII(a.Content):
			return fmt.Errorf("added token %q that is normalized is not supported", a.Content)
		}
		if _, twice := t.controlID[a.Content]; twice {
			return fmt.Errorf("added token %q is listed twice", a.Content)
		}
		if raw := t.bytesOf[a.ID]; raw != nil && !bytes.Equal(raw, []byte(a.Content)) || t.isControl[a.ID] {
			return fmt.Errorf("id %d belongs to two tokens", a.ID)
		}
		t.bytesOf[a.ID] = []byte(a.Content)
		t.isControl[a.ID] = true
		t.controlID[a.Content] = a.ID
	}
	t.control = newControlMatcher(t.controlID)
	return nil
}

// The byte-level alphabet: every byte is written as a visible character. Bytes
// that are visible in Latin-1 stand for themselves, the others are counted up
// from U+0100. Source: GPT-2's bytes_to_unicode.
var (
	alphabet     [256]rune
	alphabetByte = map[rune]byte{}
)

func init() {
	next := rune(0x100)
	for b := range alphabet {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			alphabet[b] = rune(b)
		} else {
			alphabet[b] = next
			next++
		}
		alphabetByte[alphabet[b]] = byte(b)
	}
}

func fromAlphabet(spelling string) ([]byte, error) {
	raw := make([]byte, 0, len(spelling))
	for _, r := range spelling {
		b, ok := alphabetByte[r]
		if !ok {
			return nil, fmt.Errorf("%q is not in the byte-level alphabet", r)
		}
		raw = append(raw, b)
	}
	if len(raw) == 0 {
		return nil, errors.New("is empty")
	}
	return raw, nil
}
