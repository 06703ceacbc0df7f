package state

import (
	"fmt"

	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
	"github.com/weirstream/weir/pkg/statebackend/pebble"
)

// Value holds one value per key: see statebackend.Value for what may be done
// with it.
type Value[V any] = statebackend.Value[V]

// NewValue registers a value per key under a name that is stable between
// versions of the program. It is called in the operator's Open, once per name.
func NewValue[V any, K comparable](ctx Context[K], name string, options ...Option) (Value[V], error) {
	v, err := newValue[V](ctx.KeyedState(), name, statebackend.ValueKind, options)
	if err != nil {
		return nil, ctx.KeyedState().refused(name, err)
	}
	return v, nil
}

// newValue makes the value of a state of any kind that is one value to the backend.
func newValue[V any, K comparable](k *Keyed[K], name string, kind statebackend.Kind, options []Option) (Value[V], error) {
	d, ttl, err := describe[V](k, name, kind, options)
	if err != nil {
		return nil, err
	}
	if ttl == nil {
		return openValue(k, d)
	}
	inner, err := openValue(k, timed(k, d, ttl))
	if err != nil {
		return nil, err
	}
	return &timedValue[V]{inner: inner, life: k.lifetime(ttl, inner)}, nil
}

// openValue is apart for each kind because a method cannot be generic: a
// backend of Go values must be built for K and V, so the backends are a closed
// set here and in its siblings.
func openValue[V any, K comparable](k *Keyed[K], d statebackend.Descriptor[K, V]) (Value[V], error) {
	switch b := k.backend.(type) {
	case *memory.State:
		return memory.NewValue(b, d)
	case *pebble.State:
		return pebble.NewValue(b, d)
	}
	return nil, k.unable(d.Kind)
}

// refused says which state could not be registered.
func (k *Keyed[K]) refused(name string, err error) error {
	return fmt.Errorf("operator %q: register state %q: %w", k.options.Operator, name, err)
}

// unable is the error for a backend without that kind of state.
func (k *Keyed[K]) unable(kind statebackend.Kind) error {
	return fmt.Errorf("state backend %q has no %s state", k.options.Backend.Name(), kind)
}

// nameLengthMax bounds state names: they are part of stored metadata and of error texts.
const nameLengthMax = 100

func describe[V any, K comparable](k *Keyed[K], name string, kind statebackend.Kind, options []Option) (statebackend.Descriptor[K, V], *ttlSettings, error) {
	var none statebackend.Descriptor[K, V]
	if name == "" || len(name) > nameLengthMax {
		return none, nil, fmt.Errorf("a state name has 1 to %d bytes", nameLengthMax)
	}
	if k.names[name] {
		return none, nil, fmt.Errorf("the name is registered already: every state of an operator needs its own")
	}
	s, c, err := settle[V](options)
	if err != nil {
		return none, nil, err
	}
	if s.ttl != nil && k.options.Now == nil {
		return none, nil, errNoClock
	}
	k.names[name] = true
	d := statebackend.Descriptor[K, V]{Name: name, Kind: kind, Key: k.encoding, Current: &k.current, Codec: c}
	k.metas = append(k.metas, d.Meta())
	return d, s.ttl, nil
}
