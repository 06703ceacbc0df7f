package state

import (
	"fmt"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

// Value holds one value per key: see statebackend.Value for what may be done
// with it.
type Value[V any] = statebackend.Value[V]

// Option changes how a state with values of type V is kept.
type Option[V any] func(*settings[V])

type settings[V any] struct{ codec codec.Codec[V] }

// WithCodec stores the values with c instead of the codec that codec.For derives.
func WithCodec[V any](c codec.Codec[V]) Option[V] {
	return func(s *settings[V]) { s.codec = c }
}

// NewValue registers a value per key under a name that is stable between
// versions of the program. It is called in the operator's Open, once per name.
func NewValue[V any, K comparable](ctx Context[K], name string, options ...Option[V]) (Value[V], error) {
	v, err := newValue(ctx.KeyedState(), name, statebackend.ValueKind, options)
	if err != nil {
		return nil, ctx.KeyedState().refused(name, err)
	}
	return v, nil
}

// newValue makes the value of a state of any kind that is one value to the backend.
func newValue[V any, K comparable](k *Keyed[K], name string, kind statebackend.Kind, options []Option[V]) (Value[V], error) {
	d, err := describe(k, name, kind, options)
	if err != nil {
		return nil, err
	}
	// The backends are a closed set here and in its siblings because a method
	// cannot be generic: one of Go values must be built for K and V.
	switch b := k.backend.(type) {
	case *memory.State:
		return memory.NewValue(b, d)
	}
	return nil, k.unable(kind)
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

func describe[V any, K comparable](k *Keyed[K], name string, kind statebackend.Kind, options []Option[V]) (statebackend.Descriptor[K, V], error) {
	var s settings[V]
	for _, o := range options {
		o(&s)
	}
	d := statebackend.Descriptor[K, V]{Name: name, Kind: kind, Key: k.encoding, Current: &k.current, Codec: s.codec}
	if name == "" || len(name) > nameLengthMax {
		return d, fmt.Errorf("a state name has 1 to %d bytes", nameLengthMax)
	}
	if k.names[name] {
		return d, fmt.Errorf("the name is registered already: every state of an operator needs its own")
	}
	if d.Codec == nil {
		c, err := codec.For[V]()
		if err != nil {
			return d, err
		}
		d.Codec = c
	}
	k.names[name] = true
	return d, nil
}
