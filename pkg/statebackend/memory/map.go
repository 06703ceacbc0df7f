package memory

import (
	"fmt"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// mapTable is the table of a state with a map per key.
type mapTable[K, U comparable, V any] struct {
	*table[K, tree[U, V]]
	kind treeKind[U, V]
	both *keygroup.Encoding[statebackend.MapKey[K, U]]
	form statebackend.Form[V]
	// values reads the values being restored.
	values statebackend.Schemas[V]
}

// read implements registered.
func (t *mapTable[K, U, V]) read(stored snapshot.StateMeta) (err error) {
	t.values, err = statebackend.NewSchemas(t.form, stored)
	return err
}

// mapState is the map of the current key: statebackend.Map.
type mapState[K, U comparable, V any] struct {
	trees *value[K, tree[U, V]]
	table *mapTable[K, U, V]
	// changes counts what moves items, for Each.
	changes  uint64
	sweeping mapSweep[K, U]
}

// NewMap registers a map per key in s, as NewValue does a value.
func NewMap[K, U comparable, V any](s *State, d statebackend.Descriptor[K, V], keys statebackend.MapKeys[K, U]) (statebackend.Map[U, V], error) {
	t := &mapTable[K, U, V]{
		table: newTable(traits[K, tree[U, V]]{key: d.Key, clone: share[U, V], clock: d.Clock}),
		kind:  treeKind[U, V]{key: keys.User}, both: keys.Both, form: d.StoredForm(),
	}
	if !d.Codec.Flat() {
		t.kind.clone = d.Codec.Clone
	}
	meta := d.Meta()
	meta.KeySchema = keys.Both.Schema()
	if err := s.register(meta, t); err != nil {
		return nil, err
	}
	return &mapState[K, U, V]{trees: newValue(t.table, d.Current), table: t}, nil
}

// find returns the tree of the current key, nil if there is none, and where
// the user key is in it.
func (m *mapState[K, U, V]) find(key *U) (*tree[U, V], place, bool, error) {
	t, err := m.trees.look()
	if t == nil || err != nil {
		return nil, place{}, false, err
	}
	p, found := m.table.kind.find(t, key)
	return t, p, found, nil
}

// Get implements statebackend.Map.
func (m *mapState[K, U, V]) Get(key U) (V, bool, error) {
	t, p, found, err := m.find(&key)
	if !found || err != nil {
		var zero V
		return zero, false, err
	}
	return m.table.kind.read(t, p).value, true, nil
}

// Set implements statebackend.Map.
func (m *mapState[K, U, V]) Set(key U, v V) error {
	at, _, err := m.Ref(key)
	if err != nil {
		return err
	}
	*at = v
	return nil
}

// Ref implements statebackend.Map.
func (m *mapState[K, U, V]) Ref(key U) (*V, bool, error) {
	s, _, err := m.trees.place()
	if err != nil {
		return nil, false, err
	}
	p, found := m.table.kind.find(&s.value, &key)
	if found {
		return &m.table.kind.change(&s.value, p).value, true, nil
	}
	m.changes++
	return &m.table.kind.insert(&s.value, p, &key).value, false, nil
}

// Remove implements statebackend.Map.
func (m *mapState[K, U, V]) Remove(key U) error {
	t, p, found, err := m.find(&key)
	if !found || err != nil {
		return err
	}
	if t.size == 1 {
		return m.Clear()
	}
	m.changes++
	m.table.kind.remove(t, p)
	return nil
}

// Len implements statebackend.Map.
func (m *mapState[K, U, V]) Len() (int, error) {
	t, err := m.trees.look()
	if t == nil || err != nil {
		return 0, err
	}
	return t.size, nil
}

// Each implements statebackend.Map.
func (m *mapState[K, U, V]) Each(do func(key U, v V) error) error {
	var p place
	for {
		t, err := m.trees.look()
		if t == nil || err != nil {
			return err
		}
		if p = t.normal(p); t.at(p) == nil {
			return nil
		}
		it := m.table.kind.read(t, p)
		key, changes := it.key, m.changes
		if err := do(key, it.value); err != nil {
			return err
		}
		p.item++
		if m.changes == changes {
			continue
		}
		if t, err = m.trees.look(); t == nil || err != nil {
			return err
		}
		var found bool
		if p, found = m.table.kind.find(t, &key); found {
			p.item++
		}
	}
}

// Clear implements statebackend.Map.
func (m *mapState[K, U, V]) Clear() error {
	m.changes++
	return m.trees.Clear()
}

// restore implements registered.
func (t *mapTable[K, U, V]) restore(key, stored []byte, g keygroup.Group, maxParallelism int) error {
	k, n, err := t.both.Decode(key)
	if err == nil && n != len(key) {
		err = fmt.Errorf("%d bytes after the keys", len(key)-n)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", statebackend.ErrCorrupt, err)
	}
	hash, err := t.restoredHash(&k.Key, g, maxParallelism)
	if err != nil {
		return err
	}
	s := t.private(hash, &k.Key)
	if s == nil {
		if s, err = t.insert(hash, &k.Key); err != nil {
			return err
		}
	}
	p, found := t.kind.find(&s.value, &k.User)
	if found {
		return fmt.Errorf("%w: user key %v of key %v is stored twice", statebackend.ErrCorrupt, k.User, k.Key)
	}
	it := t.kind.insert(&s.value, p, &k.User)
	if err := statebackend.DecodeStored(stored, &t.values, &it.value); err != nil {
		return fmt.Errorf("value of user key %v of key %v: %w", k.User, k.Key, err)
	}
	return nil
}

// freeze implements registered.
func (t *mapTable[K, U, V]) freeze() view {
	return &frozenMaps[K, U, V]{frozenTable: t.freezeTable(), both: t.both, form: t.form}
}

// frozenMaps is a frozen mapTable. Each user key is an entry of its own, so
// that no reader or writer needs to hold a whole map.
type frozenMaps[K, U comparable, V any] struct {
	*frozenTable[K, tree[U, V]]
	both *keygroup.Encoding[statebackend.MapKey[K, U]]
	form statebackend.Form[V]
	keys statebackend.MapKey[K, U] // here so that it does not escape one by one
}

// write implements view.
func (f *frozenMaps[K, U, V]) write(w *statebackend.Writer, number, i int) {
	refs := f.refs[f.groups[i]:f.groups[i+1]]
	n := 0
	for _, r := range refs {
		n += f.count(&f.slot(r).value)
	}
	if n == 0 {
		return
	}
	w.State(number, n)
	for _, r := range refs {
		s := f.slot(r)
		f.keys.Key = s.key
		for _, l := range s.value.leaves {
			for j := range l.items {
				it := &l.items[j]
				if f.form.IsExpired(&it.value, f.now) {
					continue
				}
				f.keys.User = it.key
				f.key = f.both.Append(f.key[:0], &f.keys)
				f.value = statebackend.AppendStored(f.value[:0], f.form, 0, &it.value, f.now)
				w.Entry(f.key, f.value)
			}
		}
	}
}

// count is how many user keys of a map are written.
func (f *frozenMaps[K, U, V]) count(t *tree[U, V]) int {
	if !f.form.CanExpire() {
		return t.size
	}
	n := 0
	for _, l := range t.leaves {
		for j := range l.items {
			if !f.form.IsExpired(&l.items[j].value, f.now) {
				n++
			}
		}
	}
	return n
}
