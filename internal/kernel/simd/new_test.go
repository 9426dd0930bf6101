package simd

import (
	"slices"
	"testing"
)

func TestTheEnvironmentForcesAVariant(t *testing.T) {
	for _, variant := range Variants() {
		t.Setenv(Variable, variant)
		if got := New(2).Name(); got != variant {
			t.Errorf("%s=%s gives %s", Variable, variant, got)
		}
	}
	for _, other := range []string{"", "unheard-of"} {
		t.Setenv(Variable, other)
		if got := New(2).Name(); got != Variants()[0] {
			t.Errorf("%s=%q gives %s, want the fastest, %s", Variable, other, got, Variants()[0])
		}
	}
	if _, err := Open("unheard-of", 1); err == nil {
		t.Error("an unknown variant opens")
	}
	if !slices.Contains(Variants(), "ref") {
		t.Error("the reference is not listed")
	}
}
