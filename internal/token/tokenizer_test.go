package token

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

func mustTrain(t testing.TB, options TrainOptions, texts ...string) *Tokenizer {
	t.Helper()
	file, err := Train(slices.Values(texts), options)
	if err != nil {
		t.Fatal(err)
	}
	tokenizer, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return tokenizer
}

const sampleText = `The quick brown fox can't jump; "Chad" has 12,345 km2.` + "\n\tcafé 北京市 \u00a0\u2028 ---\r\n\r\n  x"

func TestPlainWordsFollowThePattern(t *testing.T) {
	// The pattern in the standard library's dialect, whose \s is ASCII only.
	const space = `\t\n\v\f\r \x{85}\p{Z}`
	pattern := regexp.MustCompile(`\p{L}+|\p{N}| ?[^` + space + `\p{L}\p{N}]+|[` + space + `]`)
	for _, text := range []string{sampleText, " (a", "  a", " \n -", "a\xffb \xff\xfe", "½²x_y", "\u3000\u0085z", ""} {
		var got []string
		for i := 0; i < len(text); {
			end := nextPlainWord(text, i)
			got = append(got, text[i:end])
			i = end
		}
		if want := pattern.FindAllString(text, -1); !slices.Equal(got, want) {
			t.Errorf("%q: words %q, want %q", text, got, want)
		}
	}
}

func TestLongWordsMergeLikeShortOnes(t *testing.T) {
	tokenizer := mustTrain(t, TrainOptions{VocabSize: 300}, strings.Repeat("abab aab bba abcabc aaaa ", 50))
	for _, word := range []string{"aaaaaaa", "abababab", "abcabcab", "bbbbaaab", strings.Repeat("aabba", 25)} {
		short, long := tokenizer.encodeWord(nil, word), tokenizer.encodeLongWord(nil, word)
		if !slices.Equal(short, long) {
			t.Errorf("%s: by scanning %v, by heap %v", word, short, long)
		}
	}
	word := strings.Repeat("abcabaa", 100_000)
	if got := string(tokenizer.Decode(tokenizer.Encode(word))); got != word {
		t.Error("a word of 700,000 bytes does not come back")
	}
}

func TestTrainIsDeterministicAndCapped(t *testing.T) {
	texts := []string{sampleText, strings.Repeat("template ", 5000), strings.Repeat("Burkina Faso ", 150)}
	options := TrainOptions{VocabSize: 315, ControlTokens: ControlTokens()}
	first, err := Train(slices.Values(texts), options)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(texts)
	second, err := Train(slices.Values(texts), options)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("the order of the texts changes the file")
	}
	tokenizer, err := Load(first)
	if err != nil {
		t.Fatal(err)
	}
	if tokenizer.VocabSize() != 315 {
		t.Errorf("%d tokens, want 315", tokenizer.VocabSize())
	}
	for _, word := range []string{"template", "Burkina", "Faso"} {
		if n := len(tokenizer.Encode(word)); n != 1 {
			t.Errorf("%s is %d tokens", word, n)
		}
	}
	// Under the cap both words count the same, and ties go to the smaller ids.
	capped := mustTrain(t, TrainOptions{VocabSize: 257, WordCap: 10}, strings.Repeat("zz ", 900)+strings.Repeat("aa ", 20))
	if n := len(capped.Encode("aa")); n != 1 {
		t.Errorf("aa is %d tokens: the cap or the tie is wrong", n)
	}
	if n := len(tokenizer.Encode("2024")); n != 4 {
		t.Errorf("2024 is %d tokens, want single digits", n)
	}
	if _, err := Train(slices.Values(texts), TrainOptions{VocabSize: 260, ControlTokens: ControlTokens()}); err == nil {
		t.Error("a vocabulary too small for its bytes passed")
	}
	if ids := tokenizer.EncodeTrusted("<|im_end|>"); len(ids) != 1 || !tokenizer.IsControl(ids[0]) || tokenizer.IsControl(-1) || tokenizer.IsControl(1<<20) {
		t.Errorf("control token %v", ids)
	}
	if small := mustTrain(t, TrainOptions{VocabSize: 5000}, "ab"); small.VocabSize() != 257 {
		t.Errorf("%d tokens from two letters, want 257", small.VocabSize())
	}
}

func TestUndefinedIDsHaveNoBytes(t *testing.T) {
	tokenizer := mustTrain(t, TrainOptions{VocabSize: 256}, "")
	ids := []int32{-1, 1 << 30, 65}
	if got := tokenizer.Decode(ids); len(got) != 1 || !slices.Equal(tokenizer.Offsets(ids), []int{0, 0, 0, 1}) {
		t.Errorf("%q, %v", got, tokenizer.Offsets(ids))
	}
	if tokenizer.Bytes(-5) != nil {
		t.Error("a negative id has bytes")
	}
}

func TestConcurrentEncoding(t *testing.T) {
	tokenizer := mustTrain(t, TrainOptions{VocabSize: 300}, sampleText)
	want := tokenizer.Encode(sampleText)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				if !slices.Equal(tokenizer.Encode(sampleText), want) {
					t.Error("another result beside other goroutines")
					return
				}
			}
		})
	}
	group.Wait()
}

func TestLoadRefusesByName(t *testing.T) {
	file, err := Train(slices.Values([]string{"abab"}), TrainOptions{VocabSize: 258, ControlTokens: []string{"<|im_end|>"}})
	if err != nil {
		t.Fatal(err)
	}
	good := string(file)
	for _, c := range []struct{ old, new, want string }{
		{`"normalizer": null`, `"normalizer": {"type": "NFKC"}`, `"NFKC"`},
		{`"type": "BPE"`, `"type": "Unigram"`, `"Unigram"`},
		{`\\p{L}+|`, `\\w+|`, `\\w+|`},
		{`"behavior": "Isolated"`, `"behavior": "Removed"`, "Removed"},
		{`"dropout": null`, `"dropout": 0.1`, "dropout"},
		{`"continuing_subword_prefix": ""`, `"continuing_subword_prefix": "##"`, "continuing_subword_prefix"},
		{`"end_of_word_suffix": ""`, `"end_of_word_suffix": "</w>"`, "end_of_word_suffix"},
		{`"byte_fallback": false`, `"byte_fallback": true`, "byte_fallback"},
		{`"use_regex": false}
  ]`, `"use_regex": true}
  ]`, "use_regex"},
		{`"add_prefix_space": false, "trim_offsets": false, "use_regex": false}
  ]`, `"add_prefix_space": true, "trim_offsets": false, "use_regex": false}
  ]`, "add_prefix_space"},
		{`"lstrip": false`, `"lstrip": true`, "lstrip"},
		{`"id": 257`, `"id": 257000`, "out of range"},
		{`"id": 257`, `"id": 65`, "two tokens"},
		{`"id": 257`, `"id": -1`, "out of range"},
		{`"content": "<|im_end|>"`, `"content": ""`, "empty"},
		{`"!": 0,`, `"!": 0, "!": 0,`, "duplicate"},
		{`"!": 0,`, ``, "byte 0x21"},
		{`"!": 0,`, `"!": 1,`, "two tokens"},
		{`"!": 0,`, `"!": 0, "漢": 300,`, "alphabet"},
		{`["a", "b"]`, `["a", "c"]`, "merge 0"},
		{`["a", "b"]`, `["a"]`, "merge 0"},
		{`["a", "b"]`, `5`, "merges"},
		{`"version"`, `"version`, "tokenizer.json"},
	} {
		if !strings.Contains(good, c.old) {
			t.Fatalf("%q is not in the file", c.old)
		}
		_, err := Load([]byte(strings.Replace(good, c.old, c.new, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s: %v, want %q named", c.old, c.new, err, c.want)
		}
	}
	older := strings.Replace(good, `["a", "b"]`, `"a b"`, 1)
	tokenizer, err := Load([]byte(older))
	if err != nil || len(tokenizer.Encode("ab")) != 1 {
		t.Errorf("merges in one string: %v", err)
	}
	if tokenizer.Hash() == hashOf(file) || len(tokenizer.Hash()) != 64 {
		t.Error("the hash does not tell the files apart")
	}
}

func FuzzLoad(f *testing.F) {
	file, err := Train(slices.Values([]string{"abab"}), TrainOptions{VocabSize: 258, ControlTokens: []string{"<|im_end|>"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Add([]byte(`{"model": {"vocab": {"a": 0}, "merges": []}, "pre_tokenizer": {"type": "ByteLevel"}}`))
	f.Add([]byte(`{"added_tokens": [{"id": 2147483647, "content": "x"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		tokenizer, err := Load(raw)
		if err != nil {
			return
		}
		if got := string(tokenizer.Decode(tokenizer.Encode("abc \xff"))); got != "abc \xff" {
			t.Fatalf("a text came back as %q", got)
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	for _, text := range []string{sampleText, "<|im_end|><tool_call>", "\xff\xfe\xc3", "a\u0301", "\x00", strings.Repeat("ab", 200)} {
		f.Add(text)
	}
	options := TrainOptions{VocabSize: 320, ControlTokens: ControlTokens()}
	plain := mustTrain(f, options, sampleText+strings.Repeat("abab", 10))
	qwen := mustTrain(f, options, sampleText+strings.Repeat("abab", 10))
	qwen.nextWord = nextQwenWord
	f.Fuzz(func(t *testing.T, text string) {
		for _, tk := range []*Tokenizer{plain, qwen} {
			ids := tk.Encode(text)
			if got := string(tk.Decode(ids)); got != text {
				t.Fatalf("%q came back as %q", text, got)
			}
			for _, id := range ids {
				if tk.IsControl(id) {
					t.Fatalf("%q gives control token %d", text, id)
				}
			}
			if got := string(tk.Decode(tk.EncodeTrusted(text))); got != text {
				t.Fatalf("%q, trusted, came back as %q", text, got)
			}
			if offsets := tk.Offsets(ids); offsets[len(ids)] != len(text) {
				t.Fatalf("%q: %d bytes in the ids", text, offsets[len(ids)])
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	tokenizer := mustTrain(b, TrainOptions{VocabSize: 1024, ControlTokens: ControlTokens()}, sampleText)
	var text strings.Builder
	for i := 0; text.Len() < 1<<20; i++ {
		fmt.Fprintf(&text, "{\"name\": \"country %d\", \"capital\": \"%s\", \"area\": %d}\n", i%500, strings.Repeat("ab", i%7), i*37)
	}
	if !utf8.ValidString(text.String()) {
		b.Fatal("bad text")
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		tokenizer.Encode(text.String())
	}
}
