package subtask

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/runtime/align"
	"github.com/weirstream/weir/pkg/snapshot"
)

// flight is what a snapshot has of the records in flight: of input channels
// what was in front of their barrier, of output channels what the barrier
// overtook. The snapshot is whole, and acknowledged, when all barriers have
// come and gone.
//
// Records are copied when they are collected, since they are processed, and
// their memory used again, before they are written. That is bounded by
// Config.InFlightBytesMax.
type flight struct {
	// in is what was collected of each input channel, and open says that more
	// is to come: its barrier has not arrived.
	in   [][]segment
	open []bool
	out  []outputLog
	// collecting: the aligner has not said that all barriers have arrived.
	collecting bool
	// waiting is the number of output channels in which the barrier waits behind
	// records; they overtake when the alarm rings.
	waiting int
	alarm   alarm
	// bytes in memory, and records in front of the barriers on feedback channels.
	bytes  int64
	looped bool
	// writing: they are being stored, and nothing of this changes. written: the
	// parts are stored, or there were none.
	writing, written bool
	parts            []snapshot.InFlight
}

// segment is some records of a channel: in memory, or where a loop has put them.
type segment struct {
	data    []byte
	spilled *spilledFrame
}

func (s segment) len() int64 {
	if s.spilled != nil {
		return s.spilled.length
	}
	return int64(len(s.data))
}

// outputLog is what a barrier overtook on an output channel.
type outputLog struct {
	of   snapshot.ChannelPart
	data []byte
}

// overtake collects the records among frames.
func (f *flight) overtake(of snapshot.ChannelPart, frames []element.Frame) {
	var data []byte
	for i := range frames {
		if frames[i].Kind == element.Records {
			data = append(data, frames[i].Data...)
		}
	}
	if len(data) > 0 {
		f.out = append(f.out, outputLog{of: of, data: data})
		f.bytes += int64(len(data))
	}
}

// isWhole reports whether all barriers have come and gone.
func (f *flight) isWhole() bool { return f == nil || !f.collecting && f.waiting == 0 }

// isEmpty reports whether nothing was collected.
func (f *flight) isEmpty() bool {
	return f.bytes == 0 && !slices.ContainsFunc(f.in, func(log []segment) bool { return len(log) > 0 })
}

// release forgets what was collected, unless it is being stored: then it is
// released afterwards.
func (f *flight) release() {
	if f == nil || f.writing {
		return
	}
	for _, log := range f.in {
		for _, x := range log {
			if x.spilled != nil {
				x.spilled.unpin()
			}
		}
	}
	f.in, f.out, f.open, f.bytes = nil, nil, nil, 0
	// One that is given up may stay until its state is stored: nothing more is
	// collected for it, and its barrier need not overtake any more.
	f.collecting, f.waiting = false, 0
}

// beginFlight starts to collect for a snapshot, if there may be something. A
// barrier that has to wait on an output overtakes after timeout milliseconds.
func (s *Subtask) beginFlight(a align.Action, timeout int64) *flight {
	b := a.Barrier
	mayOvertake := b.Alignment == element.Unaligned || b.Alignment == element.Aligned && b.AlignedTimeout > 0
	if !a.Collect && !mayOvertake {
		return nil
	}
	f := &flight{collecting: a.Collect, alarm: alarm{after: timeout}}
	if !a.Collect {
		return f
	}
	f.in, f.open = make([][]segment, len(s.in.channels)), make([]bool, len(s.in.channels))
	for ch := range s.in.channels {
		c := &s.in.channels[ch]
		if c.kind == align.InOrder || c.kind == align.Overtakable && b.Alignment != element.Unaligned || a.Delivered[ch] {
			continue
		}
		f.open[ch] = !s.collectQueued(f, ch, c, b.Checkpoint)
	}
	return f
}

// collectQueued collects what is queued in front of the channel's barrier, and
// reports whether that has arrived.
func (s *Subtask) collectQueued(f *flight, ch int, c *inputChannel, id ids.CheckpointID) bool {
	offset := c.offset // of the first frame, some records were processed
	for i := range c.queue.len() {
		x := c.queue.at(i)
		if x.Kind == element.BarrierKind && x.Barrier.Checkpoint == id {
			return true
		}
		if x.Kind == element.Records {
			f.collect(ch, c.kind, x, offset)
			offset = 0
		}
	}
	return false
}

// collect takes the records of a frame, but for those before offset.
func (f *flight) collect(ch int, kind align.ChannelKind, x *element.Frame, offset int) {
	f.looped = f.looped || kind == align.Feedback
	if spilled, ok := x.Owner.(*spilledFrame); ok && x.Data == nil {
		spilled.pin()
		f.in[ch] = append(f.in[ch], segment{spilled: spilled})
		return
	}
	data := x.Data[offset:]
	f.bytes += int64(len(data))
	log := f.in[ch]
	if n := len(log) - 1; n >= 0 && log[n].spilled == nil {
		log[n].data = append(log[n].data, data...)
		return
	}
	f.in[ch] = append(log, segment{data: slices.Clone(data)})
}

// received keeps records that have just come on a channel within a loop's memory,
// and takes them for the snapshots that collect them. It reports whether the
// subtask goes on.
func (s *Subtask) received(ch int, f *element.Frame) bool {
	// First, so that what goes to disk is not copied for every snapshot.
	if s.in.channels[ch].kind == align.Feedback && !s.loop.received(ch, f) {
		return false
	}
	full := false
	for _, t := range s.snapshot.open {
		if fl := t.flight; fl != nil && fl.collecting && fl.open[ch] {
			fl.collect(ch, s.in.channels[ch].kind, f, 0)
			full = full || s.holdsTooMuch(t)
		}
	}
	if full {
		// Not in the loop above: what is declined may leave those that are open.
		for _, t := range slices.Clone(s.snapshot.open) {
			s.checkFlight(t)
		}
	}
	return true
}

// holdsTooMuch reports whether a snapshot has more in flight than it may hold.
func (s *Subtask) holdsTooMuch(t *taken) bool {
	limit := s.cfg.InFlightBytesMax
	return limit > 0 && t.flight != nil && t.flight.bytes > limit && !t.declined
}

// checkFlight declines a snapshot that has more in flight than it may hold.
func (s *Subtask) checkFlight(t *taken) {
	if !s.holdsTooMuch(t) {
		return
	}
	limit := s.cfg.InFlightBytesMax
	t.declined = true
	instead := "leave the checkpoint aligned"
	if t.flight.looped {
		instead = "let less into the loop at a time"
	}
	s.host.Report(DeclineReport{Checkpoint: t.barrier.Checkpoint, Reason: fmt.Sprintf(
		"more than %d bytes of records are in flight in front of the barrier: raise execution.checkpointing.unaligned.max-channel-state, "+
			"or %s", limit, instead)})
	s.giveUp(t.barrier.Checkpoint)
}

// arrived follows a barrier that came into the queue of a channel.
func (s *Subtask) arrived(ch int, b element.Barrier) {
	for _, t := range s.snapshot.open {
		if f := t.flight; t.barrier.Checkpoint == b.Checkpoint && f != nil && f.collecting && f.open[ch] {
			f.open[ch] = false
		}
	}
	s.measureFrom(b.Checkpoint)
	s.act(s.aligner.Arrived(ch, b))
}

// barrierLeaves follows a barrier that had to wait on an output channel. What
// is left of its timeout goes with it.
func (s *Subtask) barrierLeaves(b element.Barrier) element.Barrier {
	for _, t := range s.snapshot.open {
		if t.barrier.Checkpoint == b.Checkpoint && t.flight != nil && t.flight.waiting > 0 {
			t.flight.waiting--
			b.AlignedTimeout = t.flight.alarm.left(s.chain.Time.Now)
			s.flightChanged(t)
			break
		}
	}
	return b
}

// advanceFlights lets barriers overtake that have waited for too long.
func (s *Subtask) advanceFlights() {
	now := s.chain.Time.Now
	if id := s.snapshot.armed; id != 0 && s.snapshot.alarm.rings(now) {
		s.snapshot.armed = 0
		s.act(s.aligner.Timeout(id))
	}
	for _, t := range slices.Clone(s.snapshot.open) {
		if f := t.flight; f != nil && f.waiting > 0 && f.alarm.rings(now) {
			s.out.overtake(t.barrier, f)
			t.stats.Unaligned = true
			s.checkFlight(t)
			s.flightChanged(t)
		}
	}
}

// nextOvertaking is when advanceFlights has something to do.
func (s *Subtask) nextOvertaking() (int64, bool) {
	var next int64
	ok := false
	earlier := func(a alarm) {
		if at := a.next(s.chain.Time.Now); !ok || at < next {
			next, ok = at, true
		}
	}
	if s.snapshot.armed != 0 {
		earlier(s.snapshot.alarm)
	}
	for _, t := range s.snapshot.open {
		if f := t.flight; f != nil && f.waiting > 0 {
			earlier(f.alarm)
		}
	}
	return next, ok
}

// alarm rings some time after it was set. It is set while frames and mail are
// handed over, when the subtask's clock stands where it stood when it last had
// something to do: so the time begins to run when it is next told the time. All
// in milliseconds.
type alarm struct {
	after int64 // not yet running
	at    int64
}

func (a *alarm) rings(now int64) bool {
	if a.after > 0 {
		a.at, a.after = now+a.after, 0
	}
	return now >= a.at
}

// next is when rings is to be called.
func (a alarm) next(now int64) int64 {
	if a.after > 0 {
		return now + 1
	}
	return a.at
}

// left is how long it is until it rings, at least 1.
func (a alarm) left(now int64) int64 {
	if a.after > 0 {
		return a.after
	}
	return max(1, a.at-now)
}

// flightChanged goes on with a snapshot whose last barrier may have come or gone.
func (s *Subtask) flightChanged(t *taken) {
	if !t.flight.isWhole() || t.declined {
		return
	}
	s.measureTo(t)
	s.acknowledge(t) // first: with nothing in flight there is nothing to write
	s.writeNext()
}

// emitted are the watermarks that a snapshot has to have, since they may be in
// flight like records.
func (s *Subtask) emitted(b element.Barrier) []snapshot.EmittedWatermark {
	if b.Alignment == element.AtLeastOnce || b.Alignment == element.Aligned && b.AlignedTimeout == 0 || !s.time.stamped {
		return nil
	}
	var out []snapshot.EmittedWatermark
	for i := range s.chain.Operators {
		for _, n := range s.chain.Operators[i].Writers {
			edge := s.cfg.Graph.Vertices[s.id.Vertex].Outputs[n]
			if !s.out.overtakable[n] || s.cfg.Graph.Edges[edge].Edge.Feedback {
				continue
			}
			out = append(out, snapshot.EmittedWatermark{
				Edge: edge, Watermark: s.time.sentOn(i, n), Idle: s.time.told[i] || s.endedState(),
			})
		}
	}
	return out
}

// writeFlight stores what a snapshot has in flight.
func (w *snapshotWriter) writeFlight(ctx context.Context, f *flight, channels []inputChannel) ([]snapshot.InFlight, error) {
	w.ctx = ctx
	var in snapshot.InFlight
	var sources []io.Reader
	end := int64(0)
	add := func(of snapshot.ChannelPart, log ...segment) {
		of.Offset = end
		for _, x := range log {
			end += x.len()
			if x.spilled != nil {
				sources = append(sources, x.spilled.reader())
				continue
			}
			sources = append(sources, bytes.NewReader(x.data))
		}
		if of.Length = end - of.Offset; of.Length > 0 {
			in.Parts = append(in.Parts, of)
		}
	}
	for ch := range f.in {
		add(channels[ch].of, f.in[ch]...)
	}
	for _, log := range f.out {
		add(log.of, segment{data: log.data})
	}
	if len(in.Parts) == 0 {
		return nil, nil
	}
	var err error
	in.Handle, err = w.store(func(dst io.Writer) error {
		_, err := io.Copy(dst, io.MultiReader(sources...))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("write records in flight of subtask %s: %w", w.id, err)
	}
	return []snapshot.InFlight{in}, nil
}
