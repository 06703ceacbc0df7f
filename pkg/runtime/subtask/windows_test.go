package subtask_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

// event is a record of the windowed jobs.
type event struct {
	Time int64
	Key  uint64
}

// events is a source of fixed splits.
type events [][]event

// ListSplits implements operator.Source; the rig assigns the splits itself.
func (events) ListSplits(context.Context, operator.SourceContext) ([][]byte, bool, error) {
	return nil, true, nil
}

// OpenReader implements operator.Source.
func (e events) OpenReader(_ context.Context, _ operator.SourceContext, split, position []byte) (operator.Reader[event], error) {
	r := &eventReader{all: e[split[0]]}
	if position != nil {
		r.next = int(binary.LittleEndian.Uint64(position))
	}
	return r, nil
}

// Describe implements operator.Source.
func (events) Describe() operator.Description { return operator.Description{Bounded: true} }

type eventReader struct {
	all  []event
	next int
}

// Fetch implements operator.Reader.
func (r *eventReader) Fetch(context.Context) (operator.Batch[event], error) {
	if r.next == len(r.all) {
		return nil, io.EOF
	}
	b := &eventBatch{all: r.all, next: r.next, end: min(r.next+3, len(r.all))}
	r.next = b.end
	return b, nil
}

// Close implements operator.Reader.
func (r *eventReader) Close() error { return nil }

type eventBatch struct {
	all       []event
	next, end int
}

// Next implements operator.Batch.
func (b *eventBatch) Next(v *event) (bool, error) {
	if b.next == b.end {
		return false, nil
	}
	*v = b.all[b.next]
	b.next++
	return true, nil
}

// Position implements operator.Batch.
func (b *eventBatch) Position() []byte { return binary.LittleEndian.AppendUint64(nil, uint64(b.next)) }

// window is a key in one window of time, which begins at Start.
type window struct {
	Start int64
	Key   uint64
}

// total is what a window came to.
type total struct {
	Window window
	N      int64
}

const windowSize = 10

// windows counts the events of each window, and emits when it is over.
type windows struct{ n state.Value[int64] }

// Open implements stream.ProcessFunction.
func (w *windows) Open(ctx *stream.Context[window]) (err error) {
	if err := ctx.Timers().RegisterEventTime(1); err == nil {
		return fmt.Errorf("a timer without a key was taken")
	}
	w.n, err = state.NewValue[int64](ctx, "n")
	return err
}

// Process implements stream.ProcessFunction.
func (w *windows) Process(ctx *stream.Context[window], e event, _ stream.Collector[total]) error {
	if ctx.Timestamp() != e.Time || e.Time < ctx.Watermark() {
		return fmt.Errorf("event at %d has timestamp %d and comes at watermark %d", e.Time, ctx.Timestamp(), ctx.Watermark())
	}
	n, _, err := w.n.Get()
	if err != nil {
		return err
	}
	end := ctx.Key().Start + windowSize
	timers := ctx.Timers()
	// One is deleted, and must not come back with any restore (FLINK-26063).
	if err := timers.RegisterEventTime(end + 1); err != nil {
		return err
	}
	if err := timers.RegisterEventTime(end); err != nil {
		return err
	}
	if err := timers.DeleteEventTime(end + 1); err != nil {
		return err
	}
	return w.n.Set(n + 1)
}

// OnTimer implements stream.TimerFunction.
func (w *windows) OnTimer(ctx *stream.Context[window], t stream.Timer, out stream.Collector[total]) error {
	if end := ctx.Key().Start + windowSize; t != (stream.Timer{Time: end, Domain: stream.EventTime}) || ctx.Timestamp() != end || ctx.Watermark() < end {
		return fmt.Errorf("window %v got the timer %v at timestamp %d, watermark %d", ctx.Key(), t, ctx.Timestamp(), ctx.Watermark())
	}
	n, found, err := w.n.Get()
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("window %v fires for the second time", ctx.Key())
	}
	if err := w.n.Clear(); err != nil {
		return err
	}
	return out.Collect(total{ctx.Key(), n})
}

// ledger is a sink that commits in two phases to a map that outlives failures.
type ledger[T any] struct{ prepared, committed map[string][]T }

func newLedger[T any]() *ledger[T] {
	return &ledger[T]{prepared: map[string][]T{}, committed: map[string][]T{}}
}

// all is everything committed.
func (l *ledger[T]) all() []T {
	var out []T
	for _, part := range l.committed {
		out = append(out, part...)
	}
	return out
}

// OpenWriter implements operator.TwoPhase.
func (l *ledger[T]) OpenWriter(ctx *operator.Context) (operator.TwoPhaseWriter[T], error) {
	return &ledgerWriter[T]{l: l, ctx: ctx}, nil
}

// OpenCommitter implements operator.TwoPhase.
func (l *ledger[T]) OpenCommitter(*operator.Context) (operator.Committer, error) {
	return ledgerCommitter[T]{l}, nil
}

// Describe implements operator.TwoPhase.
func (l *ledger[T]) Describe() operator.Description { return operator.Description{} }

type ledgerWriter[T any] struct {
	l    *ledger[T]
	ctx  *operator.Context
	open []T
}

// Write implements operator.TwoPhaseWriter.
func (w *ledgerWriter[T]) Write(v T) error {
	w.open = append(w.open, v)
	return nil
}

// Prepare implements operator.TwoPhaseWriter.
func (w *ledgerWriter[T]) Prepare(id ids.CheckpointID) (operator.Prepared, error) {
	name := fmt.Sprintf("%s/%d/%d", w.ctx.Attempt, id, w.ctx.Index)
	w.l.prepared[name] = w.open
	w.open = nil
	return ledgerPart(name), nil
}

// Close implements operator.TwoPhaseWriter.
func (w *ledgerWriter[T]) Close() error { return nil }

type ledgerPart string

// Persist implements operator.Prepared.
func (p ledgerPart) Persist(context.Context) ([]operator.Committable, error) {
	return []operator.Committable{operator.Committable(p)}, nil
}

type ledgerCommitter[T any] struct{ l *ledger[T] }

// Recover implements operator.Committer.
func (c ledgerCommitter[T]) Recover(context.Context, operator.Recovery) error { return nil }

// Commit implements operator.Committer.
func (c ledgerCommitter[T]) Commit(_ context.Context, all []operator.Committable) error {
	for _, name := range all {
		c.l.committed[string(name)] = c.l.prepared[string(name)]
	}
	return nil
}

// Close implements operator.Committer.
func (c ledgerCommitter[T]) Close() error { return nil }

// windowed is the job: events, out of order by up to 3 ms, counted by window.
func windowed(t testing.TB, all events, sources, counters int, out *ledger[total]) *operator.Program {
	t.Helper()
	env := stream.NewEnv("windows")
	in := stream.From[event](env, simjob.Numbers, all, stream.WithParallelism(sources))
	in = stream.AssignTimestamps(in, "time", func(e event) int64 { return e.Time }, stream.WithOutOfOrderness(3*time.Millisecond))
	byWindow := stream.KeyBy(in, func(e event) window { return window{e.Time - e.Time%windowSize, e.Key} })
	totals := stream.Process(byWindow, "windows", func() *windows { return &windows{} }, stream.WithParallelism(counters))
	stream.To(totals, "out", out, stream.WithParallelism(1))
	p, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// reassigned is what a program starts from after the checkpoint of another rig.
func reassigned(t testing.TB, from *rig, id ids.CheckpointID, p *operator.Program) restorePoint {
	t.Helper()
	taken := map[ids.SubtaskID]snapshot.SubtaskState{}
	for _, st := range from.acks(id) {
		taken[st.Subtask] = st
	}
	c := &snapshot.CompletedCheckpoint{ID: id}
	for _, v := range from.graph.Vertices {
		for n, uid := range v.Chain {
			op := snapshot.OperatorState{UID: uid, Parallelism: v.Parallelism, MaxParallelism: from.graph.MaxParallelism}
			for i := range v.Parallelism {
				op.Subtasks = append(op.Subtasks, taken[ids.SubtaskID{Vertex: v.ID, Index: int32(i)}].Operators[n])
			}
			c.Operators = append(c.Operators, op)
		}
	}
	g, err := graph.Expand(p.Graph, 1)
	if err != nil {
		t.Fatal(err)
	}
	point := restorePoint{id: id}
	for _, v := range g.Vertices {
		var targets []snapshot.OperatorTarget
		for _, uid := range v.Chain {
			targets = append(targets, snapshot.OperatorTarget{UID: uid, Parallelism: v.Parallelism})
		}
		// Only the operators of this vertex: the rest is not lost.
		own := *c
		own.Operators = nil
		for _, op := range c.Operators {
			if slices.Contains(v.Chain, op.UID) {
				own.Operators = append(own.Operators, op)
			}
		}
		states, err := snapshot.Reassign(&own, targets, g.MaxParallelism)
		if err != nil {
			t.Fatal(err)
		}
		for i := range v.Parallelism {
			st := snapshot.SubtaskState{Subtask: ids.SubtaskID{Vertex: v.ID, Index: int32(i)}}
			for _, op := range states {
				st.Operators = append(st.Operators, op.Subtasks[i])
			}
			point.states = append(point.states, st)
		}
	}
	return point
}

// Abort implements operator.Committer.
func (c ledgerCommitter[T]) Abort(_ context.Context, committables []operator.Committable) error {
	for _, name := range committables {
		delete(c.l.prepared, string(name))
	}
	return nil
}
