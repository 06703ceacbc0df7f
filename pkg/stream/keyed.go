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
	"github.com/weirstream/weir/pkg/timer"
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

	timers Timers[K]
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

// Timers are the timers of the current key, for functions with an OnTimer.
func (c *Context[K]) Timers() *Timers[K] { return &c.timers }

// Timestamp is the event time of the record or timer that is being processed,
// in milliseconds since the Unix epoch; NoTimestamp if it has none.
func (c *Context[K]) Timestamp() int64 { return c.place.Time.Timestamp }

// Watermark is how far event time has come: no record with a timestamp below
// it follows, but late ones. NoTimestamp before the first watermark.
func (c *Context[K]) Watermark() int64 { return c.place.Watermark }

// ProcessingTime is the time by the clock of the subtask's host, in
// milliseconds since the Unix epoch. It is read once for a run of records,
// and never goes back.
func (c *Context[K]) ProcessingTime() int64 { return c.place.Time.Now }

func (c *Context[K]) side(tag string) any { return c.sides[tag] }

// keyedOperator is what all operators with keyed state have in common: the
// state's life. The user's states are registered between Open and Restore.
type keyedOperator[K comparable] struct {
	ctx Context[K]
	// start calls the user's Start.
	start func() error
	// onTimer calls the user's OnTimer; nil if there is none.
	onTimer func(Timer) error
	// ahead and hashes belong to prefetch, and are here so that they do not escape.
	ahead  K
	hashes [operator.PrefetchMax]uint32
}

func (o *keyedOperator[K]) open(ctx *operator.Context) error {
	keyed, err := state.NewKeyed[K](state.Options{
		Operator: ctx.Operator, Range: ctx.KeyGroups, MaxParallelism: ctx.MaxParallelism, Backend: ctx.Backend, Dir: ctx.Dir, Now: ctx.Now,
	})
	if err != nil {
		return err
	}
	o.ctx.keyed, o.ctx.place, o.ctx.timers.ctx = keyed, ctx, &o.ctx
	o.ctx.lists = state.NewOperator(ctx.Operator, ctx.Index)
	return nil
}

// Restore implements operator.Operator.
func (o *keyedOperator[K]) Restore(_ context.Context, r *operator.Restored) error {
	timers, states := timer.Split(r.Keyed)
	if err := o.ctx.keyed.Backend().Restore(states); err != nil {
		return operator.Failed(o.ctx.UID(), err)
	}
	if err := o.restoreTimers(timers); err != nil {
		return operator.Failed(o.ctx.UID(), err)
	}
	o.ctx.timers.open = true
	if err := operator.RestoreLists(o.ctx.lists, r); err != nil {
		return o.fail(err)
	}
	if o.start == nil {
		return nil
	}
	return o.fail(o.start())
}

// restoreTimers refuses timers that nobody would handle: dropping them would
// be losing state.
func (o *keyedOperator[K]) restoreTimers(parts []statebackend.RestoredPart) error {
	all := o.ctx.timers.all
	if all == nil {
		if len(parts) == 0 {
			return nil
		}
		var err error
		if all, err = timer.New[K](o.ctx.place.KeyGroups, o.ctx.place.MaxParallelism); err != nil {
			return err
		}
	}
	if err := all.Restore(parts); err != nil {
		return err
	}
	if n := all.Len(); o.ctx.timers.all == nil && n > 0 {
		return operator.Permanentf("the checkpoint has %d timers, and the function has no method OnTimer: give it one, which may do nothing", n)
	}
	return nil
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
	frozen := frozenKeyed{state: f, lists: lists}
	if all := o.ctx.timers.all; all != nil && all.Len() > 0 {
		frozen.timers = all.Freeze()
	}
	return frozen, nil
}

// closeState drops the state. Open may have failed before there was any.
func (o *keyedOperator[K]) closeState() error {
	if o.ctx.keyed == nil {
		return nil
	}
	return errors.Join(o.ctx.keyed.Backend().Close(), o.ctx.lists.Close())
}

// prefetch begins a batch of records: the entries of its keys are brought from
// memory together.
func prefetch[K comparable, T any](o *keyedOperator[K], key func(T) K, next []T) {
	if !o.ctx.keyed.HasStates() {
		return
	}
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
	state  statebackend.Frozen
	timers statebackend.Frozen // nil if there are none
	lists  operator.Frozen     // nil if there are none
}

// Write implements operator.Frozen.
func (f frozenKeyed) Write(ctx context.Context, w operator.SnapshotWriter) error {
	if err := w.Keyed(f.state); err != nil {
		return err
	}
	if f.timers != nil {
		if err := w.Keyed(f.timers); err != nil {
			return err
		}
	}
	if f.lists != nil {
		return f.lists.Write(ctx, w)
	}
	return nil
}

// Release implements operator.Frozen.
func (f frozenKeyed) Release() {
	f.state.Release()
	if f.timers != nil {
		f.timers.Release()
	}
	if f.lists != nil {
		f.lists.Release()
	}
}
