package subtask

import (
	"context"
	"fmt"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/align"
	"github.com/weirstream/weir/pkg/runtime/watermark"
)

// Step processes input until there is none, an output is out of credit, mail
// waits, or about budget frames or batches have been handled. Before it
// returns Idle it has flushed: an idle pipeline delivers at once, a busy one
// full frames.
func (s *Subtask) Step(budget int) Progress {
	for s.phase == running {
		if s.pace.Blocked() {
			// One consumer being slow must not hold back what others may have.
			s.out.flushOpen()
			s.time.disturbed = true
			return Blocked
		}
		if s.pace.ShouldYield() || budget <= 0 {
			return More
		}
		budget--
		var did bool
		switch {
		case s.stepTime():
			did = true
		case s.isSource:
			did = s.stepSource()
		default:
			did = s.stepInput()
		}
		if did {
			s.dirty = true
			s.time.disturbed = true
			continue
		}
		if !s.dirty {
			return Idle
		}
		s.dirty = false
		s.idle()
	}
	if s.phase == ended {
		return Ended
	}
	return Idle
}

// idle flushes what was collected.
func (s *Subtask) idle() {
	invariant.Check(!s.pace.Blocked(), "I11", "subtask %s is out of credit, which is not idle", s.id)
	for i := range s.chain.Operators {
		op := &s.chain.Operators[i]
		if op.Instance.Idle == nil {
			continue
		}
		if err := op.Instance.Idle(); err != nil {
			s.failed(fmt.Errorf("flush operator %s: %w", op.Context.Operator, err), op.Context.Operator)
			return
		}
	}
	s.out.flush()
}

// Flush sends what was collected to all channels with credit. Step does it by
// itself when the subtask runs out of input; whoever steps a subtask that is
// never out of input calls Flush every execution.buffer-timeout, for the sake
// of channels that rarely get a record.
func (s *Subtask) Flush() {
	if s.phase == running {
		s.out.flushOpen()
	}
}

// ---- sources ----

func (s *Subtask) head() *operator.ChainOperator { return &s.chain.Operators[0] }

func (s *Subtask) list(uid ids.OperatorUID) {
	run := s.chain.Source.List()
	s.host.Go(Work{Lane: ListLane, Name: "list splits", Run: func(ctx context.Context) Done {
		splits, complete, err := run(ctx)
		return func() {
			switch {
			case s.phase != running:
			case err != nil:
				s.failed(err, uid)
			default:
				s.host.Report(SplitsReport{Operator: uid, Splits: splits, Complete: complete})
			}
		}
	}})
}

// fetch asks for the next batch if there is none and none is on its way.
func (s *Subtask) fetch() {
	if !s.isSource || s.wasEnded || s.phase != running || s.paused || s.fetching {
		return
	}
	run, ok := s.chain.Source.NextFetch()
	if !ok {
		return
	}
	s.fetching = true
	s.host.Go(Work{Lane: FetchLane, Name: "fetch", Run: func(ctx context.Context) Done {
		r := run(ctx)
		return func() {
			s.fetching = false
			if err := s.chain.Source.Fetched(r); err != nil {
				s.failed(err, s.head().Context.Operator)
				return
			}
			s.fetch()
		}
	}})
}

func (s *Subtask) stepSource() bool {
	if s.paused {
		return false
	}
	if s.wasEnded {
		// A source that was drained has splits with a rest, which is not read.
		if s.ending {
			return false
		}
		s.reachEndOfData()
		return true
	}
	if !s.chain.Source.HasBatch() {
		if s.chain.Source.Ended() && !s.ending && !s.fetching {
			s.reachEndOfData()
			return true
		}
		return false
	}
	s.chain.Time.Timestamp = operator.NoTimestamp
	n, more, err := s.chain.Source.Process(&s.pace)
	s.recordsIn += int64(n)
	if err != nil {
		s.failed(err, s.head().Context.Operator)
		return true
	}
	if !more {
		s.fetch()
	}
	return true
}

// Trigger makes a source emit the barrier of a checkpoint and take its snapshot.
func (s *Subtask) Trigger(b element.Barrier) {
	switch {
	case s.isOver():
	case !s.isSource:
		s.host.Report(DeclineReport{Checkpoint: b.Checkpoint, Reason: "triggered although it is no source"})
	case s.phase != running:
		s.host.Report(DeclineReport{Checkpoint: b.Checkpoint, Reason: "still restoring"})
	case s.snapshot.isGivenUp(b.Checkpoint):
		// The abort was faster than the trigger: no barrier goes out.
	case b.Checkpoint <= s.snapshot.triggered:
		// Again: its files are written, or being written, under the same names.
	case b.Drain && !s.endedState():
		s.snapshot.triggered = b.Checkpoint
		s.drain(b)
	default:
		s.snapshot.triggered = b.Checkpoint
		s.take(align.Action{Kind: align.Snapshot, Barrier: b})
	}
}

// drain brings a source to the end of its data, and its barrier out behind that.
func (s *Subtask) drain(b element.Barrier) {
	s.draining = b
	s.paused, s.pausedFor = true, b.Checkpoint
	if !s.ending {
		s.reachEndOfData()
	}
}

// ---- inputs ----

func (s *Subtask) stepInput() bool {
	// What is on disk behind a barrier that came round first waits for the barrier
	// from outside, and so must not be waited for; nor may what still goes round
	// for as long as it likes.
	ch, c, ok := s.in.next(s.loop.onDisk > 0 && !s.in.blocksFeedback())
	if !ok {
		return false
	}
	f := c.queue.first()
	switch f.Kind {
	case element.Records:
		s.records(ch, c, f)
		return true
	case element.BarrierKind:
		b := f.Barrier
		s.popped(ch, c)
		s.act(s.aligner.Barrier(ch, b))
	case element.CancelMarkerKind:
		id := f.Barrier.Checkpoint
		s.popped(ch, c)
		s.act(s.aligner.CancelMarker(ch, id))
	case element.EndOfData:
		s.popped(ch, c)
		s.channelEnded(ch, c)
	case element.EndOfPartition:
		s.popped(ch, c)
		s.channelEnded(ch, c)
		s.act(s.aligner.EndOfPartition(ch))
	case element.WatermarkKind:
		w := f.Watermark
		s.popped(ch, c)
		s.time.valve.Watermark(ch, w)
		s.time.reachInput()
	case element.StatusKind:
		idle := f.Idle
		s.popped(ch, c)
		s.time.valve.Status(ch, idle)
		s.time.reachInput()
	default:
		s.failed(fmt.Errorf("subtask %s: frame of unknown kind %s on channel %d", s.id, f.Kind, ch), s.head().Context.Operator)
	}
	return true
}

// popped ends the turn of a channel whose first frame was a control element.
func (s *Subtask) popped(ch int, c *inputChannel) {
	invariant.Check(c.offset == 0, "I2", "subtask %s handles %s of channel %d before the records in front of it", s.id, c.queue.first().Kind, ch)
	c.queue.pop()
	s.in.turn(ch, c)
}

func (s *Subtask) records(ch int, c *inputChannel, f *element.Frame) {
	invariant.Check(!c.blocked, "I5", "blocked channel %d of subtask %s delivered records", ch, s.id)
	s.chain.Time.Timestamp = operator.NoTimestamp
	if c.kind == align.Feedback {
		if s.endedState() {
			s.failed(operator.Permanentf("records came round the loop after it had ended: its operators must emit nothing in Finish that goes round"),
				s.head().Context.Operator)
			return
		}
		if err := s.loop.load(f); err != nil {
			s.failed(err, s.head().Context.Operator)
			return
		}
	}
	n, records, err := s.chain.Inputs[c.edge].Process(f.Data[c.offset:], &s.pace)
	c.offset += n
	s.recordsIn += int64(records)
	s.bytesIn += int64(n)
	if err != nil {
		s.failed(err, s.head().Context.Operator)
		return
	}
	if c.offset < len(f.Data) {
		return
	}
	if s.loop.isMember && s.time.valve.IsAtEnd() {
		s.time.firing = true // what it has registered timers for has come
	}
	size := int64(len(f.Data))
	f.Free()
	c.queue.pop()
	c.offset = 0
	restored := c.restored > 0
	last := restored && s.in.tookRestored(c)
	switch {
	case c.kind == align.Feedback: // it was given at once
		s.loop.consumed(size)
	case !restored: // nobody gave credit for what was
		if grant := s.in.consume(c, size); grant > 0 {
			s.host.Grant(ch, grant)
		}
	}
	s.in.turn(ch, c)
	if last {
		s.host.Report(StatusReport{Status: coordinator.Running})
	}
}

func (s *Subtask) channelEnded(ch int, c *inputChannel) {
	if c.ended || c.kind == align.Feedback {
		return
	}
	c.ended = true
	s.in.ended++
	s.time.valve.End(ch)
	s.time.reachInput()
	if s.in.ended < s.in.forward {
		return
	}
	if s.loop.isHead && !s.wasEnded {
		s.loop.endInput()
		return
	}
	s.reachEndOfData()
}

// reachEndOfData follows the last record of all inputs: event time has come to
// its end, and what was to happen at some time in it happens.
func (s *Subtask) reachEndOfData() {
	s.ending = true
	s.time.reach(0, watermark.Max)
	s.time.firing = true // also if it had come to its end before
	s.stepTime()
}

// finishData follows the last timer: operators may emit a last time, then
// everybody downstream is told. The subtask stays, to take part in
// checkpoints, until the job's final one is committed.
func (s *Subtask) finishData() {
	s.endOfData = true
	s.chain.Time.Timestamp = operator.NoTimestamp
	if !s.wasEnded {
		for i := range s.chain.Operators {
			op := &s.chain.Operators[i]
			if err := op.Instance.Operator.Finish(); err != nil {
				s.failed(fmt.Errorf("finish operator %s: %w", op.Context.Operator, err), op.Context.Operator)
				return
			}
		}
	}
	s.out.broadcast(element.Frame{Kind: element.EndOfData})
	s.host.Report(StatusReport{Status: coordinator.RunningEndOfData})
	if b := s.draining; b.Checkpoint != 0 {
		s.draining = element.Barrier{}
		if !s.snapshot.isGivenUp(b.Checkpoint) {
			s.take(align.Action{Kind: align.Snapshot, Barrier: b})
		}
	}
}

// endedState reports whether a snapshot taken now is one after EndOfData.
func (s *Subtask) endedState() bool { return s.endOfData || s.wasEnded }
