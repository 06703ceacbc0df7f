package stream

import (
	"context"
	"fmt"
	"io"
	"reflect"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/state"
)

// KeyedBroadcastFunction handles the records of one subtask of a keyed stream,
// with state per key, and all records of a broadcast stream. All its methods
// run on one goroutine; in which order the records of the two streams come is
// not defined. It may also be a Finisher and a Closer.
type KeyedBroadcastFunction[K comparable, T, B, O any] interface {
	// Open registers the function's states, before anything else, and does
	// nothing more: it is also called once where the job's graph is built, so
	// that a restore can be compared before anything starts. A Starter acquires
	// other resources.
	Open(ctx *Context[K]) error
	// Process handles one record of the keyed stream. It reads broadcast state.
	Process(ctx *Context[K], v T, out Collector[O]) error
	// ProcessBroadcast handles one broadcast record, in every subtask. There
	// is no current key; side allows it to change broadcast state.
	ProcessBroadcast(side *state.BroadcastSide, v B, out Collector[O]) error
}

// BroadcastFunction is a KeyedBroadcastFunction for a stream without keys.
type BroadcastFunction[T, B, O any] interface {
	// Open registers the function's states, before anything else, and does
	// nothing more: it is also called once where the job's graph is built, so
	// that a restore can be compared before anything starts. A Starter acquires
	// other resources.
	Open(ctx *BroadcastContext) error
	// Process handles one record of the stream. It reads broadcast state.
	Process(ctx *BroadcastContext, v T, out Collector[O]) error
	// ProcessBroadcast handles one broadcast record, in every subtask. side
	// allows it to change broadcast state.
	ProcessBroadcast(side *state.BroadcastSide, v B, out Collector[O]) error
}

// BroadcastContext tells a BroadcastFunction where it runs, and is what its
// states are registered with. It is good for the life of the function.
type BroadcastContext struct {
	lists *state.Operator
	place *operator.Context
	sides map[string]any
}

// OperatorState makes a BroadcastContext a state.OperatorContext.
func (c *BroadcastContext) OperatorState() *state.Operator { return c.lists }

// Job is the job's ID.
func (c *BroadcastContext) Job() ids.JobID { return c.place.Job }

// UID is the operator's.
func (c *BroadcastContext) UID() ids.OperatorUID { return c.place.Operator }

// Subtask is the number of this subtask among Parallelism.
func (c *BroadcastContext) Subtask() int { return c.place.Index }

// Parallelism is the number of subtasks of the operator.
func (c *BroadcastContext) Parallelism() int { return c.place.Parallelism }

// Output takes lines that users read with flinkctl logs.
func (c *BroadcastContext) Output() io.Writer { return c.place.Output }

func (c *BroadcastContext) side(tag string) any { return c.sides[tag] }

// ConnectKeyedBroadcast runs a function on a keyed stream and a broadcast one,
// every record of which goes to every subtask. newFunction is called once for
// each subtask.
func ConnectKeyedBroadcast[K comparable, T, B, O any, F KeyedBroadcastFunction[K, T, B, O]](in KeyedStream[K, T], broadcast Stream[B], uid string, newFunction func() F, options ...Option) Stream[O] {
	n, s, ok := addBroadcast[F, O](in.stream.env, broadcast, uid, newFunction == nil, options)
	if !ok {
		return Stream[O]{env: in.stream.env}
	}
	connectKeyed(in, n, 0)
	connect(broadcast.Broadcast(), n, 1)
	n.make = func(out func(tag string) any) (operator.Instance, error) {
		b := &keyedBroadcastOperator[K, T, B, O]{key: in.key, fn: newFunction(), out: mainOutput[O](out)}
		b.ctx.sides = n.sideOutputs(out)
		return operator.Instance{Operator: b, Inputs: []any{
			Collector[T](b),
			Collector[B](&broadcastInput[B, O]{fn: b.fn, out: b.out, fail: b.fail, between: b.ctx.noKey}),
		}}, nil
	}
	return output(in.stream.env, n, "", outputCodec[O](in.stream.env, n, s, nil))
}

// ConnectBroadcast is ConnectKeyedBroadcast for a stream without keys.
func ConnectBroadcast[T, B, O any, F BroadcastFunction[T, B, O]](in Stream[T], broadcast Stream[B], uid string, newFunction func() F, options ...Option) Stream[O] {
	n, s, ok := addBroadcast[F, O](in.env, broadcast, uid, newFunction == nil, options)
	if !ok {
		return Stream[O]{env: in.env}
	}
	connect(in, n, 0)
	connect(broadcast.Broadcast(), n, 1)
	n.make = func(out func(tag string) any) (operator.Instance, error) {
		b := &broadcastOperator[T, B, O]{fn: newFunction(), out: mainOutput[O](out)}
		b.ctx.sides = n.sideOutputs(out)
		return operator.Instance{Operator: b, Inputs: []any{
			Collector[T](b), Collector[B](&broadcastInput[B, O]{fn: b.fn, out: b.out, fail: b.fail}),
		}}, nil
	}
	return output(in.env, n, "", outputCodec[O](in.env, n, s, nil))
}

// addBroadcast adds the operator of both. It says false if it cannot be connected.
func addBroadcast[F, O, B any](env *Env, broadcast Stream[B], uid string, noFunction bool, options []Option) (*node, *settings, bool) {
	if env == nil {
		broadcast.env.failAt("connect "+uid, "its first stream was not made by this package: start with stream.From")
		return nil, nil, false
	}
	n, s := env.add(graph.ConnectOperator, uid, true, options)
	if broadcast.env != env {
		env.fail(fmt.Errorf("%s: its broadcast stream belongs to another job, or was not made by this package", n.describe()))
		return nil, nil, false
	}
	if noFunction {
		env.fail(fmt.Errorf("%s: %w", n.describe(), errNoFunction))
	}
	checkOptionalMethods[F, O](env, n)
	if _, has := reflect.TypeFor[F]().MethodByName("OnTimer"); has {
		env.fail(fmt.Errorf("%s: method OnTimer of %s would never be called: functions with broadcast state have no timers; use a Process behind it", n.describe(), reflect.TypeFor[F]()))
	}
	return n, s, true
}

// broadcastInput hands broadcast records to the function, with the right to
// change broadcast state for as long as it handles one.
type broadcastInput[B, O any] struct {
	fn interface {
		ProcessBroadcast(side *state.BroadcastSide, v B, out Collector[O]) error
	}
	out  Collector[O]
	side state.BroadcastSide
	fail func(error) error
	// between, if set, forgets the key of the record before.
	between func()
}

// Collect implements operator.Collector.
func (i *broadcastInput[B, O]) Collect(v B) error {
	if i.between != nil {
		i.between()
	}
	i.side.Begin()
	defer i.side.End()
	return i.fail(i.fn.ProcessBroadcast(&i.side, v, i.out))
}

type keyedBroadcastOperator[K comparable, T, B, O any] struct {
	keyedOperator[K]
	key    func(T) K
	fn     KeyedBroadcastFunction[K, T, B, O]
	out    Collector[O]
	opened bool
}

// Open implements operator.Operator.
func (b *keyedBroadcastOperator[K, T, B, O]) Open(ctx *operator.Context) error {
	if err := b.open(ctx); err != nil {
		return err
	}
	if err := b.fn.Open(&b.ctx); err != nil {
		return b.fail(err)
	}
	b.opened = true
	b.start = func() error { return start(b.fn, &b.ctx) }
	return nil
}

// Prefetch implements operator.Prefetcher.
func (b *keyedBroadcastOperator[K, T, B, O]) Prefetch(next []T) {
	prefetch(&b.keyedOperator, b.key, next)
}

// Collect implements operator.Collector.
func (b *keyedBroadcastOperator[K, T, B, O]) Collect(v T) error {
	if err := b.ctx.keyed.SetCurrentKey(b.key(v)); err != nil {
		return b.fail(err)
	}
	return b.fail(b.fn.Process(&b.ctx, v, b.out))
}

// Finish implements operator.Operator.
func (b *keyedBroadcastOperator[K, T, B, O]) Finish() error { return b.fail(finish(b.fn, b.out)) }

// Close implements operator.Operator.
func (b *keyedBroadcastOperator[K, T, B, O]) Close() error {
	return closeFunction(b.fn, b.opened, &b.keyedOperator)
}

type broadcastOperator[T, B, O any] struct {
	ctx    BroadcastContext
	fn     BroadcastFunction[T, B, O]
	out    Collector[O]
	opened bool
}

// Open implements operator.Operator.
func (b *broadcastOperator[T, B, O]) Open(ctx *operator.Context) error {
	b.ctx.place, b.ctx.lists = ctx, state.NewOperator(ctx.Operator, ctx.Index)
	if err := b.fn.Open(&b.ctx); err != nil {
		return b.fail(err)
	}
	b.opened = true
	return nil
}

// Restore implements operator.Operator.
func (b *broadcastOperator[T, B, O]) Restore(_ context.Context, r *operator.Restored) error {
	if err := operator.RestoreLists(b.ctx.lists, r); err != nil {
		return b.fail(err)
	}
	return b.fail(start(b.fn, &b.ctx))
}

// Freeze implements operator.Operator.
func (b *broadcastOperator[T, B, O]) Freeze(element.Barrier) (operator.Frozen, error) {
	f, err := operator.FreezeLists(b.ctx.lists)
	return f, b.fail(err)
}

// Collect implements operator.Collector.
func (b *broadcastOperator[T, B, O]) Collect(v T) error {
	return b.fail(b.fn.Process(&b.ctx, v, b.out))
}

// Finish implements operator.Operator.
func (b *broadcastOperator[T, B, O]) Finish() error { return b.fail(finish(b.fn, b.out)) }

// Close implements operator.Operator.
func (b *broadcastOperator[T, B, O]) Close() error {
	var first error
	if c, ok := b.fn.(Closer); ok && b.opened {
		first = b.fail(c.Close())
	}
	if b.ctx.lists == nil {
		return first
	}
	if err := b.ctx.lists.Close(); first == nil {
		first = err
	}
	return first
}

func (b *broadcastOperator[T, B, O]) fail(err error) error {
	if err == nil {
		return nil
	}
	return operator.Failed(b.ctx.place.Operator, err)
}
