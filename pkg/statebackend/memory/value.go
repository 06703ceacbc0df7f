package memory

import (
	"math"

	"github.com/weirstream/weir/pkg/statebackend"
)

// value is a state with one value per key: statebackend.Value.
type value[K comparable, V any] struct {
	table   *table[K, V]
	current *statebackend.Current[K]
	// slot is where the private entry of key number seq is, so that Get and
	// then Set look it up once. Only this value's own methods move entries;
	// they and a freeze forget it.
	slot *slot[K, V]
	seq  uint64
	// swept is where Sweep has come to, of states whose values expire.
	swept cursor
}

// forgotten is a seq that no key has.
const forgotten = math.MaxUint64

// NewValue registers a value per key in s. It returns an error if a state of
// the name exists or the state is restored already.
func NewValue[K comparable, V any](s *State, d statebackend.Descriptor[K, V]) (statebackend.Value[V], error) {
	t := newTable(valueTraits(d))
	if err := s.register(d.Meta(), t); err != nil {
		return nil, err
	}
	return newValue(t, d.Current), nil
}

func newValue[K comparable, V any](t *table[K, V], current *statebackend.Current[K]) *value[K, V] {
	v := &value[K, V]{table: t, current: current, seq: forgotten}
	t.forgetSlot = func() { v.slot, v.seq = nil, forgotten }
	return v
}

// look finds the private value of the current key; nil if there is none.
func (v *value[K, V]) look() (*V, error) {
	if v.remembered() {
		return &v.slot.value, nil
	}
	if v.current.Seq == 0 {
		return nil, statebackend.ErrNoKey
	}
	s := v.table.private(v.current.Hash, &v.current.Key)
	if s == nil {
		return nil, nil
	}
	v.remember(s)
	return &s.value, nil
}

// remembered reports whether slot is the private entry of the current key.
func (v *value[K, V]) remembered() bool { return v.seq == v.current.Seq }

func (v *value[K, V]) remember(s *slot[K, V]) { v.slot, v.seq = s, v.current.Seq }

// Get implements statebackend.Value.
func (v *value[K, V]) Get() (V, bool, error) {
	t := v.table
	if v.remembered() {
		return v.slot.value, true, nil
	}
	var zero V
	if v.current.Seq == 0 {
		return zero, false, statebackend.ErrNoKey
	}
	p, g, s := t.find(v.current.Hash, &v.current.Key)
	if s == nil {
		return zero, false, nil
	}
	if p.generation != t.generation || t.deep && !g.isPrivate(s) {
		if !t.deep {
			return s.value, true, nil // only a write needs a private page
		}
		s = t.private(v.current.Hash, &v.current.Key)
	}
	v.remember(s)
	return s.value, true, nil
}

// Set implements statebackend.Value.
func (v *value[K, V]) Set(to V) error {
	if v.remembered() {
		v.slot.value = to
		return nil
	}
	s, _, err := v.place()
	if err != nil {
		return err
	}
	s.value = to
	return nil
}

// Ref implements statebackend.Value.
func (v *value[K, V]) Ref() (*V, bool, error) {
	if v.remembered() {
		return &v.slot.value, true, nil
	}
	if v.current.Seq == 0 {
		return nil, false, statebackend.ErrNoKey
	}
	t := v.table
	p, g, s := t.find(v.current.Hash, &v.current.Key)
	if s != nil && p.generation == t.generation && (!t.deep || g.isPrivate(s)) {
		v.remember(s)
		return &s.value, true, nil
	}
	s, found, err := v.place()
	if err != nil {
		return nil, false, err
	}
	return &s.value, found, nil
}

// place finds or makes the private entry of the current key.
func (v *value[K, V]) place() (*slot[K, V], bool, error) {
	if v.current.Seq == 0 {
		return nil, false, statebackend.ErrNoKey
	}
	if s := v.table.private(v.current.Hash, &v.current.Key); s != nil {
		v.remember(s)
		return s, true, nil
	}
	s, err := v.table.insert(v.current.Hash, &v.current.Key)
	if err != nil {
		return nil, false, err
	}
	v.remember(s)
	return s, false, nil
}

// Clear implements statebackend.Value.
func (v *value[K, V]) Clear() error {
	if v.current.Seq == 0 {
		return statebackend.ErrNoKey
	}
	v.table.forgetSlot()
	v.table.remove(v.current.Hash, &v.current.Key)
	return nil
}
