package memory

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/weirstream/weir/pkg/keygroup"
)

// ref stands for an entry while a snapshot is put in order: without pointers,
// because there are millions of them.
type ref struct {
	rank  uint64         // orders by the part of the key's bytes looked at
	page  uint32         // index into the view's pages
	slot  uint16         // number of the group in the page times 8, plus the slot: fits, by log2Limit
	group keygroup.Group // counted from the first of the range
}

// order sorts refs by the bytes of their keys, a piece of up to 8 bytes at a
// time. Keys are different, so the order does not depend on where they start.
type order struct {
	fixed   bool // all keys are size bytes
	size    int
	scratch []ref // as long as the longest run sorted
}

func orderOf(fixedSize int) *order { return &order{fixed: fixedSize >= 0, size: fixedSize} }

// step is how many bytes of a key one rank covers.
func (o *order) step() int {
	if o.fixed {
		return 8
	}
	return 7
}

// rank is the piece of key that begins at from, as a number in the same order.
// Where lengths differ the low byte says how much of the piece there is (8
// for more), so that a key ranks below those it is the beginning of.
func (o *order) rank(key []byte, from int) uint64 {
	var piece [8]byte
	rest := key[min(from, len(key)):]
	if len(rest) >= 8 {
		copy(piece[:], rest[:8])
	} else {
		copy(piece[:], rest)
	}
	if !o.fixed {
		piece[7] = byte(min(len(rest), 8))
	}
	return binary.BigEndian.Uint64(piece[:])
}

// sort orders refs whose keys are equal up to from, by their ranks and then,
// where those are equal, by the next pieces.
func (o *order) sort(refs []ref, from int, key func(ref) []byte) {
	o.byRank(refs)
	if o.fixed && from+8 >= o.size {
		return
	}
	for start := 0; start < len(refs); {
		end := start + 1
		for end < len(refs) && refs[end].rank == refs[start].rank {
			end++
		}
		if run := refs[start:end]; len(run) > 1 {
			for i := range run {
				run[i].rank = o.rank(key(run[i]), from+o.step())
			}
			o.sort(run, from+o.step(), key)
		}
		start = end
	}
}

// radixMin is the length from which counting sorts beat comparisons.
const radixMin = 256

// byRank sorts by rank: long runs by counting bytes from the lowest, leaving
// out the bytes that are the same everywhere.
func (o *order) byRank(refs []ref) {
	if len(refs) < radixMin {
		slices.SortFunc(refs, func(a, b ref) int { return cmp.Compare(a.rank, b.rank) })
		return
	}
	var differ uint64
	for i := range refs {
		differ |= refs[i].rank ^ refs[0].rank
	}
	from, to := refs, o.scratch[:len(refs)]
	for shift := 0; shift < 64; shift += 8 {
		if differ>>shift&0xff == 0 {
			continue
		}
		var starts [256]int
		for i := range from {
			starts[from[i].rank>>shift&0xff]++
		}
		sum := 0
		for i, n := range starts {
			starts[i] = sum
			sum += n
		}
		for i := range from {
			at := &starts[from[i].rank>>shift&0xff]
			to[*at] = from[i]
			*at++
		}
		from, to = to, from
	}
	if &from[0] != &refs[0] {
		copy(refs, from)
	}
}
