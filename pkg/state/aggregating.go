package state

import "github.com/weirstream/weir/pkg/statebackend"

// Aggregator folds values of type I into an accumulator of type A, of which a
// result of type O can be read at any time. It keeps nothing itself: one is
// used for all keys.
type Aggregator[I, A, O any] interface {
	// Start makes the accumulator of no values.
	Start() A
	// Add folds v into the accumulator, which it changes in place.
	Add(acc *A, v I) error
	// Result reads the accumulator without changing it.
	Result(acc *A) (O, error)
}

// Aggregating holds one accumulator per key. It is used as a Value is.
type Aggregating[I, A, O any] struct {
	value      Value[A]
	aggregator Aggregator[I, A, O]
}

// NewAggregating registers an aggregating state, as NewValue does a value. The
// accumulator is what is stored, so options are about it. The types follow
// from the aggregator.
func NewAggregating[I, A, O any, K comparable](ctx Context[K], name string, aggregator Aggregator[I, A, O], options ...Option) (*Aggregating[I, A, O], error) {
	k := ctx.KeyedState()
	if aggregator == nil {
		return nil, k.refused(name, errNoFunction)
	}
	v, err := newValue[A](k, name, statebackend.AggregatingKind, options)
	if err != nil {
		return nil, k.refused(name, err)
	}
	return &Aggregating[I, A, O]{value: v, aggregator: aggregator}, nil
}

// Get returns the result of what was added since the last Clear, and whether
// anything was.
func (a *Aggregating[I, A, O]) Get() (result O, found bool, err error) {
	acc, found, err := a.value.Get()
	if err != nil || !found {
		return result, false, err
	}
	if result, err = a.aggregator.Result(&acc); err != nil {
		return result, false, err
	}
	return result, true, nil
}

// Add folds v into the accumulator.
func (a *Aggregating[I, A, O]) Add(v I) error {
	acc, found, err := a.value.Ref()
	if err != nil {
		return err
	}
	if !found {
		*acc = a.aggregator.Start()
	}
	return a.aggregator.Add(acc, v)
}

// Clear removes the accumulator.
func (a *Aggregating[I, A, O]) Clear() error { return a.value.Clear() }
