package state

import (
	"fmt"

	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
	"github.com/weirstream/weir/pkg/statebackend/pebble"
)

// Map holds a map per key: see statebackend.Map for what may be done with it.
type Map[U comparable, V any] = statebackend.Map[U, V]

// NewMap registers a map per key, as NewValue does a value. Its user keys are
// of type U, which is restricted as the keys of streams are. Options are
// about its values.
func NewMap[U comparable, V any, K comparable](ctx Context[K], name string, options ...Option) (Map[U, V], error) {
	k := ctx.KeyedState()
	m, err := newMap[U, V](k, name, options)
	if err != nil {
		return nil, k.refused(name, err)
	}
	return m, nil
}

func newMap[U comparable, V any, K comparable](k *Keyed[K], name string, options []Option) (Map[U, V], error) {
	keys, err := statebackend.NewMapKeys[K, U]()
	if err != nil {
		return nil, fmt.Errorf("user %w", err)
	}
	d, ttl, err := describe[V](k, name, statebackend.MapKind, options)
	if err != nil {
		return nil, err
	}
	k.metas[len(k.metas)-1].KeySchema = keys.Both.Schema()
	if ttl == nil {
		return openMap(k, d, keys)
	}
	inner, err := openMap(k, timed(k, d, ttl), keys)
	if err != nil {
		return nil, err
	}
	return &timedMap[U, V]{inner: inner, life: k.lifetime(ttl, inner)}, nil
}

func openMap[U comparable, V any, K comparable](k *Keyed[K], d statebackend.Descriptor[K, V], keys statebackend.MapKeys[K, U]) (Map[U, V], error) {
	switch b := k.backend.(type) {
	case *memory.State:
		return memory.NewMap(b, d, keys)
	case *pebble.State:
		return pebble.NewMap(b, d, keys)
	}
	return nil, k.unable(d.Kind)
}
