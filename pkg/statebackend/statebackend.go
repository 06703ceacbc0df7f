package statebackend

import (
	"context"
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
	// Dir is a directory on local disk for this state alone; it may not exist
	// yet. Backends on the heap ignore it. What is in it at Open is of an
	// attempt that is over and is removed.
	Dir string
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

// FileFrozen is the Frozen of a backend that keeps its state in files, most of
// which successive snapshots share: what an incremental checkpoint is made of.
type FileFrozen interface {
	Frozen
	// Files brings what is only in memory into files and names all files that
	// hold the view. They stay as they are until Release. Called at most once.
	Files(ctx context.Context) (FileSet, error)
}

// FileSet is a view in files.
type FileSet struct {
	States []snapshot.StateMeta
	Files  []File
}

// File is one file of a view.
type File struct {
	// Local is the backend's name for it. Within one life of a KeyedState, from
	// Open to Close, no other content ever has the name of a Shared file; and a
	// KeyedState that is restored from files keeps the names of those it goes
	// on using, and gives their names to nothing else, unless it tells Origins.
	Local string
	// Path is where it is on local disk.
	Path string
	Size int64
	// Shared says that it never changes, so that later views may have it too.
	Shared bool
}

// RestoredPart is one stored snapshot, or of it at least the groups that the
// restoring subtask owns: canonical with Offsets and Data, or in Files.
type RestoredPart struct {
	// Number is whatever the caller calls the part by; see Origins.
	Number int
	// Range and Offsets are as in snapshot.KeyedStateHandle: Offsets index Data.
	Range   keygroup.Range
	Offsets []int64
	States  []snapshot.StateMeta
	Data    []byte
	// Backend and Files are as in snapshot.KeyedStateHandle, the files on local
	// disk. They belong to the caller, stay as they are, and may be linked.
	Backend string
	Files   []File
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

// The kinds of keyed state. Reducing and Aggregating are values to a backend;
// that their kind is stored keeps a program from taking one for the other.
const (
	ValueKind       Kind = "value"
	ListKind        Kind = "list"
	MapKind         Kind = "map"
	ReducingKind    Kind = "reducing"
	AggregatingKind Kind = "aggregating"
)

// Descriptor is everything a backend must know of one registered state. V is
// the type of a value, of a list's elements or of a map's values.
type Descriptor[K comparable, V any] struct {
	Name    string
	Kind    Kind
	Key     *keygroup.Encoding[K]
	Codec   codec.Codec[V]
	Current *Current[K]
	// Form is how the values are stored; nil is PlainForm(Codec).
	Form Form[V]
	// Clock tells the time to states whose values expire; nil for others.
	Clock *Clock
}

// Clock is the time that states with time-to-live go by, in milliseconds since
// 1970. Package state sets it at each access, and never back.
type Clock struct{ Now int64 }

// StoredForm is Form, or what nil stands for.
func (d Descriptor[K, V]) StoredForm() Form[V] {
	if d.Form == nil {
		return PlainForm(d.Codec)
	}
	return d.Form
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

// List holds a list per key. Who may change what is as with Value: what Get
// returned and what Set and AddAll were given may be changed while the key is
// current, and a change is sure to be kept only by Set.
type List[E any] interface {
	// Get returns the elements in the order in which they were added; nil if
	// there are none.
	Get() ([]E, error)
	// Add appends one element. It takes the same time however long the list is,
	// if the list is in memory; a backend on disk may read one that is not.
	Add(v E) error
	// AddAll appends several.
	AddAll(v []E) error
	// Set replaces the list. An empty one is as none.
	Set(v []E) error
	// Clear removes the list.
	Clear() error
}

// Map holds a map per key. U is the type of its own keys, called user keys;
// like all keys they are integers, bool, strings, byte arrays and structs of
// them. Only what is touched of a map is read or copied, so that a map may be
// large. Who may change what is as with Value.
type Map[U comparable, V any] interface {
	// Get returns the value of a user key, and whether there is one.
	Get(key U) (V, bool, error)
	// Set gives a user key a value.
	Set(key U, v V) error
	// Ref returns the place of a value as Value.Ref does.
	Ref(key U) (v *V, found bool, err error)
	// Remove removes a user key, if it is there.
	Remove(key U) error
	// Len is the number of user keys.
	Len() (int, error)
	// Each calls do for every user key, in the order of their encodings:
	// numbers by value, strings by their bytes, structs field by field. It
	// ends early with do's error. do may use and change this map; of what it
	// adds, Each shows what comes later in the order.
	Each(do func(key U, v V) error) error
	// Clear removes the map.
	Clear() error
}

// MapKey is what an entry of a Map is stored under: the key of the record and
// the user key. The schema of its encoding is the KeySchema of the state.
type MapKey[K, U comparable] struct {
	Key  K
	User U
}

// MapKeys are the encodings that a Map needs beside its Descriptor's.
type MapKeys[K, U comparable] struct {
	User *keygroup.Encoding[U]
	Both *keygroup.Encoding[MapKey[K, U]]
}

// NewMapKeys plans the encodings. It refuses types that cannot be keys.
func NewMapKeys[K, U comparable]() (MapKeys[K, U], error) {
	user, err := keygroup.NewEncoding[U]()
	if err != nil {
		return MapKeys[K, U]{}, err
	}
	both, err := keygroup.NewEncoding[MapKey[K, U]]()
	if err != nil {
		return MapKeys[K, U]{}, err
	}
	return MapKeys[K, U]{User: user, Both: both}, nil
}
