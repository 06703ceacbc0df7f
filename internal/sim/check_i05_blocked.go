package sim

import (
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/align"
	"github.com/weirstream/weir/pkg/runtime/subtask"
)

// I5: a blocked channel delivers no record until its alignment ends or is
// cancelled. This is a model of alignment beside the aligner: it sees what
// channels deliver to a subtask and which records the subtask then takes.

// alignmentCheck is the model for one subtask.
type alignmentCheck struct {
	frames  [][]element.Frame // of records, received and not yet taken, by channel
	barrier ids.CheckpointID  // being aligned
	newest  ids.CheckpointID  // ever begun
	has     []bool            // channels that delivered it
	givenUp map[ids.CheckpointID]bool
}

func newAlignmentCheck(channels int) *alignmentCheck {
	return &alignmentCheck{
		frames: make([][]element.Frame, channels), has: make([]bool, channels), givenUp: map[ids.CheckpointID]bool{},
	}
}

// received notes a frame that a channel delivered to the subtask.
func (a *alignmentCheck) received(ch int, f element.Frame) {
	if f.Kind == element.Records {
		a.frames[ch] = append(a.frames[ch], f)
	}
}

// channelOf finds the channel of the bytes that an input is about to decode:
// what is left of a frame ends where the frame does.
func (a *alignmentCheck) channelOf(data []byte) int {
	for ch, frames := range a.frames {
		if len(frames) > 0 && &frames[0].Data[len(frames[0].Data)-1] == &data[len(data)-1] {
			return ch
		}
	}
	return -1
}

func (a *alignmentCheck) barrierCame(ch int, id ids.CheckpointID) (violated bool) {
	if a.barrier != 0 && a.has[ch] {
		return true
	}
	if a.givenUp[id] || id < a.barrier || a.barrier == 0 && id <= a.newest {
		return false
	}
	if id > a.barrier {
		a.barrier, a.newest = id, id
		clear(a.has)
	}
	a.has[ch] = true
	for _, has := range a.has {
		if !has {
			return false
		}
	}
	a.barrier = 0
	return false
}

func (a *alignmentCheck) gaveUp(id ids.CheckpointID) {
	if id == a.barrier {
		a.barrier = 0
	}
	a.givenUp[id] = true
}

// newAligner makes the aligner of a subtask: production's, or what a plant
// puts in its place, watched.
func (h *host) newAligner(kinds []align.ChannelKind) subtask.Aligner {
	var inner subtask.Aligner = align.New(kinds)
	if h.x.c.plant == ForgetsToBlock {
		inner = &forgetfulAligner{Aligner: inner, c: h.x.c}
	}
	return &watchedAligner{Aligner: inner, h: h}
}

// watchedAligner tells the model what the subtask tells the aligner.
type watchedAligner struct {
	subtask.Aligner
	h *host
}

// Barrier implements subtask.Aligner.
func (w *watchedAligner) Barrier(ch int, b element.Barrier) []align.Action {
	if w.h.alignment.barrierCame(ch, b.Checkpoint) {
		w.h.x.c.fail("I5", "%s: blocked channel %d delivered barrier %d", w.h.name, ch, b.Checkpoint)
	}
	actions := w.Aligner.Barrier(ch, b)
	w.compare()
	for _, x := range actions {
		w.h.x.c.trace.add("%s: barrier %d on channel %d: %s", w.h.name, b.Checkpoint, ch, x)
	}
	return actions
}

// CancelMarker implements subtask.Aligner.
func (w *watchedAligner) CancelMarker(ch int, id ids.CheckpointID) []align.Action {
	w.h.alignment.gaveUp(id)
	actions := w.Aligner.CancelMarker(ch, id)
	w.compare()
	return actions
}

// Abort implements subtask.Aligner.
func (w *watchedAligner) Abort(id ids.CheckpointID) []align.Action {
	w.h.alignment.gaveUp(id)
	actions := w.Aligner.Abort(id)
	w.compare()
	return actions
}

// compare demands that the aligner blocks the channels that the model blocks,
// and no other: one that is held for nothing holds up the next checkpoint.
func (w *watchedAligner) compare() {
	a := w.h.alignment
	for ch, has := range a.has {
		if want := a.barrier != 0 && has; want != w.IsBlocked(ch) {
			w.h.x.c.fail("I5", "%s: channel %d should be blocked: %t, the aligner says %t", w.h.name, ch, want, !want)
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
	if ch < 0 {
		w.c.fail("I5", "%s takes records that no channel delivered next", h.name)
	}
	if a.barrier != 0 && a.has[ch] {
		w.c.fail("I5", "%s takes records of channel %d, which is blocked for checkpoint %d", h.name, ch, a.barrier)
	}
	consumed, records, err = w.Input.Process(data, pace)
	if consumed == len(data) {
		a.frames[ch] = a.frames[ch][1:]
	}
	return consumed, records, err
}
