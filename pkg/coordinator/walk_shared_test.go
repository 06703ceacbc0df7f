package coordinator

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// sharedStore is what the store of a world has of shared files, and the
// deletions that are on their way, in order. Those of a JobManager that goes
// away are lost with it.
type sharedStore struct {
	files     map[string]sharedFile
	deletions []func()
	changed   bool // a deletion was carried out since the last check
}

type sharedFile struct {
	attempt ids.AttemptID
	since   ids.CheckpointID
}

// sharedNames are the shared files that a checkpoint refers to.
func (w *world) sharedNames(id ids.CheckpointID) map[string]snapshot.StateHandle {
	names := map[string]snapshot.StateHandle{}
	if cc := w.metadata[id]; cc != nil {
		cc.EachHandle(func(h snapshot.StateHandle) {
			if h.IsShared() {
				names[h.Name] = h
			}
		})
	}
	return names
}

// upload makes the shared part of a subtask's snapshot: a new file, and some of
// the base's. A confused subtask refers to any file there is.
func (w *world) upload(attempt ids.AttemptID, id, base ids.CheckpointID) []snapshot.OperatorStateHandle {
	var handles []snapshot.StateHandle
	known := w.sharedNames(base)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if w.r.IntN(4) == 0 {
			handles = append(handles, known[name])
		}
	}
	if names := slices.Sorted(maps.Keys(w.shared.files)); len(names) > 0 && w.chance(60) {
		name := names[w.r.IntN(len(names))]
		handles = append(handles, snapshot.StateHandle{Name: name, Size: 1, SharedSince: w.shared.files[name].since})
	}
	w.files++
	created := snapshot.StateHandle{Name: fmt.Sprint("shared/", w.files), Size: 1, SharedSince: id}
	w.shared.files[created.Name] = sharedFile{attempt: attempt, since: id}
	var lists []snapshot.OperatorStateHandle
	for i, h := range append(handles, created) {
		lists = append(lists, snapshot.OperatorStateHandle{
			Name: fmt.Sprint("s", i), Redistribution: snapshot.SplitEvenly, Elements: []int64{1}, Handle: h,
		})
	}
	return lists
}

// delete queues what an effect deletes of shared files.
func (w *world) delete(e Effect) {
	switch e := e.(type) {
	case DiscardHandles:
		for _, h := range e.Handles {
			if !h.IsShared() {
				continue
			}
			if e.Metadata || e.Dir != "" {
				w.fail("I4: %s: shared files are not below a checkpoint's directory", e)
			}
			w.shared.deletions = append(w.shared.deletions, func() { delete(w.shared.files, h.Name) })
		}
	case SweepAttempts:
		w.shared.deletions = append(w.shared.deletions, func() {
			needed := map[string]snapshot.StateHandle{}
			for _, ref := range e.Keep {
				maps.Copy(needed, w.sharedNames(ref.ID))
			}
			maps.DeleteFunc(w.shared.files, func(name string, f sharedFile) bool {
				_, isNeeded := needed[name]
				return !isNeeded && f.attempt.Less(e.Below)
			})
		})
	}
}

// runDeletion carries out the oldest deletion, if any.
func (w *world) runDeletion() {
	if len(w.shared.deletions) > 0 {
		w.shared.deletions[0]()
		w.shared.deletions = w.shared.deletions[1:]
		w.shared.changed = true
	}
}

// retainedNames are the shared files of all checkpoints that the record retains.
func (w *world) retainedNames(r *Record) map[string]snapshot.StateHandle {
	needed := map[string]snapshot.StateHandle{}
	if !r.Status.IsTerminal() || w.c.cfg.Checkpointing.Retention.Keeps(r.Status) {
		for _, ref := range r.Retained {
			maps.Copy(needed, w.sharedNames(ref.ID))
		}
	}
	return needed
}

// checkShared: every file that a retained checkpoint, one that may turn out to
// be retained, or the base of a pending one refers to, is there; and when
// nothing is under way, no other.
func (w *world) checkShared() {
	w.shared.changed = false
	needed := w.retainedNames(&w.durable)
	may := maps.Clone(needed)
	// The end may be recorded or not; only what is kept in both cases is needed.
	if w.inFlight != nil && !w.durable.Status.IsTerminal() {
		maps.Copy(may, w.retainedNames(w.inFlight))
	}
	if !w.ended {
		for _, p := range w.c.pending {
			maps.Copy(may, w.sharedNames(p.base))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(may)) {
		if _, ok := w.shared.files[name]; !ok {
			w.fail("I4: %s is gone and %v refers to it", name, w.durable.Retained)
		}
	}
	quiet := w.c.phase == phaseRun && w.c.files.unreadUntil() == 0 && !w.c.sweepOwed && len(w.mail) == 0 && len(w.c.pending) == 0 &&
		len(w.c.unsettled) == 0 && w.c.record.isSettled()
	if len(w.shared.deletions) > 0 || !quiet && !w.ended {
		return
	}
	for name := range w.shared.files {
		if _, ok := needed[name]; !ok {
			w.fail("I4: %s is left and none of %v refers to it", name, w.durable.Retained)
		}
	}
	w.quiescent++
}
