package coordinator

import (
	"fmt"
	"time"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// restorePoint is what the current attempt starts from.
type restorePoint struct {
	// sweepDue: fenced attempts are swept once the files of the latest checkpoint are known.
	sweepDue bool
	// ref is what is loaded; ID 0 with a URI for the savepoint of the
	// submission until it is read, ID 0 without for a start from nothing.
	ref  CheckpointRef
	base string
	// states and ended are for deploying, and dropped then: a checkpoint of
	// many handles is not kept in memory.
	states   []snapshot.OperatorState // in the order of the graph's operators
	ended    map[snapshot.EndedSubtask]bool
	inFlight map[ids.SubtaskID]*subtaskFlight
	// lostEdges had records in flight that are dropped, as the user allowed.
	lostEdges []string
	// oldParallelism of each operator in the checkpoint.
	oldParallelism map[ids.OperatorUID]int
}

// onJobClaimed starts the job, or goes on with it, from what its record says.
func (c *Coordinator) onJobClaimed(now time.Time, e JobClaimed) {
	if c.phase != phaseClaim || c.token != 0 {
		c.dropped.OutOfPlace++
		return
	}
	c.timers.clear(timerClaim)
	c.retries = 0
	c.token = e.Token
	w := &c.record
	w.desired = e.Record.clone()
	w.blockEnd = w.desired.NextCheckpointBlock
	// Every ID below the block may have been used by a leader before us (I6).
	c.nextID = max(1, w.desired.NextCheckpointBlock, w.desired.Latest.ID+1)
	for _, ref := range w.desired.Retained {
		c.nextID = max(c.nextID, ref.ID+1)
	}
	if s := w.desired.Status; s.IsTerminal() {
		// A finished job is never run again. What its end left to delete may
		// not have been deleted before the JobManager went away.
		c.status, c.detail = s, ""
		c.restarts.rootCause = w.desired.Cause
		c.finishEnd(now)
		return
	}
	if !w.desired.StartedAt.IsZero() {
		c.setStatus(now, Restarting)
		c.note(now, "taken over by this JobManager")
		c.discardClaimed()
		if w.desired.Status == RunningStatus {
			w.desired.Status = Restarting // written with the next update
		}
	}
	c.attempt.id = ids.AttemptID{Token: c.token}
	if w.desired.Status == Cancelling || len(c.cancels) > 0 {
		c.setStatus(now, Cancelling)
		c.endJob(now, CanceledStatus)
		return
	}
	c.nextAttempt()
	c.beginAttempt(now)
}

// onJobClaimFailed tries again, for ever: an error is not an absence (I9).
func (c *Coordinator) onJobClaimFailed(now time.Time, e JobClaimFailed) {
	if c.phase != phaseClaim || c.timers.isSet(timerClaim) {
		c.dropped.OutOfPlace++
		return
	}
	d := c.retryLater(now, timerClaim)
	c.detail = fmt.Sprintf("cannot read the job's record, trying again in %s: %s", d, e.Reason)
	c.note(now, c.detail)
}

// nextAttempt takes a new attempt number. From here on whatever the old
// attempt says is stale.
func (c *Coordinator) nextAttempt() {
	id := ids.AttemptID{Token: c.token, Number: c.attempt.id.Number + 1}
	c.attempt = attempt{id: id}
	c.attemptChanged()
}

// beginAttempt chooses the restore point of a new attempt. Nothing that could
// change Latest is under way.
func (c *Coordinator) beginAttempt(now time.Time) {
	desired := &c.record.desired
	sweepDue := false
	if !desired.StartedAt.IsZero() || c.attempt.id.Number > 1 {
		sweepDue = true
	}
	c.restored = restorePoint{sweepDue: sweepDue}
	c.noteUnread()
	c.sweepFenced()
	switch {
	case desired.Latest.ID != 0:
		c.restored.ref = c.restorable()
	case c.cfg.RestoreFrom != "":
		// Also after failures, until the job has a checkpoint of its own.
		c.restored.ref = CheckpointRef{URI: c.cfg.RestoreFrom}
	default:
		c.resetSources(nil)
		c.requestSlots(now)
		return
	}
	c.phase, c.retries = phaseLoad, 0
	c.load()
}

// noteUnread registers the retained checkpoints of leaders before us, but for
// the one that is restored. They are not read: the job does not need them, and
// one that cannot be read must not keep it from starting.
func (c *Coordinator) noteUnread() {
	for _, ref := range c.ownRetained() {
		if ref.ID != c.record.desired.Latest.ID {
			c.files.retainUnread(ref.ID)
		}
	}
}

// sweepFenced has fenced attempts swept, if that is due and the files of the
// latest checkpoint are known. Nothing is pinned yet, see registry.
func (c *Coordinator) sweepFenced() {
	desired := &c.record.desired
	if c.restored.sweepDue && (desired.Latest.ID == 0 || desired.StopSavepoint || c.files.canBeBase(desired.Latest.ID)) {
		c.restored.sweepDue = false
		c.emitSweep()
	}
}

func (c *Coordinator) emitSweep() {
	c.sweepOwed = false
	c.emit(SweepAttempts{Token: c.token, Below: c.attempt.id, Keep: c.ownRetained()})
}

// sweepReleased has the shared files swept of unread checkpoints that are no
// longer retained, once the last of them is gone. A base that is pinned is
// among those kept, or the sweep waits for the next publication, see registry.
func (c *Coordinator) sweepReleased() {
	if !c.sweepOwed || c.files.unreadUntil() > 0 {
		return
	}
	for _, p := range c.pending {
		if p.base != 0 && !c.files.canBeBase(p.base) {
			return
		}
	}
	c.emitSweep()
}

func (c *Coordinator) load() {
	c.detail = "reading " + c.restored.ref.URI
	c.emit(LoadCheckpoint{Token: c.token, Ref: c.restored.ref})
}

func (c *Coordinator) onCheckpointLoaded(now time.Time, e CheckpointLoaded) {
	if c.phase != phaseLoad || e.Ref != c.restored.ref || e.Checkpoint == nil {
		c.dropped.OutOfPlace++
		return
	}
	c.timers.clear(timerLoad)
	if e.Ref.ID == 0 && c.cfg.AllowNonRestoredState {
		// The job's own checkpoints have what its graph has.
		if lost := snapshot.LostOperators(e.Checkpoint, c.restoreTargets()); len(lost) > 0 {
			c.note(now, fmt.Sprintf("state that the program has no operators for is dropped: %v", lost))
		}
		if lost := snapshot.LostStates(e.Checkpoint, c.restoreTargets()); len(lost) > 0 {
			c.note(now, fmt.Sprintf("state that the program does not register is dropped: %v", lost))
		}
		e.Checkpoint = snapshot.WithoutLostState(e.Checkpoint, c.restoreTargets())
	}
	if err := c.fitCheckpoint(e); err != nil {
		c.failForGood(now, permanent("cannot restore from %s: %v", e.Ref.URI, err))
		return
	}
	if lost := c.restored.lostEdges; len(lost) > 0 {
		c.note(now, fmt.Sprintf("records in flight on edges that the program does not have are dropped: %v", lost))
	}
	own := c.record.desired.Latest.ID != 0
	if !own {
		c.claimedJob = e.Checkpoint.Job
	}
	if own && !c.record.desired.StopSavepoint {
		c.files.retain(e.Ref.ID, func(f func(snapshot.StateHandle)) { e.Checkpoint.EachHandle(f) })
	}
	c.sweepFenced()
	// Sinks have the ID in file names, so it must grow over the savepoint's
	// even if that is another job's.
	c.nextID = max(c.nextID, e.Checkpoint.ID+1)
	c.restored.ref.ID = e.Checkpoint.ID
	c.restored.base = e.Base
	c.restored.ended = make(map[snapshot.EndedSubtask]bool, len(e.Checkpoint.EndOfData))
	for _, s := range e.Checkpoint.EndOfData {
		c.restored.ended[s] = true
	}
	c.restored.oldParallelism = make(map[ids.OperatorUID]int, len(e.Checkpoint.Operators))
	for _, op := range e.Checkpoint.Operators {
		c.restored.oldParallelism[op.UID] = op.Parallelism
	}
	c.resetSources(e.Checkpoint.Splits)
	c.note(now, fmt.Sprintf("restoring from %s %d, %s", e.Checkpoint.Kind, e.Checkpoint.ID, e.Ref.URI))
	c.verifySuspected(now)
}

// readAgain repeats a read that failed.
func (c *Coordinator) readAgain() {
	if c.phase == phaseVerify {
		c.verify()
		return
	}
	c.load()
}

// startRestored goes on to deploy what was loaded.
func (c *Coordinator) startRestored(now time.Time) {
	if len(c.broken) > 0 {
		c.fallBack(now)
		return
	}
	c.requestSlots(now)
}

// fitCheckpoint gives the checkpoint's state to the job's subtasks, or says
// why it does not fit.
func (c *Coordinator) fitCheckpoint(e CheckpointLoaded) error {
	if err := c.checkIdentity(e); err != nil {
		return err
	}
	states, err := snapshot.Reassign(e.Checkpoint, c.restoreTargets(), c.graph.MaxParallelism)
	c.restored.states = states
	if err != nil {
		return err
	}
	var lost []string
	c.restored.inFlight, lost, err = routeInFlight(e.Checkpoint, &c.graph, e.Ref.ID == 0 && c.cfg.AllowNonRestoredState)
	c.restored.lostEdges = lost
	return err
}

// checkIdentity says that what was read is not the job's checkpoint of that ID.
func (c *Coordinator) checkIdentity(e CheckpointLoaded) error {
	if e.Ref.ID != 0 && (e.Checkpoint.ID != e.Ref.ID || e.Checkpoint.Job != c.cfg.Job) {
		return fmt.Errorf("it is checkpoint %d of job %s, not %d of %s", e.Checkpoint.ID, e.Checkpoint.Job, e.Ref.ID, c.cfg.Job)
	}
	return nil
}

// restoreTargets are the operators that take state, in the graph's order.
func (c *Coordinator) restoreTargets() []snapshot.OperatorTarget {
	return RestoreTargets(c.graph.Job.Operators)
}

// RestoreTargets are operators as what state is restored into.
func RestoreTargets(operators []graph.Operator) []snapshot.OperatorTarget {
	targets := make([]snapshot.OperatorTarget, len(operators))
	for i, op := range operators {
		t := snapshot.OperatorTarget{UID: op.UID, Parallelism: op.Parallelism, Described: op.DescribesStates}
		for _, s := range op.States {
			t.States = append(t.States, snapshot.StateMeta{Name: s.Name, Kind: s.Kind, Codec: s.Codec, Schema: s.Schema, KeySchema: s.KeySchema})
		}
		targets[i] = t
	}
	return targets
}

// onCheckpointLoadFailed tries again for ever unless the content is the
// trouble (see also fallback.go): a read that fails never means that there is no checkpoint (I9).
func (c *Coordinator) onCheckpointLoadFailed(now time.Time, e CheckpointLoadFailed) {
	if c.phase != phaseLoad || e.Ref != c.restored.ref || c.timers.isSet(timerLoad) {
		c.dropped.OutOfPlace++
		return
	}
	switch e.Kind {
	case CorruptCheckpoint:
		c.onRestorePointCorrupt(now, e.Reason)
		return
	case PermanentFailure:
		c.failForGood(now, permanent("cannot restore from %s: %s", e.Ref.URI, e.Reason))
		return
	case LostProcess, UserFailure:
	}
	d := c.retryLater(now, timerLoad)
	c.detail = fmt.Sprintf("cannot read %s, trying again in %s: %s", e.Ref.URI, d, e.Reason)
	c.note(now, c.detail)
}

func permanent(format string, args ...any) Failure {
	return Failure{Kind: PermanentFailure, Message: fmt.Sprintf(format, args...)}
}

// isEnded reports whether the subtask had seen the end of all its inputs. A
// vertex whose parallelism has changed has, when all its subtasks had.
func (r *restorePoint) isEnded(uid ids.OperatorUID, index int32, old, parallelism int) bool {
	if len(r.ended) == 0 || old == 0 {
		return false
	}
	if old == parallelism {
		return r.ended[snapshot.EndedSubtask{UID: uid, Index: index}]
	}
	for i := range old {
		if !r.ended[snapshot.EndedSubtask{UID: uid, Index: int32(i)}] {
			return false
		}
	}
	return true
}
