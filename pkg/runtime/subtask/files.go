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
}

// writeAll writes the snapshot of every operator. After an error the files
// that were written are removed: nobody will hear of them.
func (w *snapshotWriter) writeAll(ctx context.Context, ops []operator.ChainOperator, t *taken) (snapshot.SubtaskState, error) {
	w.ctx = ctx
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
	return w.List(watermarkList, snapshot.Union, [][]byte{t.watermarks[i]}, nil)
}

func (w *snapshotWriter) discard(ctx context.Context, out snapshot.SubtaskState, cause error) error {
	var handles []snapshot.StateHandle
	out.EachHandle(func(h snapshot.StateHandle) { handles = append(handles, h) })
	if err := w.cfg.Store.DiscardHandles(ctx, w.location().Base, handles); err != nil {
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
	file := checkpointstore.StateFile{Attempt: w.cfg.Attempt, Subtask: w.id, Seq: w.seq}
	w.seq++
	return w.cfg.Store.WriteState(w.ctx, w.location(), file, w.cfg.InlineBytesMax, write)
}

// Keyed implements operator.SnapshotWriter.
func (w *snapshotWriter) Keyed(f statebackend.Frozen) error {
	var offsets []int64
	var states []snapshot.StateMeta
	h, err := w.store(func(dst io.Writer) (err error) {
		offsets, states, err = f.WriteSnapshot(dst)
		return err
	})
	if err != nil {
		return err
	}
	w.state.Keyed = append(w.state.Keyed, snapshot.KeyedStateHandle{
		Handle: h, Range: w.keyGroups(), Offsets: offsets, States: states,
	})
	return nil
}

// List implements operator.SnapshotWriter.
func (w *snapshotWriter) List(name string, mode snapshot.Redistribution, elements [][]byte, indexes []int64) error {
	if len(elements) == 0 {
		return nil
	}
	lengths := make([]int64, len(elements))
	for i, e := range elements {
		lengths[i] = int64(len(e))
	}
	h, err := w.store(func(dst io.Writer) error {
		_, err := io.Copy(dst, bytes.NewReader(bytes.Join(elements, nil)))
		return err
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", name, err)
	}
	w.state.Lists = append(w.state.Lists, snapshot.OperatorStateHandle{
		Name: name, Redistribution: mode, Handle: h, Elements: lengths, Indexes: indexes,
	})
	return nil
}

// keyGroups is the range that the subtask owns.
func (w *snapshotWriter) keyGroups() keygroup.Range {
	v := &w.cfg.Graph.Vertices[w.id.Vertex]
	return keygroup.RangeOf(int(w.id.Index), v.Parallelism, w.cfg.Graph.MaxParallelism)
}

// readState reads what one operator is restored from.
func (s *Subtask) readState(ctx context.Context, states []snapshot.OperatorSubtaskState) (*operator.Restored, error) {
	r := &operator.Restored{
		Checkpoint: s.cfg.RestoredCheckpoint, EndOfData: s.cfg.Deployment.EndOfData,
		Lists: map[string][]operator.ListElement{},
	}
	for _, st := range states {
		for _, k := range st.Keyed {
			data, err := s.readHandle(ctx, k.Handle)
			if err != nil {
				return nil, err
			}
			r.Keyed = append(r.Keyed, statebackend.RestoredPart{Range: k.Range, Offsets: k.Offsets, States: k.States, Data: data})
		}
		for _, l := range st.Lists {
			elements, err := s.readList(ctx, l)
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", l.Name, err)
			}
			r.Lists[l.Name] = append(r.Lists[l.Name], elements...)
		}
	}
	return r, nil
}

// readHandle reads the bytes behind a handle.
func (s *Subtask) readHandle(ctx context.Context, h snapshot.StateHandle) (data []byte, err error) {
	err = s.readTwice(ctx, func() error {
		data, err = s.cfg.Store.ReadState(ctx, s.cfg.RestoreBase, h)
		return err
	})
	return data, err
}

func (s *Subtask) readList(ctx context.Context, l snapshot.OperatorStateHandle) ([]operator.ListElement, error) {
	data, err := s.readHandle(ctx, l.Handle)
	if err != nil {
		return nil, err
	}
	all := make([]operator.ListElement, len(l.Elements))
	for i, n := range l.Elements {
		if n < 0 || n > int64(len(data)) {
			return nil, operator.Permanentf("element %d has %d bytes of %d left: the handle does not fit its file", i, n, len(data))
		}
		all[i].Bytes, data = data[:n:n], data[n:]
		if l.Redistribution == snapshot.ByIndex {
			if i >= len(l.Indexes) {
				return nil, operator.Permanentf("%d elements but %d indexes", len(l.Elements), len(l.Indexes))
			}
			all[i].Index = l.Indexes[i]
		}
	}
	if l.Selected == nil {
		return all, nil
	}
	out := make([]operator.ListElement, len(l.Selected))
	for i, n := range l.Selected {
		if n < 0 || int(n) >= len(all) {
			return nil, operator.Permanentf("element %d of %d is selected", n, len(all))
		}
		out[i] = all[n]
	}
	return out, nil
}
