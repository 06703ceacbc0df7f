package state

import (
	"fmt"
	"time"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// Options say whose keyed state a Keyed is.
type Options struct {
	Operator ids.OperatorUID
	// Range is the key groups that the subtask owns of MaxParallelism.
	Range          keygroup.Range
	MaxParallelism int
	Backend        statebackend.Backend
	// Dir is as in statebackend.Options.
	Dir string
	// Now is the clock of states with time-to-live. Without it there can be none.
	Now func() time.Time
}

// Keyed is the keyed state of one operator in one subtask: the current key
// and the states registered under it. Only the subtask's goroutine uses it.
type Keyed[K comparable] struct {
	current  statebackend.Current[K]
	seq      uint64 // of the last key set; current.Seq, unless that key was foreign
	encoding *keygroup.Encoding[K]
	groups   groupCheck
	options  Options
	backend  statebackend.KeyedState // what states are registered with
	outer    statebackend.KeyedState // what the runtime sees: backend, or its Wrapper
	names    map[string]bool         // bounded by the states that the program registers
	metas    []snapshot.StateMeta    // of the same
	clock    statebackend.Clock
	expiring bool // some state has a time-to-live
}

// Context is what NewValue and its siblings take: a Keyed, or whatever embeds one.
type Context[K comparable] interface {
	// KeyedState returns the keyed state of the operator.
	KeyedState() *Keyed[K]
}

// NewKeyed opens the empty keyed state of an operator. The runtime calls it
// before the operator's Open, and Backend().Restore after it.
func NewKeyed[K comparable](o Options) (*Keyed[K], error) {
	encoding, err := keygroup.NewEncoding[K]()
	if err != nil {
		return nil, fmt.Errorf("keyed state of operator %q: %w", o.Operator, err)
	}
	if o.Backend == nil {
		return nil, fmt.Errorf("keyed state of operator %q: no state backend", o.Operator)
	}
	if o.MaxParallelism < 1 || o.MaxParallelism > keygroup.MaxParallelismLimit {
		return nil, fmt.Errorf("keyed state of operator %q: max parallelism %d is not in 1 to %d", o.Operator, o.MaxParallelism, keygroup.MaxParallelismLimit)
	}
	if o.Range.First > o.Range.Last || int(o.Range.Last) >= o.MaxParallelism {
		return nil, fmt.Errorf("keyed state of operator %q: key-group range %s is not within max parallelism %d", o.Operator, o.Range, o.MaxParallelism)
	}
	backend, err := o.Backend.Open(statebackend.Options{
		Operator: o.Operator, Range: o.Range, MaxParallelism: o.MaxParallelism, KeySchema: encoding.Schema(), Dir: o.Dir,
	})
	if err != nil {
		return nil, fmt.Errorf("keyed state of operator %q: %w", o.Operator, err)
	}
	k := &Keyed[K]{
		encoding: encoding, groups: newGroupCheck(o.Range, o.MaxParallelism), options: o, backend: backend, outer: backend, names: map[string]bool{},
	}
	if w, ok := backend.(statebackend.Wrapper); ok {
		k.backend = w.Unwrap()
	}
	return k, nil
}

// KeyedState returns k: a Keyed is its own Context.
func (k *Keyed[K]) KeyedState() *Keyed[K] { return k }

// Backend is the same state as the runtime sees it: to restore, freeze, count and close.
func (k *Keyed[K]) Backend() statebackend.KeyedState { return k.outer }

// SetCurrentKey makes key the one that all states of the operator refer to.
// A key of a group that the subtask does not own is an error: its record came
// to the wrong subtask, or the key was changed after it was routed.
func (k *Keyed[K]) SetCurrentKey(key K) error {
	k.seq++
	k.current.Key = key
	k.current.Seq = k.seq
	h := k.encoding.Hash(&k.current.Key)
	k.current.Hash = h
	if !k.groups.owns(h) {
		return k.foreignKey(key, h)
	}
	return nil
}

// States describes the registered states, in the order of registration.
func (k *Keyed[K]) States() []snapshot.StateMeta { return k.metas }

// HasStates reports whether the operator has registered any state.
func (k *Keyed[K]) HasStates() bool { return len(k.names) > 0 }

// Tick reads the clock for states with time-to-live, if there are any. The
// runtime calls it before a freeze; every access to such a state reads it too.
func (k *Keyed[K]) Tick() {
	if k.expiring {
		tick(&k.clock, k.options.Now)
	}
}

// tick reads the clock. Time never goes back.
func tick(c *statebackend.Clock, read func() time.Time) {
	c.Now = max(c.Now, read().UnixMilli())
}

// Hash is the hash of a key, for Prefetch and SetHashedKey.
func (k *Keyed[K]) Hash(key *K) uint32 { return k.encoding.Hash(key) }

// Prefetch says that keys of these hashes are about to become current, so that
// their entries come from memory together rather than one by one. Whoever has
// several records at hand (a frame) hashes and prefetches some 16 of their
// keys and then processes those records with SetHashedKey: with a state
// larger than the processor's cache that takes less than half the time.
func (k *Keyed[K]) Prefetch(hashes []uint32) { k.backend.Prefetch(hashes) }

// SetHashedKey is SetCurrentKey for a key whose Hash is known.
func (k *Keyed[K]) SetHashedKey(key K, hash uint32) error {
	k.seq++
	k.current.Key = key
	k.current.Hash = hash
	k.current.Seq = k.seq
	if !k.groups.owns(hash) {
		return k.foreignKey(key, hash)
	}
	return nil
}

// foreignKey is apart from SetCurrentKey so that formatting the key does not
// make it escape on the way without error.
func (k *Keyed[K]) foreignKey(key K, hash uint32) error {
	k.current.Seq = 0
	return fmt.Errorf("operator %q: key %v is in key group %d, which is not in the subtask's range %s: the record was routed by another key, or its key was changed afterwards",
		k.options.Operator, key, keygroup.OfHash(hash, k.options.MaxParallelism), k.options.Range)
}

// ClearCurrentKey makes no key current: states cannot be used until the next one.
func (k *Keyed[K]) ClearCurrentKey() { k.current.Seq = 0 }

// CurrentKey is the key last set.
func (k *Keyed[K]) CurrentKey() K { return k.current.Key }

// ErrNoKey is returned when a state is used while no key is current.
var ErrNoKey = statebackend.ErrNoKey

// groupCheck tells whether a hash is in a key-group range, at little cost.
type groupCheck struct {
	all     bool   // the range is everything: nothing to check
	mask    uint32 // max parallelism-1 if that is a power of two, else 0
	divisor uint32
	first   uint32
	span    uint32 // last-first
}

func newGroupCheck(r keygroup.Range, maxParallelism int) groupCheck {
	c := groupCheck{
		all: r.Len() == maxParallelism, divisor: uint32(maxParallelism), first: uint32(r.First), span: uint32(r.Last - r.First),
	}
	if maxParallelism&(maxParallelism-1) == 0 {
		c.mask = uint32(maxParallelism - 1)
	}
	return c
}

// owns agrees with keygroup.OfHash; the test compares them.
func (c *groupCheck) owns(hash uint32) bool {
	if c.all {
		return true
	}
	g := hash & c.mask
	if c.mask == 0 {
		g = hash % c.divisor
	}
	return g-c.first <= c.span
}
