package snapshot

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
)

// keyedHandle has 10 bytes in every group of a subtask's range.
func keyedHandle(index, parallelism, maxParallelism int) KeyedStateHandle {
	r := keygroup.RangeOf(index, parallelism, maxParallelism)
	h := KeyedStateHandle{Range: r, Handle: StateHandle{Name: fmt.Sprint("k", index)}}
	for i := range r.Len() + 1 {
		h.Offsets = append(h.Offsets, int64(10*i))
	}
	return h
}

func checkpointOf(ops ...OperatorState) *CompletedCheckpoint {
	return &CompletedCheckpoint{ID: 7, Operators: ops}
}

// I7: after any rescale every key group of every stored subtask is restored
// by exactly one new subtask.
func TestI7EveryKeyGroupHasOneOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maxP := rapid.IntRange(1, 200).Draw(t, "max")
		p := rapid.IntRange(1, maxP).Draw(t, "old")
		q := rapid.IntRange(1, maxP).Draw(t, "new")
		old := OperatorState{UID: "op", Parallelism: p, MaxParallelism: maxP}
		for i := range p {
			old.Subtasks = append(old.Subtasks, OperatorSubtaskState{UID: "op", Keyed: []KeyedStateHandle{keyedHandle(i, p, maxP)}})
		}
		out, err := Reassign(checkpointOf(old), []OperatorTarget{{UID: "op", Parallelism: q}}, maxP)
		if err != nil {
			t.Fatal(err)
		}
		owners := make([]int, maxP)
		for j, s := range out[0].Subtasks {
			for _, h := range s.Keyed {
				common, ok := h.Range.Intersect(keygroup.RangeOf(j, q, maxP))
				if !ok {
					t.Fatalf("subtask %d is given groups %v of others", j, h.Range)
				}
				for g := common.First; ; g++ {
					owners[g]++
					if g == common.Last {
						break
					}
				}
			}
		}
		for g, n := range owners {
			if n != 1 {
				t.Fatalf("group %d has %d owners", g, n)
			}
		}
	})
}

// elementsOf lists what a subtask is given of a list, as "handle/element".
func elementsOf(s OperatorSubtaskState) []string {
	var all []string
	for _, h := range s.Lists {
		selected := h.Selected
		if selected == nil {
			for e := range h.Elements {
				selected = append(selected, int32(e))
			}
		}
		for _, e := range selected {
			all = append(all, fmt.Sprintf("%s/%d", h.Handle.Name, e))
		}
	}
	return all
}

// I7: every element of a list has one owner after any rescale; the shares of
// an evenly split list differ by one at most, by-index elements follow their index.
func TestI7EveryListElementHasOneOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.IntRange(1, 8).Draw(t, "old")
		q := rapid.IntRange(1, 8).Draw(t, "new")
		mode := rapid.SampledFrom([]Redistribution{SplitEvenly, ByIndex, Union}).Draw(t, "mode")
		old := OperatorState{UID: "op", Parallelism: p, MaxParallelism: 8}
		var want []string
		index := map[string]int64{}
		for i := range p {
			h := OperatorStateHandle{Name: "list", Redistribution: mode, Handle: StateHandle{Name: fmt.Sprint("h", i)}}
			for e := range rapid.IntRange(0, 5).Draw(t, "n") {
				h.Elements = append(h.Elements, 1)
				if mode == ByIndex {
					h.Indexes = append(h.Indexes, rapid.Int64Range(0, 100).Draw(t, "index"))
					index[fmt.Sprintf("h%d/%d", i, e)] = h.Indexes[e]
				}
				want = append(want, fmt.Sprintf("h%d/%d", i, e))
			}
			old.Subtasks = append(old.Subtasks, OperatorSubtaskState{UID: "op", Lists: []OperatorStateHandle{h}})
		}
		out, err := Reassign(checkpointOf(old), []OperatorTarget{{UID: "op", Parallelism: q}}, 8)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for j, s := range out[0].Subtasks {
			mine := elementsOf(s)
			switch mode {
			case Union:
				if !slices.Equal(mine, want) {
					t.Fatalf("subtask %d has %v of %v", j, mine, want)
				}
			case SplitEvenly:
				if share := len(want) / q; p != q && (len(mine) < share || len(mine) > share+1) {
					t.Fatalf("subtask %d of %d has %d of %d elements", j, q, len(mine), len(want))
				}
			case ByIndex:
				for _, e := range mine {
					if int(index[e])%q != j {
						t.Fatalf("subtask %d of %d has the element of index %d", j, q, index[e])
					}
				}
			}
			got = append(got, mine...)
		}
		if mode == Union {
			return
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// A restore at unchanged parallelism moves nothing and selects nothing.
func TestReassignKeepsWhatIsInPlace(t *testing.T) {
	old := OperatorState{UID: "op", Parallelism: 2, MaxParallelism: 128}
	for i := range 2 {
		old.Subtasks = append(old.Subtasks, OperatorSubtaskState{
			UID:   "op",
			Keyed: []KeyedStateHandle{keyedHandle(i, 2, 128)},
			Lists: []OperatorStateHandle{{Name: "l", Redistribution: SplitEvenly, Elements: make([]int64, 1+5*i)}},
		})
	}
	out, err := Reassign(checkpointOf(old), []OperatorTarget{{UID: "op", Parallelism: 2}, {UID: "fresh", Parallelism: 3}}, 128)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(out[0].Subtasks, old.Subtasks) {
		t.Fatalf("got %+v", out[0].Subtasks)
	}
	if len(out[1].Subtasks) != 3 || len(out[1].Subtasks[2].Keyed) != 0 || out[1].Subtasks[2].UID != "fresh" {
		t.Fatalf("an operator without state: %+v", out[1])
	}
}

func TestReassignRefuses(t *testing.T) {
	with := func(maxParallelism int, states ...OperatorSubtaskState) OperatorState {
		return OperatorState{UID: "op", Parallelism: len(states), MaxParallelism: maxParallelism, Subtasks: states}
	}
	wide := keyedHandle(0, 1, 128)
	short := keyedHandle(0, 1, 128)
	short.Offsets = short.Offsets[1:]
	list := func(h OperatorStateHandle) OperatorSubtaskState {
		return OperatorSubtaskState{Lists: []OperatorStateHandle{h}}
	}
	for _, c := range []struct {
		name string
		cc   *CompletedCheckpoint
		uid  ids.OperatorUID
		want []string
	}{
		{"another max parallelism", checkpointOf(with(64, OperatorSubtaskState{})), "op", []string{`"op"`, "64", "128", "set it back"}},
		{"state of a lost operator", checkpointOf(with(128, OperatorSubtaskState{Keyed: []KeyedStateHandle{wide}})), "renamed",
			[]string{"checkpoint 7", `"op"`, "does not have"}},
		{"splits of a lost source", &CompletedCheckpoint{ID: 7, Splits: []SplitList{{UID: "src", Splits: make([]Split, 1)}}}, "op",
			[]string{`"src"`, "does not have"}},
		{"groups of others", checkpointOf(with(128, OperatorSubtaskState{Keyed: []KeyedStateHandle{wide}}, OperatorSubtaskState{})), "op",
			[]string{"0-127", "0-63", "corrupt"}},
		{"offsets missing", checkpointOf(with(128, OperatorSubtaskState{Keyed: []KeyedStateHandle{short}})), "op", []string{"128 offsets", "corrupt"}},
		{"subtasks missing", checkpointOf(OperatorState{UID: "op", Parallelism: 2, MaxParallelism: 128}), "op", []string{"corrupt"}},
		{"unknown redistribution", checkpointOf(with(128, list(OperatorStateHandle{Name: "l", Redistribution: 9}))), "op", []string{"newer version"}},
		{"indexes missing", checkpointOf(with(128, list(OperatorStateHandle{Name: "l", Redistribution: ByIndex, Elements: []int64{1}}))), "op", []string{"corrupt"}},
		{"two redistributions", checkpointOf(with(128,
			list(OperatorStateHandle{Name: "l", Redistribution: Union}), list(OperatorStateHandle{Name: "l", Redistribution: SplitEvenly}))), "op", []string{"corrupt"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Reassign(c.cc, []OperatorTarget{{UID: c.uid, Parallelism: 2}}, 128)
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
		})
	}
	// A lost operator without state is no loss.
	if _, err := Reassign(checkpointOf(with(128, OperatorSubtaskState{})), []OperatorTarget{{UID: "other", Parallelism: 1}}, 128); err != nil {
		t.Fatal(err)
	}
}
