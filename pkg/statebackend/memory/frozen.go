package memory

import (
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// view is a frozen table without its types.
type view interface {
	// sort finds and orders the entries; write needs it.
	sort(r keygroup.Range, maxParallelism int)
	// write writes the section of the i-th group of the range, if it has entries.
	write(w *statebackend.Writer, number, i int)
	// forget drops what sort has made.
	forget()
	release()
}

// frozen is the frozen view of a State: statebackend.Frozen.
type frozen struct {
	options  statebackend.Options
	valueMax int
	metas    []snapshot.StateMeta
	views    []view
}

// WriteSnapshot implements statebackend.Frozen.
func (f *frozen) WriteSnapshot(w io.Writer) (offsets []int64, states []snapshot.StateMeta, err error) {
	defer func() {
		for _, v := range f.views {
			v.forget()
		}
		if err != nil {
			offsets, states, err = nil, nil, fmt.Errorf("operator %q: %w", f.options.Operator, err)
		}
	}()
	defer codec.Recover(&err)
	for _, v := range f.views {
		v.sort(f.options.Range, f.options.MaxParallelism)
	}
	out := statebackend.NewLimitedWriter(w, f.valueMax)
	for i := range f.options.Range.Len() {
		out.Group()
		for number, v := range f.views {
			v.write(out, number, i)
		}
		if out.Err() != nil {
			break
		}
	}
	offsets, err = out.Finish()
	return offsets, f.metas, err
}

// Release implements statebackend.Frozen.
func (f *frozen) Release() {
	for _, v := range f.views {
		v.release()
	}
	f.views = nil
}

// frozenTable is the content of a table when it was frozen. While it is
// alive, nobody changes what it refers to.
type frozenTable[K comparable, V any] struct {
	roots   [rootCount]root[K, V]
	traits  traits[K, V]
	live    *atomic.Int32
	entries int64
	now     int64 // of states whose values expire: when the table was frozen

	// Set by sort, for write.
	pages  []page[K, V]
	refs   []ref // by group, and within a group in the order of the keys' bytes
	groups []int // refs of the i-th group are groups[i] to groups[i+1]
	key    []byte
	value  []byte
	pace   pace
	// touched keeps the loads of touch from being optimised away.
	touched uint64
}

// forget implements view.
func (f *frozenTable[K, V]) forget() {
	f.pages, f.refs, f.groups = nil, nil, nil
}

// release implements view.
func (f *frozenTable[K, V]) release() {
	f.live.Add(-1)
	f.roots = [rootCount]root[K, V]{}
}

// sort implements view.
func (f *frozenTable[K, V]) sort(r keygroup.Range, maxParallelism int) {
	f.pages = f.pages[:0]
	f.groups = make([]int, r.Len()+1)
	for i := range f.roots {
		root := &f.roots[i]
		for j := 0; j < 1<<root.depth; {
			p := *root.entry(j)
			if p.used > 0 {
				f.pages = append(f.pages, p)
			}
			j += 1 << (root.depth - p.depth)
		}
	}
	// One pass over the entries gives rank and key group of each; then a
	// counting sort by group, and an order within each group.
	expiring := f.traits.form != nil && f.traits.form.CanExpire()
	o := orderOf(f.traits.key.FixedSize())
	found := make([]ref, 0, f.entries)
	for i := range f.pages {
		f.pace.did(int(f.pages[i].used))
		for j := range f.pages[i].all() {
			for n, s := range f.pages[i].group(uint32(j)).entries() {
				if expiring && f.traits.form.IsExpired(&s.value, f.now) {
					continue
				}
				f.key = f.traits.key.Append(f.key[:0], &s.key)
				g := keygroup.OfHash(f.traits.key.Hash(&s.key), maxParallelism) - r.First
				f.groups[g+1]++
				found = append(found, ref{rank: o.rank(f.key, 0), page: uint32(i), slot: uint16(j<<3 | n), group: g})
			}
		}
	}
	for i := range r.Len() {
		f.groups[i+1] += f.groups[i]
	}
	f.refs = make([]ref, len(found))
	next := append([]int(nil), f.groups...)
	for i := range found {
		at := &next[found[i].group]
		f.refs[*at] = found[i]
		*at++
	}
	o.scratch = found[:longest(f.groups)] // no longer needed
	for i := range r.Len() {
		f.pace.did(f.groups[i+1] - f.groups[i])
		o.sort(f.refs[f.groups[i]:f.groups[i+1]], 0, func(r ref) []byte {
			f.key = f.traits.key.Append(f.key[:0], &f.slot(r).key)
			return f.key
		})
	}
}

func longest(starts []int) int {
	n := 0
	for i := range starts[1:] {
		n = max(n, starts[i+1]-starts[i])
	}
	return n
}

func (f *frozenTable[K, V]) slot(r ref) *slot[K, V] {
	return f.pages[r.page].group(uint32(r.slot >> 3)).slot(int(r.slot & 7))
}

// write implements view.
func (f *frozenTable[K, V]) write(w *statebackend.Writer, number, i int) {
	refs := f.refs[f.groups[i]:f.groups[i+1]]
	if len(refs) == 0 {
		return
	}
	w.State(number, len(refs))
	for chunk := range slices.Chunk(refs, writeAhead) {
		f.touch(chunk)
		f.pace.did(len(chunk))
		for _, r := range chunk {
			s := f.slot(r)
			f.key = f.traits.key.Append(f.key[:0], &s.key)
			f.value = statebackend.AppendStored(f.value[:0], f.traits.form, 0, &s.value, f.now)
			w.Entry(f.key, f.value)
		}
	}
}

// writeAhead is how many entries are fetched from memory together: in the
// order of the keys their pages are all over it. More than the loads that a
// processor keeps in flight gain nothing.
const writeAhead = 16

// touch reads something near each entry, without waiting in between.
func (f *frozenTable[K, V]) touch(refs []ref) {
	var sum uint64
	for _, r := range refs {
		sum += f.pages[r.page].group(uint32(r.slot >> 3)).tags
	}
	f.touched = sum
}
