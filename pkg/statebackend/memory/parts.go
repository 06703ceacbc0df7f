package memory

import (
	"iter"

	"github.com/weirstream/weir/pkg/keygroup"
)

// Table is the hash table of this package by itself, for backends that keep
// some of their values on the heap: entries are added and changed, never
// removed or frozen. One goroutine at a time uses it; when nothing changes it
// any more, any number may read it.
type Table[K comparable, V any] struct{ t *table[K, V] }

// NewTable makes an empty table of keys with that encoding.
func NewTable[K comparable, V any](key *keygroup.Encoding[K]) *Table[K, V] {
	return &Table[K, V]{newTable(traits[K, V]{key: key})}
}

// Find returns the place of a key's value, nil if there is none. It is good
// until the next Insert.
func (t *Table[K, V]) Find(hash uint32, key *K) *V {
	if _, _, s := t.t.find(hash, key); s != nil {
		return &s.value
	}
	return nil
}

// Insert adds a key that Find did not find, with a zero value. It fails if
// too many keys share a hash.
func (t *Table[K, V]) Insert(hash uint32, key *K) (*V, error) {
	s, err := t.t.insert(hash, key)
	if err != nil {
		return nil, err
	}
	return &s.value, nil
}

// All passes over the entries, in no order.
func (t *Table[K, V]) All() iter.Seq2[*K, *V] {
	return func(yield func(*K, *V) bool) {
		for i := range t.t.roots {
			root := &t.t.roots[i]
			for j := 0; j < 1<<root.depth; {
				p := root.entry(j)
				for _, s := range p.entries() {
					if !yield(&s.key, &s.value) {
						return
					}
				}
				j += 1 << (root.depth - p.depth)
			}
		}
	}
}

// Len is the number of entries.
func (t *Table[K, V]) Len() int { return int(t.t.entries) }

// Bytes is the memory of the table, without what keys and values point to.
func (t *Table[K, V]) Bytes() int64 { return t.t.bytes }

// Touch fetches what Find will read for keys of these hashes.
func (t *Table[K, V]) Touch(hashes []uint32) { t.t.touch(hashes) }

// Tree is an ordered map from user keys to values; the zero value is empty. It
// is handled by a Trees, and is not copied once it holds something.
type Tree[U comparable, V any] struct{ tree tree[U, V] }

// Len is the number of user keys.
func (t *Tree[U, V]) Len() int { return t.tree.size }

// Trees handles trees of one type.
type Trees[U comparable, V any] struct{ kind treeKind[U, V] }

// NewTrees handles trees whose user keys have that encoding and order.
func NewTrees[U comparable, V any](key *keygroup.Encoding[U]) Trees[U, V] {
	return Trees[U, V]{treeKind[U, V]{key: key}}
}

// Find returns the place of a user key's value, nil if there is none. It is
// good until the next Ref of a key that is not there.
func (k *Trees[U, V]) Find(t *Tree[U, V], key *U) *V {
	if p, found := k.kind.find(&t.tree, key); found {
		return &t.tree.at(p).value
	}
	return nil
}

// Ref is Find for a caller that writes: a key that is not there is added with
// a zero value.
func (k *Trees[U, V]) Ref(t *Tree[U, V], key *U) (v *V, found bool) {
	p, found := k.kind.find(&t.tree, key)
	if found {
		return &k.kind.change(&t.tree, p).value, true
	}
	return &k.kind.insert(&t.tree, p, key).value, false
}

// Next returns the first user key behind after, or the very first if after is
// nil, and its value; nil at the end.
func (k *Trees[U, V]) Next(t *Tree[U, V], after *U) (*U, *V) {
	var p place
	if after != nil {
		var found bool
		if p, found = k.kind.find(&t.tree, after); found {
			p.item++
		}
	}
	it := t.tree.at(t.tree.normal(p))
	if it == nil {
		return nil, nil
	}
	return &it.key, &it.value
}
