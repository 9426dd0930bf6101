// The header of a stream: what its rows are and where they came from.

package stream

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
)

// Kind says what the rows of a stream are.
type Kind string

// The kinds of stream. odyssey-stream(5) documents their rows.
const (
	KindEnvironment Kind = "environment" // episode.Environment
	KindTrajectory  Kind = "trajectory"  // episode.Trajectory without Credit
	KindCredit      Kind = "credit"      // episode.Trajectory with Credit
	KindMetric      Kind = "metric"      // episode.Metric
)

// FormatName is the value of the header's "format" field.
const FormatName = "odyssey-stream"

// Version is the version of the stream format that this package writes, as
// "major.minor". A reader refuses a newer major version; a newer minor version
// only adds top-level fields, which pass through.
const Version = "1.0"

const versionMajor = 1

// Conventions of recorded log-probabilities.
const (
	// LogprobProcessed: of the distribution sampled from, temperature applied.
	LogprobProcessed = "processed"
	// LogprobRaw: of the softmax of the raw logits.
	LogprobRaw = "raw"
)

// Header opens every stream. Fields that say nothing about a kind stay zero
// and are left out on the wire.
type Header struct {
	Kind    Kind
	Version string // of the format; a writer sets its own

	Tokenizer         string // digest of the tokenizer that the token ids refer to
	GroupsPerStep     int    // groups that one optimizer step consumes
	GroupSize         int    // planned G
	Staleness         int    // K: step s samples from version max(0, s-K)
	Steps             int    // the step count that the producer was asked for
	LogprobConvention string // LogprobProcessed or LogprobRaw
	Normalization     string // how weight divides the loss; set on credit streams
	Estimator         string // of advantage; set on credit streams
	RewardMin         float64
	RewardMax         float64

	Provenance []Provenance // one entry per command, oldest first

	// Extra holds fields that this version does not know; they pass through.
	Extra map[string]json.RawMessage
}

// Provenance says which program, with what, made a stream from its input.
type Provenance struct {
	Program   string   `json:"program"`
	Version   string   `json:"version"`
	Arguments []string `json:"arguments"`       // those that change the output
	Seed      *uint64  `json:"seed,omitempty"`  // nil: the command takes none
	Input     string   `json:"input,omitempty"` // Header.Digest of the input, "" without one
}

// wireHeader is the header as JSON. It stands in the first line of a JSONL
// stream and in the schema metadata of an Arrow stream.
type wireHeader struct {
	Format            string       `json:"format"`
	Kind              Kind         `json:"kind"`
	Version           string       `json:"version"`
	Tokenizer         string       `json:"tokenizer,omitzero"`
	GroupsPerStep     int          `json:"groups_per_step,omitzero"`
	GroupSize         int          `json:"group_size,omitzero"`
	Staleness         int          `json:"staleness,omitzero"`
	Steps             int          `json:"steps,omitzero"`
	LogprobConvention string       `json:"logprob_convention,omitzero"`
	Normalization     string       `json:"normalization,omitzero"`
	Estimator         string       `json:"estimator,omitzero"`
	RewardMin         float64      `json:"reward_min,omitzero"`
	RewardMax         float64      `json:"reward_max,omitzero"`
	Provenance        []Provenance `json:"provenance,omitempty"`

	Extra map[string]json.RawMessage `json:",embed"`
}

// Digest identifies the header's content, the same in both encodings: the
// first 32 hexadecimal digits of the sha256 of its JSON.
func (h Header) Digest() string {
	text, err := h.marshal()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

func (h Header) marshal() ([]byte, error) {
	if h.Version == "" {
		h.Version = Version
	}
	text, err := jsonv2.Marshal(wireHeader{
		FormatName, h.Kind, h.Version, h.Tokenizer, h.GroupsPerStep, h.GroupSize, h.Staleness, h.Steps,
		h.LogprobConvention, h.Normalization, h.Estimator, h.RewardMin, h.RewardMax, h.Provenance, h.Extra,
	}, jsonv2.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	return text, nil
}

// parseHeader reads the JSON of a header and refuses what is not a header of
// this format and major version.
func parseHeader(text []byte) (Header, error) {
	var wire wireHeader
	if err := jsonv2.Unmarshal(text, &wire); err != nil {
		return Header{}, fmt.Errorf("header: %s", strings.TrimPrefix(strings.TrimPrefix(err.Error(), "json: "), "jsontext: "))
	}
	if wire.Format != FormatName {
		return Header{}, fmt.Errorf("not an odyssey stream: the first record has no \"format\": %q", FormatName)
	}
	major, _, _ := strings.Cut(wire.Version, ".")
	number, err := strconv.Atoi(major)
	switch {
	case err != nil || number < 1:
		return Header{}, fmt.Errorf("header: version %q is not major.minor", wire.Version)
	case number > versionMajor:
		return Header{}, fmt.Errorf("stream version %s is newer than this program reads (%d)", wire.Version, versionMajor)
	case rowNodes[wire.Kind] == nil:
		return Header{}, fmt.Errorf("no kind of stream is called %q", wire.Kind)
	case wire.GroupsPerStep < 0 || wire.GroupSize < 0 || wire.Staleness < 0 || wire.Steps < 0:
		return Header{}, fmt.Errorf("header: groups_per_step %d, group_size %d, staleness %d, steps %d: none may be negative",
			wire.GroupsPerStep, wire.GroupSize, wire.Staleness, wire.Steps)
	case wire.LogprobConvention != "" && wire.LogprobConvention != LogprobProcessed && wire.LogprobConvention != LogprobRaw:
		return Header{}, fmt.Errorf("header: logprob_convention %q is neither %s nor %s", wire.LogprobConvention, LogprobProcessed, LogprobRaw)
	case wire.RewardMin > wire.RewardMax:
		return Header{}, fmt.Errorf("header: reward_min %v is above reward_max %v", wire.RewardMin, wire.RewardMax)
	}
	return Header{
		wire.Kind, wire.Version, wire.Tokenizer, wire.GroupsPerStep, wire.GroupSize, wire.Staleness, wire.Steps,
		wire.LogprobConvention, wire.Normalization, wire.Estimator, wire.RewardMin, wire.RewardMax, wire.Provenance, wire.Extra,
	}, nil
}

// agrees says why a stream with header next cannot continue one with header h.
func (h Header) agrees(next Header) error {
	differ := func(field, a, b string) error {
		return fmt.Errorf("the header's %s is %q, but the stream began with %q", field, b, a)
	}
	switch {
	case h.Kind != next.Kind:
		return differ("kind", string(h.Kind), string(next.Kind))
	case h.Tokenizer != next.Tokenizer:
		return differ("tokenizer", h.Tokenizer, next.Tokenizer)
	case h.LogprobConvention != next.LogprobConvention:
		return differ("logprob_convention", h.LogprobConvention, next.LogprobConvention)
	case h.Normalization != next.Normalization:
		return differ("normalization", h.Normalization, next.Normalization)
	case h.Estimator != next.Estimator:
		return differ("estimator", h.Estimator, next.Estimator)
	case h.RewardMin != next.RewardMin || h.RewardMax != next.RewardMax:
		return fmt.Errorf("the header's reward range is [%v, %v], but the stream began with [%v, %v]",
			next.RewardMin, next.RewardMax, h.RewardMin, h.RewardMax)
	}
	return nil
}
