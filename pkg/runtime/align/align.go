package align

import (
	"fmt"
	"slices"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
)

// ChannelKind says how barriers pass on a channel.
type ChannelKind uint8

// The kinds of channel.
const (
	// Overtakable channels let an Unaligned barrier overtake their records.
	Overtakable ChannelKind = iota + 1
	// InOrder channels always align.
	InOrder
	// Feedback channels lead back into the head of a loop. They are not waited for;
	// one that delivers the barrier first, which another subtask of the head has sent
	// round, is held back like any other.
	Feedback
)

// String names the kind.
func (k ChannelKind) String() string {
	switch k {
	case Overtakable:
		return "overtakable"
	case InOrder:
		return "in-order"
	case Feedback:
		return "feedback"
	}
	return fmt.Sprintf("channel kind(%d)", uint8(k))
}

// ActionKind is what a subtask must do.
type ActionKind uint8

// The actions.
const (
	// Block holds one channel back.
	Block ActionKind = iota + 1
	// Release lets the channels deliver again that are not blocked any more.
	Release
	// Arm says that Timeout must be called when Barrier.AlignedTimeout has
	// passed, unless the snapshot was taken by then.
	Arm
	// Snapshot takes the snapshot of Barrier and passes the barrier on. With
	// Collect, the records in flight are part of it until Collected follows: of
	// Feedback channels, and if the barrier is Unaligned of Overtakable ones,
	// those in front of the channel's barrier.
	Snapshot
	// Collected says that the barrier has arrived on all channels.
	Collected
	// Abandon says that Barrier's checkpoint will not be taken, or not be
	// completed, here: pass a cancel marker on, and decline unless the
	// coordinator gave it up itself.
	Abandon
)

// Action is one thing to do. Channel is set for Block, Barrier for all others
// but Release, Reason for Abandon.
type Action struct {
	Kind    ActionKind
	Channel int
	Barrier element.Barrier
	Collect bool
	// Delivered, for Snapshot with Collect, has the channels whose barrier had its
	// turn: nothing of them is collected. It is good until the next call.
	Delivered []bool
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
	case Arm:
		return fmt.Sprintf("arm %d for %d ms", a.Barrier.Checkpoint, a.Barrier.AlignedTimeout)
	case Snapshot:
		text := fmt.Sprintf("snapshot %d", a.Barrier.Checkpoint)
		if a.Barrier.Alignment == element.Unaligned {
			text += " unaligned"
		}
		if a.Collect {
			text += ", collect"
		}
		return text
	case Collected:
		return fmt.Sprintf("collected %d", a.Barrier.Checkpoint)
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
const rememberedMax = 32

// Aligner is the alignment of one subtask. The zero value is not usable.
type Aligner struct {
	kinds []ChannelKind
	ended []bool // channels after end of partition
	// open are the checkpoints of which a barrier has come and not yet all, by
	// ID. Bounded by those that the coordinator has under way, since one that
	// it gives up leaves.
	open    []*alignment
	latest  ids.CheckpointID // that was ever opened
	givenUp []ids.CheckpointID
	spare   []*alignment
}

// alignment is one checkpoint that barriers have come of. The counts are of
// channels that have not ended.
type alignment struct {
	barrier element.Barrier
	// arrived: the barrier is, or was, in the channel's queue; delivered: its
	// turn came.
	arrived, delivered []bool
	// toArrive counts the channels without the former; toDeliver those without
	// the latter that are no Feedback channels, inOrder the InOrder ones of these.
	toArrive, toDeliver, inOrder int
	taken                        bool
}

// New makes the aligner of a subtask with input channels of these kinds.
func New(kinds []ChannelKind) *Aligner {
	return &Aligner{kinds: slices.Clone(kinds), ended: make([]bool, len(kinds))}
}

// IsBlocked reports whether the channel must deliver nothing (I5).
func (a *Aligner) IsBlocked(ch int) bool {
	for _, x := range a.open {
		if x.delivered[ch] && x.blocks() {
			return true
		}
	}
	return false
}

// blocks reports whether channels that have delivered the barrier wait for the
// others. (I5)
func (x *alignment) blocks() bool { return !x.taken && x.barrier.Alignment != element.AtLeastOnce }

// isDue reports whether the snapshot can be taken.
func (x *alignment) isDue() bool {
	if x.barrier.Alignment == element.Unaligned {
		return x.inOrder == 0
	}
	return x.toDeliver == 0
}

// Arrived takes a barrier that has come into the queue of channel ch, behind
// what Barrier will be called for before it.
func (a *Aligner) Arrived(ch int, b element.Barrier) []Action {
	x, out := a.find(b)
	if x == nil {
		return nil
	}
	if b.Alignment == element.Unaligned {
		x.barrier.Alignment = element.Unaligned
	}
	x.arrive(ch)
	return a.advance(out, x)
}

func (x *alignment) arrive(ch int) {
	if !x.arrived[ch] {
		x.arrived[ch] = true
		x.toArrive--
	}
}

// Barrier takes a barrier that channel ch delivered: its turn has come.
func (a *Aligner) Barrier(ch int, b element.Barrier) []Action {
	invariant.Check(!a.IsBlocked(ch), "I5", "blocked channel %d delivered barrier %d", ch, b.Checkpoint)
	x, out := a.find(b)
	if x == nil || x.delivered[ch] {
		return out
	}
	// An older one that this channel has not delivered will never come.
	for _, older := range slices.Clone(a.open) {
		if older.barrier.Checkpoint < b.Checkpoint && !older.delivered[ch] {
			out = a.abandon(out, older, Overtaken)
		}
	}
	if b.Alignment == element.Unaligned {
		x.barrier.Alignment = element.Unaligned
	}
	x.arrive(ch)
	x.delivered[ch] = true
	x.count(a.kinds[ch], -1)
	if x.blocks() && !x.isDue() {
		out = append(out, Action{Kind: Block, Channel: ch})
	}
	return a.advance(out, x)
}

// count adds to the numbers of channels whose turn is waited for.
func (x *alignment) count(kind ChannelKind, n int) {
	switch kind {
	case InOrder:
		x.toDeliver += n
		x.inOrder += n
	case Overtakable:
		x.toDeliver += n
	case Feedback:
	}
}

// Timeout makes an aligned checkpoint unaligned, if it still waits.
func (a *Aligner) Timeout(id ids.CheckpointID) []Action {
	for _, x := range a.open {
		if x.barrier.Checkpoint == id && !x.taken && x.barrier.Alignment == element.Aligned && x.barrier.AlignedTimeout > 0 {
			x.barrier.Alignment = element.Unaligned
			return a.advance(nil, x)
		}
	}
	return nil
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
	var out []Action
	for _, x := range slices.Clone(a.open) {
		x.arrive(ch)
		if !x.delivered[ch] {
			x.delivered[ch] = true
			x.count(a.kinds[ch], -1)
		}
		out = a.advance(out, x)
	}
	return out
}

// find gives the alignment of a barrier's checkpoint, and opens it if this is
// the first of it; nil for one that comes late, its checkpoint being over here.
func (a *Aligner) find(b element.Barrier) (*alignment, []Action) {
	for _, x := range a.open {
		if x.barrier.Checkpoint == b.Checkpoint {
			return x, nil
		}
	}
	if b.Checkpoint <= a.latest || slices.Contains(a.givenUp, b.Checkpoint) {
		return nil, nil
	}
	a.latest = b.Checkpoint
	x := a.begin(b)
	a.open = append(a.open, x)
	if b.Alignment == element.Aligned && b.AlignedTimeout > 0 {
		return x, []Action{{Kind: Arm, Barrier: b}}
	}
	return x, nil
}

func (a *Aligner) begin(b element.Barrier) *alignment {
	x := &alignment{arrived: make([]bool, len(a.kinds)), delivered: make([]bool, len(a.kinds))}
	if n := len(a.spare); n > 0 {
		x, a.spare = a.spare[n-1], a.spare[:n-1]
		clear(x.arrived)
		clear(x.delivered)
		*x = alignment{arrived: x.arrived, delivered: x.delivered}
	}
	x.barrier = b
	for ch, kind := range a.kinds {
		if a.ended[ch] {
			x.arrived[ch], x.delivered[ch] = true, true
			continue
		}
		x.toArrive++
		x.count(kind, 1)
	}
	return x
}

// advance takes the snapshot if it is due, and closes what is complete.
func (a *Aligner) advance(out []Action, x *alignment) []Action {
	if !x.taken && x.isDue() {
		for _, older := range slices.Clone(a.open) {
			// It was to be taken first.
			if older.barrier.Checkpoint < x.barrier.Checkpoint && !older.taken {
				out = a.abandon(out, older, Overtaken)
			}
		}
		x.taken = true
		collect := x.toArrive > 0 || x.barrier.Alignment == element.Unaligned
		out = append(out, Action{Kind: Snapshot, Barrier: x.barrier, Collect: collect, Delivered: x.delivered}, Action{Kind: Release})
		if !collect {
			a.close(x)
			return out
		}
	}
	if x.taken && x.toArrive == 0 {
		out = append(out, Action{Kind: Collected, Barrier: x.barrier})
		a.close(x)
	}
	return out
}

func (a *Aligner) close(x *alignment) {
	a.open = slices.DeleteFunc(a.open, func(y *alignment) bool { return y == x })
	if len(a.spare) < 2 { // one is enough but when several are open
		a.spare = append(a.spare, x)
	}
}

func (a *Aligner) abandon(out []Action, x *alignment, why Reason) []Action {
	b, blocked := x.barrier, !x.taken
	a.close(x)
	out = append(out, Action{Kind: Abandon, Barrier: b, Reason: why})
	if blocked {
		out = append(out, Action{Kind: Release})
	}
	return out
}

func (a *Aligner) giveUp(id ids.CheckpointID, why Reason) []Action {
	for _, x := range a.open {
		if x.barrier.Checkpoint == id {
			return a.abandon(nil, x, why)
		}
	}
	if id <= a.latest || slices.Contains(a.givenUp, id) {
		return nil // over already, or overtaken
	}
	a.givenUp = append(a.givenUp, id)
	if len(a.givenUp) > rememberedMax {
		a.givenUp = slices.Delete(a.givenUp, 0, 1)
	}
	// Downstream waits for a barrier that will not come from here.
	return []Action{{Kind: Abandon, Barrier: element.Barrier{Checkpoint: id}, Reason: why}}
}
