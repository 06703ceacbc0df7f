package sim

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/align"
	"github.com/weirstream/weir/pkg/runtime/subtask"
)

// I5: a blocked channel delivers no record until its alignment ends or is
// cancelled. This is a model of alignment beside the aligner: it sees what
// channels deliver to a subtask, when snapshots are taken and which records the
// subtask then takes.

// alignmentCheck is the model for one subtask.
type alignmentCheck struct {
	kinds  []align.ChannelKind
	frames [][]element.Frame // of records, received and not yet taken, by channel
	ended  []bool
	// open are the checkpoints of which a barrier has come and that are neither
	// complete nor given up, by ID.
	open    map[ids.CheckpointID]*modelAlignment
	newest  ids.CheckpointID // ever begun
	givenUp map[ids.CheckpointID]bool
}

// modelAlignment is one checkpoint in the model.
type modelAlignment struct {
	how                element.Alignment
	arrived, delivered []bool
	taken              bool
}

func newAlignmentCheck(kinds []align.ChannelKind) *alignmentCheck {
	return &alignmentCheck{
		kinds: kinds, frames: make([][]element.Frame, len(kinds)), ended: make([]bool, len(kinds)),
		open: map[ids.CheckpointID]*modelAlignment{}, givenUp: map[ids.CheckpointID]bool{},
	}
}

// received notes a frame that a channel delivered to the subtask.
func (a *alignmentCheck) received(ch int, f element.Frame) {
	if f.Kind == element.Records {
		if a.kinds[ch] == align.Feedback {
			f.Data = bytes.Clone(f.Data) // a full loop puts it on disk
		}
		a.frames[ch] = append(a.frames[ch], f)
	}
}

// channelOf finds the channel of the bytes that an input is about to decode:
// what is left of a frame ends where the frame does. One that came round a loop
// may have been on disk, and is known by its content: no two records are equal.
func (a *alignmentCheck) channelOf(data []byte) int {
	for ch, frames := range a.frames {
		if len(frames) > 0 && &frames[0].Data[len(frames[0].Data)-1] == &data[len(data)-1] {
			return ch
		}
	}
	for ch, frames := range a.frames {
		if len(frames) > 0 && a.kinds[ch] == align.Feedback && bytes.HasSuffix(frames[0].Data, data) {
			return ch
		}
	}
	return -1
}

// blocks reports whether a channel must deliver nothing: it has delivered a
// barrier that the snapshot still waits for on others.
func (a *alignmentCheck) blocks(ch int) bool {
	for _, x := range a.open {
		if x.delivered[ch] && !x.taken && x.how != element.AtLeastOnce {
			return true
		}
	}
	return false
}

// isDue reports whether a snapshot is to be taken: an unaligned one as soon as
// the channels that always align have delivered the barrier, others when all
// have.
func (a *alignmentCheck) isDue(x *modelAlignment) bool {
	for ch, kind := range a.kinds {
		waits := kind == align.InOrder || kind == align.Overtakable && x.how != element.Unaligned
		if waits && !x.delivered[ch] && !a.ended[ch] {
			return false
		}
	}
	return true
}

// find gives the alignment of a barrier, and begins it; nil for one that comes
// too late.
func (a *alignmentCheck) find(b element.Barrier) *modelAlignment {
	x := a.open[b.Checkpoint]
	if x == nil {
		if b.Checkpoint <= a.newest || a.givenUp[b.Checkpoint] {
			return nil
		}
		x = &modelAlignment{how: b.Alignment, arrived: make([]bool, len(a.kinds)), delivered: make([]bool, len(a.kinds))}
		a.open[b.Checkpoint], a.newest = x, b.Checkpoint
	}
	if b.Alignment == element.Unaligned {
		x.how = element.Unaligned
	}
	return x
}

// arrives follows a barrier into a channel's queue, delivers one whose turn comes.
func (a *alignmentCheck) arrives(ch int, b element.Barrier) {
	if x := a.find(b); x != nil {
		x.arrived[ch] = true
	}
}

func (a *alignmentCheck) delivers(ch int, b element.Barrier) {
	x := a.find(b)
	if x == nil {
		return
	}
	x.arrived[ch], x.delivered[ch] = true, true
	// The channel will never deliver what it has not delivered before.
	for id, older := range a.open {
		if id < b.Checkpoint && !older.delivered[ch] && !a.ended[ch] {
			a.gaveUp(id)
		}
	}
}

func (a *alignmentCheck) timesOut(id ids.CheckpointID) {
	if x := a.open[id]; x != nil && !x.taken && x.how == element.Aligned {
		x.how = element.Unaligned
	}
}

func (a *alignmentCheck) gaveUp(id ids.CheckpointID) {
	delete(a.open, id)
	a.givenUp[id] = true
}

// settle follows what the aligner says: exactly the snapshots that are due are
// taken, the oldest first.
func (a *alignmentCheck) settle(actions []align.Action) (wrong string) {
	for _, x := range actions {
		switch x.Kind {
		case align.Snapshot:
			id := x.Barrier.Checkpoint
			m := a.open[id]
			if m == nil || m.taken || !a.isDue(m) || m.how != x.Barrier.Alignment {
				return "takes " + x.String() + ", which is not due"
			}
			m.taken = true
			for older, y := range a.open {
				if older < id && !y.taken {
					a.gaveUp(older)
				}
			}
		case align.Abandon:
			a.gaveUp(x.Barrier.Checkpoint)
		case align.Block, align.Release, align.Arm, align.Collected:
		}
	}
	for id, x := range a.open {
		if !x.taken && a.isDue(x) {
			return fmt.Sprintf("does not take snapshot %d, which is due", id)
		}
		all := x.taken
		for ch := range a.kinds {
			all = all && (x.arrived[ch] || a.ended[ch])
		}
		if all {
			delete(a.open, id)
		}
	}
	return ""
}

// newAligner makes the aligner of a subtask: production's, or what a plant
// puts in its place, watched.
func (h *host) newAligner(kinds []align.ChannelKind) subtask.Aligner {
	h.kinds = slices.Clone(kinds)
	given := h.x.c.plantedKinds(kinds)
	var inner subtask.Aligner = align.New(given)
	if forgets := h.x.c.forgetsToBlock(); forgets != nil {
		inner = &forgetfulAligner{Aligner: inner, kinds: kinds, forgets: forgets}
	}
	return &watchedAligner{Aligner: inner, h: h}
}

// watchedAligner tells the model what the subtask tells the aligner.
type watchedAligner struct {
	subtask.Aligner
	h *host
}

// Arrived implements subtask.Aligner.
func (w *watchedAligner) Arrived(ch int, b element.Barrier) []align.Action {
	w.h.alignment.arrives(ch, b)
	actions := w.Aligner.Arrived(ch, b)
	w.compare(actions)
	return actions
}

// Barrier implements subtask.Aligner.
func (w *watchedAligner) Barrier(ch int, b element.Barrier) []align.Action {
	if w.h.alignment.blocks(ch) {
		w.h.x.c.fail("I5", "%s: blocked channel %d delivered barrier %d", w.h.name, ch, b.Checkpoint)
	}
	w.h.alignment.delivers(ch, b)
	actions := w.Aligner.Barrier(ch, b)
	w.compare(actions)
	return actions
}

// Timeout implements subtask.Aligner.
func (w *watchedAligner) Timeout(id ids.CheckpointID) []align.Action {
	w.h.alignment.timesOut(id)
	w.h.x.c.result.TimedOut++
	actions := w.Aligner.Timeout(id)
	w.compare(actions)
	return actions
}

// CancelMarker implements subtask.Aligner.
func (w *watchedAligner) CancelMarker(ch int, id ids.CheckpointID) []align.Action {
	w.h.alignment.gaveUp(id)
	actions := w.Aligner.CancelMarker(ch, id)
	w.compare(actions)
	return actions
}

// Abort implements subtask.Aligner.
func (w *watchedAligner) Abort(id ids.CheckpointID) []align.Action {
	w.h.alignment.gaveUp(id)
	actions := w.Aligner.Abort(id)
	w.compare(actions)
	return actions
}

// EndOfPartition implements subtask.Aligner.
func (w *watchedAligner) EndOfPartition(ch int) []align.Action {
	w.h.alignment.ended[ch] = true
	actions := w.Aligner.EndOfPartition(ch)
	w.compare(actions)
	return actions
}

// compare demands that the aligner takes the snapshots that the model takes,
// and blocks the channels that it blocks, and no other: one that is held for
// nothing holds up the next checkpoint.
func (w *watchedAligner) compare(actions []align.Action) {
	c, a := w.h.x.c, w.h.alignment
	for _, x := range actions {
		c.trace.add("%s: %s", w.h.name, x)
	}
	if wrong := a.settle(actions); wrong != "" {
		c.fail("I5", "%s %s", w.h.name, wrong)
	}
	for ch := range a.kinds {
		if want := a.blocks(ch); want != w.IsBlocked(ch) {
			c.fail("I5", "%s: channel %d should be blocked: %t, the aligner says %t", w.h.name, ch, want, !want)
		}
	}
}

// observeInputs watches the decode loops of a program.
func (c *cluster) observeInputs(p *operator.Program) {
	for _, e := range p.Edges {
		plain, stamped := e.NewInput, e.NewStampedInput
		e.NewInput = func(collector any) operator.Input { return &watchedInput{Input: plain(collector), c: c} }
		if stamped != nil {
			e.NewStampedInput = func(collector any, t *operator.Time) operator.Input {
				return &watchedInput{Input: stamped(collector, t), c: c}
			}
		}
	}
}

// watchedInput checks that the records it decodes come from a channel that is
// not blocked.
type watchedInput struct {
	operator.Input
	c *cluster
}

// Process implements operator.Input.
func (w *watchedInput) Process(data []byte, pace *operator.Pace) (consumed, records int, err error) {
	h := w.c.stepped
	a := h.alignment
	ch := a.channelOf(data)
	if ch < 0 && h.inFlight {
		// From the restored checkpoint. That each comes once, the oracle knows.
		consumed, records, err = w.Input.Process(data, pace)
		w.c.result.RestoredInFlight += records
		return consumed, records, err
	}
	if ch < 0 {
		w.c.fail("I5", "%s takes records that no channel delivered next", h.name)
	}
	if a.blocks(ch) {
		w.c.fail("I5", "%s takes records of channel %d, which is blocked", h.name, ch)
	}
	consumed, records, err = w.Input.Process(data, pace)
	if consumed == len(data) {
		a.frames[ch] = a.frames[ch][1:]
	}
	return consumed, records, err
}
