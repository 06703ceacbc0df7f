package memory

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/statebackend"
)

// table maps keys to values in pages of a few KiB.
//
// A key's 32-bit hash is spread over 64 bits by one multiplication (hashes of
// one subtask share residues modulo max parallelism, so their own low bits are
// not uniform). The top byte selects a root, the next bits an entry of the
// root's directory, others the first group in the page, from where probing is
// linear. A page that is full doubles until it has the table's page size,
// then splits in two, as in extendible hashing; only the directory of its root
// may double with it. So the worst pause of an insert is that of copying 1/256
// of the directory, never of the table.
//
// Copy on write: roots and directory entries carry the generation in which
// they were last private. Freezing copies the roots and begins a new
// generation. A write first makes root, page and, if values are not flat, the
// value private to the present generation: a copy while any view is alive,
// just a new stamp if none is. The hot path compares one generation, which
// lies in the directory entry that it reads anyway.
//
// Pointers into directories and pages are computed with unsafe.Add: the
// indexes are masked, and the bounds checks cost a tenth of an access.
type table[K comparable, V any] struct {
	roots      [rootCount]root[K, V]
	generation uint32
	log2Max    uint8 // page size that splits rather than doubles
	deep       bool  // values are not flat
	traits     traits[K, V]
	schemas    statebackend.Schemas[V] // of the entries being restored
	entries    int64
	bytes      int64
	// live counts the views not yet released. Only this is shared with other
	// goroutines, and it is read only when a generation differs.
	live *atomic.Int32
	// retired are the groups of full-grown pages that were copied since the last
	// freeze: when all views are released nothing refers to them. spare are such
	// ones, for the next copies: fresh memory would cost as much as the copy.
	// Both are bounded by what one generation copies; with pointers in values,
	// which would keep those alive, there are none.
	retired, spare [][]group[K, V]
	// forgetSlot tells the state's handle that the entry it remembers may be
	// shared now, or gone.
	forgetSlot func()
	// touched keeps the loads of touch from being optimised away.
	touched byte
}

const (
	rootCount = 256
	rootBits  = 8
	// log2Limit bounds pages that splitting cannot help because their keys
	// share hash bits beyond depthLimit.
	log2Limit = 12
	// depthLimit bounds a directory to 1 MiB, for keys chosen to collide. 256
	// roots of 2^16 full pages are billions of small entries.
	depthLimit = 16
	// pageBytesMax is what a full-grown page takes at most: large enough that
	// the directory stays in the cache, small enough that copying one after a
	// freeze costs less than a microsecond.
	pageBytesMax = 4096
	// spread is 2^64 divided by the golden ratio: an odd multiplier under
	// which every bit of the hash reaches all higher ones.
	spread = 0x9e3779b97f4a7c15
)

// root is one of the 256 independent parts of a table.
type root[K comparable, V any] struct {
	dir        *page[K, V] // the first of 1<<depth entries
	generation uint32      // 0: dir is the table's shared empty one
	depth      uint8
}

// page is a directory entry: everything about a page but its groups. 1<<(root
// depth - depth) adjacent entries are equal and mean the same page.
type page[K comparable, V any] struct {
	groups     *group[K, V] // the first of 1<<log2
	generation uint32
	used       uint16
	log2       uint8
	depth      uint8
}

// traits are what a table must know of its keys and values.
type traits[K comparable, V any] struct {
	key *keygroup.Encoding[K]
	// clone makes *dst a copy of *src that may be changed; nil if assignment does.
	clone func(dst, src *V)
	// form is how values are stored; nil if whoever embeds the table stores them.
	form  statebackend.Form[V]
	clock *statebackend.Clock // nil if values do not expire
}

// valueTraits are those of a table whose values are a state's.
func valueTraits[K comparable, V any](d statebackend.Descriptor[K, V]) traits[K, V] {
	t := traits[K, V]{key: d.Key, form: d.StoredForm(), clock: d.Clock}
	if !d.Codec.Flat() {
		t.clone = d.Codec.Clone
	}
	return t
}

func newTable[K comparable, V any](of traits[K, V]) *table[K, V] {
	t := &table[K, V]{generation: 1, deep: of.clone != nil, traits: of, live: new(atomic.Int32)}
	for unsafe.Sizeof(group[K, V]{})<<(t.log2Max+1) <= pageBytesMax {
		t.log2Max++
	}
	empty := &page[K, V]{groups: new(group[K, V])}
	for i := range t.roots {
		t.roots[i].dir = empty
	}
	t.bytes = int64(unsafe.Sizeof(*t))
	return t
}

// at is the directory entry for the spread hash x.
func (r *root[K, V]) at(x uint64) *page[K, V] { return r.entry(r.index(x)) }

func (r *root[K, V]) index(x uint64) int {
	// Two shifts, so that depth 0 needs no case of its own.
	return int(x << rootBits >> 1 >> (63 - r.depth&63))
}

func (r *root[K, V]) entry(i int) *page[K, V] {
	return (*page[K, V])(unsafe.Add(unsafe.Pointer(r.dir), uintptr(i)*unsafe.Sizeof(*r.dir)))
}

// aliases are the entries of the page that entry i belongs to.
func (r *root[K, V]) aliases(i int) []page[K, V] {
	n := 1 << (r.depth - r.entry(i).depth)
	return unsafe.Slice(r.entry(i&^(n-1)), n)
}

func (p *page[K, V]) mask() uint32 { return 1<<(p.log2&31) - 1 }

func (p *page[K, V]) group(i uint32) *group[K, V] {
	return (*group[K, V])(unsafe.Add(unsafe.Pointer(p.groups), uintptr(i)*unsafe.Sizeof(*p.groups)))
}

func (p *page[K, V]) all() []group[K, V] { return unsafe.Slice(p.groups, 1<<p.log2) }

// isFull leaves an eighth of the slots free, so that probing ends soon.
func (p *page[K, V]) isFull() bool { return int(p.used) >= groupSlots*7<<p.log2>>3 }

// start is the group where probing for the spread hash x begins, before
// masking. Its bits are apart from those of root, page and tag.
func start(x uint64) uint32 { return uint32(x >> 24) }

// find returns the page where the key belongs, and its group and slot there,
// or nil for both.
func (t *table[K, V]) find(hash uint32, key *K) (*page[K, V], *group[K, V], *slot[K, V]) {
	x := uint64(hash) * spread
	p := t.roots[x>>(64-rootBits)].at(x)
	mask, tags := p.mask(), tagOf(x)*tagOnes
	for i := start(x); ; i++ {
		g := p.group(i & mask)
		for m := g.matches(tags); m != 0; m &= m - 1 {
			if s := g.slot(bits.TrailingZeros64(m) >> 3); s.key == *key {
				return p, g, s
			}
		}
		if !g.isFull() {
			return p, nil, nil
		}
	}
}

// private is find for a caller that changes the entry: page and value belong
// to the present generation. It returns nil if there is no entry.
func (t *table[K, V]) private(hash uint32, key *K) *slot[K, V] {
	p, g, s := t.find(hash, key)
	if s == nil {
		return nil
	}
	if p.generation != t.generation {
		t.own(hash)
		_, g, s = t.find(hash, key)
	}
	if t.deep {
		t.ownValue(g, s)
	}
	return s
}

// ownValue makes the value of a slot in a private page private.
func (t *table[K, V]) ownValue(g *group[K, V], s *slot[K, V]) {
	if g.isPrivate(s) {
		return
	}
	if t.live.Load() > 0 {
		var c V
		t.traits.clone(&c, &s.value)
		s.value = c
	}
	g.setPrivate(s)
}

// own makes the page for a hash private and returns its root and entry.
func (t *table[K, V]) own(hash uint32) (*root[K, V], int) {
	x := uint64(hash) * spread
	r := &t.roots[x>>(64-rootBits)]
	// Generation 0 is the empty page and directory, shared by all roots.
	if r.generation != t.generation {
		if r.generation == 0 || t.live.Load() > 0 {
			dir := make([]page[K, V], 1<<r.depth)
			copy(dir, unsafe.Slice(r.dir, 1<<r.depth))
			if r.generation == 0 {
				t.bytes += int64(unsafe.Sizeof(dir[0]))
			}
			r.dir = &dir[0]
		}
		r.generation = t.generation
	}
	i := r.index(x)
	if p := r.entry(i); p.generation != t.generation {
		groups := p.groups
		if p.generation == 0 || t.live.Load() > 0 {
			groups = t.copyOf(p)
			if t.recycles(p) {
				t.retired = append(t.retired, p.all())
			}
		}
		for j := range r.aliases(i) {
			a := &r.aliases(i)[j]
			a.groups, a.generation = groups, t.generation
		}
	}
	return r, i
}

// copyOf copies the groups of a page. The values in it are shared from now on.
func (t *table[K, V]) copyOf(p *page[K, V]) *group[K, V] {
	var c []group[K, V]
	if n := len(t.spare); n > 0 && t.recycles(p) {
		c, t.spare[n-1] = t.spare[n-1], nil
		t.spare = t.spare[:n-1]
	} else {
		c = make([]group[K, V], 1<<p.log2)
	}
	copy(c, p.all())
	if t.deep {
		for j := range c {
			c[j].shareAll()
		}
	}
	if p.generation == 0 {
		t.bytes += int64(len(c)) * int64(unsafe.Sizeof(c[0]))
	}
	return &c[0]
}

// recycles tells whether the groups of p are used again once they were copied.
func (t *table[K, V]) recycles(p *page[K, V]) bool {
	return !t.deep && p.generation != 0 && p.log2 == t.log2Max
}

// insert adds a key that find did not find, with a zero value.
func (t *table[K, V]) insert(hash uint32, key *K) (*slot[K, V], error) {
	for {
		r, i := t.own(hash)
		p := r.entry(i)
		if p.isFull() {
			if err := t.enlarge(r, i); err != nil {
				return nil, err
			}
			continue
		}
		g, s := p.take(hash)
		s.key = t.traits.key.Clone(key)
		g.setPrivate(s)
		for j := range r.aliases(i) {
			r.aliases(i)[j].used++
		}
		t.entries++
		return s, nil
	}
}

// take marks the first free slot for a hash in a page that is not full.
func (p *page[K, V]) take(hash uint32) (*group[K, V], *slot[K, V]) {
	x := uint64(hash) * spread
	mask := p.mask()
	for i := start(x); ; i++ {
		if g := p.group(i & mask); !g.isFull() {
			j := g.free()
			g.setTag(j, tagOf(x))
			return g, g.slot(j)
		}
	}
}

// enlarge makes room in the private, full page at entry i.
func (t *table[K, V]) enlarge(r *root[K, V], i int) error {
	p := r.entry(i)
	switch {
	case p.log2 < t.log2Max:
		t.double(r, i)
	case p.depth < depthLimit:
		t.split(r, i)
	case p.log2 < log2Limit:
		t.double(r, i)
	default:
		return fmt.Errorf("%d keys share most of their 32-bit hash: the table cannot separate them", p.used)
	}
	return nil
}

// newPage makes the entry of an empty private page.
func (t *table[K, V]) newPage(log2, depth uint8) page[K, V] {
	groups := make([]group[K, V], 1<<log2)
	t.bytes += int64(len(groups)) * int64(unsafe.Sizeof(groups[0]))
	return page[K, V]{groups: &groups[0], generation: t.generation, log2: log2, depth: depth}
}

// move puts the entry at slot s of g into a page that does not have its key.
func (p *page[K, V]) move(g *group[K, V], s *slot[K, V], hash uint32) {
	h, to := p.take(hash)
	*to = *s
	if g.isPrivate(s) {
		h.setPrivate(to)
	}
	p.used++
}

// forget takes the groups of a page that was replaced out of the count.
func (t *table[K, V]) forget(p page[K, V]) {
	t.bytes -= int64(unsafe.Sizeof(*p.groups)) << p.log2
}

func (t *table[K, V]) double(r *root[K, V], i int) {
	old := *r.entry(i)
	p := t.newPage(old.log2+1, old.depth)
	for g, s := range old.entries() {
		p.move(g, s, t.traits.key.Hash(&s.key))
	}
	aliases := r.aliases(i)
	for j := range aliases {
		aliases[j] = p
	}
	t.forget(old)
}

// split distributes the entries of a page over two by the next bit of the
// spread hash. One of them may be full still if all entries go to it; the
// caller tries again.
func (t *table[K, V]) split(r *root[K, V], i int) {
	old := *r.entry(i)
	if old.depth == r.depth {
		t.deepen(r)
		i *= 2
	}
	halves := [2]page[K, V]{t.newPage(old.log2, old.depth+1), t.newPage(old.log2, old.depth+1)}
	for g, s := range old.entries() {
		hash := t.traits.key.Hash(&s.key)
		halves[uint64(hash)*spread>>(63-rootBits-old.depth)&1].move(g, s, hash)
	}
	aliases := r.aliases(i)
	for j := range aliases {
		aliases[j] = halves[j/(len(aliases)/2)]
	}
	t.forget(old)
}

// deepen doubles the directory of a root.
func (t *table[K, V]) deepen(r *root[K, V]) {
	dir := make([]page[K, V], 2<<r.depth)
	for j := range dir {
		dir[j] = *r.entry(j / 2)
	}
	t.bytes += int64(len(dir)/2) * int64(unsafe.Sizeof(dir[0]))
	r.dir = &dir[0]
	r.depth++
}

// remove deletes the entry of a key, if there is one. If that opens a full
// group, entries that had probed past it move up, so that there are no
// tombstones to probe over. Pages never merge: the next keys use the space.
func (t *table[K, V]) remove(hash uint32, key *K) {
	if _, _, s := t.find(hash, key); s == nil {
		return
	}
	r, i := t.own(hash)
	p, g, s := t.find(hash, key)
	mask := p.mask()
	at := uint32(uintptr(unsafe.Pointer(g))-uintptr(unsafe.Pointer(p.groups))) / uint32(unsafe.Sizeof(*g))
	for j := at + 1; g.isFull() && j&mask != at&mask; j++ {
		h := p.group(j & mask)
		wasFull := h.isFull()
		for _, c := range h.entries() {
			x := uint64(t.traits.key.Hash(&c.key)) * spread
			if (j-start(x))&mask >= (j-at)&mask { // it began at or before the hole
				*s = *c
				g.setTag(g.indexOf(s), tagOf(x))
				g.copyPrivate(s, h, c)
				g, s, at = h, c, j
				break
			}
		}
		if !wasFull {
			break
		}
	}
	g.clear(s)
	for j := range r.aliases(i) {
		r.aliases(i)[j].used--
	}
	t.entries--
}

// freeze returns a view of the present content.
func (t *table[K, V]) freeze() view {
	return t.freezeTable()
}

func (t *table[K, V]) freezeTable() *frozenTable[K, V] {
	invariant.Check(t.generation < math.MaxUint32, "generation", "%d freezes of one table", t.generation)
	// What is spare still was not needed for a whole generation, and what views
	// of several generations refer to is not kept for when they are released.
	t.spare = nil
	if t.live.Load() == 0 {
		t.spare = t.retired
	}
	t.retired = nil
	f := &frozenTable[K, V]{roots: t.roots, traits: t.traits, live: t.live, entries: t.entries}
	if t.traits.clock != nil {
		f.now = t.traits.clock.Now
	}
	t.live.Add(1)
	t.generation++
	t.forgetSlot()
	return f
}

// touch reads the tags that find will read for each hash. The loads do not
// wait for each other, so that the memory of all of them is fetched in about
// the time of one.
func (t *table[K, V]) touch(hashes []uint32) {
	var sum byte
	for _, h := range hashes {
		x := uint64(h) * spread
		p := t.roots[x>>(64-rootBits)].at(x)
		g := p.group(start(x) & p.mask())
		sum += byte(g.tags) + g.last()
	}
	t.touched = sum
}
