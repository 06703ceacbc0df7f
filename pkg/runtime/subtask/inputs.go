package subtask

import (
	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/runtime/align"
	"github.com/weirstream/weir/pkg/snapshot"
)

// inputs holds the frames that have arrived, by channel, and picks the next
// one: channels take turns by frame. A channel's queue is bounded by the
// credit that was granted for it, plus the control elements of the
// checkpoints under way.
type inputs struct {
	channels []inputChannel
	// ready are the channels that have frames and are not blocked, in turn.
	ready ring
	// ended counts the channels that delivered EndOfData, forward those that are
	// no feedback: when all of these have, the input has ended.
	ended, forward int
	// restored is how many frames of the restored checkpoint are left on the forward
	// channels, restoredLog on those that are feedback. The others of their kind
	// deliver nothing before: what a producer sends now may be behind what another
	// one sent then, with the same key.
	restored, restoredLog int
	// window is what the window of every channel is to become, at most windowMax.
	window, windowMax int64
}

type inputChannel struct {
	// edge is the place of the channel's edge among the vertex's inputs.
	edge int
	kind align.ChannelKind
	// of names the channel in snapshots.
	of snapshot.ChannelPart
	// restored is how many of the first frames are from the restored checkpoint:
	// nobody gave credit for them. toRestore waits for the restore to end.
	restored  int
	toRestore []element.Frame
	queue     frameQueue
	offset    int // how much of the first frame has been consumed
	blocked   bool
	queued    bool // in ready
	ended     bool // delivered EndOfData
	// window is the credit that the producer has in all, used or not.
	window int64
	// consumed is credit not yet given back. It goes back in quarters of the
	// window, so that small frames do not cost a message each.
	consumed int64
}

// Bounds of a channel's window besides what is configured. It starts small, so
// that little is in front of a subtask that turns out to be slow; a fast one
// has more after a tenth of a second. It shrinks to so little that a record a
// millisecond makes a barrier wait for a tenth of a second or so. A record that
// is larger goes by itself: credit may be overdrawn by one batch.
const (
	windowBytesFirst = 16 << 10
	windowBytesMin   = 1 << 10
)

func (in *inputs) init(g *graph.ExecutionGraph, v *graph.Vertex, consumer int32, channels []graph.InputChannel, overtakable []bool, creditMax int64) {
	in.channels = make([]inputChannel, len(channels))
	in.windowMax = creditMax
	in.window = min(windowBytesFirst, creditMax)
	in.ready.init(len(channels))
	for i, c := range channels {
		x := &in.channels[i]
		for n, e := range v.Inputs {
			if e == c.Edge {
				x.edge = n
			}
		}
		x.window = in.window
		x.of = snapshot.ChannelPart{Edge: c.Edge, Producer: c.From.Index, Consumer: consumer}
		switch {
		case c.Feedback:
			x.kind = align.Feedback
			x.window = creditMax
		case overtakable[c.Edge]:
			x.kind = align.Overtakable
			in.forward++
		default:
			x.kind = align.InOrder
			in.forward++
		}
	}
}

// kinds are those of the channels, for the aligner.
func (in *inputs) kinds() []align.ChannelKind {
	kinds := make([]align.ChannelKind, len(in.channels))
	for i := range in.channels {
		kinds[i] = in.channels[i].kind
	}
	return kinds
}

// consume notes that bytes of a channel were processed, and returns how much
// credit its producer is to be given now, if any. This is where the window
// comes to its new size: what a shrinking one has too much is not given back.
func (in *inputs) consume(c *inputChannel, bytes int64) int64 {
	c.consumed += bytes
	if c.consumed <= c.window/4 {
		return 0
	}
	grow := in.window - c.window
	grant := c.consumed + grow
	if grant < 0 {
		grow, grant = -c.consumed, 0
	}
	c.window += grow
	c.consumed = 0
	return grant
}

func (in *inputs) push(ch int, f element.Frame) {
	c := &in.channels[ch]
	if c.queue.coalesce(f) {
		return
	}
	c.queue.push(f)
	in.offer(ch, c)
}

// offer puts the channel in line if it can deliver.
func (in *inputs) offer(ch int, c *inputChannel) {
	if !c.queued && !c.blocked && c.queue.len() > 0 {
		c.queued = true
		in.ready.push(ch)
	}
}

// next is the channel whose turn it is. With loopOnly, records of forward
// channels are passed over, but for restored ones.
func (in *inputs) next(loopOnly bool) (int, *inputChannel, bool) {
	passed := 0
	for in.ready.len() > passed {
		ch := in.ready.first()
		c := &in.channels[ch]
		if !c.blocked && c.queue.len() > 0 {
			if in.isTurnOf(c, loopOnly) {
				return ch, c, true
			}
			in.ready.pop()
			in.ready.push(ch)
			passed++
			continue
		}
		in.ready.pop()
		c.queued = false
	}
	return 0, nil, false
}

// isTurnOf reports whether a channel that could deliver may. One with restored
// frames always can: no barrier comes before them, so it is not blocked.
func (in *inputs) isTurnOf(c *inputChannel, loopOnly bool) bool {
	switch {
	case c.restored > 0:
		return true
	case c.kind == align.Feedback:
		return in.restoredLog == 0
	}
	return in.restored == 0 && (!loopOnly || c.queue.first().Kind != element.Records)
}

// tookRestored notes that a restored frame of a channel was processed, and reports
// whether it was the last of the forward channels.
func (in *inputs) tookRestored(c *inputChannel) (last bool) {
	c.restored--
	if c.kind == align.Feedback {
		in.restoredLog--
		return false
	}
	in.restored--
	return in.restored == 0
}

// blocksFeedback reports whether an alignment holds a feedback channel back.
func (in *inputs) blocksFeedback() bool {
	for ch := range in.channels {
		if c := &in.channels[ch]; c.blocked && c.kind == align.Feedback {
			return true
		}
	}
	return false
}

// turn ends the turn of the channel that next returned.
func (in *inputs) turn(ch int, c *inputChannel) {
	in.ready.pop()
	c.queued = false
	in.offer(ch, c)
}

func (in *inputs) block(ch int) {
	c := &in.channels[ch]
	invariant.Check(!c.blocked, "I5", "channel %d was blocked twice", ch)
	c.blocked = true
}

// isHeldBack reports whether an alignment blocks a channel, or input waits.
func (in *inputs) isHeldBack() bool {
	for ch := range in.channels {
		if c := &in.channels[ch]; c.blocked || c.queue.len() > 0 {
			return true
		}
	}
	return false
}

// release unblocks the channels that the aligner does not block any more.
func (in *inputs) release(isBlocked func(ch int) bool) {
	for ch := range in.channels {
		c := &in.channels[ch]
		if c.blocked && !isBlocked(ch) {
			c.blocked = false
			in.offer(ch, c)
		}
	}
}

func (in *inputs) drop() {
	for ch := range in.channels {
		c := &in.channels[ch]
		for c.queue.len() > 0 {
			f := c.queue.pop()
			f.Free()
		}
		c.queued = false
		c.restored, c.toRestore = 0, nil
	}
	in.restored, in.restoredLog = 0, 0
	in.ready.clear()
}

// frameQueue is a FIFO of frames that reuses its memory.
type frameQueue struct {
	frames []element.Frame
	head   int
}

func (q *frameQueue) len() int              { return len(q.frames) - q.head }
func (q *frameQueue) first() *element.Frame { return q.at(0) }

// at is the frame with i frames in front of it.
func (q *frameQueue) at(i int) *element.Frame { return &q.frames[q.head+i] }

func (q *frameQueue) push(f element.Frame) {
	if q.head > 0 && len(q.frames) == cap(q.frames) {
		n := copy(q.frames, q.frames[q.head:])
		clear(q.frames[n:])
		q.frames, q.head = q.frames[:n], 0
	}
	q.frames = append(q.frames, f)
}

// coalesce lets a higher watermark take the place of the one that waits right in
// front of it. They need no credit: while the subtask does not get to its
// inputs, they would pile up.
func (q *frameQueue) coalesce(f element.Frame) bool {
	if f.Kind != element.WatermarkKind || q.len() == 0 {
		return false
	}
	last := &q.frames[len(q.frames)-1]
	if last.Kind != element.WatermarkKind {
		return false
	}
	// A restored one may be higher than the first that its producer sends again.
	last.Watermark = max(last.Watermark, f.Watermark)
	return true
}

func (q *frameQueue) pop() element.Frame {
	f := q.frames[q.head]
	q.frames[q.head] = element.Frame{}
	q.head++
	if q.head == len(q.frames) {
		q.frames, q.head = q.frames[:0], 0
	}
	return f
}

// ring is a FIFO of at most as many numbers as there are channels: each is in
// it once at most.
type ring struct {
	items []int
	head  int
	n     int
}

func (r *ring) init(size int) { r.items = make([]int, size) }
func (r *ring) len() int      { return r.n }
func (r *ring) first() int    { return r.items[r.head] }
func (r *ring) clear()        { r.head, r.n = 0, 0 }

func (r *ring) push(ch int) {
	i := r.head + r.n
	if i >= len(r.items) {
		i -= len(r.items)
	}
	r.items[i] = ch
	r.n++
}

func (r *ring) pop() {
	r.head++
	if r.head == len(r.items) {
		r.head = 0
	}
	r.n--
}
