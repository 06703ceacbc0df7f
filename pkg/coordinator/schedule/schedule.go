package schedule

import (
	"slices"

	"github.com/weirstream/weir/pkg/coordinator/slots"
)

// Spread orders leased slots so that taking the first n of them uses as many
// TaskManagers as n slots can: the first slot of each TaskManager, then the
// second of each, and so on. Slot i of the result holds subtask i of every
// vertex, so vertices of small parallelism spread as well as large ones.
// The argument is left as it is.
func Spread(leased []slots.Slot) []slots.Slot {
	sorted := slices.Clone(leased)
	slices.SortFunc(sorted, slots.Slot.Compare)
	type ranked struct {
		rank int // how many slots of the same TaskManager come before
		slot slots.Slot
	}
	order := make([]ranked, len(sorted))
	for i, s := range sorted {
		order[i] = ranked{slot: s}
		if i > 0 && sorted[i-1].TaskManager == s.TaskManager {
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
