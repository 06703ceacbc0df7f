package keygroup_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/keygroup"
)

// I7: every key group has exactly one owner, at every parallelism.
func TestRangesPartitionTheGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups := rapid.IntRange(1, keygroup.MaxParallelismLimit).Draw(t, "max parallelism")
		parallelism := rapid.IntRange(1, groups).Draw(t, "parallelism")
		next := 0
		for i := range parallelism {
			r := keygroup.RangeOf(i, parallelism, groups)
			if int(r.First) != next || r.Len() < 1 {
				t.Fatalf("subtask %d has %s, want it to begin at %d", i, r, next)
			}
			for _, g := range []keygroup.Group{r.First, r.Last} {
				if keygroup.OwnerOf(g, parallelism, groups) != i || !r.Contains(g) {
					t.Fatalf("group %d of subtask %d is owned by %d", g, i, keygroup.OwnerOf(g, parallelism, groups))
				}
			}
			next = int(r.Last) + 1
		}
		if next != groups {
			t.Fatalf("%d of %d groups are owned", next, groups)
		}
	})
}

func TestIntersect(t *testing.T) {
	a := keygroup.Range{First: 3, Last: 7}
	for _, c := range []struct {
		with, want keygroup.Range
		ok         bool
	}{
		{keygroup.Range{First: 0, Last: 2}, keygroup.Range{}, false},
		{keygroup.Range{First: 0, Last: 3}, keygroup.Range{First: 3, Last: 3}, true},
		{keygroup.Range{First: 5, Last: 9}, keygroup.Range{First: 5, Last: 7}, true},
		{keygroup.Range{First: 8, Last: 9}, keygroup.Range{}, false},
	} {
		got, ok := a.Intersect(c.with)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%s with %s: %s %v", a, c.with, got, ok)
		}
	}
}
