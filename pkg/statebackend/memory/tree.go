package memory

import (
	"slices"

	"github.com/weirstream/weir/pkg/keygroup"
)

// tree is the map of one key: its items in the order of the user keys, in
// leaves of a bounded number of items. The zero tree is empty.
//
// It is copied on write like the table that it lies in, one leaf at a time.
// What a tree may change carries its owner, a pointer that nothing else has: a
// clone gets an owner of its own, and so shares all leaves until it changes them.
type tree[U comparable, V any] struct {
	leaves []*leaf[U, V] // none is empty
	owner  *byte
	// ownsLeaves says that the slice of leaves is not shared.
	ownsLeaves bool
	size       int
}

// leafMax is how many items a leaf has at most: as many as private has bits.
// Copying one costs less than a microsecond if they are small.
const leafMax = 64

type leaf[U comparable, V any] struct {
	owner *byte
	// private has a bit for each item whose value is not shared. It means
	// something only if the leaf is the tree's own and values are not flat.
	private uint64
	items   []item[U, V]
}

type item[U comparable, V any] struct {
	key   U
	value V
}

// place is where an item is, or belongs.
type place struct{ leaf, item int }

// treeKind is what the trees of one state have in common.
type treeKind[U comparable, V any] struct {
	key   *keygroup.Encoding[U]
	clone func(dst, src *V) // nil if assignment is a deep copy
}

// share makes *dst a tree of the same content that may be changed while
// others read *src.
func share[U comparable, V any](dst, src *tree[U, V]) {
	*dst = tree[U, V]{leaves: src.leaves, owner: new(byte), size: src.size}
}

// find returns the place of a key and whether it is there.
func (k *treeKind[U, V]) find(t *tree[U, V], key *U) (place, bool) {
	// The last leaf that does not begin after key.
	low, high := 0, len(t.leaves)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if k.key.Compare(&t.leaves[mid].items[0].key, key) <= 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return place{}, false
	}
	p := place{leaf: low - 1}
	items := t.leaves[p.leaf].items
	low, high = 0, len(items)
	for low < high {
		mid := int(uint(low+high) >> 1)
		switch c := k.key.Compare(&items[mid].key, key); {
		case c == 0:
			p.item = mid
			return p, true
		case c < 0:
			low = mid + 1
		default:
			high = mid
		}
	}
	p.item = low
	return p, false
}

// at returns the item at a place, or nil behind the last one.
func (t *tree[U, V]) at(p place) *item[U, V] {
	if p.leaf < len(t.leaves) && p.item < len(t.leaves[p.leaf].items) {
		return &t.leaves[p.leaf].items[p.item]
	}
	return nil
}

// normal is the same place, counted in the leaf that has it.
func (t *tree[U, V]) normal(p place) place {
	if p.leaf < len(t.leaves) && p.item == len(t.leaves[p.leaf].items) {
		return place{leaf: p.leaf + 1}
	}
	return p
}

// ownLeaves makes the slice of leaves private.
func (t *tree[U, V]) ownLeaves() {
	if t.owner == nil {
		t.owner, t.ownsLeaves = new(byte), true
	}
	if !t.ownsLeaves {
		t.leaves, t.ownsLeaves = slices.Clone(t.leaves), true
	}
}

// own makes a leaf private, its values not included.
func (t *tree[U, V]) own(i int) *leaf[U, V] {
	l := t.leaves[i]
	if l.owner == t.owner {
		return l
	}
	t.ownLeaves()
	// Room for one more: it is usually the reason.
	items := make([]item[U, V], len(l.items), min(len(l.items)+1, leafMax))
	copy(items, l.items)
	t.leaves[i] = &leaf[U, V]{owner: t.owner, items: items}
	return t.leaves[i]
}

// change returns the item at a place, made private.
func (k *treeKind[U, V]) change(t *tree[U, V], p place) *item[U, V] {
	l := t.own(p.leaf)
	it := &l.items[p.item]
	if bit := uint64(1) << p.item; k.clone != nil && l.private&bit == 0 {
		var c V
		k.clone(&c, &it.value)
		it.value = c
		l.private |= bit
	}
	return it
}

// read returns the item at a place as user code may have it: private, unless
// assignment copies it.
func (k *treeKind[U, V]) read(t *tree[U, V], p place) *item[U, V] {
	if k.clone == nil {
		return t.at(p)
	}
	return k.change(t, p)
}

// insert adds a key, which find said belongs at p, with a zero value.
func (k *treeKind[U, V]) insert(t *tree[U, V], p place, key *U) *item[U, V] {
	t.ownLeaves()
	t.size++
	if len(t.leaves) == 0 {
		t.leaves = append(t.leaves, &leaf[U, V]{owner: t.owner})
	}
	l := t.own(p.leaf)
	if len(l.items) == leafMax {
		t.split(p.leaf)
		if half := len(t.leaves[p.leaf].items); p.item > half {
			p = place{p.leaf + 1, p.item - half}
		}
		l = t.leaves[p.leaf]
	}
	l.items = slices.Insert(l.items, p.item, item[U, V]{key: k.key.Clone(key)})
	below := uint64(1)<<p.item - 1
	l.private = l.private&below | l.private&^below<<1 | 1<<p.item
	return &l.items[p.item]
}

// split makes two of a private, full leaf.
func (t *tree[U, V]) split(i int) {
	const half = leafMax / 2
	l := t.leaves[i]
	right := &leaf[U, V]{owner: t.owner, private: l.private >> half, items: make([]item[U, V], half, leafMax)}
	copy(right.items, l.items[half:])
	clear(l.items[half:])
	l.items = l.items[:half]
	l.private &= 1<<half - 1
	t.leaves = slices.Insert(t.leaves, i+1, right)
}

// remove deletes the item at a place.
func (k *treeKind[U, V]) remove(t *tree[U, V], p place) {
	l := t.own(p.leaf)
	t.size--
	l.items = slices.Delete(l.items, p.item, p.item+1)
	below := uint64(1)<<p.item - 1
	l.private = l.private&below | l.private>>1&^below
	switch next := p.leaf + 1; {
	case len(l.items) == 0:
		t.ownLeaves()
		t.leaves = slices.Delete(t.leaves, p.leaf, next)
	case next < len(t.leaves) && len(l.items)+len(t.leaves[next].items) <= leafMax/2:
		// Few items in many leaves would be slower to pass over than to copy.
		r := t.own(next)
		l.private |= r.private << len(l.items)
		l.items = append(l.items, r.items...)
		t.ownLeaves()
		t.leaves = slices.Delete(t.leaves, next, next+1)
	}
}
