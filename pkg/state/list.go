package state

import (
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
	"github.com/weirstream/weir/pkg/statebackend/pebble"
)

// List holds a list per key: see statebackend.List for what may be done with it.
type List[E any] = statebackend.List[E]

// NewList registers a list per key, as NewValue does a value. Options are
// about its elements.
func NewList[E any, K comparable](ctx Context[K], name string, options ...Option) (List[E], error) {
	k := ctx.KeyedState()
	l, err := newList[E](k, name, options)
	if err != nil {
		return nil, k.refused(name, err)
	}
	return l, nil
}

func newList[E any, K comparable](k *Keyed[K], name string, options []Option) (List[E], error) {
	d, ttl, err := describe[E](k, name, statebackend.ListKind, options)
	if err != nil {
		return nil, err
	}
	if ttl == nil {
		return openList(k, d)
	}
	inner, err := openList(k, timed(k, d, ttl))
	if err != nil {
		return nil, err
	}
	return &timedList[E]{inner: inner, life: k.lifetime(ttl, inner)}, nil
}

func openList[E any, K comparable](k *Keyed[K], d statebackend.Descriptor[K, E]) (List[E], error) {
	switch b := k.backend.(type) {
	case *memory.State:
		return memory.NewList(b, d)
	case *pebble.State:
		return pebble.NewList(b, d)
	}
	return nil, k.unable(d.Kind)
}
