package memory

// cursor is a place in a table that a sweep has come to. Changes of the table
// between two steps may make it pass over an entry; the next round finds it.
type cursor struct {
	root, page int
	group      uint32
}

// next moves the cursor to the next group and returns it. A root that no key
// has come to is one step.
func (t *table[K, V]) next(c *cursor) *group[K, V] {
	r := &t.roots[c.root]
	if c.page >= 1<<r.depth {
		*c = cursor{root: (c.root + 1) % rootCount}
		r = &t.roots[c.root]
	}
	p := r.entry(c.page)
	g := p.group(c.group & p.mask())
	if c.group++; c.group > p.mask() {
		c.group = 0
		c.page = c.page&^(len(r.aliases(c.page))-1) + len(r.aliases(c.page))
	}
	return g
}

// Sweep implements statebackend.Sweeper: it looks at one group.
func (v *value[K, V]) Sweep() {
	t := v.table
	now := t.traits.clock.Now
	var gone [groupSlots]K
	n := 0
	for _, s := range t.next(&v.swept).entries() {
		if t.traits.form.IsExpired(&s.value, now) {
			gone[n] = s.key
			n++
		}
	}
	for i := range n {
		t.forgetSlot()
		t.remove(t.traits.key.Hash(&gone[i]), &gone[i])
	}
}

// sweepItems is how many items of a map a sweep looks at in one step.
const sweepItems = 8

// mapSweep is where the sweep of a state with a map per key has come to: some
// keys of one group, and a user key of the first of them.
type mapSweep[K, U comparable] struct {
	swept cursor
	keys  [groupSlots]K
	left  int // of keys, from the beginning
	begun bool
	after U // the user key last looked at, if begun
}

// Sweep implements statebackend.Sweeper: it looks at a few items of one map.
func (m *mapState[K, U, V]) Sweep() {
	w, t := &m.sweeping, m.table
	if w.left == 0 {
		for _, s := range t.next(&w.swept).entries() {
			w.keys[w.left] = s.key
			w.left++
		}
		if w.left == 0 {
			return
		}
	}
	key := &w.keys[w.left-1]
	hash := t.traits.key.Hash(key)
	_, _, s := t.find(hash, key)
	if s == nil {
		w.left, w.begun = w.left-1, false
		return
	}
	var gone [sweepItems]U
	n, ended := m.expired(&s.value, &gone)
	if ended {
		w.left, w.begun = w.left-1, false
	}
	if n > 0 {
		m.drop(hash, key, gone[:n])
	}
}

// expired finds expired user keys among the next few of a map, and says
// whether those were the last.
func (m *mapState[K, U, V]) expired(t *tree[U, V], gone *[sweepItems]U) (n int, ended bool) {
	w, now := &m.sweeping, m.table.traits.clock.Now
	var p place
	if w.begun {
		var found bool
		if p, found = m.table.kind.find(t, &w.after); found {
			p.item++
		}
	}
	for range sweepItems {
		p = t.normal(p)
		it := t.at(p)
		if it == nil {
			return n, true
		}
		if m.table.form.IsExpired(&it.value, now) {
			gone[n] = it.key
			n++
		}
		w.begun, w.after = true, it.key
		p.item++
	}
	return n, false
}

// drop removes user keys of one key.
func (m *mapState[K, U, V]) drop(hash uint32, key *K, gone []U) {
	m.changes++
	m.table.forgetSlot()
	t := &m.table.private(hash, key).value
	for i := range gone {
		if t.size == 1 {
			// Nothing else is left, and no key has an empty map.
			m.table.remove(hash, key)
			return
		}
		if p, found := m.table.kind.find(t, &gone[i]); found {
			m.table.kind.remove(t, p)
		}
	}
}
