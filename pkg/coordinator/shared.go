package coordinator

import (
	"slices"
	"strings"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// registry counts who refers to shared files: files of the job's directory
// that were uploaded for one checkpoint and that later ones may refer to. It
// has the files of every checkpoint of the job that is retained, and of every
// base: the published checkpoint whose shared files a pending one may refer to
// (element.Barrier.Base). A base is pinned until its pending checkpoint is
// published or given up, and so keeps its shared files even if it is subsumed
// meanwhile.
//
// Why a file is deleted exactly when nothing refers to it (I4):
//
//   - A checkpoint refers to files that were uploaded for it, and to files of
//     its base. An acknowledgement that says otherwise is declined.
//   - A base is published. So, by induction over the bases, a file uploaded for
//     checkpoint n is referred to by others only if n was published: what was
//     uploaded for a checkpoint that never will be is free to go, at once or
//     whenever its acknowledgement comes, and nothing else of it is.
//   - A published checkpoint is registered before the pin of its base is taken
//     off and before an older one is released. So no count falls to zero while
//     a checkpoint that is retained, or may turn out to be, refers to the file;
//     and when it does fall to zero no base can have the file any more.
//   - What was uploaded and never acknowledged, and what a JobManager that went
//     away had still to delete, is of fenced attempts: SweepAttempts finds it.
//     That is begun while nothing is pinned that is not kept, and later
//     checkpoints get files of fenced attempts from the checkpoints that it
//     keeps only.
//   - A leader reads what it restores, and no other checkpoint of the leaders
//     before it. An unread one may refer to whatever was uploaded before it or
//     for it, so none of that is deleted here as long as it is retained.
//     SweepAttempts, which reads for itself, finds what it leaves.
//
// A claimed checkpoint is not here: its names are relative to another base.
type registry struct {
	// checkpoints is bounded by those retained and those pending, one base each.
	checkpoints map[ids.CheckpointID]*registered
	// references counts the registered checkpoints that refer to a shared file.
	references map[string]int
	// withheld are files that nothing known refers to, while an unread checkpoint
	// may do so.
	withheld []snapshot.StateHandle
}

// registered is a checkpoint that is retained, pinned or both.
type registered struct {
	retained bool
	pins     int
	// unread: what it refers to is not known.
	unread  bool
	private map[string]struct{}
	shared  map[string]snapshot.StateHandle
}

// retain registers a published checkpoint with its files, also one that was
// unread so far.
func (r *registry) retain(id ids.CheckpointID, each func(func(snapshot.StateHandle))) {
	if x := r.checkpoints[id]; x != nil && !x.unread {
		return
	}
	x := &registered{retained: true, private: make(map[string]struct{}), shared: make(map[string]snapshot.StateHandle)}
	each(func(h snapshot.StateHandle) {
		switch {
		case h.IsInline():
		case h.IsShared():
			x.shared[h.Name] = h
		default:
			x.private[h.Name] = struct{}{}
		}
	})
	for name := range x.shared {
		if r.references == nil {
			r.references = make(map[string]int)
		}
		r.references[name]++
	}
	r.register(id, x)
}

// retainUnread registers a retained checkpoint that was not read.
func (r *registry) retainUnread(id ids.CheckpointID) {
	if r.checkpoints[id] == nil {
		r.register(id, &registered{retained: true, unread: true})
	}
}

func (r *registry) register(id ids.CheckpointID, x *registered) {
	if r.checkpoints == nil {
		r.checkpoints = make(map[ids.CheckpointID]*registered)
	}
	r.checkpoints[id] = x
}

func (r *registry) isUnread(id ids.CheckpointID) bool {
	x := r.checkpoints[id]
	return x != nil && x.unread
}

// canBeBase reports whether a new checkpoint may refer to shared files of this one.
func (r *registry) canBeBase(id ids.CheckpointID) bool {
	x := r.checkpoints[id]
	return x != nil && x.retained && !x.unread
}

// has reports whether the checkpoint refers to this very shared file.
func (r *registry) has(id ids.CheckpointID, h snapshot.StateHandle) bool {
	x := r.checkpoints[id]
	if x == nil {
		return false
	}
	known, ok := x.shared[h.Name]
	return ok && known.SharedSince == h.SharedSince && known.Size == h.Size && known.CRC32C == h.CRC32C
}

// pin keeps the shared files of a base.
func (r *registry) pin(id ids.CheckpointID) {
	invariant.Check(r.canBeBase(id), "I4", "checkpoint %d is pinned, which is not retained", id)
	r.checkpoints[id].pins++
}

// unpin takes one pin off and returns the shared files that nothing refers to any more.
func (r *registry) unpin(id ids.CheckpointID) []snapshot.StateHandle {
	x := r.checkpoints[id]
	invariant.Check(x != nil && x.pins > 0, "I4", "checkpoint %d is unpinned and is not pinned", id)
	x.pins--
	return r.drop(id, x)
}

// release forgets a checkpoint that is no longer retained, once it is not
// pinned, and returns the shared files that nothing refers to any more.
func (r *registry) release(id ids.CheckpointID) []snapshot.StateHandle {
	x := r.checkpoints[id]
	if x == nil {
		return nil
	}
	x.retained = false
	return r.drop(id, x)
}

func (r *registry) drop(id ids.CheckpointID, x *registered) []snapshot.StateHandle {
	if x.retained || x.pins > 0 {
		return nil
	}
	delete(r.checkpoints, id)
	var free []snapshot.StateHandle
	for _, h := range r.withheld {
		if r.references[h.Name] == 0 { // else the unread one that has it was read since
			free = append(free, h)
		}
	}
	r.withheld = nil
	for name, h := range x.shared {
		r.references[name]--
		if r.references[name] == 0 {
			delete(r.references, name)
			free = append(free, h)
		}
	}
	until := r.unreadUntil()
	kept := free[:0]
	for _, h := range free {
		if h.SharedSince <= until {
			r.withheld = append(r.withheld, h)
		} else {
			kept = append(kept, h)
		}
	}
	slices.SortFunc(kept, func(a, b snapshot.StateHandle) int { return strings.Compare(a.Name, b.Name) })
	return kept
}

// unreadUntil is the newest retained checkpoint that was not read; 0 for none.
func (r *registry) unreadUntil() ids.CheckpointID {
	var until ids.CheckpointID
	for id, x := range r.checkpoints {
		if x.unread {
			until = max(until, id)
		}
	}
	return until
}

// needs reports whether a registered checkpoint refers to the file, or may do so.
func (r *registry) needs(h snapshot.StateHandle) bool {
	if r.references[h.Name] > 0 || h.IsShared() && h.SharedSince <= r.unreadUntil() {
		return true
	}
	for _, x := range r.checkpoints {
		if _, ok := x.private[h.Name]; ok {
			return true
		}
	}
	return false
}
