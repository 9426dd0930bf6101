package sampler

import (
	"fmt"
	"slices"
	"testing"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

// environments makes unequal ones: two families, one of a single environment,
// the other of many, and kinds of different sizes.
func environments() []*episode.Environment {
	var all []*episode.Environment
	add := func(family string, operations ...string) {
		e := &episode.Environment{Family: family}
		for i, operation := range operations {
			e.Tasks = append(e.Tasks, episode.Task{Level: 1 + len(operation)%3, Operation: operation, TaskID: fmt.Sprint(len(all), i)})
		}
		all = append(all, e)
	}
	add("tool-use", "lookup", "lookup", "lookup", "count")
	add("tool-use", "lookup", "join")
	add("tool-use", "count")
	add("conversation", "refund")
	return all
}

func all(int, int) bool { return true }

func TestFamiliesThenKindsThenEnvironmentsAreServedEqually(t *testing.T) {
	envs := environments()
	s, err := New(envs, 7, all)
	if err != nil {
		t.Fatal(err)
	}
	const choices = 2 * 3 * 2 * 6
	families, kinds, lookups := map[string]int{}, map[string]int{}, map[int]int{}
	for n := range choices {
		c := s.Choose(n/4, n%4, 4)
		task := envs[c.Environment].Tasks[c.Task]
		families[envs[c.Environment].Family]++
		kinds[task.Operation]++
		if task.Operation == "lookup" {
			lookups[c.Environment]++
		}
	}
	if families["tool-use"] != choices/2 || families["conversation"] != choices/2 {
		t.Errorf("families: %v", families)
	}
	for _, operation := range []string{"lookup", "count", "join"} {
		if kinds[operation] != choices/2/3 {
			t.Errorf("kinds: %v", kinds)
		}
	}
	if lookups[0] != lookups[1] {
		t.Errorf("environments of lookup: %v", lookups)
	}
}

func TestNoTaskComesTwiceBeforeItsFellowsCameOnce(t *testing.T) {
	envs := environments()
	s, _ := New(envs, 1, func(e, task int) bool { return e == 0 && envs[e].Tasks[task].Operation == "lookup" })
	for round := range 20 {
		seen := map[Choice]bool{}
		for n := range 3 {
			seen[s.Choose(round*3+n, 0, 1)] = true
		}
		if len(seen) != 3 {
			t.Errorf("round %d served %v", round, seen)
		}
	}
}

func TestAChoiceDependsOnSeedStepAndGroupOnly(t *testing.T) {
	envs := environments()
	a, _ := New(envs, 3, all)
	b, _ := New(envs, 3, all)
	c, _ := New(envs, 4, all)
	differ := false
	for step := 9; step >= 0; step-- {
		for group := range 4 {
			x := a.Choose(step, group, 4)
			if x != b.Choose(step, group, 4) {
				t.Errorf("step %d group %d: two answers", step, group)
			}
			differ = differ || x != c.Choose(step, group, 4)
		}
	}
	if !differ {
		t.Error("the seed changes nothing")
	}
}

func TestFixedOrderHoldsEveryTaskOnceAndGrowsByItsEnd(t *testing.T) {
	s, _ := New(environments(), 5, all)
	long, short := s.Fixed(s.Len()), s.Fixed(3)
	if !slices.Equal(long[:3], short) {
		t.Errorf("%v does not begin with %v", long, short)
	}
	seen := map[Choice]bool{}
	for _, c := range long {
		seen[c] = true
	}
	if len(seen) != s.Len() {
		t.Errorf("%d different tasks of %d", len(seen), s.Len())
	}
}

func TestNothingToChooseFromIsAnError(t *testing.T) {
	if _, err := New(environments(), 1, func(int, int) bool { return false }); err == nil {
		t.Error("an empty sampler was made")
	}
}
