package subtask

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// snapshotWriter stores the frozen parts of one snapshot.
type snapshotWriter struct {
	cfg     *Config
	id      ids.SubtaskID
	barrier element.Barrier
	ctx     context.Context
	seq     uint32
	state   *snapshot.OperatorSubtaskState
	// base has the files that may be referred to, files gets those of this snapshot.
	base, files fileMap
	local       *localCopies
	// orphans are handles of files that no snapshot came to have.
	orphans []snapshot.StateHandle
}

// writeAll writes the snapshot of every operator. After an error the files
// that were written are removed: nobody will hear of them.
func (w *snapshotWriter) writeAll(ctx context.Context, ops []operator.ChainOperator, t *taken) (snapshot.SubtaskState, error) {
	w.ctx, w.files = ctx, fileMap{}
	out := snapshot.SubtaskState{Subtask: w.id, EndOfData: t.endOfData}
	for i := range ops {
		uid := ops[i].Context.Operator
		out.Operators = append(out.Operators, snapshot.OperatorSubtaskState{UID: uid})
		w.state = &out.Operators[len(out.Operators)-1]
		if err := w.writeOperator(ctx, t, i); err != nil {
			err = fmt.Errorf("write snapshot of operator %s in subtask %s: %w", uid, w.id, err)
			return snapshot.SubtaskState{}, w.discard(ctx, out, err)
		}
	}
	w.local.commit(w.barrier.Checkpoint)
	return out, nil
}

func (w *snapshotWriter) writeOperator(ctx context.Context, t *taken, i int) error {
	if t.frozen[i] != nil {
		if err := t.frozen[i].Write(ctx, w); err != nil {
			return err
		}
	}
	if t.watermarks[i] == nil {
		return nil
	}
	return w.List(snapshot.WatermarkList, snapshot.Union, [][]byte{t.watermarks[i]}, nil)
}

func (w *snapshotWriter) discard(ctx context.Context, out snapshot.SubtaskState, cause error) error {
	handles := w.orphans
	out.EachHandle(func(h snapshot.StateHandle) {
		// What an earlier checkpoint uploaded belongs to that one too.
		if !h.IsShared() || h.SharedSince == w.barrier.Checkpoint {
			handles = append(handles, h)
		}
	})
	w.local.abandon()
	if _, err := w.cfg.Store.DiscardHandles(ctx, w.location().Base, handles); err != nil {
		return fmt.Errorf("%w (and removing its files: %w)", cause, err)
	}
	return cause
}

func (w *snapshotWriter) location() checkpointstore.Location {
	if w.barrier.Savepoint {
		return checkpointstore.SavepointLocation(w.barrier.SavepointDir, w.cfg.Job, w.barrier.Checkpoint)
	}
	return checkpointstore.CheckpointLocation(w.cfg.CheckpointDir, w.cfg.Job, w.barrier.Checkpoint)
}

func (w *snapshotWriter) store(write func(io.Writer) error) (snapshot.StateHandle, error) {
	return w.storeAs(w.nextSeq(), write)
}

// nextSeq numbers the files of a subtask in one checkpoint.
func (w *snapshotWriter) nextSeq() uint32 {
	w.seq++
	return w.seq - 1
}

func (w *snapshotWriter) storeAs(seq uint32, write func(io.Writer) error) (snapshot.StateHandle, error) {
	file := checkpointstore.StateFile{Attempt: w.cfg.Attempt, Subtask: w.id, Seq: seq}
	return w.cfg.Store.WriteState(w.ctx, w.location(), file, w.cfg.InlineBytesMax, write)
}

// Keyed implements operator.SnapshotWriter.
func (w *snapshotWriter) Keyed(f statebackend.Frozen) error {
	uid := w.state.UID
	// One keyed state of an operator may be in files: two backends could give
	// different files one name.
	if view, ok := f.(statebackend.FileFrozen); ok && w.cfg.Incremental && !w.barrier.Savepoint && w.files[uid] == nil {
		return w.keyedFiles(view)
	}
	var offsets []int64
	var states []snapshot.StateMeta
	// Beside state in files there are only timers: those are copied too, so that
	// nothing has to be fetched. The whole state of a backend on the heap is
	// not, which would cost every checkpoint as much again.
	var side *localWriter
	if w.files[uid] != nil {
		side = w.local.writer()
	}
	h, err := w.store(func(dst io.Writer) (err error) {
		if side != nil {
			dst = io.MultiWriter(dst, side)
		}
		offsets, states, err = f.WriteSnapshot(dst)
		return err
	})
	if side != nil {
		side.keepAs(h, err)
	}
	if err != nil {
		return err
	}
	w.state.Keyed = append(w.state.Keyed, snapshot.KeyedStateHandle{
		Handle: h, Range: w.keyGroups(), Offsets: offsets, States: states,
	})
	return nil
}

// List implements operator.SnapshotWriter.
func (w *snapshotWriter) List(name string, mode snapshot.Redistribution, elements [][]byte, indexes []int64, states ...snapshot.StateMeta) error {
	list := snapshot.OperatorStateHandle{Name: name, Redistribution: mode, Indexes: indexes, States: states}
	if len(elements) == 0 {
		// The description of an empty list takes no file.
		if len(states) > 0 {
			w.state.Lists = append(w.state.Lists, list)
		}
		return nil
	}
	list.Elements = make([]int64, len(elements))
	for i, e := range elements {
		list.Elements[i] = int64(len(e))
	}
	content := bytes.Join(elements, nil)
	var err error
	list.Handle, err = w.store(func(dst io.Writer) error {
		_, err := io.Copy(dst, bytes.NewReader(content))
		return err
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", name, err)
	}
	w.local.keepBytes(content, list.Handle)
	w.state.Lists = append(w.state.Lists, list)
	return nil
}

// keyGroups is the range that the subtask owns.
func (w *snapshotWriter) keyGroups() keygroup.Range {
	v := &w.cfg.Graph.Vertices[w.id.Vertex]
	return keygroup.RangeOf(int(w.id.Index), v.Parallelism, w.cfg.Graph.MaxParallelism)
}
