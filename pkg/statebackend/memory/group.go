package memory

import (
	"iter"
	"math/bits"
	"unsafe"
)

// groupSlots is how many slots share a word of tags: seven, so that the
// word's eighth byte can say which of their values are private.
const groupSlots = 7

const (
	tagOnes  = 0x0001010101010101 // 1 in every tag
	tagHighs = 0x0080808080808080 // the bit of every tag that says the slot is taken
)

// group is what one probe looks at: about two cache lines for a small key and
// value. Comparing seven tags at once needs no branch that depends on where in
// the group the key is, so that the processor goes on to the next record while
// this one's memory is on its way; a loop over slots does not allow that.
type group[K comparable, V any] struct {
	// tags has, from the lowest byte, a tag per slot (0 if free), and in the
	// highest byte a bit per slot: its value is shared with no view. The bits
	// mean something only if values are not flat.
	tags  uint64
	slots [groupSlots]slot[K, V]
}

type slot[K comparable, V any] struct {
	key   K
	value V
}

// tagOf is the tag of the spread hash x: seven bits of it, and the taken bit.
func tagOf(x uint64) uint64 { return x>>32&0x7f | 0x80 }

// matches has the high bit set in the bytes of slots whose tag is probably
// the one that fills tags. A borrow may set one too many; the key decides.
func (g *group[K, V]) matches(tags uint64) uint64 {
	d := (g.tags ^ tags)
	return (d - tagOnes) &^ d & tagHighs
}

func (g *group[K, V]) isFull() bool { return g.tags&tagHighs == tagHighs }

func (g *group[K, V]) slot(i int) *slot[K, V] {
	return (*slot[K, V])(unsafe.Add(unsafe.Pointer(&g.slots), uintptr(i)*unsafe.Sizeof(g.slots[0])))
}

// last is a byte of the second cache line of a group. Reading it beside the
// tags fetches the line before the tags have said which slot it is.
func (g *group[K, V]) last() byte {
	return *(*byte)(unsafe.Add(unsafe.Pointer(g), min(unsafe.Sizeof(*g)-1, 127)))
}

// free is the first free slot of a group that is not full.
func (g *group[K, V]) free() int { return bits.TrailingZeros64(^g.tags&tagHighs) >> 3 }

func (g *group[K, V]) setTag(i int, tag uint64) {
	g.tags = g.tags&^(0xff<<(8*i)) | tag<<(8*i)
}

func (g *group[K, V]) indexOf(s *slot[K, V]) int {
	return int((uintptr(unsafe.Pointer(s)) - uintptr(unsafe.Pointer(&g.slots))) / unsafe.Sizeof(*s))
}

func (g *group[K, V]) privateBit(s *slot[K, V]) uint64 { return 1 << 56 << g.indexOf(s) }

func (g *group[K, V]) isPrivate(s *slot[K, V]) bool { return g.tags&g.privateBit(s) != 0 }
func (g *group[K, V]) setPrivate(s *slot[K, V])     { g.tags |= g.privateBit(s) }

// copyPrivate makes s as private as c of group h is.
func (g *group[K, V]) copyPrivate(s *slot[K, V], h *group[K, V], c *slot[K, V]) {
	g.tags &^= g.privateBit(s)
	if h.isPrivate(c) {
		g.setPrivate(s)
	}
}

// shareAll says that every value is shared with a view.
func (g *group[K, V]) shareAll() { g.tags = g.tags << 8 >> 8 }

// clear frees a slot, and drops what key and value point to.
func (g *group[K, V]) clear(s *slot[K, V]) {
	g.tags &^= g.privateBit(s)
	g.setTag(g.indexOf(s), 0)
	*s = slot[K, V]{}
}

// entries are the slots of the group that are taken.
func (g *group[K, V]) entries() iter.Seq2[int, *slot[K, V]] {
	return func(yield func(int, *slot[K, V]) bool) {
		for m := g.tags & tagHighs; m != 0; m &= m - 1 {
			i := bits.TrailingZeros64(m) >> 3
			if !yield(i, g.slot(i)) {
				return
			}
		}
	}
}

// entries are the slots of the page that are taken, each with its group.
func (p *page[K, V]) entries() iter.Seq2[*group[K, V], *slot[K, V]] {
	return func(yield func(*group[K, V], *slot[K, V]) bool) {
		for i := range p.all() {
			g := p.group(uint32(i))
			for _, s := range g.entries() {
				if !yield(g, s) {
					return
				}
			}
		}
	}
}
