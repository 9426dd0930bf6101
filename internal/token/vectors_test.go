package token_test

// The shared vectors: made with the reference library, see ../shared/tokenizer.

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/odyssey-rl/odyssey/internal/token"
)

func sharedFile(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "tokenizer", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no %s here", name)
	}
	return path
}

func readVectors(t testing.TB, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile(sharedFile(t, filepath.Join("vectors", name)))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

var qwen3Once = sync.OnceValues(func() (*token.Tokenizer, error) {
	path := filepath.Join("..", "..", "..", "shared", "tokenizer", "qwen3", "tokenizer.json.xz")
	raw, err := exec.Command("xz", "-dc", path).Output()
	if err != nil {
		return nil, err
	}
	return token.Load(raw)
})

func qwen3(t testing.TB) *token.Tokenizer {
	t.Helper()
	sharedFile(t, "qwen3/tokenizer.json.xz")
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skip("no xz to unpack the Qwen3 tokenizer with")
	}
	tokenizer, err := qwen3Once()
	if err != nil {
		t.Fatal(err)
	}
	return tokenizer
}

func TestEncodeEqualsReferenceLibrary(t *testing.T) {
	tokenizer := qwen3(t)
	var vectors []struct {
		S   string
		IDs []int32
		Dec *string
	}
	readVectors(t, "qwen3_encode.json", &vectors)
	if len(vectors) != 580 {
		t.Errorf("%d vectors, want 580", len(vectors))
	}
	for _, v := range vectors {
		ids := tokenizer.EncodeTrusted(v.S)
		if !slices.Equal(ids, v.IDs) {
			t.Errorf("EncodeTrusted(%.80q) = %v, want %v", v.S, ids, v.IDs)
		}
		want := v.S
		if v.Dec != nil {
			want = *v.Dec
		}
		if got := string(tokenizer.Decode(ids)); got != want {
			t.Errorf("Decode(Encode(%.80q)) = %.80q, want %.80q", v.S, got, want)
		}
	}
}

func TestSampledIDsAreNotWhatReencodingGives(t *testing.T) {
	tokenizer := qwen3(t)
	var vectors []struct {
		Name      string
		IDs       []int32
		Decoded   string
		Reencoded []int32
		Invariant bool
	}
	readVectors(t, "qwen3_noninvariance.json", &vectors)
	if len(vectors) != 26 {
		t.Errorf("%d vectors, want 26", len(vectors))
	}
	for _, v := range vectors {
		decoded := lossyUTF8(tokenizer.Decode(v.IDs))
		if decoded != v.Decoded {
			t.Errorf("%s: Decode = %q, want %q", v.Name, decoded, v.Decoded)
		}
		reencoded := tokenizer.EncodeTrusted(decoded)
		if !slices.Equal(reencoded, v.Reencoded) {
			t.Errorf("%s: encoded again: %v, want %v", v.Name, reencoded, v.Reencoded)
		}
		if got := slices.Equal(v.IDs, reencoded); got != v.Invariant {
			t.Errorf("%s: invariant %v, want %v", v.Name, got, v.Invariant)
		}
	}
}

// lossyUTF8 shows bytes as the reference library does: one U+FFFD for each
// maximal part of a broken character. The vectors need only single bad runs.
func lossyUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return "\ufffd"
}

func TestSpansOfSampledIDs(t *testing.T) {
	tokenizer := qwen3(t)
	var vectors []struct {
		Name    string
		IDs     []int32
		Bytes   string `json:"bytes_hex"`
		Offsets []int
		Start   int `json:"byte_start"`
		End     int `json:"byte_end"`
		Lo      int `json:"tok_lo"`
		Hi      int `json:"tok_hi"`
	}
	readVectors(t, "qwen3_spans.json", &vectors)
	if len(vectors) != 16 {
		t.Errorf("%d vectors, want 16", len(vectors))
	}
	for _, v := range vectors {
		if got := hex.EncodeToString(tokenizer.Decode(v.IDs)); got != v.Bytes {
			t.Errorf("%s: bytes %s, want %s", v.Name, got, v.Bytes)
		}
		offsets := tokenizer.Offsets(v.IDs)
		if !slices.Equal(offsets, v.Offsets) {
			t.Errorf("%s: offsets %v, want %v", v.Name, offsets, v.Offsets)
		}
		if lo, hi := token.Span(offsets, v.Start, v.End); lo != v.Lo || hi != v.Hi {
			t.Errorf("%s: Span(%d, %d) = [%d, %d), want [%d, %d)", v.Name, v.Start, v.End, lo, hi, v.Lo, v.Hi)
		}
	}
}

func BenchmarkEncodeQwen3(b *testing.B) {
	tokenizer := qwen3(b)
	var vectors []struct{ S string }
	readVectors(b, "qwen3_encode.json", &vectors)
	text := ""
	for _, v := range vectors {
		text += v.S + "\n"
	}
	for len(text) < 1<<20 {
		text += text
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tokenizer.Encode(text)
	}
}
