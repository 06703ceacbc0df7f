package align

import (
	"fmt"
	"slices"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
)

// ActionKind is what a subtask must do.
type ActionKind uint8

// The actions.
const (
	// Block holds one channel back.
	Block ActionKind = iota + 1
	// Release lets every blocked channel deliver again.
	Release
	// Snapshot takes the snapshot of Barrier and passes the barrier on.
	Snapshot
	// Abandon says that Barrier's checkpoint will not be taken here: pass a
	// cancel marker on, and decline unless the coordinator gave it up itself.
	Abandon
)

// Action is one thing to do. Channel is set for Block, Barrier for Snapshot
// and Abandon, Reason and Decline for Abandon.
type Action struct {
	Kind    ActionKind
	Channel int
	Barrier element.Barrier
	// Reason says why a checkpoint is abandoned.
	Reason Reason
}

// String prints the action for scripts and traces.
func (a Action) String() string {
	switch a.Kind {
	case Block:
		return fmt.Sprintf("block %d", a.Channel)
	case Release:
		return "release"
	case Snapshot:
		return fmt.Sprintf("snapshot %d", a.Barrier.Checkpoint)
	case Abandon:
		return fmt.Sprintf("abandon %d: %s", a.Barrier.Checkpoint, a.Reason)
	}
	return fmt.Sprintf("action(%d)", a.Kind)
}

// Reason says why a checkpoint was abandoned: a closed list.
type Reason uint8

// The reasons.
const (
	// Overtaken: a channel delivered a newer barrier first, so it will never
	// deliver this one.
	Overtaken Reason = iota + 1
	// Marked: a channel delivered a cancel marker.
	Marked
	// Aborted: the coordinator said so.
	Aborted
)

// String names the reason.
func (r Reason) String() string {
	switch r {
	case Overtaken:
		return "overtaken"
	case Marked:
		return "cancel-marker"
	case Aborted:
		return "aborted"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// rememberedMax bounds how many given-up checkpoints are remembered in order
// to ignore their late barriers. More than this many cannot be between the
// sources and a subtask at once, since the coordinator runs few at a time; an
// older one would start an alignment that the next barrier ends.
const rememberedMax = 16

// Aligner is the alignment of one subtask. The zero value is not usable.
type Aligner struct {
	channels int
	barrier  element.Barrier // being aligned; Checkpoint 0 for none
	got      []bool          // channels that delivered the barrier
	ended    []bool          // channels after end of partition
	missing  int             // channels that have neither delivered it nor ended
	latest   ids.CheckpointID
	givenUp  []ids.CheckpointID
}

// New makes the aligner of a subtask with that many input channels.
func New(channels int) *Aligner {
	return &Aligner{channels: channels, got: make([]bool, channels), ended: make([]bool, channels)}
}

// Current is the checkpoint being aligned, 0 for none.
func (a *Aligner) Current() ids.CheckpointID { return a.barrier.Checkpoint }

// IsBlocked reports whether the channel must deliver nothing (I5).
func (a *Aligner) IsBlocked(ch int) bool { return a.barrier.Checkpoint != 0 && a.got[ch] }

// Barrier takes a barrier that channel ch delivered.
func (a *Aligner) Barrier(ch int, b element.Barrier) []Action {
	invariant.Check(!a.IsBlocked(ch), "I5", "blocked channel %d delivered barrier %d", ch, b.Checkpoint)
	var out []Action
	switch {
	case a.barrier.Checkpoint == 0 && b.Checkpoint <= a.latest, b.Checkpoint < a.barrier.Checkpoint, a.isGivenUp(b.Checkpoint):
		return nil // late: its checkpoint was given up
	case b.Checkpoint > a.barrier.Checkpoint:
		if a.barrier.Checkpoint != 0 {
			out = a.abandon(out, Overtaken)
		}
		a.begin(b)
	}
	a.got[ch] = true
	a.missing--
	if a.missing == 0 {
		return a.complete(out)
	}
	return append(out, Action{Kind: Block, Channel: ch})
}

// CancelMarker takes a cancel marker that channel ch delivered.
func (a *Aligner) CancelMarker(ch int, id ids.CheckpointID) []Action {
	invariant.Check(!a.IsBlocked(ch), "I5", "blocked channel %d delivered cancel marker %d", ch, id)
	return a.giveUp(id, Marked)
}

// Abort takes the coordinator's word that the checkpoint is given up. It may
// come before any barrier of it.
func (a *Aligner) Abort(id ids.CheckpointID) []Action { return a.giveUp(id, Aborted) }

// EndOfPartition says that channel ch will deliver nothing more: it holds no
// alignment up.
func (a *Aligner) EndOfPartition(ch int) []Action {
	if a.ended[ch] {
		return nil
	}
	a.ended[ch] = true
	if a.barrier.Checkpoint == 0 || a.got[ch] {
		return nil
	}
	a.missing--
	if a.missing == 0 {
		return a.complete(nil)
	}
	return nil
}

func (a *Aligner) begin(b element.Barrier) {
	a.barrier = b
	a.latest = b.Checkpoint
	a.missing = 0
	for ch := range a.got {
		a.got[ch] = false
		if !a.ended[ch] {
			a.missing++
		}
	}
}

func (a *Aligner) complete(out []Action) []Action {
	b := a.barrier
	a.barrier = element.Barrier{}
	return append(out, Action{Kind: Snapshot, Barrier: b}, Action{Kind: Release})
}

func (a *Aligner) abandon(out []Action, why Reason) []Action {
	b := a.barrier
	a.barrier = element.Barrier{}
	return append(out, Action{Kind: Abandon, Barrier: b, Reason: why}, Action{Kind: Release})
}

func (a *Aligner) giveUp(id ids.CheckpointID, why Reason) []Action {
	if id == a.barrier.Checkpoint {
		return a.abandon(nil, why)
	}
	if id < a.latest || a.isGivenUp(id) {
		return nil
	}
	if id == a.latest {
		return nil // taken or given up already
	}
	a.givenUp = append(a.givenUp, id)
	if len(a.givenUp) > rememberedMax {
		a.givenUp = slices.Delete(a.givenUp, 0, 1)
	}
	// Downstream waits for a barrier that will not come from here.
	return []Action{{Kind: Abandon, Barrier: element.Barrier{Checkpoint: id}, Reason: why}}
}

func (a *Aligner) isGivenUp(id ids.CheckpointID) bool { return slices.Contains(a.givenUp, id) }
