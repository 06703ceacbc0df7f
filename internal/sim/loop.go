package sim

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// loop is the clock, the only source of order and the only source of chance.
type loop struct {
	now    time.Duration
	random *rand.Rand
	queue  items
	trace  *trace
	events int
}

// item is something that will happen.
type item struct {
	at    time.Duration
	tie   uint64
	label string
	run   func()
}

type items []item

func (q items) Len() int { return len(q) }
func (q items) Less(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	return q[i].tie < q[j].tie
}
func (q items) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *items) Push(x any)   { *q = append(*q, x.(item)) }
func (q *items) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	(*q)[last] = item{}
	*q = (*q)[:last]
	return x
}

// at schedules an item; those of one moment run in a seeded order.
func (l *loop) at(when time.Duration, label string, run func()) {
	heap.Push(&l.queue, item{at: max(when, l.now), tie: l.random.Uint64(), label: label, run: run})
}

func (l *loop) after(delay time.Duration, label string, run func()) { l.at(l.now+delay, label, run) }

// next runs the next item; false when there is none or it is later than limit.
func (l *loop) next(limit time.Duration) bool {
	if len(l.queue) == 0 || l.queue[0].at > limit {
		return false
	}
	x := heap.Pop(&l.queue).(item)
	l.now = x.at
	l.events++
	l.trace.item(x.at, x.label)
	x.run()
	return true
}

// epoch is the wall clock at virtual time 0.
var epoch = time.Unix(1_700_000_000, 0).UTC()

// wall is the clock that processes read.
func (l *loop) wall() time.Time { return epoch.Add(l.now) }

// between draws a duration, evenly.
func (l *loop) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(l.random.Int64N(int64(high-low)))
}

// chance is true with probability p.
func (l *loop) chance(p float64) bool { return p > 0 && l.random.Float64() < p }

// inTurn is the last delivery on something that never reorders.
type inTurn struct{ last time.Duration }

// next gives the time of the next delivery: never before or at the last one.
func (f *inTurn) next(at time.Duration) time.Duration {
	f.last = max(at, f.last+1)
	return f.last
}
