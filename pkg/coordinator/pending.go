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

	acks  []*snapshot.SubtaskState // by number of subtask
	acked int
	size  int64
	uri   string // once persisted
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

// view is what users see of it.
func (p *pendingCheckpoint) view(subtasks int) CheckpointView {
	return CheckpointView{
		ID: p.id, Kind: p.kind, Status: CheckpointInProgress, TriggeredAt: p.triggeredAt,
		Size: p.size, Acked: p.acked, Subtasks: subtasks,
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

// liveFiles are the names of the files of a published checkpoint.
type liveFiles struct {
	id    ids.CheckpointID
	names map[string]struct{}
}

// keepLive notes the files of a published checkpoint: whatever is discarded
// from now on, they are not (I4).
func (c *Coordinator) keepLive(id ids.CheckpointID, each func(func(snapshot.StateHandle))) {
	for i := range c.live {
		if c.live[i].id == id {
			return
		}
	}
	files := liveFiles{id: id, names: make(map[string]struct{})}
	each(func(h snapshot.StateHandle) {
		if !h.IsInline() {
			files.names[h.Name] = struct{}{}
		}
	})
	c.live = append(c.live, files)
}

// dropLive forgets the files of a checkpoint that is discarded.
func (c *Coordinator) dropLive(id ids.CheckpointID) {
	for i := range c.live {
		if c.live[i].id == id {
			c.live = append(c.live[:i], c.live[i+1:]...)
			return
		}
	}
}

func (c *Coordinator) isLive(name string) bool {
	for i := range c.live {
		if _, ok := c.live[i].names[name]; ok {
			return true
		}
	}
	return false
}

// discard deletes files of a checkpoint that is given up. Names that a
// published checkpoint refers to stay, as do bytes that have no file (I4).
func (c *Coordinator) discard(id ids.CheckpointID, dir string, metadata bool, each func(func(snapshot.StateHandle))) {
	var handles []snapshot.StateHandle
	each(func(h snapshot.StateHandle) {
		// A savepoint's names are relative to its own directory and cannot
		// meet those of checkpoints.
		if !h.IsInline() && (dir != "" || !c.isLive(h.Name)) {
			handles = append(handles, h)
		}
	})
	if len(handles) > 0 || metadata {
		c.emit(DiscardHandles{Checkpoint: id, Dir: dir, Handles: handles, Metadata: metadata})
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
