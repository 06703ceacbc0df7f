package operator_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
)

// countingSink is a sink of both sorts whose writer counts in operator state.
type countingSink struct{ count *state.OperatorList[int64] }

func (s *countingSink) open(ctx *operator.Context) (err error) {
	s.count, err = state.NewUnionList[int64](ctx, "count")
	return err
}

// Describe implements operator.Sink.
func (*countingSink) Describe() operator.Description { return operator.Description{} }

// Write implements operator.SinkWriter.
func (s *countingSink) Write(v int64) error {
	s.count.Add(v)
	return nil
}

// Flush implements operator.SinkWriter.
func (*countingSink) Flush() error { return nil }

// Close implements operator.SinkWriter.
func (*countingSink) Close() error { return nil }

// Prepare implements operator.TwoPhaseWriter.
func (*countingSink) Prepare(ids.CheckpointID) (operator.Prepared, error) { return nil, nil }

// Recover implements operator.Committer.
func (*countingSink) Recover(context.Context, operator.Recovery) error { return nil }

// Commit implements operator.Committer.
func (*countingSink) Commit(context.Context, []operator.Committable) error { return nil }

// Abort implements operator.Committer.
func (*countingSink) Abort(context.Context, []operator.Committable) error { return nil }

type plainCounting struct{ *countingSink }

// OpenWriter implements operator.Sink.
func (s plainCounting) OpenWriter(ctx *operator.Context) (operator.SinkWriter[int64], error) {
	return s.countingSink, s.open(ctx)
}

type twoPhaseCounting struct{ *countingSink }

// OpenWriter implements operator.TwoPhase.
func (s twoPhaseCounting) OpenWriter(ctx *operator.Context) (operator.TwoPhaseWriter[int64], error) {
	return s.countingSink, s.open(ctx)
}

// OpenCommitter implements operator.TwoPhase.
func (s twoPhaseCounting) OpenCommitter(*operator.Context) (operator.Committer, error) {
	return s.countingSink, nil
}

// listWriter keeps what is written as it is restored.
type listWriter map[string][]operator.ListElement

// Keyed implements operator.SnapshotWriter.
func (listWriter) Keyed(statebackend.Frozen) error { return nil }

// List implements operator.SnapshotWriter.
func (w listWriter) List(name string, _ snapshot.Redistribution, elements [][]byte, _ []int64, _ ...snapshot.StateMeta) error {
	for _, e := range elements {
		w[name] = append(w[name], operator.ListElement{Bytes: e})
	}
	return nil
}

// The writers of sinks have operator state, which is frozen at the barrier.
func TestSinksHaveOperatorState(t *testing.T) {
	for name, open := range map[string]func(*countingSink) operator.Instance{
		"sink":      func(s *countingSink) operator.Instance { return operator.NewSink[int64](plainCounting{s}) },
		"two-phase": func(s *countingSink) operator.Instance { return operator.NewTwoPhase[int64](twoPhaseCounting{s}) },
	} {
		t.Run(name, func(t *testing.T) {
			stored := listWriter{}
			for round := range int64(3) {
				s := &countingSink{}
				op := open(s)
				if err := op.Operator.Open(&operator.Context{Operator: "out"}); err != nil {
					t.Fatal(err)
				}
				if err := op.Operator.Restore(t.Context(), &operator.Restored{Lists: stored}); err != nil {
					t.Fatal(err)
				}
				in := op.Inputs[0].(operator.Collector[int64])
				if err := in.Collect(round); err != nil {
					t.Fatal(err)
				}
				f, err := op.Operator.Freeze(element.Barrier{Checkpoint: ids.CheckpointID(round + 1)})
				if err != nil {
					t.Fatal(err)
				}
				if err := in.Collect(99); err != nil { // behind the barrier
					t.Fatal(err)
				}
				stored = listWriter{}
				if err := f.Write(t.Context(), stored); err != nil {
					t.Fatal(err)
				}
				f.Release()
				if got, want := len(s.count.Get()), int(round)+2; got != want {
					t.Errorf("round %d has %d elements, want %d", round, got, want)
				}
				if err := op.Operator.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if got := fmt.Sprint(len(stored["list/count"])); got != "3" {
				t.Errorf("%s elements are stored, want 3", got)
			}
		})
	}
}
