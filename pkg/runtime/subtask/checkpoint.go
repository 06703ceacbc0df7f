package subtask

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/align"
	"github.com/weirstream/weir/pkg/snapshot"
)

// act does what the aligner says.
func (s *Subtask) act(actions []align.Action) {
	for _, a := range actions {
		if s.isOver() {
			return
		}
		switch a.Kind {
		case align.Block:
			s.in.block(a.Channel)
		case align.Release:
			s.in.release(s.aligner.IsBlocked)
		case align.Arm:
			// A newer one takes the place of one that has waited for longer: only
			// one at a time may overtake.
			s.snapshot.armed, s.snapshot.alarm = a.Barrier.Checkpoint, alarm{after: a.Barrier.AlignedTimeout}
		case align.Snapshot:
			s.take(a)
		case align.Collected:
			s.collected(a.Barrier.Checkpoint)
		case align.Abandon:
			s.giveUp(a.Barrier.Checkpoint)
			s.out.broadcast(element.CancelFrame(a.Barrier.Checkpoint))
			if a.Reason != align.Aborted {
				s.host.Report(DeclineReport{Checkpoint: a.Barrier.Checkpoint, Reason: fmt.Sprintf("alignment given up: %s", a.Reason)})
			}
		}
	}
}

// take is the synchronous part of a snapshot: the barrier goes on to every
// output, behind what was emitted before it or in front of what waits for
// credit; the operators freeze; and writing is left to the snapshot lane.
func (s *Subtask) take(a align.Action) {
	b := a.Barrier
	passed := s.passedOn(b)
	t := &taken{
		barrier: b, endOfData: s.endedState(), frozen: make([]operator.Frozen, len(s.chain.Operators)),
		watermarks: s.time.stored(), emitted: s.emitted(b), loopIsOver: s.loop.isOver(), base: s.files.begin(b.Base),
		flight: s.beginFlight(a, passed.AlignedTimeout),
	}
	began := s.measureTaken(t)
	s.out.barrier(passed, t.flight)
	if b.Stop && s.isSource {
		s.paused, s.pausedFor = true, b.Checkpoint
	}
	for i := range s.chain.Operators {
		op := &s.chain.Operators[i]
		f, err := op.Instance.Operator.Freeze(b)
		if err != nil {
			t.release()
			s.failed(fmt.Errorf("snapshot of operator %s for checkpoint %d: %w", op.Context.Operator, b.Checkpoint, err), op.Context.Operator)
			return
		}
		t.frozen[i] = f
	}
	if s.snapshot.armed == b.Checkpoint {
		s.snapshot.armed = 0
	}
	s.measureSync(t, began)
	s.snapshot.queue = append(s.snapshot.queue, t)
	s.snapshot.open = append(s.snapshot.open, t)
	if t.flight != nil {
		s.checkFlight(t)
	}
	s.writeNext()
}

// passedOn is the barrier as the next subtasks get it: with what is left of its
// timeout, so that it does not begin anew in each.
func (s *Subtask) passedOn(b element.Barrier) element.Barrier {
	if b.Alignment == element.Aligned && b.AlignedTimeout > 0 && s.snapshot.armed == b.Checkpoint {
		b.AlignedTimeout = s.snapshot.alarm.left(s.chain.Time.Now)
	}
	return b
}

// collected follows the arrival of the last barrier.
func (s *Subtask) collected(id ids.CheckpointID) {
	for _, t := range s.snapshot.open {
		if t.barrier.Checkpoint == id && t.flight != nil {
			t.flight.collecting = false
			s.flightChanged(t)
			return
		}
	}
}

// taken is a snapshot between freeze and acknowledgement.
type taken struct {
	barrier   element.Barrier
	endOfData bool
	frozen    []operator.Frozen // by operator of the chain; nil for stateless ones
	// watermarks are the elements that store the operators' watermarks, by
	// operator of the chain, nil for those that need none.
	watermarks [][]byte
	// base is what of its files the barrier's base has already.
	base fileMap
	// flight is what it has of the records in flight; nil for nothing. emitted are
	// the watermarks that go with it.
	flight  *flight
	emitted []snapshot.EmittedWatermark
	// loopIsOver: the subtask is of a loop, which nothing came into any more.
	loopIsOver bool
	// written is the state of the operators once it is stored, by writer, with
	// files; nil before.
	written *snapshot.SubtaskState
	writer  *snapshotWriter
	// declined, given up: nobody waits for it any more.
	declined, givenUp bool
	stats             snapshot.SubtaskStats
	measured          measured
}

func (t *taken) release() {
	t.releaseState()
	t.flight.release()
}

// releaseState gives the frozen state back, which was written or never will be.
func (t *taken) releaseState() {
	for i, f := range t.frozen {
		if f != nil {
			f.Release()
			t.frozen[i] = nil
		}
	}
}

// snapshots are those frozen and not yet written. They are written one at a
// time and in order: a two-phase sink hands its open transactions from one to
// the next. Their number is bounded by the checkpoints that the coordinator
// has under way, since those that it gives up leave the queue.
type snapshots struct {
	queue   []*taken
	writing bool
	// open are those that are not acknowledged, in order: the coordinator has as
	// many under way.
	open []*taken
	// armed is the checkpoint whose alignment becomes unaligned when the alarm
	// rings; 0 for none.
	armed ids.CheckpointID
	alarm alarm
	// triggered is the newest one that a source was triggered for.
	triggered ids.CheckpointID
	// begun are the newest checkpoints that barriers have come of, by ID.
	begun []begun
	// givenUp are checkpoints that were aborted before their trigger came. The
	// coordinator has few under way, so more need not be remembered.
	givenUp []ids.CheckpointID
}

const givenUpMax = 16

func (q *snapshots) isGivenUp(id ids.CheckpointID) bool { return slices.Contains(q.givenUp, id) }

func (q *snapshots) giveUp(id ids.CheckpointID) {
	if q.isGivenUp(id) {
		return
	}
	q.givenUp = append(q.givenUp, id)
	if len(q.givenUp) > givenUpMax {
		q.givenUp = slices.Delete(q.givenUp, 0, 1)
	}
}

// forget drops a snapshot that is given up and still waits to be written: a
// store that is slower than checkpoints expire would otherwise be busy for ever
// with those that nobody wants, and their frozen state would pile up. What a
// two-phase sink prepared for it is in the snapshots behind it.
func (q *snapshots) forget(id ids.CheckpointID) {
	for i, t := range q.queue {
		if t.barrier.Checkpoint == id {
			t.release()
			q.queue = slices.Delete(q.queue, i, i+1)
			return
		}
	}
}

func (q *snapshots) drop() {
	for _, t := range q.queue {
		t.release()
	}
	for _, t := range q.open {
		t.flight.release()
	}
	q.queue, q.open, q.armed = nil, nil, 0
}

// writeNext hands the oldest frozen snapshot to the snapshot lane, or what the
// oldest whole one has in flight.
func (s *Subtask) writeNext() {
	q := &s.snapshot
	if q.writing || s.isOver() {
		return
	}
	if len(q.queue) > 0 {
		t := q.queue[0]
		q.queue = slices.Delete(q.queue, 0, 1)
		s.writeState(t)
		return
	}
	for _, t := range q.open {
		if t.written != nil && t.flight != nil && !t.flight.written && t.flight.isWhole() {
			s.writeFlight(t)
			return
		}
	}
}

func (s *Subtask) writeState(t *taken) {
	q := &s.snapshot
	q.writing = true
	w := &snapshotWriter{cfg: &s.cfg, id: s.id, barrier: t.barrier, base: t.base}
	t.writer = w
	if !t.barrier.Savepoint {
		w.local = &s.local // what a savepoint has is elsewhere, and whole
	}
	published, givenUp := s.files.published, slices.Clone(q.givenUp)
	s.host.Go(Work{Lane: SnapshotLane, Name: fmt.Sprintf("snapshot %d", t.barrier.Checkpoint), Run: func(ctx context.Context) Done {
		s.local.prune(published, givenUp)
		state, err := w.writeAll(ctx, s.chain.Operators, t)
		t.releaseState()
		localErr := s.local.takeErr()
		return func() {
			q.writing = false
			if localErr != nil && !s.isOver() {
				s.host.Report(LocalCopyReport{Checkpoint: t.barrier.Checkpoint, Err: localErr})
			}
			t.written = &state
			s.wrote(t, err)
		}
	}})
}

// writeFlight stores what a snapshot has in flight, all of which has come.
func (s *Subtask) writeFlight(t *taken) {
	q := &s.snapshot
	q.writing = true
	f, w := t.flight, t.writer
	f.writing = true
	s.host.Go(Work{Lane: SnapshotLane, Name: fmt.Sprintf("records in flight of snapshot %d", t.barrier.Checkpoint), Run: func(ctx context.Context) Done {
		parts, err := w.writeFlight(ctx, f, s.in.channels)
		if err != nil {
			err = w.discard(ctx, *t.written, err)
		}
		return func() {
			q.writing = false
			f.writing, f.written, f.parts = false, true, parts
			s.wrote(t, err)
		}
	}})
}

// wrote goes on with a snapshot of which something was stored, or not.
func (s *Subtask) wrote(t *taken, err error) {
	if s.isOver() {
		t.flight.release()
		s.abortNext()
		return
	}
	if err != nil {
		if !t.declined {
			s.host.Report(DeclineReport{Checkpoint: t.barrier.Checkpoint, Reason: err.Error()})
		}
		s.forgetOpen(t)
	} else {
		s.acknowledge(t)
	}
	s.writeNext()
}

// acknowledge tells the coordinator of a snapshot that is whole and stored (I3),
// or of what was stored of one that was given up, for it to delete.
func (s *Subtask) acknowledge(t *taken) {
	f := t.flight
	if t.written == nil || !t.givenUp && !f.isWhole() {
		return
	}
	if f != nil && f.isEmpty() {
		f.written = true
	}
	if f != nil && !f.written {
		return // it will be stored, or is being
	}
	id := t.barrier.Checkpoint
	state := *t.written
	state.Emitted = t.emitted
	if f != nil {
		state.InFlight = f.parts
	}
	state.LoopIsEmpty = t.loopIsOver && (f == nil || !f.looped) && !t.givenUp
	if !s.snapshot.isGivenUp(id) && !t.givenUp {
		s.files.put(id, t.writer.files)
	}
	s.forgetOpen(t)
	s.host.Report(AckReport{Checkpoint: id, State: state, Stats: s.measuredStats(t)})
}

// forgetOpen takes a snapshot off those that are open.
func (s *Subtask) forgetOpen(t *taken) {
	t.flight.release()
	q := &s.snapshot
	q.open = slices.DeleteFunc(q.open, func(x *taken) bool { return x == t })
}

// giveUp stops collecting for a snapshot that nobody waits for any more. What
// was stored of it is acknowledged all the same: the coordinator deletes what
// comes late.
func (s *Subtask) giveUp(id ids.CheckpointID) {
	q := &s.snapshot
	if q.armed == id {
		q.armed = 0
	}
	for _, t := range slices.Clone(q.open) {
		if t.barrier.Checkpoint != id {
			continue
		}
		t.givenUp = true
		if f := t.flight; f != nil && !f.writing {
			f.release()
			f.written = true
		}
		if slices.Contains(q.queue, t) {
			s.forgetOpen(t)
			continue
		}
		s.acknowledge(t)
	}
}

// NotifyAborted says that a checkpoint is given up.
func (s *Subtask) NotifyAborted(id ids.CheckpointID) {
	if s.isOver() {
		return
	}
	s.snapshot.giveUp(id)
	s.giveUp(id)
	s.snapshot.forget(id)
	s.files.drop(id)
	if s.paused && s.pausedFor == id && !s.cfg.Suspended {
		s.paused, s.pausedFor = false, 0
		s.fetch()
	}
	if !s.isSource {
		s.act(s.aligner.Abort(id))
	}
	s.out.forget(id)
}

// commits are the published checkpoints whose commit is to be done or under
// way; only the newest one waiting matters, since a commit covers all before it.
type commits struct {
	running bool
	waiting ids.CheckpointID
}

// NotifyComplete says that a checkpoint is published: what was prepared up to
// it is committed, and that is reported.
func (s *Subtask) NotifyComplete(id ids.CheckpointID) {
	s.files.published = max(s.files.published, id)
	if s.phase != running {
		return
	}
	s.commits.waiting = max(s.commits.waiting, id)
	s.commitNext()
}

func (s *Subtask) commitNext() {
	c := &s.commits
	if c.running || c.waiting == 0 || s.phase != running {
		return
	}
	id := c.waiting
	c.waiting = 0
	type part struct {
		uid ids.OperatorUID
		op  operator.Committing
		run func(ctx context.Context) error
	}
	var parts []part
	for i := range s.chain.Operators {
		op := &s.chain.Operators[i]
		if op.Instance.Committing == nil {
			continue
		}
		if run := op.Instance.Committing.CommitUpTo(id); run != nil {
			parts = append(parts, part{uid: op.Context.Operator, op: op.Instance.Committing, run: run})
		}
	}
	if len(parts) == 0 {
		s.host.Report(CommitReport{Checkpoint: id})
		return
	}
	c.running = true
	s.host.Go(Work{Lane: CommitLane, Name: fmt.Sprintf("commit %d", id), Run: func(ctx context.Context) Done {
		var err error
		var uid ids.OperatorUID
		for _, p := range parts {
			if err = p.run(ctx); err != nil {
				uid = p.uid
				break
			}
		}
		return func() {
			c.running = false
			if s.phase == cancelling {
				s.abortNext()
				return
			}
			if err != nil {
				s.failed(err, uid)
				return
			}
			for _, p := range parts {
				p.op.Committed(id)
			}
			if s.phase == running {
				s.host.Report(CommitReport{Checkpoint: id})
			}
			s.commitNext()
		}
	}})
}

// restore is the work of reading the restored state and giving it to the
// operators. Nothing else of the subtask runs meanwhile.
func (s *Subtask) restore(ctx context.Context) Done {
	fail := func(kind coordinator.FailureKind, err error, uid ids.OperatorUID) Done {
		err = fmt.Errorf("restore operator %s of subtask %s from checkpoint %d: %w", uid, s.id, s.cfg.RestoredCheckpoint, err)
		return func() { s.failedAs(kind, err, uid) }
	}
	byUID := map[ids.OperatorUID][]snapshot.OperatorSubtaskState{}
	for _, st := range s.cfg.Deployment.Restore {
		byUID[st.UID] = append(byUID[st.UID], st)
	}
	files := fileMap{}
	x := &restoration{Subtask: s, files: files, report: RestoredReport{Checkpoint: s.cfg.RestoredCheckpoint}}
	// What earlier attempts kept has the names of this job's own directory.
	if s.restoresOwn() {
		x.local = s.local.open()
	}
	for i := range s.chain.Operators {
		op := &s.chain.Operators[i]
		uid := op.Context.Operator
		r, err := x.readState(ctx, i, byUID[uid])
		if err != nil {
			return fail(kindOfReadError(err), errors.Join(err, x.tidy()), uid)
		}
		if err := s.time.restore(op, r); err != nil {
			return fail(coordinator.UserFailure, err, uid)
		}
		if err := op.Instance.Operator.Restore(ctx, r); err != nil {
			return fail(x.kindOfRestoreError(), errors.Join(err, x.tidy()), uid)
		}
		if err := x.tidy(); err != nil {
			return fail(coordinator.LostProcess, err, uid)
		}
	}
	if err := x.readInFlight(ctx); err != nil {
		err = fmt.Errorf("records in flight: %w", err)
		return fail(kindOfReadError(err), err, s.head().Context.Operator)
	}
	return func() {
		if s.phase != restoring {
			return
		}
		if s.restoresOwn() {
			s.files.put(s.cfg.RestoredCheckpoint, files)
		}
		s.files.published = max(s.files.published, s.cfg.RestoredCheckpoint)
		if x.report.FilesFetched+x.report.FilesLocal > 0 {
			s.host.Report(x.report)
		}
		x.handOver()
		s.ready()
	}
}
