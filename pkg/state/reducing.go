package state

import (
	"errors"

	"github.com/weirstream/weir/pkg/statebackend"
)

// errNoFunction is the mistake of passing nil for the function of a state.
var errNoFunction = errors.New("the function is nil")

// Reducing holds one value per key, into which every value that is added is
// reduced. It is used as a Value is.
type Reducing[V any] struct {
	value  Value[V]
	reduce func(sofar, v V) (V, error)
}

// NewReducing registers a reducing state, as NewValue does a value. The
// function makes one value of two; it may change and return the memory of its
// first argument.
func NewReducing[V any, K comparable](ctx Context[K], name string, reduce func(sofar, v V) (V, error), options ...Option) (*Reducing[V], error) {
	k := ctx.KeyedState()
	if reduce == nil {
		return nil, k.refused(name, errNoFunction)
	}
	v, err := newValue[V](k, name, statebackend.ReducingKind, options)
	if err != nil {
		return nil, k.refused(name, err)
	}
	return &Reducing[V]{value: v, reduce: reduce}, nil
}

// Get returns what was added since the last Clear, reduced to one value, and
// whether anything was.
func (r *Reducing[V]) Get() (V, bool, error) { return r.value.Get() }

// Add reduces v into the value; the first one is the value as it is.
func (r *Reducing[V]) Add(v V) error {
	sofar, found, err := r.value.Ref()
	if err != nil {
		return err
	}
	if found {
		if v, err = r.reduce(*sofar, v); err != nil {
			return err
		}
	}
	*sofar = v
	return nil
}

// Clear removes the value.
func (r *Reducing[V]) Clear() error { return r.value.Clear() }
