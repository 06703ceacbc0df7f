package timer

import (
	"container/heap"
	"slices"
	"strings"

	"github.com/weirstream/weir/pkg/keygroup"
)

// Queue holds timers of one kind of time. It belongs to one goroutine; only
// what Freeze returns may be used by another.
type Queue[K comparable] struct {
	encoding       *keygroup.Encoding[K]
	groups         keygroup.Range
	maxParallelism int
	// byGroup has the heap of each group of the range.
	byGroup []*group[K]
	// order is the heap of the groups that have timers, by their first one.
	order groupHeap[K]
	// timers finds what was registered. It is bounded by what the job
	// registers and has not fired, like its states.
	timers map[id[K]]*entry[K]
	// generation counts the freezes: groups of an older one are shared with a
	// frozen view.
	generation uint64
	k          K // what the encoding is given, here so that it does not escape
}

type id[K comparable] struct {
	key  K
	time int64
}

// entry is a timer. Frozen views share it: only pos changes, which they do not read.
type entry[K comparable] struct {
	id[K]
	bytes string // the key's encoding, which orders
	pos   int    // in the heap of its group
}

func (e *entry[K]) compare(o *entry[K]) int {
	switch {
	case e.time < o.time:
		return -1
	case e.time > o.time:
		return 1
	}
	return strings.Compare(e.bytes, o.bytes)
}

type group[K comparable] struct {
	entries    []*entry[K]
	generation uint64
	pos        int // in the heap of groups, -1 if it has no timers
}

// NewQueue makes the empty queue for keys of the groups in range.
func NewQueue[K comparable](encoding *keygroup.Encoding[K], groups keygroup.Range, maxParallelism int) *Queue[K] {
	q := &Queue[K]{
		encoding: encoding, groups: groups, maxParallelism: maxParallelism,
		byGroup: make([]*group[K], groups.Len()), timers: map[id[K]]*entry[K]{},
	}
	for i := range q.byGroup {
		q.byGroup[i] = &group[K]{pos: -1}
	}
	return q
}

// Len is the number of timers.
func (q *Queue[K]) Len() int { return len(q.timers) }

// groupOf is the group of a key, for writing: apart from frozen views.
func (q *Queue[K]) groupOf(key K) *group[K] {
	q.k = key
	g := q.byGroup[int(keygroup.OfHash(q.encoding.Hash(&q.k), q.maxParallelism))-int(q.groups.First)]
	if g.generation != q.generation {
		g.entries = slices.Clone(g.entries)
		g.generation = q.generation
	}
	return g
}

// Register adds the timer of a key, which the subtask must own, at a time. It
// says false if it was there already.
func (q *Queue[K]) Register(key K, time int64) bool {
	of := id[K]{key, time}
	if _, ok := q.timers[of]; ok {
		return false
	}
	q.k = key
	e := &entry[K]{id: of, bytes: string(q.encoding.Append(nil, &q.k))}
	q.timers[of] = e
	g := q.groupOf(key)
	heap.Push(g, e)
	q.reorder(g)
	return true
}

// Delete removes a timer. It says false if there is none.
func (q *Queue[K]) Delete(key K, time int64) bool {
	e, ok := q.timers[id[K]{key, time}]
	if !ok {
		return false
	}
	delete(q.timers, e.id)
	g := q.groupOf(key)
	heap.Remove(g, e.pos)
	q.reorder(g)
	return true
}

// Next is the time of the first timer, if there is one.
func (q *Queue[K]) Next() (time int64, ok bool) {
	if len(q.order) == 0 {
		return 0, false
	}
	return q.order[0].entries[0].time, true
}

// PopDue removes and returns the first timer, if its time is until or before.
func (q *Queue[K]) PopDue(until int64) (key K, time int64, ok bool) {
	if next, has := q.Next(); !has || next > until {
		return key, 0, false
	}
	e := q.order[0].entries[0]
	q.Delete(e.key, e.time)
	return e.key, e.time, true
}

// reorder puts a group in its place after its first timer may have changed.
func (q *Queue[K]) reorder(g *group[K]) {
	switch {
	case len(g.entries) == 0 && g.pos >= 0:
		heap.Remove(&q.order, g.pos)
	case len(g.entries) > 0 && g.pos < 0:
		heap.Push(&q.order, g)
	case g.pos >= 0:
		heap.Fix(&q.order, g.pos)
	}
}

// Len implements heap.Interface.
func (g *group[K]) Len() int { return len(g.entries) }

// Less implements heap.Interface.
func (g *group[K]) Less(i, j int) bool { return g.entries[i].compare(g.entries[j]) < 0 }

// Swap implements heap.Interface.
func (g *group[K]) Swap(i, j int) {
	g.entries[i], g.entries[j] = g.entries[j], g.entries[i]
	g.entries[i].pos, g.entries[j].pos = i, j
}

// Push implements heap.Interface.
func (g *group[K]) Push(x any) {
	e := x.(*entry[K])
	e.pos = len(g.entries)
	g.entries = append(g.entries, e)
}

// Pop implements heap.Interface.
func (g *group[K]) Pop() any {
	last := len(g.entries) - 1
	e := g.entries[last]
	g.entries[last] = nil
	g.entries = g.entries[:last]
	return e
}

type groupHeap[K comparable] []*group[K]

// Len implements heap.Interface.
func (h groupHeap[K]) Len() int { return len(h) }

// Less implements heap.Interface.
func (h groupHeap[K]) Less(i, j int) bool { return h[i].entries[0].compare(h[j].entries[0]) < 0 }

// Swap implements heap.Interface.
func (h groupHeap[K]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

// Push implements heap.Interface.
func (h *groupHeap[K]) Push(x any) {
	g := x.(*group[K])
	g.pos = len(*h)
	*h = append(*h, g)
}

// Pop implements heap.Interface.
func (h *groupHeap[K]) Pop() any {
	last := len(*h) - 1
	g := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	g.pos = -1
	return g
}
