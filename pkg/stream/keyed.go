package stream

import (
	"context"
	"errors"
	"io"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
)

// Context tells a keyed function where it runs and under which key. It is
// what states are registered with:
//
//	agg, err := state.NewValue[Agg](ctx, "agg")
//
// It is good for the life of the function, on the function's goroutine.
type Context[K comparable] struct {
	keyed *state.Keyed[K]
	lists *state.Operator
	place *operator.Context
	sides map[string]any // collectors of the side outputs that are consumed
}

// KeyedState makes a Context a state.Context.
func (c *Context[K]) KeyedState() *state.Keyed[K] { return c.keyed }

// OperatorState makes a Context a state.OperatorContext.
func (c *Context[K]) OperatorState() *state.Operator { return c.lists }

// noKey forgets the current key, for what belongs to none.
func (c *Context[K]) noKey() { c.keyed.ClearCurrentKey() }

// Key is the key of the record that is being processed. There is none in Open
// and Finish.
func (c *Context[K]) Key() K { return c.keyed.CurrentKey() }

// Job is the job's ID.
func (c *Context[K]) Job() ids.JobID { return c.place.Job }

// UID is the operator's.
func (c *Context[K]) UID() ids.OperatorUID { return c.place.Operator }

// Subtask is the number of this subtask among Parallelism.
func (c *Context[K]) Subtask() int { return c.place.Index }

// Parallelism is the number of subtasks of the operator.
func (c *Context[K]) Parallelism() int { return c.place.Parallelism }

// Output takes lines that users read with flinkctl logs.
func (c *Context[K]) Output() io.Writer { return c.place.Output }

func (c *Context[K]) side(tag string) any { return c.sides[tag] }

// keyedOperator is what all operators with keyed state have in common: the
// state's life. The user's states are registered between Open and Restore.
type keyedOperator[K comparable] struct {
	ctx Context[K]
	// ahead and hashes belong to prefetch, and are here so that they do not escape.
	ahead  K
	hashes [operator.PrefetchMax]uint32
}

func (o *keyedOperator[K]) open(ctx *operator.Context) error {
	keyed, err := state.NewKeyed[K](state.Options{
		Operator: ctx.Operator, Range: ctx.KeyGroups, MaxParallelism: ctx.MaxParallelism, Backend: ctx.Backend, Now: ctx.Now,
	})
	if err != nil {
		return err
	}
	o.ctx.keyed, o.ctx.place = keyed, ctx
	o.ctx.lists = state.NewOperator(ctx.Operator, ctx.Index)
	return nil
}

// Restore implements operator.Operator.
func (o *keyedOperator[K]) Restore(_ context.Context, r *operator.Restored) error {
	if err := o.ctx.keyed.Backend().Restore(r.Keyed); err != nil {
		return operator.Failed(o.ctx.UID(), err)
	}
	return o.fail(operator.RestoreLists(o.ctx.lists, r))
}

// Freeze implements operator.Operator.
func (o *keyedOperator[K]) Freeze(element.Barrier) (operator.Frozen, error) {
	o.ctx.keyed.Tick()
	f, err := o.ctx.keyed.Backend().Freeze()
	if err != nil {
		return nil, operator.Failed(o.ctx.UID(), err)
	}
	lists, err := operator.FreezeLists(o.ctx.lists)
	if err != nil {
		f.Release()
		return nil, operator.Failed(o.ctx.UID(), err)
	}
	return frozenKeyed{f, lists}, nil
}

// closeState drops the state. Open may have failed before there was any.
func (o *keyedOperator[K]) closeState() error {
	if o.ctx.keyed == nil {
		return nil
	}
	return errors.Join(o.ctx.keyed.Backend().Close(), o.ctx.lists.Close())
}

// prefetch begins a batch of records: the clock is read for it, and the
// entries of its keys are brought from memory together.
func prefetch[K comparable, T any](o *keyedOperator[K], key func(T) K, next []T) {
	if !o.ctx.keyed.HasStates() {
		return
	}
	o.ctx.keyed.Tick()
	for i := range next {
		o.ahead = key(next[i])
		o.hashes[i] = o.ctx.keyed.Hash(&o.ahead)
	}
	o.ctx.keyed.Prefetch(o.hashes[:len(next)])
}

// fail names the operator in an error of the user's function.
func (o *keyedOperator[K]) fail(err error) error {
	if err == nil {
		return nil
	}
	return operator.Failed(o.ctx.place.Operator, err)
}

type frozenKeyed struct {
	state statebackend.Frozen
	lists operator.Frozen // nil if there are none
}

// Write implements operator.Frozen.
func (f frozenKeyed) Write(ctx context.Context, w operator.SnapshotWriter) error {
	if err := w.Keyed(f.state); err != nil || f.lists == nil {
		return err
	}
	return f.lists.Write(ctx, w)
}

// Release implements operator.Frozen.
func (f frozenKeyed) Release() {
	f.state.Release()
	if f.lists != nil {
		f.lists.Release()
	}
}
