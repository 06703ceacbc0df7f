package stream

import (
	"fmt"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/state"
)

// Reduce keeps one value per key and emits it after every record: the first
// record itself, then fn(value so far, record). fn may change and return the
// memory of its first argument.
func Reduce[K comparable, T any](in KeyedStream[K, T], uid string, fn func(sofar, v T) (T, error), options ...Option) Stream[T] {
	env := in.stream.env
	if env == nil {
		return Stream[T]{}
	}
	n, s := env.add(graph.ReduceOperator, uid, true, options)
	if fn == nil {
		env.fail(fmt.Errorf("%s: %w", n.describe(), errNoFunction))
	}
	connectKeyed(in, n, 0)
	c := outputCodec(env, n, s, in.stream.inherited())
	n.make = func(out func(tag string) any) (operator.Instance, error) {
		r := &reduceOperator[K, T]{key: in.key, fn: fn, codec: c, out: mainOutput[T](out)}
		return operator.Instance{Operator: r, Inputs: []any{Collector[T](r)}}, nil
	}
	return output(env, n, "", c)
}

// reduceState names the state of a Reduce in snapshots: it cannot change.
const reduceState = "reduce"

type reduceOperator[K comparable, T any] struct {
	keyedOperator[K]
	key   func(T) K
	fn    func(sofar, v T) (T, error)
	codec codec.Codec[T]
	out   Collector[T]
	value state.Value[T]
}

// Open implements operator.Operator.
func (r *reduceOperator[K, T]) Open(ctx *operator.Context) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	// A codec that the user gave is also the state's. The one between subtasks
	// is not: what is stored must be readable by the next version.
	var options []state.Option
	if r.codec.Name() != codec.DerivedName {
		options = append(options, state.WithCodec(r.codec))
	}
	var err error
	r.value, err = state.NewValue[T](r.ctx.keyed, reduceState, options...)
	return err
}

// Prefetch implements operator.Prefetcher.
func (r *reduceOperator[K, T]) Prefetch(next []T) { prefetch(&r.keyedOperator, r.key, next) }

// Collect implements operator.Collector. Values that point to something are
// copied on their way into the state and out of it: what is emitted may be
// kept by others, while fn may change what is in the state.
func (r *reduceOperator[K, T]) Collect(v T) error {
	if err := r.ctx.keyed.SetCurrentKey(r.key(v)); err != nil {
		return r.fail(err)
	}
	place, found, err := r.value.Ref()
	if err != nil {
		return r.fail(err)
	}
	switch {
	case found:
		next, err := r.fn(*place, v)
		if err != nil {
			return r.fail(err)
		}
		*place = next
	case r.codec.Flat():
		*place = v
	default:
		*place = r.clone(v)
	}
	if r.codec.Flat() {
		return r.out.Collect(*place)
	}
	return r.out.Collect(r.clone(*place))
}

// clone is apart so that its argument is moved to the heap only where that is needed.
func (r *reduceOperator[K, T]) clone(v T) (c T) {
	r.codec.Clone(&c, &v)
	return c
}

// Finish implements operator.Operator.
func (r *reduceOperator[K, T]) Finish() error { return nil }

// Close implements operator.Operator.
func (r *reduceOperator[K, T]) Close() error { return r.closeState() }
