package stream

import (
	"fmt"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/operator"
)

// ConnectFunction handles the records of one subtask of two keyed streams,
// with state per key that both share. All its methods run on one goroutine; in
// which order the records of the two streams come is not defined. It may also
// be a TimerFunction, a Finisher and a Closer.
type ConnectFunction[K comparable, A, B, O any] interface {
	// Open registers the function's states, before anything else, and does
	// nothing more: it is also called once where the job's graph is built, so
	// that a restore can be compared before anything starts. A Starter acquires
	// other resources.
	Open(ctx *Context[K]) error
	// Process1 handles one record of the first stream.
	Process1(ctx *Context[K], v A, out Collector[O]) error
	// Process2 handles one record of the second stream.
	Process2(ctx *Context[K], v B, out Collector[O]) error
}

// Connect runs a function with state per key on two streams with the same
// keys. newFunction is called once for each subtask; what it returns is used
// by that subtask alone.
func Connect[K comparable, A, B, O any, F ConnectFunction[K, A, B, O]](first KeyedStream[K, A], second KeyedStream[K, B], uid string, newFunction func() F, options ...Option) Stream[O] {
	env := first.stream.env
	if env == nil {
		second.stream.env.failAt("connect "+uid, "its first stream was not made by this package: start with stream.From")
		return Stream[O]{env: second.stream.env}
	}
	n, s := env.add(graph.ConnectOperator, uid, true, options)
	if second.stream.env != env {
		env.fail(fmt.Errorf("%s: its second stream belongs to another job, or was not made by this package", n.describe()))
		return Stream[O]{env: env}
	}
	if newFunction == nil {
		env.fail(fmt.Errorf("%s: %w", n.describe(), errNoFunction))
	}
	checkOptionalMethods[F, O](env, n, onTimer[K, O]())
	connectKeyed(first, n, 0)
	connectKeyed(second, n, 1)
	n.make = func(out func(tag string) any) (operator.Instance, error) {
		c := &connectOperator[K, A, B, O]{fn: newFunction(), out: mainOutput[O](out)}
		c.ctx.sides = n.sideOutputs(out)
		return operator.Instance{Operator: c, Timed: c, Inputs: []any{
			Collector[A](&firstInput[K, A, B, O]{op: c, key: first.key}),
			Collector[B](&secondInput[K, A, B, O]{op: c, key: second.key}),
		}}, nil
	}
	return output(env, n, "", outputCodec[O](env, n, s, nil))
}

type connectOperator[K comparable, A, B, O any] struct {
	keyedOperator[K]
	fn     ConnectFunction[K, A, B, O]
	out    Collector[O]
	opened bool
}

// Open implements operator.Operator.
func (c *connectOperator[K, A, B, O]) Open(ctx *operator.Context) error {
	if err := c.open(ctx); err != nil {
		return err
	}
	if err := useTimers(&c.keyedOperator, c.fn, c.out); err != nil {
		return err
	}
	if err := c.fn.Open(&c.ctx); err != nil {
		return c.fail(err)
	}
	c.opened = true
	c.start = func() error { return start(c.fn, &c.ctx) }
	return nil
}

// Finish implements operator.Operator.
func (c *connectOperator[K, A, B, O]) Finish() error {
	c.ctx.timers.open = false
	return c.fail(finish(c.fn, c.out))
}

// Close implements operator.Operator.
func (c *connectOperator[K, A, B, O]) Close() error {
	return closeFunction(c.fn, c.opened, &c.keyedOperator)
}

type firstInput[K comparable, A, B, O any] struct {
	op  *connectOperator[K, A, B, O]
	key func(A) K
}

// Prefetch implements operator.Prefetcher.
func (i *firstInput[K, A, B, O]) Prefetch(next []A) { prefetch(&i.op.keyedOperator, i.key, next) }

// Collect implements operator.Collector.
func (i *firstInput[K, A, B, O]) Collect(v A) error {
	if err := i.op.ctx.keyed.SetCurrentKey(i.key(v)); err != nil {
		return i.op.fail(err)
	}
	return i.op.fail(i.op.fn.Process1(&i.op.ctx, v, i.op.out))
}

type secondInput[K comparable, A, B, O any] struct {
	op  *connectOperator[K, A, B, O]
	key func(B) K
}

// Prefetch implements operator.Prefetcher.
func (i *secondInput[K, A, B, O]) Prefetch(next []B) { prefetch(&i.op.keyedOperator, i.key, next) }

// Collect implements operator.Collector.
func (i *secondInput[K, A, B, O]) Collect(v B) error {
	if err := i.op.ctx.keyed.SetCurrentKey(i.key(v)); err != nil {
		return i.op.fail(err)
	}
	return i.op.fail(i.op.fn.Process2(&i.op.ctx, v, i.op.out))
}
