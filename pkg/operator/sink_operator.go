package operator

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// NewSink makes the operator of an at-least-once sink in one subtask.
func NewSink[T any](s Sink[T]) Instance {
	op := &sinkOperator[T]{sink: s}
	return Instance{Operator: op, Inputs: []any{Collector[T](op)}, Idle: op.flush}
}

type sinkOperator[T any] struct {
	sink   Sink[T]
	ctx    *Context
	uid    ids.OperatorUID
	writer SinkWriter[T]
}

// Open implements Operator.
func (s *sinkOperator[T]) Open(ctx *Context) (err error) {
	s.ctx, s.uid = ctx, ctx.Operator
	ctx.openLists()
	s.writer, err = s.sink.OpenWriter(ctx)
	return Failed(s.uid, err)
}

// Restore implements Operator.
func (s *sinkOperator[T]) Restore(_ context.Context, r *Restored) error {
	return Failed(s.uid, RestoreLists(s.ctx.lists, r))
}

// Collect implements Collector.
func (s *sinkOperator[T]) Collect(v T) error {
	if err := s.writer.Write(v); err != nil {
		return Failed(s.uid, err)
	}
	return nil
}

// Freeze flushes: what a checkpoint covers has left the job.
func (s *sinkOperator[T]) Freeze(element.Barrier) (Frozen, error) {
	if err := s.flush(); err != nil {
		return nil, err
	}
	f, err := FreezeLists(s.ctx.lists)
	return f, Failed(s.uid, err)
}

// Finish implements Operator.
func (s *sinkOperator[T]) Finish() error { return s.flush() }

func (s *sinkOperator[T]) flush() error { return Failed(s.uid, s.writer.Flush()) }

// Close implements Operator.
func (s *sinkOperator[T]) Close() error {
	if s.writer == nil {
		return nil
	}
	return Failed(s.uid, s.writer.Close())
}

// Committing is the commit side of a two-phase sink in one subtask. It
// belongs to the subtask's goroutine; the functions it returns run elsewhere,
// one at a time.
type Committing interface {
	// CommitUpTo returns the work of committing all that was prepared for
	// checkpoints up to id, which must be published; nil if there is nothing.
	// Committed(id) follows when it succeeded.
	CommitUpTo(id ids.CheckpointID) func(ctx context.Context) error
	// Committed drops what CommitUpTo(id) has committed from later snapshots.
	Committed(id ids.CheckpointID)
	// AbortAfter returns the work of aborting all that was persisted for
	// checkpoints after id, none of which is or will be published; nil if there
	// is nothing. Nothing else of the subtask is under way, or follows but Close.
	AbortAfter(id ids.CheckpointID) func(ctx context.Context) error
}

// CommittablesList is the name of the list of operator state that holds the
// prepared and not yet surely committed transactions, each with its checkpoint.
const CommittablesList = "committables"

// NewTwoPhase makes the operator of a two-phase sink in one subtask.
func NewTwoPhase[T any](s TwoPhase[T]) Instance {
	op := &twoPhaseOperator[T]{sink: s}
	return Instance{Operator: op, Inputs: []any{Collector[T](op)}, Committing: op}
}

// transaction is what was prepared for one checkpoint. It is persisted by the
// snapshot that first includes it, or by a later one if that failed. Snapshots
// of a subtask are written one at a time, so persisted and committables are
// handed from one snapshot to the next, and to the commit after the last.
type transaction struct {
	id           ids.CheckpointID
	prepared     Prepared
	persisted    bool
	committables []Committable
}

type twoPhaseOperator[T any] struct {
	sink      TwoPhase[T]
	ctx       *Context
	writer    TwoPhaseWriter[T]
	committer Committer
	// published is the newest checkpoint that CommitUpTo was told of.
	published ids.CheckpointID
	// open are the transactions whose commit is not known, by checkpoint. As
	// many as checkpoints since the last published one.
	open []*transaction
}

// Open implements Operator.
func (s *twoPhaseOperator[T]) Open(ctx *Context) (err error) {
	s.ctx = ctx
	ctx.openLists()
	if s.committer, err = s.sink.OpenCommitter(ctx); err != nil {
		return fmt.Errorf("open committer of %s: %w", ctx.Operator, err)
	}
	if s.writer, err = s.sink.OpenWriter(ctx); err != nil {
		return fmt.Errorf("open writer of %s: %w", ctx.Operator, err)
	}
	return nil
}

// Restore commits again what the restored checkpoint had prepared: it was
// published, but whether its commit took effect is not known (I1).
func (s *twoPhaseOperator[T]) Restore(ctx context.Context, r *Restored) error {
	rec := Recovery{Attempt: s.ctx.Attempt, Restored: r.Checkpoint, Savepoints: s.ctx.Savepoints}
	if err := s.committer.Recover(ctx, rec); err != nil {
		return fmt.Errorf("clean up after earlier attempts of %s: %w", s.ctx.Operator, err)
	}
	var all []Committable
	for _, e := range r.Lists[CommittablesList] {
		_, c, err := decodeCommittable(e.Bytes)
		if err != nil {
			return Permanentf("restore %s: %w", s.ctx.Operator, err)
		}
		all = append(all, c)
	}
	if len(all) > 0 {
		if err := s.committer.Commit(ctx, all); err != nil {
			return fmt.Errorf("commit restored transactions of %s: %w", s.ctx.Operator, err)
		}
	}
	return Failed(s.ctx.Operator, RestoreLists(s.ctx.lists, r))
}

// Collect implements Collector.
func (s *twoPhaseOperator[T]) Collect(v T) error {
	if err := s.writer.Write(v); err != nil {
		return Failed(s.ctx.Operator, err)
	}
	return nil
}

// Freeze implements Operator.
func (s *twoPhaseOperator[T]) Freeze(b element.Barrier) (Frozen, error) {
	p, err := s.writer.Prepare(b.Checkpoint)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", s.ctx.Operator, err)
	}
	if n := len(s.open); n > 0 {
		invariant.Check(s.open[n-1].id < b.Checkpoint, "I1", "%s prepares checkpoint %d after %d: a commit of the former would include records behind its barrier",
			s.ctx.Operator, b.Checkpoint, s.open[n-1].id)
	}
	if p != nil {
		s.open = append(s.open, &transaction{id: b.Checkpoint, prepared: p})
	}
	lists, err := FreezeLists(s.ctx.lists)
	if err != nil {
		return nil, Failed(s.ctx.Operator, err)
	}
	return &frozenTransactions{list: append([]*transaction(nil), s.open...), lists: lists}, nil
}

// Finish implements Operator: what is left goes with the final checkpoint.
func (s *twoPhaseOperator[T]) Finish() error { return nil }

// CommitUpTo implements Committing.
func (s *twoPhaseOperator[T]) CommitUpTo(id ids.CheckpointID) func(ctx context.Context) error {
	s.published = max(s.published, id)
	var all []Committable
	for _, t := range s.open {
		if t.id > id {
			continue
		}
		invariant.Check(t.persisted, "I3", "checkpoint %d was published although %s had not persisted its transaction of checkpoint %d", id, s.ctx.Operator, t.id)
		all = append(all, t.committables...)
	}
	if len(all) == 0 {
		return nil
	}
	committer, uid := s.committer, s.ctx.Operator
	return func(ctx context.Context) error {
		if err := committer.Commit(ctx, all); err != nil {
			return fmt.Errorf("commit %s up to checkpoint %d: %w", uid, id, err)
		}
		return nil
	}
}

// Committed implements Committing.
func (s *twoPhaseOperator[T]) Committed(id ids.CheckpointID) {
	kept := s.open[:0]
	for _, t := range s.open {
		if t.id > id {
			kept = append(kept, t)
		}
	}
	clear(s.open[len(kept):])
	s.open = kept
}

// AbortAfter implements Committing.
func (s *twoPhaseOperator[T]) AbortAfter(id ids.CheckpointID) func(ctx context.Context) error {
	invariant.Check(id >= s.published, "I1", "%s is to abort what was prepared after checkpoint %d, but %d is published", s.ctx.Operator, id, s.published)
	var all []Committable
	for _, t := range s.open {
		if t.id > id {
			all = append(all, t.committables...)
		}
	}
	if len(all) == 0 {
		return nil
	}
	committer, uid := s.committer, s.ctx.Operator
	return func(ctx context.Context) error {
		if err := committer.Abort(ctx, all); err != nil {
			return fmt.Errorf("abort what %s prepared after checkpoint %d: %w", uid, id, err)
		}
		return nil
	}
}

// Close implements Operator.
func (s *twoPhaseOperator[T]) Close() error {
	var first error
	if s.writer != nil {
		first = s.writer.Close()
	}
	if s.committer != nil {
		if err := s.committer.Close(); first == nil {
			first = err
		}
	}
	return first
}

type frozenTransactions struct {
	list  []*transaction
	lists Frozen // nil if the writer has no operator state
}

// Write implements Frozen.
func (f *frozenTransactions) Write(ctx context.Context, w SnapshotWriter) error {
	var elements [][]byte
	for _, t := range f.list {
		if !t.persisted {
			c, err := t.prepared.Persist(ctx)
			if err != nil {
				return fmt.Errorf("persist transaction of checkpoint %d: %w", t.id, err)
			}
			t.committables, t.persisted, t.prepared = c, true, nil
		}
		for _, c := range t.committables {
			elements = append(elements, encodeCommittable(t.id, c))
		}
	}
	if err := w.List(CommittablesList, snapshot.SplitEvenly, elements, nil); err != nil || f.lists == nil {
		return err
	}
	return f.lists.Write(ctx, w)
}

// Release implements Frozen.
func (f *frozenTransactions) Release() {
	f.list = nil
	if f.lists != nil {
		f.lists.Release()
	}
}

func encodeCommittable(id ids.CheckpointID, c Committable) []byte {
	out := binary.LittleEndian.AppendUint64(make([]byte, 0, 8+len(c)), uint64(id))
	return append(out, c...)
}

func decodeCommittable(b []byte) (ids.CheckpointID, Committable, error) {
	if len(b) < 8 {
		return 0, nil, fmt.Errorf("committable of %d bytes: want at least 8", len(b))
	}
	return ids.CheckpointID(binary.LittleEndian.Uint64(b)), Committable(b[8:]), nil
}
