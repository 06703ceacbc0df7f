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
// A loop is empty for good when a checkpoint finds that all has ended which
// comes into it from elsewhere, and nothing in it: no record in the log of any of
// its head's subtasks, none in flight on an edge to a vertex of it, and in the
// snapshots of all its subtasks event time has ended, with the timers fired that
// were due then. (A barrier that overtakes may be in front of the last watermark.)
// What a loop's operators emit they emit for a record or a timer; so nothing comes
// into it again, and it may be told to end. Until that checkpoint, one follows the other.
type loops struct {
	// ended are the heads that were told, by vertex.
	ended map[ids.VertexID]bool
	// since is when a loop began to wait for its end; tries counts the checkpoints
	// that were triggered since to look.
	since time.Time
	tries int
}

// The pauses in front of checkpoints that look whether a loop is empty: short for
// short loops, and long enough for long ones. They are counted from the end of the
// last checkpoint, which has looked too.
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

// loopCheckDue is when it is. What lies between two checkpoints is never less
// than min-pause: without it a checkpoint that takes longer than the pause would
// be followed by the next in the very moment that it ends.
func (c *Coordinator) loopCheckDue() time.Time {
	l := &c.attempt.loops
	pause := min(loopCheckFirst<<min(l.tries, 10), loopCheckMax)
	due := l.since.Add(pause)
	if !c.lastEnd.IsZero() {
		pause = max(pause, c.cfg.Checkpointing.MinPause)
		if end := c.lastEnd.Add(pause); end.After(due) {
			due = end
		}
	}
	return due
}

// checkLoops triggers that checkpoint. The periodic one, and one that users have
// asked for, go first when they are due: they look too.
func (c *Coordinator) checkLoops(now time.Time) {
	if !c.wantsLoopCheck() {
		return
	}
	l := &c.attempt.loops
	if l.since.IsZero() {
		l.since = now
	}
	if !now.Before(c.loopCheckDue()) && c.trigger(now, snapshot.Checkpoint, savepointRequest{}) != nil {
		l.tries++
	}
}

// emptyLoops are the heads that a checkpoint has found empty.
func (c *Coordinator) emptyLoops(p *pendingCheckpoint) []ids.VertexID {
	var heads []ids.VertexID
	for v := range c.graph.Vertices {
		if id := ids.VertexID(v); c.graph.IsLoopHead(id) && c.isEmptyLoop(id, p) {
			heads = append(heads, id)
		}
	}
	return heads
}

func (c *Coordinator) isEmptyLoop(head ids.VertexID, p *pendingCheckpoint) bool {
	loop := c.graph.Loop(head)
	all := func(v ids.VertexID, is func(*snapshot.SubtaskState) bool) bool {
		for i := range c.graph.Vertices[v].Parallelism {
			if !is(p.acks[c.layout.first[v]+i]) {
				return false
			}
		}
		return true
	}
	for _, v := range loop {
		if !all(v, func(ack *snapshot.SubtaskState) bool { return ack.LoopIsEmpty || ack.EndOfData }) {
			return false
		}
		if v == head {
			continue // it knows itself that its inputs have ended
		}
		for _, e := range c.graph.Vertices[v].Inputs {
			from := c.graph.Edges[e].From
			if !slices.Contains(loop, from) && !all(from, func(ack *snapshot.SubtaskState) bool { return ack.EndOfData }) {
				return false
			}
		}
	}
	// What comes into the loop has ended. Elsewhere there may be something in flight.
	for _, ack := range p.acks {
		for _, in := range ack.InFlight {
			if slices.ContainsFunc(in.Parts, func(part snapshot.ChannelPart) bool { return c.leadsInto(loop, part.Edge) }) {
				return false
			}
		}
	}
	return true
}

// leadsInto reports whether what is in flight on an edge comes to one of the vertices.
func (c *Coordinator) leadsInto(vertices []ids.VertexID, edge int) bool {
	return edge < 0 || edge >= len(c.graph.Edges) || slices.Contains(vertices, c.graph.Edges[edge].To)
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
		a.loops.tries, a.loops.since = 0, time.Time{}
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
