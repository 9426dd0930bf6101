package token

// The trainer of byte-level BPE vocabularies, for policies of our own. It writes
// the same tokenizer.json that Load reads.

import (
	"container/heap"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// TrainOptions sets the shape of a vocabulary.
type TrainOptions struct {
	// VocabSize is the number of tokens: 256 bytes, merges, control tokens.
	VocabSize int
	// ControlTokens are matched in the texts and never merged. They get the last
	// ids, in this order.
	ControlTokens []string
	// WordCap bounds the count of one word, so that what a template repeats in
	// every text does not eat the merges; 0 means one in twenty texts, at least
	// 200: rare names must not outnumber the words that every episode needs.
	WordCap int
}

// ControlTokens returns the control tokens of ChatML and Hermes calls.
func ControlTokens() []string {
	return []string{"<|endoftext|>", MessageStart, MessageEnd,
		CallStart, CallEnd, ResponseStart, ResponseEnd, ThinkStart, ThinkEnd}
}

// Train learns merges from the texts and returns the tokenizer.json: words of
// letters alone, single digits, no normaliser. The result depends on the
// multiset of the texts' words alone. Where the texts have too few pairs to
// merge, the vocabulary is smaller than asked for.
func Train(texts iter.Seq[string], options TrainOptions) ([]byte, error) {
	merges := options.VocabSize - len(alphabet) - len(options.ControlTokens)
	if merges < 0 {
		return nil, fmt.Errorf("vocabulary of %d tokens cannot hold 256 bytes and %d control tokens",
			options.VocabSize, len(options.ControlTokens))
	}
	counts, number, err := countWords(texts, options.ControlTokens)
	if err != nil {
		return nil, err
	}
	wordCap := options.WordCap
	if wordCap == 0 {
		wordCap = max(200, number/20)
	}
	tr := newTrainer(counts, wordCap)
	tr.learn(merges)
	return tr.file(options.ControlTokens), nil
}

func countWords(texts iter.Seq[string], controlTokens []string) (counts map[string]int, number int, err error) {
	ids := map[string]int32{}
	for i, spelling := range controlTokens {
		if _, twice := ids[spelling]; twice || spelling == "" || !utf8.ValidString(spelling) {
			return nil, 0, fmt.Errorf("control token %q is empty, not UTF-8 or listed twice", spelling)
		}
		ids[spelling] = int32(i)
	}
	control := newControlMatcher(ids)
	counts = map[string]int{}
	count := func(s string) {
		for i := 0; i < len(s); {
			end := nextPlainWord(s, i)
			counts[s[i:end]]++
			i = end
		}
	}
	for text := range texts {
		number++
		for {
			start, end, id := control.find(text)
			if id < 0 {
				break
			}
			count(text[:start])
			text = text[end:]
		}
		count(text)
	}
	return counts, number, nil
}

type trainedPair struct{ a, b int32 }

// trainer holds the words as ids and, for each pair of neighbours, how often it
// occurs and in which words.
type trainer struct {
	spellings []string // id -> token in the byte-level alphabet
	raw       map[string]bool
	merges    [][2]int32
	words     [][]int32
	counts    []int // by word
	pairCount map[trainedPair]int
	pairWords map[trainedPair]map[int]struct{}
	queue     pairQueue
}

// pairQueue gives the most frequent pair, the smallest ids among equals. Counts
// in it may be out of date; pairCount is the truth.
type pairQueue []queuedPair

type queuedPair struct {
	count int
	pair  trainedPair
}

func (q pairQueue) Len() int { return len(q) }
func (q pairQueue) Less(i, j int) bool {
	if q[i].count != q[j].count {
		return q[i].count > q[j].count
	}
	if q[i].pair.a != q[j].pair.a {
		return q[i].pair.a < q[j].pair.a
	}
	return q[i].pair.b < q[j].pair.b
}
func (q pairQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *pairQueue) Push(x any)   { *q = append(*q, x.(queuedPair)) }
func (q *pairQueue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}

func newTrainer(counts map[string]int, wordCap int) *trainer {
	tr := &trainer{
		raw:       map[string]bool{},
		pairCount: map[trainedPair]int{},
		pairWords: map[trainedPair]map[int]struct{}{},
	}
	sorted := slices.Clone(alphabet[:]) // ids follow the alphabet's order, as in published files
	slices.Sort(sorted)
	idOf := map[byte]int32{}
	for i, r := range sorted {
		idOf[alphabetByte[r]] = int32(i)
		tr.spellings = append(tr.spellings, string(r))
		tr.raw[string(r)] = true
	}
	words := make([]string, 0, len(counts))
	for word := range counts {
		words = append(words, word)
	}
	sort.Strings(words)
	for w, word := range words {
		ids := make([]int32, len(word))
		for i := range len(word) {
			ids[i] = idOf[word[i]]
		}
		tr.words = append(tr.words, ids)
		tr.counts = append(tr.counts, min(counts[word], wordCap))
		for i := 0; i+1 < len(ids); i++ {
			tr.add(trainedPair{ids[i], ids[i+1]}, w, tr.counts[w])
		}
	}
	for pair, count := range tr.pairCount {
		tr.queue = append(tr.queue, queuedPair{count, pair})
	}
	heap.Init(&tr.queue)
	return tr
}

func (tr *trainer) add(pair trainedPair, word, count int) {
	tr.pairCount[pair] += count
	if count > 0 {
		if tr.pairWords[pair] == nil {
			tr.pairWords[pair] = map[int]struct{}{}
		}
		tr.pairWords[pair][word] = struct{}{}
	}
}

func (tr *trainer) learn(merges int) {
	for len(tr.merges) < merges && len(tr.queue) > 0 {
		top := heap.Pop(&tr.queue).(queuedPair)
		count := tr.pairCount[top.pair]
		if count <= 0 {
			continue
		}
		if count != top.count {
			heap.Push(&tr.queue, queuedPair{count, top.pair})
			continue
		}
		spelling := tr.spellings[top.pair.a] + tr.spellings[top.pair.b]
		if tr.raw[spelling] { // reached by another pair already: one token, one way to it
			delete(tr.pairCount, top.pair)
			continue
		}
		tr.raw[spelling] = true
		tr.spellings = append(tr.spellings, spelling)
		tr.merges = append(tr.merges, [2]int32{top.pair.a, top.pair.b})
		tr.apply(top.pair, int32(len(tr.spellings)-1))
	}
}

// apply replaces the pair by the merged id in every word that holds it.
func (tr *trainer) apply(pair trainedPair, merged int32) {
	changed := map[trainedPair]struct{}{}
	for w := range tr.pairWords[pair] {
		ids, count := tr.words[w], tr.counts[w]
		for i := 0; i+1 < len(ids); i++ {
			if ids[i] != pair.a || ids[i+1] != pair.b {
				continue
			}
			if i > 0 {
				tr.replace(trainedPair{ids[i-1], pair.a}, trainedPair{ids[i-1], merged}, w, count, changed)
			}
			if i+2 < len(ids) {
				tr.replace(trainedPair{pair.b, ids[i+2]}, trainedPair{merged, ids[i+2]}, w, count, changed)
			}
			ids[i] = merged
			ids = slices.Delete(ids, i+1, i+2)
		}
		tr.words[w] = ids
	}
	delete(tr.pairCount, pair)
	delete(tr.pairWords, pair)
	for p := range changed {
		if p != pair && tr.pairCount[p] > 0 {
			heap.Push(&tr.queue, queuedPair{tr.pairCount[p], p})
		}
	}
}

func (tr *trainer) replace(old, now trainedPair, word, count int, changed map[trainedPair]struct{}) {
	tr.add(old, word, -count)
	tr.add(now, word, count)
	changed[old], changed[now] = struct{}{}, struct{}{}
}

// file writes the tokenizer.json, one token a line.
func (tr *trainer) file(controlTokens []string) []byte {
	var b strings.Builder
	quote := func(s string) string {
		raw, err := jsontext.AppendQuote(nil, s)
		if err != nil {
			panic(err) // tokens and patterns are valid UTF-8
		}
		return string(raw)
	}
	b.WriteString("{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [")
	for i, spelling := range controlTokens {
		// "special" in the file only tells other programs what to leave out of
		// text for display: the tags of calls and thinking stay.
		special := strings.HasPrefix(spelling, "<|")
		fmt.Fprintf(&b, "%s\n    {\"id\": %d, \"content\": %s, \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": %v}",
			comma(i), len(tr.spellings)+i, quote(spelling), special)
	}
	byteLevel := `{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}`
	b.WriteString("\n  ],\n  \"normalizer\": null,\n  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n" +
		"    {\"type\": \"Split\", \"pattern\": {\"Regex\": " + quote(plainPattern) + "}, \"behavior\": \"Isolated\", \"invert\": false},\n    " +
		byteLevel + "\n  ]},\n  \"post_processor\": " + byteLevel + ",\n  \"decoder\": " + byteLevel + ",\n" +
		"  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": \"\", " +
		"\"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false,\n  \"vocab\": {")
	for i, spelling := range tr.spellings {
		b.WriteString(comma(i) + "\n    " + quote(spelling) + ": " + strconv.Itoa(i))
	}
	b.WriteString("\n  },\n  \"merges\": [")
	for i, m := range tr.merges {
		b.WriteString(comma(i) + "\n    [" + quote(tr.spellings[m[0]]) + ", " + quote(tr.spellings[m[1]]) + "]")
	}
	b.WriteString("\n  ]}\n}\n")
	return []byte(b.String())
}

func comma(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}
