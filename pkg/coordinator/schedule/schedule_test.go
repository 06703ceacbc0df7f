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
