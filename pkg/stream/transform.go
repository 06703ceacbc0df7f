package stream

import (
	"fmt"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
)

// Map turns every record into one.
func Map[T, U any](in Stream[T], fn func(T) (U, error), options ...Option) Stream[U] {
	n, s, ok := transform(in, graph.MapOperator, fn == nil, options)
	if !ok {
		return Stream[U]{env: in.env}
	}
	n.make = func(out func(tag string) any) (operator.Instance, error) {
		m := &mapOperator[T, U]{fn: fn, out: mainOutput[U](out)}
		return operator.Instance{Operator: m, Inputs: []any{Collector[T](m)}}, nil
	}
	return output(in.env, n, "", outputCodec[U](in.env, n, s, nil))
}

// FlatMap turns every record into any number of them, which the function
// gives to out. The error of out is to be returned.
func FlatMap[T, U any](in Stream[T], fn func(v T, out Collector[U]) error, options ...Option) Stream[U] {
	n, s, ok := transform(in, graph.FlatMapOperator, fn == nil, options)
	if !ok {
		return Stream[U]{env: in.env}
	}
	n.make = func(out func(tag string) any) (operator.Instance, error) {
		m := &flatMapOperator[T, U]{fn: fn, out: mainOutput[U](out)}
		return operator.Instance{Operator: m, Inputs: []any{Collector[T](m)}}, nil
	}
	return output(in.env, n, "", outputCodec[U](in.env, n, s, nil))
}

// Filter keeps the records for which the function says true.
func Filter[T any](in Stream[T], fn func(T) (bool, error), options ...Option) Stream[T] {
	n, s, ok := transform(in, graph.FilterOperator, fn == nil, options)
	if !ok {
		return Stream[T]{env: in.env}
	}
	n.make = func(out func(tag string) any) (operator.Instance, error) {
		f := &filterOperator[T]{fn: fn, out: mainOutput[T](out)}
		return operator.Instance{Operator: f, Inputs: []any{Collector[T](f)}}, nil
	}
	return output(in.env, n, "", outputCodec(in.env, n, s, in.inherited()))
}

// transform adds an operator with one input and without state. It says false
// if the stream belongs to no job.
func transform[T any](in Stream[T], kind graph.OperatorKind, noFunction bool, options []Option) (*node, *settings, bool) {
	if in.env == nil {
		return nil, nil, false
	}
	n, s := in.env.add(kind, "", false, options)
	if noFunction {
		in.env.fail(fmt.Errorf("%s: %w", n.describe(), errNoFunction))
	}
	connect(in, n, 0)
	return n, s, true
}

// named keeps the UID for errors of user functions.
type named struct {
	operator.Stateless
	uid ids.OperatorUID
}

// Open implements operator.Operator.
func (o *named) Open(ctx *operator.Context) error {
	o.uid = ctx.Operator
	return nil
}

type mapOperator[T, U any] struct {
	named
	fn  func(T) (U, error)
	out Collector[U]
}

// Collect implements operator.Collector.
func (m *mapOperator[T, U]) Collect(v T) error {
	u, err := m.fn(v)
	if err != nil {
		return operator.Failed(m.uid, err)
	}
	return m.out.Collect(u)
}

type flatMapOperator[T, U any] struct {
	named
	fn  func(T, Collector[U]) error
	out Collector[U]
}

// Collect implements operator.Collector.
func (m *flatMapOperator[T, U]) Collect(v T) error {
	if err := m.fn(v, m.out); err != nil {
		return operator.Failed(m.uid, err)
	}
	return nil
}

type filterOperator[T any] struct {
	named
	fn  func(T) (bool, error)
	out Collector[T]
}

// Collect implements operator.Collector.
func (f *filterOperator[T]) Collect(v T) error {
	keep, err := f.fn(v)
	if err != nil {
		return operator.Failed(f.uid, err)
	}
	if !keep {
		return nil
	}
	return f.out.Collect(v)
}
