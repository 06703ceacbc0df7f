package statebackend

import (
	"io"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
)

// Options say whose keyed state is opened.
type Options struct {
	Operator ids.OperatorUID
	// Range is the key groups that the subtask owns of MaxParallelism.
	Range          keygroup.Range
	MaxParallelism int
	// KeySchema is the schema of the program's key encoding.
	KeySchema string
}

// Backend opens keyed state. May be called concurrently.
type Backend interface {
	// Name is the value of state.backend.type.
	Name() string
	// Open makes the empty keyed state of one operator in one subtask.
	Open(Options) (KeyedState, error)
}

// KeyedState is all keyed state of one operator in one subtask, without its
// types. All methods are called by the goroutine that owns the subtask.
//
// Life: Open, states are registered (by package state), Restore once, then
// records and freezes in any order, Close.
type KeyedState interface {
	// Restore ends registration and loads what the parts hold of the own
	// key-group range; with no parts the state starts empty. Called once.
	// Stored states that are not registered, or were written with another
	// codec, schema or key schema, and bytes that are no snapshot are errors;
	// the state is then unusable and only Close may follow.
	Restore(parts []RestoredPart) error
	// Freeze marks the present content. It takes microseconds, whatever the
	// size of the state and how much of it changed; the view it returns never
	// changes. Several views may be alive at once.
	Freeze() (Frozen, error)
	// Prefetch says that keys of these hashes come next. It changes nothing
	// but time; a backend may ignore it.
	Prefetch(hashes []uint32)
	// Stats counts what is held now.
	Stats() Stats
	// Close drops the state. Frozen views that are alive stay usable.
	Close() error
}

// Frozen is the content of a KeyedState at one moment. It belongs to one
// goroutine at a time, which need not be the subtask's.
type Frozen interface {
	// WriteSnapshot writes the snapshot: the bytes of group Range.First+i are
	// offsets[i] to offsets[i+1] of what was written. Equal content gives
	// equal bytes. states has every registered state, empty or not. May be
	// called again after a failure.
	WriteSnapshot(w io.Writer) (offsets []int64, states []snapshot.StateMeta, err error)
	// Release ends the view; it must be called exactly once, after which
	// nothing may use it. Until then changed parts of the state are held twice.
	Release()
}

// RestoredPart is one stored snapshot, or of it at least the groups that the
// restoring subtask owns.
type RestoredPart struct {
	// Range and Offsets are as in snapshot.KeyedStateHandle: Offsets index Data.
	Range   keygroup.Range
	Offsets []int64
	States  []snapshot.StateMeta
	Data    []byte
}

// Stats counts what a KeyedState holds.
type Stats struct {
	// Entries is the number of (state, key) pairs that have a value.
	Entries int64
	// Bytes is the memory that the backend uses for them, without what the
	// values point to.
	Bytes int64
}

// Current is the key that the operator works under. Package state sets it,
// the states of the operator read it.
type Current[K comparable] struct {
	Key  K
	Hash uint32
	// Seq changes whenever Key is set, so that a state can remember where it
	// found the entry of this key. 0 means that there is no key.
	Seq uint64
}

// Kind is what a registered state is for its user; stored in StateMeta.Kind.
type Kind string

// The kinds of keyed state.
const (
	ValueKind Kind = "value"
)

// Descriptor is everything a backend must know of one registered state.
type Descriptor[K comparable, V any] struct {
	Name    string
	Kind    Kind
	Key     *keygroup.Encoding[K]
	Codec   codec.Codec[V]
	Current *Current[K]
}

// Meta is the stored description of the state.
func (d Descriptor[K, V]) Meta() snapshot.StateMeta {
	return snapshot.StateMeta{
		Name: d.Name, Kind: string(d.Kind), Codec: d.Codec.Name(), Schema: d.Codec.Schema(), KeySchema: d.Key.Schema(),
	}
}

// Value holds one value per key: the one of the operator's current key. It is
// used by the subtask's goroutine only.
//
// What Get returned and what Set was given may be changed by the caller as
// long as the key is current, that is until its function returns; a change is
// sure to be kept only by Set. Afterwards the memory belongs to the state.
type Value[V any] interface {
	// Get returns the value, and whether there is one.
	Get() (V, bool, error)
	// Set replaces the value.
	Set(V) error
	// Clear removes the value.
	Clear() error
	// Ref returns the place of the value, to be read and changed without
	// copying it out and in; if there was no value, it makes a zero one and
	// says false. It counts as a write. The pointer is good until the next
	// call of any method of this state or the next key.
	Ref() (v *V, found bool, err error)
}
