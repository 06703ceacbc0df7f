package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/coordinator/slots"
	"github.com/weirstream/weir/pkg/ids"
)

func TestSpreadTakesTaskManagersInTurn(t *testing.T) {
	slot := func(tm ids.TaskManagerID, index int32) slots.Slot {
		return slots.Slot{TaskManager: tm, Index: index}
	}
	leased := []slots.Slot{slot("a", 0), slot("a", 1), slot("a", 2), slot("b", 0), slot("b", 3), slot("c", 1)}
	want := []slots.Slot{slot("a", 0), slot("b", 0), slot("c", 1), slot("a", 1), slot("b", 3), slot("a", 2)}
	if got := Spread(leased); !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// I7: no slot is lost or doubled, no order of the argument matters, and no
// TaskManager gets two of the first n slots while another with a slot gets none.
func TestI7SpreadKeepsEverySlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var leased []slots.Slot
		managers := rapid.IntRange(1, 5).Draw(t, "managers")
		for tm := range managers {
			for i := range rapid.IntRange(1, 4).Draw(t, "slots") {
				leased = append(leased, slots.Slot{TaskManager: ids.TaskManagerID(fmt.Sprint("tm-", tm)), Index: int32(i)})
			}
		}
		got := Spread(leased)
		shuffled := slices.Clone(leased)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if !slices.Equal(got, Spread(shuffled)) {
			t.Fatal("the order of the slots matters")
		}
		first := map[ids.TaskManagerID]bool{}
		for _, s := range got[:managers] {
			first[s.TaskManager] = true
		}
		if len(first) != managers {
			t.Fatalf("the first %d slots use %d TaskManagers", managers, len(first))
		}
		slices.SortFunc(got, slots.Slot.Compare)
		if !slices.Equal(got, leased) {
			t.Fatalf("got %v, want %v", got, leased)
		}
	})
}

func drawLeased(t *rapid.T) []slots.Slot {
	var leased []slots.Slot
	for tm := range rapid.IntRange(1, 5).Draw(t, "managers") {
		for i := range rapid.IntRange(0, 4).Draw(t, "slots") {
			leased = append(leased, slots.Slot{TaskManager: ids.TaskManagerID(fmt.Sprint("tm-", tm)), Index: int32(i)})
		}
	}
	return leased
}

func TestPlaceGoesBack(t *testing.T) {
	slot := func(tm ids.TaskManagerID, index int32) slots.Slot {
		return slots.Slot{TaskManager: tm, Index: index}
	}
	leased := []slots.Slot{slot("a", 0), slot("b", 0), slot("b", 1), slot("d", 0), slot("d", 1)}
	// c is lost, a has one slot less; d is new and takes what has no place.
	before := []ids.TaskManagerID{"b", "c", "a", "a", "b", "c"}
	want := []slots.Slot{slot("b", 0), slot("d", 0), slot("a", 0), slot("d", 1), slot("b", 1)}
	if got := Place(leased, before); !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// I7: no slot is lost or doubled and no order of the argument matters. As many
// subtasks stay as can; what does not is spread; nothing before, or the same
// slots again, changes nothing.
func TestI7PlaceKeepsWhatItCan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leased := drawLeased(t)
		var before []ids.TaskManagerID
		for range rapid.IntRange(0, 12).Draw(t, "slots before") {
			before = append(before, ids.TaskManagerID(fmt.Sprint("tm-", rapid.IntRange(0, 6).Draw(t, "before"))))
		}
		got := Place(leased, before)
		shuffled := slices.Clone(leased)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if !slices.Equal(got, Place(shuffled, before)) {
			t.Fatal("the order of the slots matters")
		}
		if !slices.Equal(Place(leased, nil), Spread(leased)) {
			t.Fatal("without a placement before, slots are not spread")
		}
		owners := func(placed []slots.Slot) (out []ids.TaskManagerID) {
			for _, s := range placed {
				out = append(out, s.TaskManager)
			}
			return out
		}
		if again := Place(leased, owners(got)); !slices.Equal(owners(again), owners(got)) {
			t.Fatalf("the same slots again give %v after %v", again, got)
		}
		has, wanted, stayed := map[ids.TaskManagerID]int{}, map[ids.TaskManagerID]int{}, map[ids.TaskManagerID]int{}
		for _, s := range leased {
			has[s.TaskManager]++
		}
		for i, tm := range before[:min(len(before), len(leased))] {
			wanted[tm]++
			if got[i].TaskManager == tm {
				stayed[tm]++
			}
		}
		for tm, n := range wanted {
			if stayed[tm] < min(n, has[tm]) {
				t.Fatalf("%d subtasks stay on %s, %d were there and it has %d slots", stayed[tm], tm, n, has[tm])
			}
		}
		// Those that moved take the emptiest TaskManagers first.
		used := map[ids.TaskManagerID]int{}
		for i, s := range got {
			if i < len(before) && s.TaskManager == before[i] {
				used[s.TaskManager]++
			}
		}
		for i, s := range got {
			if i < len(before) && s.TaskManager == before[i] {
				continue
			}
			for tm := range has {
				n := used[tm]
				if n < used[s.TaskManager] && n < has[tm] {
					t.Fatalf("subtask %d goes to %s, which has %d, and %s has %d of %d", i, s.TaskManager, used[s.TaskManager], tm, n, has[tm])
				}
			}
			used[s.TaskManager]++
		}
		slices.SortFunc(got, slots.Slot.Compare)
		if !slices.Equal(got, sorted(leased)) {
			t.Fatalf("got %v, want %v", got, leased)
		}
	})
}
