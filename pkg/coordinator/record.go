package coordinator

import (
	"slices"
	"time"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/ids"
)

// checkpointBlock is how many checkpoint IDs are reserved at once. Every
// publication reserves anew, so a write only for the reservation is rare; and
// a takeover skips at most this many IDs, so that users see few gaps.
const checkpointBlock = 16

// recordWriter keeps one write of the record under way at most, so that no
// write ever carries a decision that an earlier one has not settled: while a
// publication's outcome is unknown nobody can say what Latest is.
type recordWriter struct {
	// desired is what the record is to become, without publications under way.
	desired Record
	// blockEnd: IDs below it are reserved by a record that is durable.
	blockEnd ids.CheckpointID
	revision uint64
	updating bool // UpdateRecord of that revision is under way
	// updatingBlock is what the update under way reserves.
	updatingBlock ids.CheckpointID
	dirty         bool // desired has changed since the last write
	// publishing is the checkpoint whose swap is under way, swapped the content.
	publishing *pendingCheckpoint
	swapped    Record
	unretained []CheckpointRef // what falls out of Retained with the swap
	// queue holds checkpoints whose metadata is durable, in that order.
	// Bounded by the pending checkpoints.
	queue []*pendingCheckpoint
	goals []recordGoal // bounded by the savepoints that may be under way
}

// recordGoal is a savepoint that is complete once a revision is durable.
type recordGoal struct {
	revision  uint64
	savepoint *pendingCheckpoint
}

// isSettled reports whether no write is under way or waiting.
func (w *recordWriter) isSettled() bool {
	return !w.updating && !w.dirty && w.publishing == nil && len(w.queue) == 0
}

// update notes that desired has changed.
func (w *recordWriter) update() { w.dirty = true }

// clone copies a record so that effects and we share no memory.
func (r Record) clone() Record {
	r.Retained = slices.Clone(r.Retained)
	r.Savepoints = slices.Clone(r.Savepoints)
	if r.Cause != nil {
		cause := *r.Cause
		r.Cause = &cause
	}
	return r
}

// flushRecord starts the next write of the record, if one waits and none is
// under way. Updates go first: a publication carries all that went before it.
func (c *Coordinator) flushRecord(now time.Time) {
	w := &c.record
	if w.updating || w.publishing != nil || c.token == 0 || c.phase == phaseEnded || c.phase == phaseSteppedDown {
		return
	}
	if w.dirty {
		w.revision++
		w.dirty, w.updating, w.updatingBlock = false, true, w.desired.NextCheckpointBlock
		c.emit(UpdateRecord{Token: c.token, Revision: w.revision, Record: w.desired.clone()})
		return
	}
	for len(w.queue) > 0 {
		p := w.queue[0]
		w.queue = slices.Delete(w.queue, 0, 1)
		if p.id < w.desired.Latest.ID {
			// A newer one was published while this one was being written.
			c.abort(now, p, Subsumed, subsumedBy(w.desired.Latest.ID))
			continue
		}
		c.publish(p)
		return
	}
}

func (c *Coordinator) onRecordUpdated(now time.Time, e RecordUpdated) {
	w := &c.record
	if !w.updating || e.Revision != w.revision {
		c.dropped.OutOfPlace++
		return
	}
	w.updating = false
	w.blockEnd = w.updatingBlock
	done := w.goals
	w.goals = nil
	for _, g := range done {
		if g.revision > e.Revision {
			w.goals = append(w.goals, g)
			continue
		}
		c.completeSavepoint(now, g.savepoint)
	}
}

// reserveIDs makes the record say that the next block of IDs may be used (I6).
func (c *Coordinator) reserveIDs() {
	desired := &c.record.desired
	desired.NextCheckpointBlock = max(desired.NextCheckpointBlock, c.nextID+checkpointBlock)
	c.record.update()
}

// takeID uses up the next checkpoint ID, or says that none is reserved yet and
// asks for more.
func (c *Coordinator) takeID() (ids.CheckpointID, bool) {
	if c.nextID >= c.record.blockEnd {
		if !c.record.updating && !c.record.dirty {
			c.reserveIDs()
		}
		return 0, false
	}
	id := c.nextID
	c.nextID++
	invariant.Check(id > c.record.desired.Latest.ID, "I6", "checkpoint ID %d is not above the latest published %d", id, c.record.desired.Latest.ID)
	return id, true
}

// awaitsIDs reports whether no ID is free and a write that reserves some is on
// its way: then time changes nothing.
func (c *Coordinator) awaitsIDs() bool {
	return c.nextID >= c.record.blockEnd && !c.record.isSettled()
}
