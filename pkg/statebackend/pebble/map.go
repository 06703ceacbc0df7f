package pebble

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"unsafe"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

// users is what a segment knows of the map of one key.
type users[U comparable, V any] struct {
	tree memory.Tree[U, cell[V]]
	// whole: there is nothing in older segments or the database that counts.
	whole bool
	// cleared: what the database has of the map is to be deleted.
	cleared bool
	dirty   bool
}

// mapState is the map of the current key: statebackend.Map. In the database
// every user key is an entry.
type mapState[K, U comparable, V any] struct {
	handle[K, V]
	maps *mapKind[K, U, V]

	active *memory.Table[K, users[U, V]]
	beyond int64                  // what active points to
	chain  []*mapSegment[K, U, V] // sealed, the newest first
	users  *users[U, V]           // of the current key in active, if seq is its
}

// mapKind is what the segments of one state have in common; immutable.
type mapKind[K, U comparable, V any] struct {
	trees memory.Trees[U, cell[V]]
	key   *keygroup.Encoding[K]
	first *keygroup.Encoding[only[K]] // key and user key in a stored key
	user  *keygroup.Encoding[only[U]]
	both  *keygroup.Encoding[statebackend.MapKey[K, U]]
}

// NewMap registers a map per key in s, as NewValue does a value.
func NewMap[K, U comparable, V any](s *State, d statebackend.Descriptor[K, V], keys statebackend.MapKeys[K, U]) (statebackend.Map[U, V], error) {
	first, err := keygroup.NewEncoding[only[K]]()
	if err != nil {
		return nil, err
	}
	user, err := keygroup.NewEncoding[only[U]]()
	if err != nil {
		return nil, err
	}
	meta := d.Meta()
	meta.KeySchema = keys.Both.Schema()
	st := newStoring(d.StoredForm(), meta, func(dst []byte, v *V, _ int64) []byte { return d.Codec.Append(dst, v) })
	m := &mapState[K, U, V]{
		handle: newHandle(s, st, d.Key, d.Current, d.Clock),
		maps:   &mapKind[K, U, V]{trees: memory.NewTrees[U, cell[V]](keys.User), key: d.Key, first: first, user: user, both: keys.Both},
	}
	if !d.Codec.Flat() {
		m.share = d.Codec.Clone
	}
	m.begin()
	if err := s.register(m); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *mapState[K, U, V]) begin() {
	m.active = memory.NewTable[K, users[U, V]](m.key)
	m.beyond, m.users, m.seq = 0, nil, forgotten
}

// own returns what the active segment knows of the current key's map.
func (m *mapState[K, U, V]) own() (*users[U, V], error) {
	if m.seq == m.current.Seq {
		return m.users, nil
	}
	if m.current.Seq == 0 {
		return nil, statebackend.ErrNoKey
	}
	u := m.active.Find(m.current.Hash, &m.current.Key)
	if u == nil {
		if err := m.state.enter(m.current.Seq); err != nil {
			return nil, err
		}
		var err error
		if u, err = m.active.Insert(m.current.Hash, &m.current.Key); err != nil {
			return nil, err
		}
	}
	m.users, m.seq, m.used = u, m.current.Seq, m.current.Seq
	return u, nil
}

// userBytes is what a user key takes in a tree, about: leaves are half empty
// at worst.
func (m *mapState[K, U, V]) userBytes() int64 {
	var u U
	var c cell[V]
	return int64(unsafe.Sizeof(u)+unsafe.Sizeof(c))*3/2 + m.mean.Load()
}

// place returns the cell of a user key in the active segment, made if it is
// not there, in which case it says nothing yet.
func (m *mapState[K, U, V]) place(u *users[U, V], key *U) (c *cell[V], found bool) {
	c, found = m.maps.trees.Ref(&u.tree, key)
	if !found {
		m.beyond += m.userBytes()
	}
	return c, found
}

// fetch returns the cell of a user key with what is known of it; nil if that is nothing.
func (m *mapState[K, U, V]) fetch(u *users[U, V], key *U) (*cell[V], error) {
	if c := m.maps.trees.Find(&u.tree, key); c != nil || u.whole {
		return c, nil
	}
	for _, s := range m.chain {
		old := s.table.Find(m.current.Hash, &m.current.Key)
		if old == nil {
			continue
		}
		if from := m.maps.trees.Find(&old.tree, key); from != nil {
			c, _ := m.place(u, key)
			m.put(&c.value, &from.value)
			c.flags = from.flags & present
			return c, nil
		}
		if old.whole {
			return nil, nil
		}
	}
	var v V
	found, err := m.load(m.stored1(key), &v)
	if err != nil {
		return nil, err
	}
	c, _ := m.place(u, key)
	if found {
		*c = cell[V]{value: v, flags: present}
	}
	return c, nil
}

// stored1 is the database's key of a user key, in scratch memory.
func (m *mapState[K, U, V]) stored1(key *U) []byte {
	both := statebackend.MapKey[K, U]{Key: m.current.Key, User: *key}
	m.state.key = m.maps.both.Append(m.prefix(), &both)
	return m.state.key
}

// Get implements statebackend.Map.
func (m *mapState[K, U, V]) Get(key U) (v V, found bool, err error) {
	u, err := m.own()
	if err != nil {
		return v, false, err
	}
	c, err := m.fetch(u, &key)
	if err != nil || c == nil || c.flags&present == 0 {
		return v, false, err
	}
	return c.value, true, nil
}

// Set implements statebackend.Map.
func (m *mapState[K, U, V]) Set(key U, v V) error {
	u, err := m.own()
	if err != nil {
		return err
	}
	c, _ := m.place(u, &key)
	*c = cell[V]{value: v, flags: present | dirty}
	u.dirty = true
	return nil
}

// Ref implements statebackend.Map.
func (m *mapState[K, U, V]) Ref(key U) (*V, bool, error) {
	u, err := m.own()
	if err != nil {
		return nil, false, err
	}
	c, err := m.fetch(u, &key)
	if err != nil {
		return nil, false, err
	}
	if c == nil {
		c, _ = m.place(u, &key)
	}
	found := c.flags&present != 0
	c.flags = present | dirty
	u.dirty = true
	return &c.value, found, nil
}

// Remove implements statebackend.Map.
func (m *mapState[K, U, V]) Remove(key U) error {
	u, err := m.own()
	if err != nil {
		return err
	}
	c, _ := m.place(u, &key)
	*c = cell[V]{flags: dirty}
	u.dirty = true
	return nil
}

// Clear implements statebackend.Map.
func (m *mapState[K, U, V]) Clear() error {
	u, err := m.own()
	if err != nil {
		return err
	}
	*u = users[U, V]{whole: true, cleared: true, dirty: true}
	return nil
}

// Len implements statebackend.Map. It passes over the whole map.
func (m *mapState[K, U, V]) Len() (int, error) {
	n := 0
	err := m.merge(func(*U, *cell[V], []byte) error {
		n++
		return nil
	})
	return n, err
}

// Each implements statebackend.Map.
func (m *mapState[K, U, V]) Each(do func(key U, v V) error) error {
	return m.merge(func(key *U, c *cell[V], stored []byte) error {
		if c != nil {
			return do(*key, c.value)
		}
		var v V
		if err := m.decode(stored, &v); err != nil {
			return err
		}
		return do(*key, v)
	})
}

// merge calls do for every user key of the current key, in order, with its
// cell or, if only the database has it, its stored value. do may change the
// map: what it does goes to the active tree, which is looked at anew each
// time; everything else stays, because nothing is sealed under a key in use.
func (m *mapState[K, U, V]) merge(do func(key *U, c *cell[V], stored []byte) error) (err error) {
	u, err := m.own()
	if err != nil {
		return err
	}
	older, whole := m.older(u)
	var it *lsm.Iterator
	var prefix []byte
	valid := false
	if !whole {
		prefix = m.maps.first.Append(bytes.Clone(m.prefix()), &only[K]{m.current.Key})
		if it, err = m.state.store.db.NewIter(&lsm.IterOptions{LowerBound: prefix, UpperBound: behind(prefix)}); err != nil {
			return fmt.Errorf("read state: %w", err)
		}
		defer func() {
			if e := it.Close(); err == nil {
				err = e
			}
		}()
		valid = it.First()
	}
	var last U
	var after *U
	for {
		// The smallest user key behind the last one, of the newest that has it.
		if u, err = m.own(); err != nil {
			return err
		}
		key, c, source := m.next(u, older, after)
		if u.whole {
			valid = false
		}
		fromDatabase := false
		var stored only[U]
		if valid {
			if stored, _, err = m.maps.user.Decode(it.Key()[len(prefix):]); err != nil {
				return fmt.Errorf("%w: %w", statebackend.ErrCorrupt, err)
			}
			if after != nil && m.maps.compare(&stored.Key, after) <= 0 {
				valid = it.Next()
				continue
			}
			if key == nil || m.maps.compare(&stored.Key, key) < 0 {
				key, c, fromDatabase = &stored.Key, nil, true
			}
		} else if it != nil && it.Error() != nil {
			return fmt.Errorf("read state: %w", it.Error())
		}
		if key == nil {
			return nil
		}
		last = *key
		after = &last
		switch {
		case fromDatabase:
			value, err := it.ValueAndErr()
			if err != nil {
				return fmt.Errorf("read state: %w", err)
			}
			if err := do(after, nil, value); err != nil {
				return err
			}
			continue
		case c.flags&present == 0:
			continue
		case source >= 0 && m.share != nil:
			// The caller may change what it is given, and a segment must not change.
			own := &cell[V]{flags: c.flags}
			m.share(&own.value, &c.value)
			c = own
		}
		at := last
		if err := do(&at, c, nil); err != nil {
			return err
		}
	}
}

func (k *mapKind[K, U, V]) compare(a, b *U) int {
	return k.user.Compare((*only[U])(unsafe.Pointer(a)), (*only[U])(unsafe.Pointer(b)))
}

// older are the maps of the current key in sealed segments, as far as they
// count, and whether the database does not.
func (m *mapState[K, U, V]) older(u *users[U, V]) (list []*users[U, V], whole bool) {
	if u.whole {
		return nil, true
	}
	for _, s := range m.chain {
		old := s.table.Find(m.current.Hash, &m.current.Key)
		if old == nil {
			continue
		}
		list = append(list, old)
		if old.whole {
			return list, true
		}
	}
	return list, false
}

// next is the first user key behind after in the active segment (source -1)
// and the older ones.
func (m *mapState[K, U, V]) next(u *users[U, V], older []*users[U, V], after *U) (key *U, c *cell[V], source int) {
	key, c = m.maps.trees.Next(&u.tree, after)
	source = -1
	if u.whole {
		return key, c, source
	}
	for i, old := range older {
		k, at := m.maps.trees.Next(&old.tree, after)
		if k != nil && (key == nil || m.maps.compare(k, key) < 0) {
			key, c, source = k, at, i
		}
	}
	return key, c, source
}

// checkKey implements column.
func (m *mapState[K, U, V]) checkKey(key []byte, g keygroup.Group, maxParallelism int) error {
	k, n, err := m.maps.both.Decode(key)
	if err == nil && n != len(key) {
		err = fmt.Errorf("%d bytes after the keys", len(key)-n)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", statebackend.ErrCorrupt, err)
	}
	if at := keygroup.OfHash(m.key.Hash(&k.Key), maxParallelism); at != g {
		return fmt.Errorf("%w: key %v is of key group %d", statebackend.ErrCorrupt, k.Key, at)
	}
	return nil
}

// activeBytes implements column.
func (m *mapState[K, U, V]) activeBytes() int64 { return m.active.Bytes() + m.beyond }

// bytes implements column.
func (m *mapState[K, U, V]) bytes() int64 {
	n := m.activeBytes()
	for _, s := range m.chain {
		n += s.size
	}
	return n
}

// touch implements column.
func (m *mapState[K, U, V]) touch(hashes []uint32) { m.active.Touch(hashes) }

// seal implements column.
func (m *mapState[K, U, V]) seal() segment {
	m.seq, m.users = forgotten, nil
	if m.active.Len() == 0 {
		return nil
	}
	s := &mapSegment[K, U, V]{
		table: m.active, size: m.activeBytes(), storing: &m.storing, kind: m.maps, mean: m.mean, points: m.points,
		maxParallelism: m.state.options.MaxParallelism,
	}
	m.chain = append([]*mapSegment[K, U, V]{s}, m.chain...)
	m.begin()
	return s
}

// trim implements column.
func (m *mapState[K, U, V]) trim(share int64) { m.chain = trimmed(m.chain, share-m.activeBytes()) }

// mapSegment is a sealed segment: nothing in it changes any more.
type mapSegment[K, U comparable, V any] struct {
	table          *memory.Table[K, users[U, V]]
	size           int64
	storing        *storing[V]
	kind           *mapKind[K, U, V]
	mean           *atomic.Int64
	points         bool
	maxParallelism int
	inDatabase     atomic.Bool
	cells          []*cell[V]
}

// sizeIfWritten implements cached.
func (s *mapSegment[K, U, V]) sizeIfWritten() (int64, bool) { return s.size, s.inDatabase.Load() }

// collect implements segment. Of a map that was cleared the database has just
// what is to be deleted: all generations before are in it, and none after.
func (s *mapSegment[K, U, V]) collect(c *changes, st *store) error {
	s.cells = s.cells[:0]
	var prefix []byte
	for key, u := range s.table.All() {
		if !u.dirty {
			continue
		}
		prefix = appendPrefix(prefix[:0], keygroup.OfHash(s.kind.key.Hash(key), s.maxParallelism), s.storing.number)
		prefix = s.kind.first.Append(prefix, &only[K]{*key})
		if u.cleared {
			if err := deleteAll(c, st, prefix); err != nil {
				return err
			}
		}
		for user, at := s.kind.trees.Next(&u.tree, nil); user != nil; user, at = s.kind.trees.Next(&u.tree, user) {
			if at.flags&dirty == 0 {
				continue
			}
			begin := len(c.keys)
			c.keys = append(c.keys, prefix...)
			c.keys = s.kind.user.Append(c.keys, &only[U]{*user})
			c.add(begin, uint32(len(s.cells)))
			s.cells = append(s.cells, at)
		}
	}
	return nil
}

func deleteAll(c *changes, s *store, prefix []byte) error {
	it, err := s.db.NewIter(&lsm.IterOptions{LowerBound: prefix, UpperBound: behind(prefix)})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		c.addDeletion(it.Key())
	}
	return it.Close()
}

// value implements segment.
func (s *mapSegment[K, U, V]) value(dst []byte, i uint32, now int64) ([]byte, bool) {
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
func (s *mapSegment[K, U, V]) written() {
	s.cells = nil
	s.inDatabase.Store(true)
}
