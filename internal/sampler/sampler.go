// Package sampler chooses the task of each group. The choice is a pure function
// of (seed, step, group): no state to keep, nothing to restore.
//
// Choices are dealt, not drawn. Family, kind (level and operation), environment
// and task are each dealt from a deck that holds every one of them once, is
// shuffled anew for every round, and lies under the deck before it. So over any
// run of choices each family is served equally often, within it each kind,
// within that each environment, and no task comes twice before its fellows came
// once.
package sampler

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// Choice names a task by its place: Environments[Environment].Tasks[Task].
type Choice struct{ Environment, Task int }

// Sampler deals tasks.
type Sampler struct {
	seed     uint64
	families []family
	tasks    []Choice // every task once, in the order of the stream
}

type family struct {
	name  string
	kinds []kind
}

type kind struct {
	level        int
	operation    string
	environments []deck
}

// deck holds the tasks of one kind in one environment.
type deck struct {
	environment int
	tasks       []int
}

// New makes a sampler over the tasks that keep accepts. It fails if there is
// none.
func New(environments []*episode.Environment, seed uint64, keep func(environment, task int) bool) (*Sampler, error) {
	s := &Sampler{seed: seed}
	for e, environment := range environments {
		for t := range environment.Tasks {
			if keep(e, t) {
				s.add(environment, e, t)
			}
		}
	}
	if len(s.tasks) == 0 {
		return nil, fmt.Errorf("no task to choose from")
	}
	slices.SortFunc(s.families, func(a, b family) int { return cmp.Compare(a.name, b.name) })
	for _, f := range s.families {
		slices.SortFunc(f.kinds, func(a, b kind) int {
			return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.operation, b.operation))
		})
	}
	return s, nil
}

func (s *Sampler) add(environment *episode.Environment, e, t int) {
	s.tasks = append(s.tasks, Choice{e, t})
	task := &environment.Tasks[t]
	f := slices.IndexFunc(s.families, func(f family) bool { return f.name == environment.Family })
	if f < 0 {
		f = len(s.families)
		s.families = append(s.families, family{name: environment.Family})
	}
	kinds := &s.families[f].kinds
	k := slices.IndexFunc(*kinds, func(k kind) bool { return k.level == task.Level && k.operation == task.Operation })
	if k < 0 {
		k = len(*kinds)
		*kinds = append(*kinds, kind{level: task.Level, operation: task.Operation})
	}
	decks := &(*kinds)[k].environments
	if n := len(*decks); n == 0 || (*decks)[n-1].environment != e {
		*decks = append(*decks, deck{environment: e})
	}
	last := &(*decks)[len(*decks)-1]
	last.tasks = append(last.tasks, t)
}

// Len is the number of tasks to choose from.
func (s *Sampler) Len() int { return len(s.tasks) }

// Choose is the task of a group, counted from 0, of a step with groups groups.
func (s *Sampler) Choose(step, group, groups int) Choice {
	n := uint64(step)*uint64(groups) + uint64(group)
	path := make([]byte, 0, 64)
	f, n, path := s.deal(n, len(s.families), path)
	family := &s.families[f]
	k, n, path := s.deal(n, len(family.kinds), path)
	kind := &family.kinds[k]
	e, n, path := s.deal(n, len(kind.environments), path)
	deck := &kind.environments[e]
	t, _, _ := s.deal(n, len(deck.tasks), path)
	return Choice{deck.environment, deck.tasks[t]}
}

// deal returns the card at place n of an endless pile of shuffled decks of size
// cards, the number of decks before it (each served that card once, so it is
// the card's own count), and the path to the card.
func (s *Sampler) deal(n uint64, size int, path []byte) (card int, round uint64, deeper []byte) {
	round = n / uint64(size)
	card = shuffled(s.seed, path, round, size)[n%uint64(size)]
	return card, round, binary.AppendUvarint(path, uint64(card))
}

// Fixed is a fixed order of n tasks, the same whatever the policy: the first n
// of all tasks, shuffled by the seed. With n beyond Len it begins again.
func (s *Sampler) Fixed(n int) []Choice {
	order := shuffled(s.seed, []byte("fixed"), 0, len(s.tasks))
	choices := make([]Choice, n)
	for i := range choices {
		choices[i] = s.tasks[order[i%len(order)]]
	}
	return choices
}

// shuffled is a permutation of [0, size) named by its arguments: Fisher and
// Yates over the words of a counter-based generator.
func shuffled(seed uint64, path []byte, round uint64, size int) []int {
	order := make([]int, size)
	for i := range order {
		order[i] = i
	}
	if size == 1 {
		return order
	}
	name := binary.LittleEndian.AppendUint64([]byte("odyssey sampler\x00"), seed)
	name = append(binary.LittleEndian.AppendUint64(name, round), path...)
	digest := sha256.Sum256(name)
	state := binary.LittleEndian.Uint64(digest[:])
	for i := size - 1; i > 0; i-- {
		state += 0x9e3779b97f4a7c15 // splitmix64
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		j := int(z % uint64(i+1))
		order[i], order[j] = order[j], order[i]
	}
	return order
}
