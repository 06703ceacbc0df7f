package snapshot

import (
	"fmt"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
)

// OperatorTarget is an operator that state is to be restored into.
type OperatorTarget struct {
	UID         ids.OperatorUID
	Parallelism int
	// Described says that States are all that the operator registers.
	Described bool
	States    []StateMeta
}

// state is the registered state that a stored one is matched with.
func (t *OperatorTarget) state(stored StateMeta) (StateMeta, bool) {
	for _, s := range t.States {
		if s.isNamedAs(stored) {
			return s, true
		}
		if stored.isAllBroadcast() && s.Kind == BroadcastKind {
			return stored, true // which maps it holds, its subtasks see
		}
	}
	return StateMeta{}, false
}

// drops reports whether the operator is known not to have a stored state.
func (t *OperatorTarget) drops(stored StateMeta) bool {
	_, has := t.state(stored)
	return t.Described && !has
}

// Reassign says which subtask restores what of a checkpoint. The result has
// one entry for each target, in order, with the state of every new subtask;
// operators without state in the checkpoint get empty ones.
//
//   - A keyed handle goes to every subtask whose key groups it intersects; it
//     keeps its own range, and the reader takes only its groups from it.
//   - Elements of SplitEvenly lists are dealt out in order, in equal runs; at
//     unchanged parallelism everybody keeps what it had.
//   - Elements of ByIndex lists go to index mod parallelism.
//   - Union lists go to everybody, as handles: nothing is copied.
//
// Every error is permanent: the same checkpoint and program give it again.
func Reassign(c *CompletedCheckpoint, targets []OperatorTarget, maxParallelism int) ([]OperatorState, error) {
	stored := make(map[ids.OperatorUID]*OperatorState, len(c.Operators))
	for i := range c.Operators {
		stored[c.Operators[i].UID] = &c.Operators[i]
	}
	if err := refuseLostState(c, targets); err != nil {
		return nil, err
	}
	out := make([]OperatorState, len(targets))
	for i, t := range targets {
		out[i] = OperatorState{
			UID:            t.UID,
			Parallelism:    t.Parallelism,
			MaxParallelism: maxParallelism,
			Subtasks:       make([]OperatorSubtaskState, t.Parallelism),
		}
		for j := range out[i].Subtasks {
			out[i].Subtasks[j].UID = t.UID
		}
		old, ok := stored[t.UID]
		if !ok {
			continue
		}
		if old.MaxParallelism != maxParallelism {
			return nil, fmt.Errorf("operator %q: checkpoint %d was taken with max parallelism %d, the job has %d: it cannot change, set it back to %d",
				t.UID, c.ID, old.MaxParallelism, maxParallelism, old.MaxParallelism)
		}
		if len(old.Subtasks) != old.Parallelism || old.Parallelism > old.MaxParallelism {
			return nil, fmt.Errorf("operator %q of checkpoint %d: has %d subtasks, parallelism %d, max parallelism %d: the metadata is corrupt",
				t.UID, c.ID, len(old.Subtasks), old.Parallelism, old.MaxParallelism)
		}
		if err := reassignKeyed(old, &out[i]); err != nil {
			return nil, fmt.Errorf("operator %q of checkpoint %d: %w", t.UID, c.ID, err)
		}
		if err := reassignLists(old, &out[i]); err != nil {
			return nil, fmt.Errorf("operator %q of checkpoint %d: %w", t.UID, c.ID, err)
		}
	}
	return out, nil
}

func (o *OperatorState) hasState() bool {
	for i := range o.Subtasks {
		if len(o.Subtasks[i].Keyed) > 0 || len(o.Subtasks[i].Lists) > 0 {
			return true
		}
	}
	return false
}

func reassignKeyed(old, target *OperatorState) error {
	for i := range old.Subtasks {
		owned := keygroup.RangeOf(i, old.Parallelism, old.MaxParallelism)
		for _, h := range old.Subtasks[i].Keyed {
			if h.Range.First > h.Range.Last || h.Range.First < owned.First || h.Range.Last > owned.Last {
				return fmt.Errorf("subtask %d has key groups %s but owned %s: the metadata is corrupt", i, h.Range, owned)
			}
			if !h.IsInFiles() && len(h.Offsets) != h.Range.Len()+1 {
				return fmt.Errorf("subtask %d has %d offsets for key groups %s: the metadata is corrupt", i, len(h.Offsets), h.Range)
			}
			first := keygroup.OwnerOf(h.Range.First, target.Parallelism, target.MaxParallelism)
			last := keygroup.OwnerOf(h.Range.Last, target.Parallelism, target.MaxParallelism)
			for j := first; j <= last; j++ {
				target.Subtasks[j].Keyed = append(target.Subtasks[j].Keyed, h)
			}
		}
	}
	return nil
}

// operatorList is all handles of one named list, by old subtask.
type operatorList struct {
	name           string
	redistribution Redistribution
	parts          []listPart
	elements       int
}

type listPart struct {
	subtask int
	handle  OperatorStateHandle
}

func reassignLists(old, target *OperatorState) error {
	lists, err := collectLists(old)
	if err != nil {
		return err
	}
	for _, l := range lists {
		switch l.redistribution {
		case Union:
			for _, p := range l.parts {
				for j := range target.Subtasks {
					target.Subtasks[j].Lists = append(target.Subtasks[j].Lists, p.handle)
				}
			}
		case SplitEvenly:
			splitEvenly(l, old.Parallelism, target)
		case ByIndex:
			dealByIndex(l, target)
		}
	}
	return nil
}

// collectLists groups the handles by name, in the order in which names appear.
func collectLists(old *OperatorState) ([]*operatorList, error) {
	byName := make(map[string]*operatorList)
	var lists []*operatorList
	for i := range old.Subtasks {
		for _, h := range old.Subtasks[i].Lists {
			switch h.Redistribution {
			case SplitEvenly, Union, ByIndex:
			default:
				return nil, fmt.Errorf("list %q has the unknown redistribution %d: it was written by a newer version", h.Name, h.Redistribution)
			}
			if h.Redistribution == ByIndex && len(h.Indexes) != len(h.Elements) {
				return nil, fmt.Errorf("list %q of subtask %d has %d indexes for %d elements: the metadata is corrupt",
					h.Name, i, len(h.Indexes), len(h.Elements))
			}
			l, ok := byName[h.Name]
			if !ok {
				l = &operatorList{name: h.Name, redistribution: h.Redistribution}
				byName[h.Name] = l
				lists = append(lists, l)
			}
			if l.redistribution != h.Redistribution {
				return nil, fmt.Errorf("list %q is redistributed differently by two subtasks: the metadata is corrupt", h.Name)
			}
			// A union list goes to everybody: of what its handle says only that
			// is taken along which nobody else tells the subtask.
			h.States = droppedOf(h.States)
			l.parts = append(l.parts, listPart{subtask: i, handle: h})
			l.elements += len(h.Elements)
		}
	}
	return lists, nil
}

// droppedOf are the states that are not to be restored.
func droppedOf(states []StateMeta) (dropped []StateMeta) {
	for _, m := range states {
		if m.Kind == DroppedKind {
			dropped = append(dropped, m)
		}
	}
	return dropped
}

// splitEvenly gives subtask j the elements [j*n/p, (j+1)*n/p) of all n in order.
func splitEvenly(l *operatorList, oldParallelism int, target *OperatorState) {
	if oldParallelism == target.Parallelism {
		for _, p := range l.parts {
			s := &target.Subtasks[p.subtask]
			s.Lists = append(s.Lists, p.handle)
		}
		return
	}
	j, n := 0, 0
	for _, p := range l.parts {
		var selected []int32
		for e := range p.handle.Elements {
			for n >= (j+1)*l.elements/target.Parallelism {
				giveElements(&target.Subtasks[j], p.handle, selected)
				selected = nil
				j++
			}
			selected = append(selected, int32(e))
			n++
		}
		giveElements(&target.Subtasks[j], p.handle, selected)
	}
}

func dealByIndex(l *operatorList, target *OperatorState) {
	for _, p := range l.parts {
		selected := make(map[int][]int32)
		for e, index := range p.handle.Indexes {
			j := int(uint64(index) % uint64(target.Parallelism))
			selected[j] = append(selected[j], int32(e))
		}
		for j := range target.Subtasks {
			giveElements(&target.Subtasks[j], p.handle, selected[j])
		}
	}
}

// giveElements adds the handle restricted to some of its elements. All of
// them are written as no selection, none as no handle.
func giveElements(s *OperatorSubtaskState, h OperatorStateHandle, selected []int32) {
	if len(selected) == 0 {
		return
	}
	if len(selected) == len(h.Elements) {
		selected = nil
	}
	h.Selected = selected
	s.Lists = append(s.Lists, h)
}
