package sim

import (
	"slices"
	"time"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/runtime/subtask"
)

// link is one data channel: frames in order one way, credit in order the other.
// It belongs to an attempt, so that subtasks of two attempts never meet.
type link struct {
	c        *cluster
	key      linkKey
	from, to *host
	channel  int            // at the consumer
	output   subtask.Output // at the producer
	forth    inTurn
	back     inTurn
	// window is the credit that the producer has been given and not used.
	window int64
	// frames and credit wait for an end that has not been deployed yet.
	frames []element.Frame
	credit int64
	broken bool
	// stalledUntil: nothing is delivered before.
	stalledUntil time.Duration
}

type linkKey struct {
	job      ids.JobID
	attempt  ids.AttemptID
	edge     int
	from, to ids.SubtaskID
}

// attach connects a subtask to its channels.
func (c *cluster) attach(h *host) {
	g := &h.x.job.graph
	vertex := &g.Vertices[h.id.Vertex]
	get := func(edge int, from, to ids.SubtaskID) *link {
		key := linkKey{job: h.x.job.id, attempt: h.x.id.Attempt, edge: edge, from: from, to: to}
		l := c.links[key]
		if l == nil {
			l = &link{c: c, key: key}
			c.links[key] = l
			c.linkOrder = append(c.linkOrder, l)
		}
		return l
	}
	for n, channels := range g.OutputChannels(h.id.Vertex, h.id.Index) {
		var out []*link
		for ch, to := range channels {
			l := get(vertex.Outputs[n], h.id, to.To)
			l.from, l.output, l.channel = h, subtask.Output{Edge: n, Channel: ch}, to.ToChannel
			if l.credit > 0 {
				l.deliverCredit(l.credit)
				l.credit = 0
			}
			out = append(out, l)
		}
		h.out = append(h.out, out)
	}
	for ch, in := range g.InputChannels(h.id.Vertex, h.id.Index) {
		l := get(in.Edge, in.From, h.id)
		l.to, l.channel = h, ch
		for _, f := range l.frames {
			l.deliver(f)
		}
		l.frames = nil
		h.in = append(h.in, l)
	}
	h.alignment = newAlignmentCheck(h.kinds)
}

func (l *link) delay() time.Duration {
	return max(l.c.now, l.stalledUntil) + l.c.between(0, l.c.options.LinkMax)
}

func (l *link) send(f element.Frame) {
	if f.Kind == element.BarrierKind && f.Barrier.Stop && !l.from.aborted[f.Barrier.Checkpoint] {
		l.from.stoppedFor = f.Barrier.Checkpoint
	}
	if f.Kind == element.Records {
		// One frame may overdraw the credit, which must not be used up before.
		if l.window <= 0 {
			l.c.fail("credit", "%s sends %s to %s without credit", l.from.name, f, l.key.to)
		}
		l.window -= int64(len(f.Data))
	}
	if l.broken {
		return
	}
	if l.to == nil {
		// The consumer subscribes when it is deployed. Records wait for its
		// credit, so these are control elements.
		l.frames = append(l.frames, f)
		return
	}
	l.deliver(f)
}

func (l *link) deliver(f element.Frame) {
	if f.Kind == element.Records && l.c.strikes(LosesFrames) {
		return
	}
	at := l.delay()
	if f.Kind != element.BarrierKind || l.c.plant != ReordersBarriers {
		at = l.forth.next(at)
	}
	l.c.at(at, "frame", func() {
		l.to.x.do(func() {
			if l.broken || l.to.ended {
				return
			}
			l.to.alignment.received(l.channel, f)
			l.to.s.Receive(l.channel, f)
			l.to.wake()
		})
	})
}

func (l *link) grant(bytes int64) {
	switch {
	case l.broken:
	case l.from == nil:
		l.credit += bytes
	default:
		l.deliverCredit(bytes)
	}
}

func (l *link) deliverCredit(bytes int64) {
	l.c.at(l.back.next(l.delay()), "credit", func() {
		l.from.x.do(func() {
			if l.broken || l.from.ended {
				return
			}
			l.window += bytes
			l.from.s.AddCredit(l.output, bytes)
			l.from.wake()
		})
	})
}

// breakAfter breaks the channel; the consumer notices within that time.
func (l *link) breakAfter(notice time.Duration) {
	if l.broken {
		return
	}
	l.broken = true
	if to := l.to; to != nil {
		to.x.after(l.c.between(0, notice), "channel lost", to.peerLost)
	}
}

// detach breaks the channels of a subtask whose process has ended, and
// forgets those that have no living end any more.
func (h *host) detach() {
	for _, l := range h.in {
		l.broken = true
	}
	for _, edge := range h.out {
		for _, l := range edge {
			l.breakAfter(exitNotice)
		}
	}
	h.x.c.linkOrder = slices.DeleteFunc(h.x.c.linkOrder, func(l *link) bool { return l.broken && (l.from == h || l.to == h) })
}
