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
			s.in.release()
		case align.Snapshot:
			s.take(a.Barrier)
		case align.Abandon:
			s.out.broadcast(element.CancelFrame(a.Barrier.Checkpoint))
			if a.Reason != align.Aborted {
				s.host.Report(DeclineReport{Checkpoint: a.Barrier.Checkpoint, Reason: fmt.Sprintf("alignment given up: %s", a.Reason)})
			}
		}
	}
}

// take is the synchronous part of a snapshot: the barrier goes on to every
// output behind what was emitted before it, the operators freeze, and writing
// is left to the snapshot lane.
func (s *Subtask) take(b element.Barrier) {
	s.out.broadcast(element.BarrierFrame(b))
	if b.Stop && s.isSource {
		s.paused, s.pausedFor = true, b.Checkpoint
	}
	t := &taken{
		barrier: b, endOfData: s.endedState(), frozen: make([]operator.Frozen, len(s.chain.Operators)),
		watermarks: s.time.stored(), base: s.files.begin(b.Base),
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
	s.snapshot.queue = append(s.snapshot.queue, t)
	s.writeNext()
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
}

func (t *taken) release() {
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
	q.queue = nil
}

// writeNext hands the oldest frozen snapshot to the snapshot lane.
func (s *Subtask) writeNext() {
	q := &s.snapshot
	if q.writing || len(q.queue) == 0 || s.isOver() {
		return
	}
	t := q.queue[0]
	q.queue = slices.Delete(q.queue, 0, 1)
	q.writing = true
	w := &snapshotWriter{cfg: &s.cfg, id: s.id, barrier: t.barrier, base: t.base}
	if !t.barrier.Savepoint {
		w.local = &s.local // what a savepoint has is elsewhere, and whole
	}
	published, givenUp := s.files.published, slices.Clone(q.givenUp)
	s.host.Go(Work{Lane: SnapshotLane, Name: fmt.Sprintf("snapshot %d", t.barrier.Checkpoint), Run: func(ctx context.Context) Done {
		s.local.prune(published, givenUp)
		state, err := w.writeAll(ctx, s.chain.Operators, t)
		t.release()
		localErr := s.local.takeErr()
		return func() {
			if localErr != nil && !s.isOver() {
				s.host.Report(LocalCopyReport{Checkpoint: t.barrier.Checkpoint, Err: localErr})
			}
			s.written(t, w.files, state, err)
		}
	}})
}

func (s *Subtask) written(t *taken, files fileMap, state snapshot.SubtaskState, err error) {
	s.snapshot.writing = false
	if s.isOver() {
		s.abortNext()
		return
	}
	if err != nil {
		s.host.Report(DeclineReport{Checkpoint: t.barrier.Checkpoint, Reason: err.Error()})
	} else {
		if !s.snapshot.isGivenUp(t.barrier.Checkpoint) {
			s.files.put(t.barrier.Checkpoint, files)
		}
		s.host.Report(AckReport{Checkpoint: t.barrier.Checkpoint, State: state})
	}
	s.writeNext()
}

// NotifyAborted says that a checkpoint is given up.
func (s *Subtask) NotifyAborted(id ids.CheckpointID) {
	if s.isOver() {
		return
	}
	s.snapshot.giveUp(id)
	s.snapshot.forget(id)
	s.files.drop(id)
	if s.paused && s.pausedFor == id && !s.cfg.Suspended {
		s.paused, s.pausedFor = false, 0
		s.fetch()
	}
	if !s.isSource {
		s.act(s.aligner.Abort(id))
	}
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
			return fail(coordinator.UserFailure, errors.Join(err, x.tidy()), uid)
		}
		if err := x.tidy(); err != nil {
			return fail(coordinator.LostProcess, err, uid)
		}
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
		s.ready()
	}
}
