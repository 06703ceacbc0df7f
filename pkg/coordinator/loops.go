package coordinator

import (
	"slices"
	"time"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// loops is how far the loops of the attempt have come to their end.
//
// A loop is empty for good when nothing comes into it from elsewhere any more and
// a checkpoint finds nothing in it: no record in the log of any of its head's
// subtasks, none in flight anywhere, and in the snapshots of all its subtasks
// event time has ended, with the timers fired that were due then. (A barrier that
// overtakes may be in front of the last watermark.) What a loop's operators emit
// they emit for a record or a timer; so nothing comes into it again, and it may
// be told to end. Until that checkpoint, one follows the other.
type loops struct {
	// ended are the heads that were told, by vertex.
	ended map[ids.VertexID]bool
	// tries counts the checkpoints that looked, next is when the next one does.
	tries int
	next  time.Time
}

// The pauses between checkpoints that look whether a loop is empty: soon for
// short loops, and seldom enough for long ones. They do not replace the
// periodic ones.
const (
	loopCheckFirst = 20 * time.Millisecond
	loopCheckMax   = time.Second
)

// hasLoops reports whether the job has any.
func (c *Coordinator) hasLoops() bool {
	for v := range c.graph.Vertices {
		if c.graph.IsLoopHead(ids.VertexID(v)) {
			return true
		}
	}
	return false
}

// waitingLoops lists the heads whose inputs have ended and that have not been
// told to end.
func (c *Coordinator) waitingLoops() []ids.VertexID {
	if c.attempt.counts[RunningInputEnded] == 0 {
		return nil
	}
	var heads []ids.VertexID
	for v := range c.graph.Vertices {
		id := ids.VertexID(v)
		if !c.graph.IsLoopHead(id) || c.attempt.loops.ended[id] {
			continue
		}
		// Some may have been told before the checkpoint that was restored, and the
		// others not.
		all, waits := true, false
		for i := range c.graph.Vertices[v].Parallelism {
			status := c.attempt.status[c.layout.first[v]+i]
			all = all && (status == RunningInputEnded || status == RunningEndOfData)
			waits = waits || status == RunningInputEnded
		}
		if all && waits && c.nothingComesInto(id) {
			heads = append(heads, id)
		}
	}
	return heads
}

// nothingComesInto reports whether all has ended that the body of a loop gets
// from elsewhere than the loop.
func (c *Coordinator) nothingComesInto(head ids.VertexID) bool {
	loop := c.graph.Loop(head)
	for _, v := range loop {
		for _, e := range c.graph.Vertices[v].Inputs {
			from := c.graph.Edges[e].From
			if v == head || slices.Contains(loop, from) {
				continue
			}
			for i := range c.graph.Vertices[from].Parallelism {
				if c.attempt.status[c.layout.first[from]+i] != RunningEndOfData {
					return false
				}
			}
		}
	}
	return true
}

// wantsLoopCheck reports whether a checkpoint is due that looks whether a loop
// is empty. Only a checkpoint that is under way is waited for.
func (c *Coordinator) wantsLoopCheck() bool {
	if c.phase != phaseRun || len(c.pending) > 0 || len(c.waiting) > 0 || c.attempt.awaited != 0 || c.attempt.finishing ||
		c.record.desired.StopSavepoint {
		return false
	}
	return len(c.waitingLoops()) > 0
}

// loopCheckDue is when it is.
func (c *Coordinator) loopCheckDue(now time.Time) time.Time {
	l := &c.attempt.loops
	if l.next.IsZero() {
		l.next = now.Add(loopCheckFirst)
	}
	return l.next
}

// checkLoops triggers that checkpoint.
func (c *Coordinator) checkLoops(now time.Time) {
	l := &c.attempt.loops
	if !c.wantsLoopCheck() || now.Before(c.loopCheckDue(now)) || c.trigger(now, snapshot.Checkpoint, savepointRequest{}) == nil {
		return
	}
	l.tries++
	l.next = now.Add(min(loopCheckFirst<<min(l.tries, 10), loopCheckMax))
}

// emptyLoops are the heads that a checkpoint has found empty.
func (c *Coordinator) emptyLoops(p *pendingCheckpoint) []ids.VertexID {
	for _, ack := range p.acks {
		if len(ack.InFlight) > 0 {
			return nil
		}
	}
	var heads []ids.VertexID
	for v := range c.graph.Vertices {
		if !c.graph.IsLoopHead(ids.VertexID(v)) {
			continue
		}
		empty := true
		for _, member := range c.graph.Loop(ids.VertexID(v)) {
			for i := range c.graph.Vertices[member].Parallelism {
				ack := p.acks[c.layout.first[member]+i]
				empty = empty && (ack.LoopIsEmpty || ack.EndOfData)
			}
		}
		if empty {
			heads = append(heads, ids.VertexID(v))
		}
	}
	return heads
}

// endEmptyLoops tells the heads that a published checkpoint has found empty. Those
// that the savepoint of a stop has found are ended by the job that goes on from it:
// what they emit at their end would be here behind the last commit.
func (c *Coordinator) endEmptyLoops(p *pendingCheckpoint) {
	if p.kind == snapshot.StopSavepoint {
		return
	}
	a := &c.attempt
	for _, v := range p.emptyLoops {
		if a.loops.ended[v] {
			continue
		}
		if a.loops.ended == nil {
			a.loops.ended = make(map[ids.VertexID]bool)
		}
		a.loops.ended[v] = true
		a.loops.tries, a.loops.next = 0, time.Time{}
		invariant.Check(p.attempt == a.id, "I8", "loops of attempt %s are ended by checkpoint %d of attempt %s", a.id, p.id, p.attempt)
		for _, x := range a.executors {
			end := EndLoops{Executor: x.id, Checkpoint: p.id}
			for _, s := range x.subtasks {
				if s.Vertex == v {
					end.Subtasks = append(end.Subtasks, s)
				}
			}
			if len(end.Subtasks) > 0 {
				c.emit(end)
			}
		}
	}
}
