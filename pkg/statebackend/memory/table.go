package memory

import (
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/statebackend"
)

// table maps keys to values in pages of a few KiB.
//
// A key's 32-bit hash is spread over 64 bits by one multiplication (hashes of
// one subtask share residues modulo max parallelism, so their own low bits are
// not uniform). The top byte selects a root, the next bits an entry of the
// root's directory, others the first slot in the page, from where probing is
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
// Rejected: the generation and the count in a page header (one more cache
// line per access), a separate array of hash bits as in Go's map (two lines
// instead of one), one directory for all (its doubling and its first write
// after a freeze are proportional to the table).
//
// Pointers into directories and pages are computed with unsafe.Add: the
// indexes are masked, and the bounds checks cost a tenth of an access.
type table[K comparable, V any] struct {
	roots      [rootCount]root[K, V]
	generation uint32
	log2Max    uint8 // page size that splits rather than doubles
	deep       bool  // values are not flat: private ones carry the stamp
	descriptor statebackend.Descriptor[K, V]
	entries    int64
	bytes      int64
	// live counts the views not yet released. Only this is shared with other
	// goroutines, and it is read only when a generation differs.
	live *atomic.Int32
}

const (
	rootCount = 256
	rootBits  = 8
	// log2Min is the size of a new page: states of few keys stay small.
	log2Min = 3
	// log2Limit bounds pages that splitting cannot help because their keys
	// share hash bits beyond depthLimit.
	log2Limit = 15
	// depthLimit bounds a directory to 1 MiB, for keys chosen to collide. 256
	// roots of 2^16 full pages are 1.6 billion small entries.
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

// page is a directory entry: everything about a page but its slots. 1<<(root
// depth - depth) adjacent entries are equal and mean the same page.
type page[K comparable, V any] struct {
	slots      *slot[K, V] // the first of 1<<log2
	generation uint32
	used       uint16
	log2       uint8
	depth      uint8
}

// slot holds an entry. Keeping hash, key and value together makes an access
// one cache line; the hash spares comparing strings and hashing on a split.
type slot[K comparable, V any] struct {
	stamp uint32 // 0: free, else the generation in which value became private
	hash  uint32
	key   K
	value V
}

func newTable[K comparable, V any](d statebackend.Descriptor[K, V]) *table[K, V] {
	t := &table[K, V]{generation: 1, deep: !d.Codec.Flat(), descriptor: d, live: new(atomic.Int32)}
	t.log2Max = log2Min
	for t.log2Max < 7 && unsafe.Sizeof(slot[K, V]{})<<(t.log2Max+1) <= pageBytesMax {
		t.log2Max++
	}
	empty := &page[K, V]{slots: &make([]slot[K, V], 1<<log2Min)[0], log2: log2Min}
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

func (p *page[K, V]) slot(i uint32) *slot[K, V] {
	return (*slot[K, V])(unsafe.Add(unsafe.Pointer(p.slots), uintptr(i)*unsafe.Sizeof(*p.slots)))
}

func (p *page[K, V]) all() []slot[K, V] { return unsafe.Slice(p.slots, 1<<p.log2) }

// isFull leaves an eighth of the slots free, so that probing ends soon.
func (p *page[K, V]) isFull() bool { return int(p.used) >= 7<<p.log2>>3 }

// start is where probing for the spread hash x begins, before masking. Its
// bits are apart from those that select root and page.
func start(x uint64) uint32 { return uint32(x >> 24) }

// find returns the page where the key belongs and its slot there, or nil.
func (t *table[K, V]) find(hash uint32, key *K) (*page[K, V], *slot[K, V]) {
	x := uint64(hash) * spread
	p := t.roots[x>>(64-rootBits)].at(x)
	mask := p.mask()
	for i := start(x); ; i++ {
		s := p.slot(i & mask)
		if s.hash == hash && s.stamp != 0 && s.key == *key {
			return p, s
		}
		if s.stamp == 0 {
			return p, nil
		}
	}
}

// private is find for a caller that changes the entry: page and value belong
// to the present generation. It returns nil if there is no entry.
func (t *table[K, V]) private(hash uint32, key *K) *slot[K, V] {
	p, s := t.find(hash, key)
	if s == nil {
		return nil
	}
	if p.generation != t.generation {
		t.own(hash)
		_, s = t.find(hash, key)
	}
	if t.deep && s.stamp != t.generation {
		t.ownValue(s)
	}
	return s
}

// ownValue makes the value of a slot in a private page private. Only deep
// values need it.
func (t *table[K, V]) ownValue(s *slot[K, V]) {
	if t.live.Load() > 0 {
		var c V
		t.descriptor.Codec.Clone(&c, &s.value)
		s.value = c
	}
	s.stamp = t.generation
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
		slots := p.slots
		if p.generation == 0 || t.live.Load() > 0 {
			c := make([]slot[K, V], 1<<p.log2)
			copy(c, p.all())
			slots = &c[0]
			if p.generation == 0 {
				t.bytes += int64(len(c)) * int64(unsafe.Sizeof(c[0]))
			}
		}
		for j := range r.aliases(i) {
			a := &r.aliases(i)[j]
			a.slots, a.generation = slots, t.generation
		}
	}
	return r, i
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
		s := p.free(hash)
		s.stamp, s.hash, s.key = t.generation, hash, t.descriptor.Key.Clone(key)
		for j := range r.aliases(i) {
			r.aliases(i)[j].used++
		}
		t.entries++
		return s, nil
	}
}

// free is the first free slot for a hash in a page that is not full.
func (p *page[K, V]) free(hash uint32) *slot[K, V] {
	mask := p.mask()
	for i := start(uint64(hash) * spread); ; i++ {
		if s := p.slot(i & mask); s.stamp == 0 {
			return s
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
	slots := make([]slot[K, V], 1<<log2)
	t.bytes += int64(len(slots)) * int64(unsafe.Sizeof(slots[0]))
	return page[K, V]{slots: &slots[0], generation: t.generation, log2: log2, depth: depth}
}

// move puts an entry into a page that does not have its key.
func (p *page[K, V]) move(s *slot[K, V]) {
	*p.free(s.hash) = *s
	p.used++
}

// forget takes the slots of a page that was replaced out of the count.
func (t *table[K, V]) forget(p page[K, V]) {
	t.bytes -= int64(unsafe.Sizeof(*p.slots)) << p.log2
}

func (t *table[K, V]) double(r *root[K, V], i int) {
	old := *r.entry(i)
	p := t.newPage(old.log2+1, old.depth)
	for j, s := range old.all() {
		if s.stamp != 0 {
			p.move(&old.all()[j])
		}
	}
	aliases := r.aliases(i)
	for j := range aliases {
		aliases[j] = p
	}
	t.forget(old)
}

// split distributes the entries of a page over two by the next bit of the
// spread hash. Both may be full still if all entries go to one of them; the
// caller tries again.
func (t *table[K, V]) split(r *root[K, V], i int) {
	old := *r.entry(i)
	if old.depth == r.depth {
		t.deepen(r)
		i *= 2
	}
	halves := [2]page[K, V]{t.newPage(old.log2, old.depth+1), t.newPage(old.log2, old.depth+1)}
	slots := old.all()
	for j := range slots {
		if s := &slots[j]; s.stamp != 0 {
			x := uint64(s.hash) * spread
			halves[x>>(63-rootBits-old.depth)&1].move(s)
		}
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

// remove deletes the entry of a key, if there is one. Later entries of its run
// move up, so that there are no tombstones to probe over. Pages never merge:
// the space is reused by the next keys.
func (t *table[K, V]) remove(hash uint32, key *K) {
	if _, s := t.find(hash, key); s == nil {
		return
	}
	r, i := t.own(hash)
	p, hole := t.find(hash, key)
	mask := p.mask()
	at := uint32(uintptr(unsafe.Pointer(hole))-uintptr(unsafe.Pointer(p.slots))) / uint32(unsafe.Sizeof(*hole))
	for j := at + 1; ; j++ {
		s := p.slot(j & mask)
		if s.stamp == 0 {
			break
		}
		home := start(uint64(s.hash) * spread)
		if (j-home)&mask >= (j-at)&mask { // its run began at or before the hole
			*hole, hole, at = *s, s, j
		}
	}
	*hole = slot[K, V]{}
	for j := range r.aliases(i) {
		r.aliases(i)[j].used--
	}
	t.entries--
}

// freeze returns a view of the present content.
func (t *table[K, V]) freeze() view {
	invariant.Check(t.generation < math.MaxUint32, "generation", "%d freezes of one table", t.generation)
	f := &frozenTable[K, V]{roots: t.roots, descriptor: t.descriptor, live: t.live, entries: t.entries}
	t.live.Add(1)
	t.generation++
	return f
}
