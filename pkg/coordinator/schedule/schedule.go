package schedule

import (
	"slices"

	"github.com/weirstream/weir/pkg/coordinator/slots"
	"github.com/weirstream/weir/pkg/ids"
)

// Place orders leased slots: slot i of the result holds subtask i of every
// vertex. before has the TaskManager of each slot in an earlier placement, empty
// for none: where the TaskManager has a leased slot again, its subtasks go back to
// it, and find what they left on its disk. All other slots are spread, see
// Spread. The arguments are left as they are.
func Place(leased []slots.Slot, before []ids.TaskManagerID) []slots.Slot {
	free := make(map[ids.TaskManagerID][]slots.Slot)
	for _, s := range sorted(leased) {
		free[s.TaskManager] = append(free[s.TaskManager], s)
	}
	out := make([]slots.Slot, len(leased))
	kept := make([]bool, len(leased))
	taken := make(map[ids.TaskManagerID]int)
	for i, tm := range before[:min(len(before), len(leased))] {
		if of := free[tm]; len(of) > 0 {
			out[i], kept[i] = of[0], true
			free[tm] = of[1:]
			taken[tm]++
		}
	}
	var rest []slots.Slot
	for _, of := range free {
		rest = append(rest, of...)
	}
	rest = spread(rest, taken)
	for i := range out {
		if !kept[i] {
			out[i], rest = rest[0], rest[1:]
		}
	}
	return out
}

// Spread orders leased slots so that taking the first n of them uses as many
// TaskManagers as n slots can: the first slot of each TaskManager, then the
// second of each, and so on. So vertices of small parallelism spread as well as
// large ones. The argument is left as it is.
func Spread(leased []slots.Slot) []slots.Slot { return spread(leased, nil) }

// spread is Spread where some slots of TaskManagers are taken already.
func spread(leased []slots.Slot, taken map[ids.TaskManagerID]int) []slots.Slot {
	type ranked struct {
		rank int // how many slots of the same TaskManager come before
		slot slots.Slot
	}
	order := make([]ranked, len(leased))
	for i, s := range sorted(leased) {
		order[i] = ranked{rank: taken[s.TaskManager], slot: s}
		if i > 0 && order[i-1].slot.TaskManager == s.TaskManager {
			order[i].rank = order[i-1].rank + 1
		}
	}
	// Stable: within a rank TaskManagers stay in the order of their IDs.
	slices.SortStableFunc(order, func(a, b ranked) int { return a.rank - b.rank })
	out := make([]slots.Slot, len(order))
	for i, r := range order {
		out[i] = r.slot
	}
	return out
}

func sorted(leased []slots.Slot) []slots.Slot {
	out := slices.Clone(leased)
	slices.SortFunc(out, slots.Slot.Compare)
	return out
}
