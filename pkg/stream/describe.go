package stream

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

// Starter is a function that acquires what it needs beside its states: a
// connection, a file. C is *Context[K], or *BroadcastContext for a
// BroadcastFunction.
type Starter[C any] interface {
	// Start is called once in each subtask, when its state is restored and
	// before its first record. It may take long. There is no current key.
	Start(ctx C) error
}

func start[C any](fn any, ctx C) error {
	if s, ok := fn.(Starter[C]); ok {
		return s.Start(ctx)
	}
	return nil
}

// describer is an operator that knows, once it is open, all states it has.
type describer interface {
	operator.Operator
	describe() []snapshot.StateMeta
}

// describeStates opens the operator of a node as its subtasks will, with
// nothing to keep, so that the graph tells which states it has.
func (n *node) describeStates() (err error) {
	defer func() {
		// A panic of the user's Open is an error of the job, and names it.
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: opened to see its states, it panicked: %v", n.describe(), r)
		}
	}()
	instance, err := n.make(func(tag string) any {
		if o, ok := n.outputs[tag]; ok {
			return o.discard
		}
		return nil
	})
	if err != nil {
		return nil // as its subtasks will say
	}
	d, ok := instance.Operator.(describer)
	if !ok {
		return nil
	}
	ctx := &operator.Context{
		JobName: "graph", Operator: n.UID, Parallelism: max(n.Parallelism, 1), MaxParallelism: 1, KeyGroups: keygroup.Range{},
		Output: io.Discard, Backend: memory.New(), Now: func() time.Time { return time.Time{} }, Time: &operator.Time{},
	}
	// It is not closed: what a Closer releases, this one has not acquired.
	if err := d.Open(ctx); err != nil {
		return fmt.Errorf("%s: opened to see its states: %w", n.describe(), err)
	}
	n.DescribesStates = true
	for _, m := range d.describe() {
		n.States = append(n.States, graph.State{Name: m.Name, Kind: m.Kind, Codec: m.Codec, Schema: m.Schema, KeySchema: m.KeySchema})
	}
	return nil
}

// describe implements describer.
func (o *keyedOperator[K]) describe() []snapshot.StateMeta {
	metas := slices.Concat(o.ctx.keyed.States(), o.ctx.lists.States())
	if o.ctx.timers.all != nil {
		metas = append(metas, o.ctx.timers.all.Describe()...)
	}
	return metas
}

// describe implements describer.
func (b *broadcastOperator[T, B, O]) describe() []snapshot.StateMeta { return b.ctx.lists.States() }

// describedKinds are the operators that users give states.
var describedKinds = map[graph.OperatorKind]bool{graph.ProcessOperator: true, graph.ConnectOperator: true, graph.ReduceOperator: true}

// statelessKinds are the operators that keep nothing. Saying so has state that is
// stored under their UIDs, of another kind of operator in an earlier version of
// the program, refused or dropped on the user's word.
var statelessKinds = map[graph.OperatorKind]bool{graph.MapOperator: true, graph.FlatMapOperator: true, graph.FilterOperator: true}

// describeOperators describes the states of all operators that have any.
func (e *Env) describeOperators() error {
	for _, n := range e.nodes {
		n.DescribesStates, n.States = statelessKinds[n.Kind], nil
		if !describedKinds[n.Kind] {
			continue
		}
		if err := n.describeStates(); err != nil {
			return err
		}
	}
	return nil
}
