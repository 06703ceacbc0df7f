package state

import (
	"errors"
	"fmt"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

// Broadcast is a map that is the same in all subtasks of an operator, because
// all get the same broadcast records and make the same changes. Every record
// may read it; changing it takes the BroadcastSide, which only a broadcast
// record comes with. Changes must depend on the broadcast records and the map
// alone, not on their order among different senders, nor on the subtask.
type Broadcast[U comparable, V any] struct {
	entries Map[U, V]
	codec   codec.Codec[V]
}

// BroadcastSide is the right to change broadcast state. The runtime gives it
// to the function that handles a broadcast record, and it ends with that call.
type BroadcastSide struct{ open bool }

// ErrReadOnly is returned when broadcast state is changed with a BroadcastSide
// of a call that has ended, or with none.
var ErrReadOnly = errors.New("broadcast state can be changed only while a broadcast record is processed")

// Begin starts the call that gets the side, and End ends it. The runtime calls them.
func (s *BroadcastSide) Begin() { s.open = true }

// End takes the right away.
func (s *BroadcastSide) End() { s.open = false }

// NewBroadcast registers a broadcast map. It is kept on the heap, whatever the
// backend of keyed state.
func NewBroadcast[U comparable, V any](ctx OperatorContext, name string, options ...Option) (*Broadcast[U, V], error) {
	o := ctx.OperatorState()
	if o == nil {
		return nil, errNoOperatorState
	}
	fail := func(err error) (*Broadcast[U, V], error) {
		return nil, fmt.Errorf("operator %q: register broadcast state %q: %w", o.uid, name, err)
	}
	if o.restored {
		return fail(errRegisteredLate)
	}
	s, c, err := settle[V](options)
	if err != nil {
		return fail(err)
	}
	if s.ttl != nil {
		return fail(errors.New("broadcast state has no time-to-live"))
	}
	if o.broadcast == nil {
		// One key stands for the whole subtask: so a broadcast map is frozen,
		// stored and checked as a keyed one is.
		o.broadcast, err = NewKeyed[bool](Options{Operator: o.uid, Range: keygroup.Range{}, MaxParallelism: 1, Backend: memory.New()})
		if err != nil {
			return fail(err)
		}
	}
	m, err := newMap[U, V](o.broadcast, name, options)
	if err != nil {
		return fail(err)
	}
	return &Broadcast[U, V]{entries: m, codec: c}, nil
}

// Get returns a value that belongs to the caller: changing it changes nothing else.
func (b *Broadcast[U, V]) Get(key U) (V, bool, error) {
	v, found, err := b.entries.Get(key)
	return b.own(v), found, err
}

func (b *Broadcast[U, V]) own(v V) V {
	if b.codec.Flat() {
		return v
	}
	var c V
	b.codec.Clone(&c, &v)
	return c
}

// Each calls do for every entry, in the order of Map.Each, with values that
// belong to it.
func (b *Broadcast[U, V]) Each(do func(key U, v V) error) error {
	return b.entries.Each(func(key U, v V) error { return do(key, b.own(v)) })
}

// Len is the number of entries.
func (b *Broadcast[U, V]) Len() (int, error) { return b.entries.Len() }

// Set gives a key a value.
func (b *Broadcast[U, V]) Set(side *BroadcastSide, key U, v V) error {
	if side == nil || !side.open {
		return ErrReadOnly
	}
	return b.entries.Set(key, b.own(v))
}

// Remove removes a key, if it is there.
func (b *Broadcast[U, V]) Remove(side *BroadcastSide, key U) error {
	if side == nil || !side.open {
		return ErrReadOnly
	}
	return b.entries.Remove(key)
}
