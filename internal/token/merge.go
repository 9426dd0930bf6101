package token

// Byte-pair merging of one word.

import "container/heap"

// mergeTable maps a pair of ids to the rank of its merge and the id it gives:
// open addressing, since this look-up is what encoding spends its time on.
type mergeTable struct {
	entries []mergeEntry
	mask    uint64
}

type mergeEntry struct {
	pair uint64
	rank int32 // -1: free
	id   int32
}

func newMergeTable(merges int) mergeTable {
	size := 1
	for size < merges*2+1 {
		size <<= 1
	}
	t := mergeTable{entries: make([]mergeEntry, size), mask: uint64(size - 1)}
	for i := range t.entries {
		t.entries[i].rank = -1
	}
	return t
}

func pairOf(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

func hashPair(pair uint64) uint64 {
	pair *= 0x9E3779B97F4A7C15
	return pair ^ pair>>29
}

// set records a merge. A later merge of the same pair replaces the earlier one,
// as in the reference library.
func (t *mergeTable) set(a, b, rank, id int32) {
	pair := pairOf(a, b)
	for i := hashPair(pair) & t.mask; ; i = (i + 1) & t.mask {
		e := &t.entries[i]
		if e.rank < 0 || e.pair == pair {
			*e = mergeEntry{pair, rank, id}
			return
		}
	}
}

// get returns the rank and the id of the merge of a and b, rank -1 where they do
// not merge.
func (t *mergeTable) get(a, b int32) (rank, id int32) {
	pair := pairOf(a, b)
	for i := hashPair(pair) & t.mask; ; i = (i + 1) & t.mask {
		e := &t.entries[i]
		if e.rank < 0 {
			return -1, 0
		}
		if e.pair == pair {
			return e.rank, e.id
		}
	}
}

// maxScannedWord is the length in bytes up to which scanning for the best merge
// beats a heap.
const maxScannedWord = 128

// encodeWord appends the ids of one word: merges of the lowest rank first, the
// leftmost among equals.
func (t *Tokenizer) encodeWord(out []int32, word string) []int32 {
	if t.ignoreMerges {
		if id, ok := t.wordID[word]; ok {
			return append(out, id)
		}
	}
	if len(word) > maxScannedWord {
		return t.encodeLongWord(out, word)
	}
	var symbols, ranks, merged [maxScannedWord]int32
	n := len(word)
	for i := range n {
		symbols[i] = t.byteID[word[i]]
	}
	for i := range n - 1 {
		ranks[i], merged[i] = t.merges.get(symbols[i], symbols[i+1])
	}
	for n > 1 {
		best := -1
		for i := range n - 1 {
			if ranks[i] >= 0 && (best < 0 || ranks[i] < ranks[best]) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		symbols[best] = merged[best]
		copy(symbols[best+1:n-1], symbols[best+2:n])
		copy(ranks[best+1:n-1], ranks[best+2:n])
		copy(merged[best+1:n-1], merged[best+2:n])
		n--
		if best > 0 {
			ranks[best-1], merged[best-1] = t.merges.get(symbols[best-1], symbols[best])
		}
		if best+1 < n {
			ranks[best], merged[best] = t.merges.get(symbols[best], symbols[best+1])
		}
	}
	return append(out, symbols[:n]...)
}

type mergeCandidate struct{ rank, position, id int32 }

type mergeHeap []mergeCandidate

func (h mergeHeap) Len() int { return len(h) }
func (h mergeHeap) Less(i, j int) bool {
	if h[i].rank != h[j].rank {
		return h[i].rank < h[j].rank
	}
	return h[i].position < h[j].position
}
func (h mergeHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *mergeHeap) Push(x any)   { *h = append(*h, x.(mergeCandidate)) }
func (h *mergeHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

// encodeLongWord is encodeWord in O(n log n): a linked list of symbols and a
// heap of candidates, stale ones skipped.
func (t *Tokenizer) encodeLongWord(out []int32, word string) []int32 {
	n := len(word)
	symbols, previous, next := make([]int32, n), make([]int32, n), make([]int32, n)
	for i := range n {
		symbols[i] = t.byteID[word[i]]
		previous[i], next[i] = int32(i)-1, int32(i)+1
	}
	next[n-1] = -1
	var h mergeHeap
	push := func(i int32) {
		if i < 0 || next[i] < 0 {
			return
		}
		if rank, id := t.merges.get(symbols[i], symbols[next[i]]); rank >= 0 {
			heap.Push(&h, mergeCandidate{rank, i, id})
		}
	}
	for i := range n {
		push(int32(i))
	}
	for len(h) > 0 {
		c := heap.Pop(&h).(mergeCandidate)
		i := c.position
		if symbols[i] < 0 || next[i] < 0 {
			continue // merged away
		}
		if rank, id := t.merges.get(symbols[i], symbols[next[i]]); rank != c.rank || id != c.id {
			continue // a neighbour changed since
		}
		gone := next[i]
		symbols[i], symbols[gone] = c.id, -1
		next[i] = next[gone]
		if next[i] >= 0 {
			previous[next[i]] = i
		}
		push(previous[i])
		push(i)
	}
	for i := int32(0); i >= 0; i = next[i] {
		out = append(out, symbols[i])
	}
	return out
}
