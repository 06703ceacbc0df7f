package memory

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// Name is the backend's name in state.backend.type.
const Name = "memory"

// Backend opens keyed state on the heap.
type Backend struct{}

// New makes the backend. It has no settings.
func New() *Backend { return &Backend{} }

// Name is "memory".
func (*Backend) Name() string { return Name }

// Open makes the empty keyed state of one operator in one subtask: a *State.
func (*Backend) Open(o statebackend.Options) (statebackend.KeyedState, error) {
	return &State{options: o}, nil
}

// State is the keyed state of one operator in one subtask:
// statebackend.KeyedState. The subtask's goroutine alone uses it.
type State struct {
	options  statebackend.Options
	metas    []snapshot.StateMeta
	tables   []registered // the tables of metas
	restored bool
	closed   bool
}

// registered is a table without its types.
type registered interface {
	freeze() view
	stats() statebackend.Stats
	touch(hashes []uint32)
	// read prepares for entries stored under that description.
	read(stored snapshot.StateMeta) error
	// restore adds a stored entry of a key of group g.
	restore(key, value []byte, g keygroup.Group, maxParallelism int) error
}

func (s *State) register(m snapshot.StateMeta, t registered) error {
	if s.restored || s.closed {
		return errors.New("states are registered when the operator is opened, not later: stored state is attached by then")
	}
	if slices.ContainsFunc(s.metas, func(o snapshot.StateMeta) bool { return o.Name == m.Name }) {
		return errors.New("the name is registered already: every state of an operator needs its own")
	}
	s.metas = append(s.metas, m)
	s.tables = append(s.tables, t)
	return nil
}

// Restore implements statebackend.KeyedState.
func (s *State) Restore(parts []statebackend.RestoredPart) error {
	if s.restored || s.closed {
		return fmt.Errorf("operator %q: keyed state was restored or closed before", s.options.Operator)
	}
	s.restored = true
	seen := make([]bool, s.options.Range.Len())
	for i := range parts {
		p := &parts[i]
		tables, err := s.match(p.States)
		if err != nil {
			return fmt.Errorf("operator %q: restore keyed state: %w", s.options.Operator, err)
		}
		err = p.Groups(s.options.Range, func(g keygroup.Group, bytes []byte) error {
			at := &seen[g-s.options.Range.First]
			if *at {
				return fmt.Errorf("%w: key group %d is in two parts", statebackend.ErrCorrupt, g)
			}
			*at = true
			return s.restoreGroup(p, tables, g, bytes)
		})
		if err != nil {
			return fmt.Errorf("operator %q: restore key groups %s from a snapshot of %s: %w", s.options.Operator, s.options.Range, p.Range, err)
		}
	}
	return nil
}

// match finds the registered tables of stored states, in their order.
func (s *State) match(stored []snapshot.StateMeta) ([]registered, error) {
	tables := make([]registered, len(stored))
	var unknown []string
	for i, m := range stored {
		if m.Kind == snapshot.DroppedKind {
			continue // its entries are skipped
		}
		at := slices.IndexFunc(s.metas, func(o snapshot.StateMeta) bool { return o.Name == m.Name })
		if at < 0 {
			unknown = append(unknown, fmt.Sprintf("%q", m.Name))
			continue
		}
		if err := statebackend.CheckMeta(m, s.metas[at]); err != nil {
			return nil, err
		}
		if err := s.tables[at].read(m); err != nil {
			return nil, err
		}
		if slices.Contains(tables[:i], s.tables[at]) {
			return nil, fmt.Errorf("%w: state %q is listed twice", statebackend.ErrCorrupt, m.Name)
		}
		tables[i] = s.tables[at]
	}
	if unknown != nil {
		return nil, fmt.Errorf("the snapshot has state %s, which the operator did not register when it was opened", strings.Join(unknown, ", "))
	}
	return tables, nil
}

func (s *State) restoreGroup(p *statebackend.RestoredPart, tables []registered, g keygroup.Group, bytes []byte) error {
	err := statebackend.ReadGroup(bytes, len(tables), func(state int, key, value []byte) error {
		if tables[state] == nil {
			return nil
		}
		if err := tables[state].restore(key, value, g, s.options.MaxParallelism); err != nil {
			return fmt.Errorf("state %q: %w", p.States[state].Name, err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("key group %d: %w", g, err)
	}
	return nil
}

// read implements registered.
func (t *table[K, V]) read(stored snapshot.StateMeta) (err error) {
	t.schemas, err = statebackend.NewSchemas(t.traits.form, stored)
	return err
}

// restore implements registered.
func (t *table[K, V]) restore(key, stored []byte, g keygroup.Group, maxParallelism int) error {
	k, n, err := t.traits.key.Decode(key)
	if err == nil && n != len(key) {
		err = fmt.Errorf("%d bytes after the key", len(key)-n)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", statebackend.ErrCorrupt, err)
	}
	hash, err := t.restoredHash(&k, g, maxParallelism)
	if err != nil {
		return err
	}
	if _, _, s := t.find(hash, &k); s != nil {
		return fmt.Errorf("%w: key %v is stored twice", statebackend.ErrCorrupt, k)
	}
	s, err := t.insert(hash, &k)
	if err != nil {
		return err
	}
	if err := statebackend.DecodeStored(stored, &t.schemas, &s.value); err != nil {
		return fmt.Errorf("value of key %v: %w", k, err)
	}
	return nil
}

// restoredHash is the hash of a key that was stored in group g.
func (t *table[K, V]) restoredHash(k *K, g keygroup.Group, maxParallelism int) (uint32, error) {
	hash := t.traits.key.Hash(k)
	if at := keygroup.OfHash(hash, maxParallelism); at != g {
		return 0, fmt.Errorf("%w: key %v is of key group %d", statebackend.ErrCorrupt, *k, at)
	}
	return hash, nil
}

// Freeze implements statebackend.KeyedState.
func (s *State) Freeze() (statebackend.Frozen, error) {
	if !s.restored || s.closed {
		return nil, fmt.Errorf("operator %q: keyed state is frozen before it was restored, or after it was closed", s.options.Operator)
	}
	f := &frozen{options: s.options, metas: s.metas, views: make([]view, len(s.tables))}
	for i, t := range s.tables {
		f.views[i] = t.freeze()
	}
	return f, nil
}

// Prefetch implements statebackend.KeyedState.
func (s *State) Prefetch(hashes []uint32) {
	for _, t := range s.tables {
		t.touch(hashes)
	}
}

// Stats implements statebackend.KeyedState.
func (s *State) Stats() statebackend.Stats {
	var sum statebackend.Stats
	for _, t := range s.tables {
		n := t.stats()
		sum.Entries += n.Entries
		sum.Bytes += n.Bytes
	}
	return sum
}

// stats implements registered.
func (t *table[K, V]) stats() statebackend.Stats {
	return statebackend.Stats{Entries: t.entries, Bytes: t.bytes}
}

// Close implements statebackend.KeyedState.
func (s *State) Close() error {
	s.closed = true
	s.tables, s.metas = nil, nil
	return nil
}
