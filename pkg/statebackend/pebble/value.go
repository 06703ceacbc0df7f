package pebble

import (
	"fmt"
	"math"
	"reflect"
	"sync/atomic"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

// cell is a value in a segment.
type cell[V any] struct {
	value V
	flags cellFlags
}

type cellFlags uint8

const (
	// present: there is a value; without it the key is known to have none.
	present cellFlags = 1 << iota
	// dirty: the database does not have this yet.
	dirty
)

// forgotten is a seq that no key has.
const forgotten = math.MaxUint64

// handle is what the states of all kinds have in common.
type handle[K comparable, V any] struct {
	storing[V]
	state   *State
	key     *keygroup.Encoding[K]
	current *statebackend.Current[K]
	clock   *statebackend.Clock
	// share makes *dst a copy of *src that may be changed; nil if assignment does.
	share func(dst, src *V)
	// seq is the number of the key under which something is remembered, used
	// that of the key under which the state was last used.
	seq, used uint64
	// beyond estimates what values point to, in bytes, per value.
	points bool
	mean   *atomic.Int64 // stored bytes of a value, roughly
}

func newHandle[K comparable, V any](s *State, st storing[V], key *keygroup.Encoding[K], current *statebackend.Current[K], clock *statebackend.Clock) handle[K, V] {
	return handle[K, V]{
		storing: st, state: s, key: key, current: current, clock: clock, seq: forgotten, used: forgotten,
		points: hasPointers(reflect.TypeFor[V]()), mean: new(atomic.Int64),
	}
}

// hasPointers reports whether values of a type refer to memory of their own.
func hasPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if hasPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	case reflect.Array:
		return hasPointers(t.Elem())
	case reflect.Slice, reflect.Map, reflect.Pointer, reflect.String, reflect.Interface, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return true
	default:
		return false
	}
}

func (h *handle[K, V]) meta() snapshot.StateMeta { return h.program }
func (h *handle[K, V]) stored() (int, snapshot.StateMeta) {
	return h.number, h.planned
}
func (h *handle[K, V]) seen() uint64    { return h.used }
func (h *handle[K, V]) canExpire() bool { return h.clock != nil }

func (h *handle[K, V]) plan(number int, stored snapshot.StateMeta) error {
	return h.storing.plan(number, stored, h.now())
}

func (h *handle[K, V]) now() int64 {
	if h.clock == nil {
		return 0
	}
	return h.clock.Now
}

// put makes *dst a copy of *src, which belongs to a sealed segment.
func (h *handle[K, V]) put(dst, src *V) {
	if h.share == nil {
		*dst = *src
	} else {
		h.share(dst, src)
	}
}

// note moves the mean of the stored sizes.
func (h *handle[K, V]) note(size int) {
	if h.points {
		m := h.mean.Load()
		h.mean.Store(m + (int64(size)-m)/16 + 1)
	}
}

// prefix is the database's key of the current key, in scratch memory.
func (h *handle[K, V]) prefix() []byte {
	g := keygroup.OfHash(h.current.Hash, h.state.options.MaxParallelism)
	h.state.key = appendPrefix(h.state.key[:0], g, h.number)
	return h.state.key
}

// load reads a value from the database.
func (h *handle[K, V]) load(key []byte, v *V) (found bool, err error) {
	stored, done, err := h.state.store.get(key)
	if err != nil || done == nil {
		return false, err
	}
	h.note(len(stored))
	err = h.decode(stored, v)
	if e := done(); err == nil {
		err = e
	}
	return err == nil, err
}

func (h *handle[K, V]) checkKey(key []byte, g keygroup.Group, maxParallelism int) error {
	k, n, err := h.key.Decode(key)
	if err == nil && n != len(key) {
		err = fmt.Errorf("%d bytes after the key", len(key)-n)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", statebackend.ErrCorrupt, err)
	}
	if at := keygroup.OfHash(h.key.Hash(&k), maxParallelism); at != g {
		return fmt.Errorf("%w: key %v is of key group %d", statebackend.ErrCorrupt, k, at)
	}
	return nil
}

// value is a state with one value per key: statebackend.Value.
type value[K comparable, V any] struct {
	handle[K, V]
	active *memory.Table[K, cell[V]]
	beyond int64           // what the values of active point to
	chain  []*values[K, V] // sealed, the newest first
	cell   *cell[V]        // of the current key in active, if seq is its
}

// NewValue registers a value per key in s. It returns an error if a state of
// the name exists or the state is restored already.
func NewValue[K comparable, V any](s *State, d statebackend.Descriptor[K, V]) (statebackend.Value[V], error) {
	v := newValue(s, d.Key, d.Current, d.Clock, newStoring(d.StoredForm(), d.Meta(), func(dst []byte, v *V, _ int64) []byte { return d.Codec.Append(dst, v) }))
	if !d.Codec.Flat() {
		v.share = d.Codec.Clone
	}
	if err := s.register(v); err != nil {
		return nil, err
	}
	return v, nil
}

func newValue[K comparable, V any](s *State, key *keygroup.Encoding[K], current *statebackend.Current[K], clock *statebackend.Clock, st storing[V]) *value[K, V] {
	v := &value[K, V]{handle: newHandle(s, st, key, current, clock)}
	v.begin()
	return v
}

// begin starts an empty active segment.
func (v *value[K, V]) begin() {
	v.active = memory.NewTable[K, cell[V]](v.key)
	v.beyond, v.cell, v.seq = 0, nil, forgotten
}

// find returns the cell of the current key in the active segment, nil if it is not there.
func (v *value[K, V]) find() (*cell[V], error) {
	if v.seq == v.current.Seq {
		return v.cell, nil
	}
	if v.current.Seq == 0 {
		return nil, statebackend.ErrNoKey
	}
	c := v.active.Find(v.current.Hash, &v.current.Key)
	if c != nil {
		v.remember(c)
	}
	return c, nil
}

func (v *value[K, V]) remember(c *cell[V]) { v.cell, v.seq, v.used = c, v.current.Seq, v.current.Seq }

// add adds the current key to the active segment, where it is not.
func (v *value[K, V]) add() (*cell[V], error) {
	if err := v.state.enter(v.current.Seq); err != nil {
		return nil, err
	}
	c, err := v.active.Insert(v.current.Hash, &v.current.Key)
	if err != nil {
		return nil, err
	}
	v.beyond += v.mean.Load()
	v.remember(c)
	return c, nil
}

// fetch returns the cell of the current key with what is known of it.
func (v *value[K, V]) fetch() (*cell[V], error) {
	c, err := v.find()
	if c != nil || err != nil {
		return c, err
	}
	for _, s := range v.chain {
		from := s.table.Find(v.current.Hash, &v.current.Key)
		if from == nil {
			continue
		}
		if c, err = v.add(); err != nil {
			return nil, err
		}
		v.put(&c.value, &from.value)
		c.flags = from.flags & present
		return c, nil
	}
	var loaded cell[V]
	found, err := v.load(v.key.Append(v.prefix(), &v.current.Key), &loaded.value)
	if err != nil {
		return nil, err
	}
	if found {
		loaded.flags = present
	} else {
		loaded = cell[V]{}
	}
	if c, err = v.add(); err != nil {
		return nil, err
	}
	*c = loaded
	return c, nil
}

// place returns the cell of the current key to be written blindly.
func (v *value[K, V]) place() (*cell[V], error) {
	c, err := v.find()
	if err != nil {
		return nil, err
	}
	if c == nil {
		if c, err = v.add(); err != nil {
			return nil, err
		}
	}
	c.flags = present | dirty
	return c, nil
}

// Get implements statebackend.Value.
func (v *value[K, V]) Get() (V, bool, error) {
	c := v.cell
	if v.seq != v.current.Seq {
		var err error
		if c, err = v.fetch(); err != nil {
			var zero V
			return zero, false, err
		}
	}
	return c.value, c.flags&present != 0, nil
}

// Set implements statebackend.Value.
func (v *value[K, V]) Set(to V) error {
	c := v.cell
	if v.seq != v.current.Seq {
		var err error
		if c, err = v.place(); err != nil {
			return err
		}
	}
	c.flags = present | dirty
	c.value = to
	return nil
}

// Ref implements statebackend.Value.
func (v *value[K, V]) Ref() (*V, bool, error) {
	c := v.cell
	if v.seq != v.current.Seq {
		var err error
		if c, err = v.fetch(); err != nil {
			return nil, false, err
		}
	}
	found := c.flags&present != 0
	c.flags = present | dirty
	return &c.value, found, nil
}

// Clear implements statebackend.Value.
func (v *value[K, V]) Clear() error {
	c, err := v.place()
	if err != nil {
		return err
	}
	*c = cell[V]{flags: dirty}
	return nil
}

// activeBytes implements column.
func (v *value[K, V]) activeBytes() int64 { return v.active.Bytes() + v.beyond }

// bytes implements column.
func (v *value[K, V]) bytes() int64 {
	n := v.activeBytes()
	for _, s := range v.chain {
		n += s.size
	}
	return n
}

// touch implements column.
func (v *value[K, V]) touch(hashes []uint32) { v.active.Touch(hashes) }

// seal implements column.
func (v *value[K, V]) seal() segment {
	v.seq, v.cell = forgotten, nil
	if v.active.Len() == 0 {
		return nil
	}
	s := &values[K, V]{
		table: v.active, size: v.activeBytes(), storing: &v.storing, key: v.key, mean: v.mean, points: v.points,
		maxParallelism: v.state.options.MaxParallelism,
	}
	v.chain = append([]*values[K, V]{s}, v.chain...)
	v.begin()
	return s
}

// chainMax bounds how many segments a lookup may pass. Whatever is used at
// least once in so many generations stays.
const chainMax = 8

// trim implements column.
func (v *value[K, V]) trim(share int64) {
	v.chain = trimmed(v.chain, share-v.activeBytes())
}

// cached is a segment as far as its place in a chain goes.
type cached interface {
	sizeIfWritten() (bytes int64, written bool)
}

// trimmed drops the oldest segments of a chain that are written, until the
// others fit.
func trimmed[S cached](chain []S, room int64) []S {
	var sum int64
	for _, s := range chain {
		n, _ := s.sizeIfWritten()
		sum += n
	}
	for n := len(chain); n > 0 && (sum > room || n > chainMax); n-- {
		size, written := chain[n-1].sizeIfWritten()
		if !written {
			break
		}
		sum -= size
		var none S
		chain[n-1] = none
		chain = chain[:n-1]
	}
	return chain
}

// values is a sealed segment: nothing in it changes any more.
type values[K comparable, V any] struct {
	table          *memory.Table[K, cell[V]]
	size           int64
	storing        *storing[V]
	key            *keygroup.Encoding[K]
	mean           *atomic.Int64
	points         bool
	maxParallelism int
	inDatabase     atomic.Bool
	cells          []*cell[V] // of the changes named by collect
}

// sizeIfWritten implements cached.
func (s *values[K, V]) sizeIfWritten() (int64, bool) { return s.size, s.inDatabase.Load() }

// collect implements segment.
func (s *values[K, V]) collect(c *changes, _ *store) error {
	s.cells = s.cells[:0]
	for key, at := range s.table.All() {
		if at.flags&dirty == 0 {
			continue
		}
		begin := len(c.keys)
		c.keys = appendPrefix(c.keys, keygroup.OfHash(s.key.Hash(key), s.maxParallelism), s.storing.number)
		c.keys = s.key.Append(c.keys, key)
		c.add(begin, uint32(len(s.cells)))
		s.cells = append(s.cells, at)
	}
	return nil
}

// value implements segment.
func (s *values[K, V]) value(dst []byte, i uint32, now int64) ([]byte, bool) {
	at := s.cells[i]
	if at.flags&present == 0 || s.storing.form.IsExpired(&at.value, now) {
		return dst, false
	}
	begin := len(dst)
	dst = s.storing.append(dst, &at.value, now)
	if s.points {
		m := s.mean.Load()
		s.mean.Store(m + (int64(len(dst)-begin)-m)/16)
	}
	return dst, true
}

// written implements segment.
func (s *values[K, V]) written() {
	s.cells = nil
	s.inDatabase.Store(true)
}
