package coordinator

import (
	"fmt"
	"time"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// AckResult is what an acknowledgement led to: a closed set.
type AckResult uint8

// The results of an acknowledgement.
const (
	// Accepted: it is the subtask's first for a checkpoint that waits for it.
	Accepted AckResult = iota + 1
	// Duplicate: the subtask has acknowledged this checkpoint before.
	Duplicate
	// Late: the checkpoint was given up meanwhile; its files are discarded.
	Late
	// Unknown: no checkpoint of that number was ever triggered here, or it is
	// long over.
	Unknown
	// Refused: it refers to files that it must not; the checkpoint is declined.
	Refused
)

// stage is how far a pending checkpoint has come.
type stage uint8

const (
	collecting stage = iota + 1 // waits for acknowledgements
	persisting                  // PersistMetadata is under way
	publishing                  // metadata is durable; waits for its swap, or for the swap's outcome
	recording                   // savepoints: waits for the record that lists it
)

// pendingCheckpoint is a checkpoint between its trigger and its end.
type pendingCheckpoint struct {
	id          ids.CheckpointID
	kind        snapshot.Kind
	attempt     ids.AttemptID
	stage       stage
	triggeredAt time.Time
	deadline    time.Time
	request     savepointRequest // savepoints
	dir         string           // savepoints: the directory below which it has its own
	askedBy     []RequestID      // checkpoints: the users who wait for it

	// base is the published checkpoint whose shared files it may refer to; it
	// is pinned until this one has ended. 0 for none.
	base ids.CheckpointID

	acks     []*snapshot.SubtaskState // by number of subtask
	acked    int
	size     int64
	uploaded int64  // of size, what was uploaded for it
	uri      string // once persisted
	measured measured
	// emptyLoops are the heads of loops that it found empty.
	emptyLoops []ids.VertexID
}

// isSavepoint reports whether a user asked for it.
func (p *pendingCheckpoint) isSavepoint() bool {
	return p.kind == snapshot.Savepoint || p.kind == snapshot.StopSavepoint
}

// canExpire reports whether the timeout still applies. Once the swap may be
// under way only its outcome ends the checkpoint (I10).
func (p *pendingCheckpoint) canExpire() bool { return p.stage == collecting || p.stage == persisting }

// eachHandle calls f for every file that is known of the checkpoint.
func (p *pendingCheckpoint) eachHandle(f func(snapshot.StateHandle)) {
	for _, ack := range p.acks {
		if ack != nil {
			ack.EachHandle(f)
		}
	}
}

// misplaced says which handle of an acknowledgement must not be in it, and
// why; empty for a sound one. See registry.
func (c *Coordinator) misplaced(p *pendingCheckpoint, ack *snapshot.SubtaskState) string {
	reason := ""
	ack.EachHandle(func(h snapshot.StateHandle) {
		switch {
		case reason != "" || !h.IsShared():
		case p.isSavepoint():
			reason = fmt.Sprintf("it refers to the shared file %s, and a savepoint has all files in its own directory", h.Name)
		case h.SharedSince != p.id && !c.files.has(p.base, h):
			reason = fmt.Sprintf("it refers to the shared file %s of checkpoint %d, which neither was uploaded for it nor is a file of its base %d",
				h.Name, h.SharedSince, p.base)
		}
	})
	return reason
}

// view is what users see of it.
func (p *pendingCheckpoint) view(subtasks int) CheckpointView {
	return CheckpointView{
		ID: p.id, Kind: p.kind, Status: CheckpointInProgress, TriggeredAt: p.triggeredAt,
		Size: p.size, Uploaded: p.uploaded, Acked: p.acked, Subtasks: subtasks,
		Alignment: p.measured.alignment, ChannelBytes: p.measured.channelBytes, Unaligned: p.measured.unaligned,
	}
}

// complete puts the acknowledgements together.
func (c *Coordinator) complete(now time.Time, p *pendingCheckpoint) (*snapshot.CompletedCheckpoint, error) {
	invariant.Check(p.acked == c.layout.total(), "I3", "checkpoint %d is persisted with %d of %d acknowledgements", p.id, p.acked, c.layout.total())
	cc := &snapshot.CompletedCheckpoint{
		Job:         c.cfg.Job,
		JobName:     c.cfg.JobName,
		ID:          p.id,
		Attempt:     p.attempt,
		Kind:        p.kind,
		TriggeredAt: p.triggeredAt,
		CompletedAt: now,
		Splits:      c.splitLists(),
		Savepoints:  append([]ids.CheckpointID(nil), c.record.desired.Savepoints...),
	}
	for v := range c.graph.Vertices {
		vertex := &c.graph.Vertices[v]
		first := c.layout.first[v]
		base := len(cc.Operators)
		for _, uid := range vertex.Chain {
			op := snapshot.OperatorState{
				UID:            uid,
				Parallelism:    vertex.Parallelism,
				MaxParallelism: c.graph.MaxParallelism,
				Subtasks:       make([]snapshot.OperatorSubtaskState, vertex.Parallelism),
			}
			for i := range op.Subtasks {
				op.Subtasks[i].UID = uid
			}
			cc.Operators = append(cc.Operators, op)
		}
		for i := range vertex.Parallelism {
			ack := p.acks[first+i]
			if ack.EndOfData {
				cc.EndOfData = append(cc.EndOfData, snapshot.EndedSubtask{UID: vertex.Chain[0], Index: int32(i)})
			}
			for _, st := range ack.Operators {
				at := chainPosition(vertex.Chain, st.UID)
				if at < 0 {
					return nil, fmt.Errorf("%s acknowledged state of operator %q, which it does not run", c.describe(ack.Subtask), st.UID)
				}
				cc.Operators[base+at].Subtasks[i] = st
			}
		}
	}
	c.addInFlight(cc, p.acks)
	p.emptyLoops = c.emptyLoops(p)
	return cc, nil
}

func chainPosition(chain []ids.OperatorUID, uid ids.OperatorUID) int {
	for i, member := range chain {
		if member == uid {
			return i
		}
	}
	return -1
}

// endedCheckpoint is remembered so that late acknowledgements are told from
// unknown ones.
type endedCheckpoint struct {
	id        ids.CheckpointID
	completed bool
	dir       string // savepoints
}

// endedMax bounds the remembered ones: acknowledgements come on the ordered
// stream of a living executor, so they are late by a few checkpoints at most.
const endedMax = 64

// discard deletes files of a checkpoint that will never be published: those
// that are private to it, and those shared ones that were uploaded for it. Shared
// files of other checkpoints that it refers to are not its own. Nothing that a
// registered checkpoint refers to goes, nor bytes that have no file (I4).
func (c *Coordinator) discard(id ids.CheckpointID, dir string, metadata bool, each func(func(snapshot.StateHandle))) {
	var private, shared []snapshot.StateHandle
	each(func(h snapshot.StateHandle) {
		switch {
		case h.IsInline():
		case h.IsShared():
			if h.SharedSince == id && !c.files.needs(h) {
				shared = append(shared, h)
			}
		// A savepoint's names are relative to its own directory and cannot
		// meet those of checkpoints.
		case dir != "" || !c.files.needs(h):
			private = append(private, h)
		}
	})
	if dir == "" && !metadata {
		private, shared = append(private, shared...), nil
	}
	if len(private) > 0 || metadata {
		c.emit(DiscardHandles{Checkpoint: id, Dir: dir, Handles: private, Metadata: metadata})
	}
	// Not below the directory of the checkpoint or savepoint.
	c.discardShared(id, shared)
}

// discardShared deletes shared files that nothing refers to.
func (c *Coordinator) discardShared(id ids.CheckpointID, files []snapshot.StateHandle) {
	if len(files) > 0 {
		c.emit(DiscardHandles{Checkpoint: id, Handles: files})
	}
}

func (c *Coordinator) findPending(id ids.CheckpointID) *pendingCheckpoint {
	for _, p := range c.pending {
		if p.id == id {
			return p
		}
	}
	return nil
}

func (c *Coordinator) removePending(p *pendingCheckpoint) {
	for i, other := range c.pending {
		if other == p {
			c.pending = append(c.pending[:i], c.pending[i+1:]...)
			return
		}
	}
}

func (c *Coordinator) findEnded(id ids.CheckpointID) (endedCheckpoint, bool) {
	for _, e := range c.recent.values {
		if e.id == id {
			return e, true
		}
	}
	return endedCheckpoint{}, false
}
