package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// A restore point of which a file is missing or is not what was written can
// never be restored again. The job then goes back to the next older checkpoint
// that is retained, if all that was committed since can be taken back: the
// record is swapped so that the older one is the latest, after its metadata
// was read and before anything is deployed from it. Until that swap is durable
// nothing has changed: a JobManager that takes over before it finds the same
// corruption, one after it restores the older checkpoint. When no checkpoint
// may be restored, the job fails with the record as it was, and nothing of its
// checkpoints is touched that the end of a failed job would not touch.
//
// Sinks take back what newer checkpoints committed when the attempt starts
// (operator.Revocable). Checkpoint IDs go on growing (I6), so what is committed
// after a fallback is never taken for what was taken back.
//
// A failed read is none of this (I9), and one host is not believed: its memory
// or disk may be what is bad. State that a task finds corrupt is read once more
// by the JobManager, which falls back only if it finds the same. If it does not,
// the failure was the task's host's: the job restores the same checkpoint again,
// elsewhere if there are slots. Metadata is read by the JobManager alone.

// suspicion is what a task has said of the restore point.
type suspicion struct {
	uri     string
	subtask ids.SubtaskID
	on      ids.TaskManagerID
	message string
	read    VerifyState // once it is known what to read
}

// restorable is what an attempt of a job with checkpoints of its own restores:
// the latest, or when that is corrupt the newest before all that are.
func (c *Coordinator) restorable() CheckpointRef {
	if len(c.broken) == 0 {
		return c.record.desired.Latest
	}
	older, ok := c.olderThan(c.broken[len(c.broken)-1].ID)
	invariant.Check(ok, "I9", "there is no checkpoint to fall back to, %d are corrupt", len(c.broken))
	return older
}

// olderThan is the newest retained checkpoint of the job's own below an ID.
// One that was claimed is another job's and has other IDs: a new job can
// start from it.
func (c *Coordinator) olderThan(id ids.CheckpointID) (CheckpointRef, bool) {
	for _, ref := range slices.Backward(c.record.desired.Retained) {
		if ref.ID < id && ref.URI != c.cfg.RestoreFrom {
			return ref, true
		}
	}
	return CheckpointRef{}, false
}

// onStateCorrupt takes the failure of a task that found state corrupt. It is
// called for the first such task of an attempt: what others report is of an
// attempt that is over. So far the job restarts as it does for a lost process.
func (c *Coordinator) onStateCorrupt(s ids.SubtaskID, f Failure) Failure {
	if c.phase != phaseDeploy {
		// Tasks read their state before they run. Once all do, the next
		// attempt restores something newer, so there is nothing to go back from.
		f.Kind = UserFailure
		return f
	}
	i, _ := c.layout.index(s)
	c.suspicion = &suspicion{uri: c.restored.ref.URI, subtask: s, on: c.attempt.executorOf(i).id.TaskManager, message: f.Message}
	f.Message += fmt.Sprintf("; so says TaskManager %s, and the JobManager reads it again", c.suspicion.on)
	return f
}

// verifySuspected has the files read that a task found corrupt in what was
// loaded, if one did, and else goes on.
func (c *Coordinator) verifySuspected(now time.Time) {
	s := c.suspicion
	if s == nil || s.uri != c.restored.ref.URI {
		c.suspicion = nil
		c.startRestored(now)
		return
	}
	s.read = VerifyState{Token: c.token, Ref: c.restored.ref, Base: c.restored.base, Handles: c.suspected(s)}
	if len(s.read.Handles) == 0 {
		// All of it is in the metadata, which has been read.
		c.dismissSuspicion(now)
		return
	}
	c.phase, c.retries = phaseVerify, 0
	c.verify()
}

// suspected are the files that the task read: those that its message names, and
// all if that names none.
func (c *Coordinator) suspected(s *suspicion) []snapshot.StateHandle {
	var all, named []snapshot.StateHandle
	seen := make(map[string]bool)
	suspect := func(h snapshot.StateHandle) {
		if h.IsInline() || seen[h.Name] {
			return
		}
		seen[h.Name] = true
		all = append(all, h)
		if strings.Contains(s.message, h.Name) {
			named = append(named, h)
		}
	}
	for i := range c.restored.states {
		op := &c.restored.states[i]
		if !slices.Contains(c.graph.Vertices[s.subtask.Vertex].Chain, op.UID) {
			continue
		}
		op.Subtasks[s.subtask.Index].EachHandle(suspect)
	}
	if f := c.restored.inFlight[s.subtask]; f != nil {
		for _, in := range f.inFlight {
			suspect(in.Handle)
		}
	}
	if len(named) > 0 {
		return named
	}
	return all
}

func (c *Coordinator) verify() {
	c.detail = "reading state of " + c.restored.ref.URI + " that was found corrupt"
	c.emit(c.suspicion.read)
}

// onStateVerified: the state is whole, and what was said of it tells of a host.
func (c *Coordinator) onStateVerified(now time.Time, e StateVerified) {
	if c.phase != phaseVerify || e.Ref != c.suspicion.read.Ref || c.timers.isSet(timerLoad) {
		c.dropped.OutOfPlace++
		return
	}
	c.dismissSuspicion(now)
}

// dismissSuspicion restores the same checkpoint again.
func (c *Coordinator) dismissSuspicion(now time.Time) {
	s := c.suspicion
	c.suspicion = nil
	c.note(now, fmt.Sprintf("checkpoint %d is not corrupt: the JobManager has read what TaskManager %s could not: %s", c.restored.ref.ID, s.on, s.message))
	if root := c.restarts.rootCause; root != nil && root.Kind == CorruptCheckpoint {
		root.Kind = LostProcess // so that it hides no failure of the job's own
	}
	if !slices.Contains(c.distrusted, s.on) {
		c.distrusted = append(c.distrusted, s.on)
	}
	c.startRestored(now)
}

// onStateVerifyFailed tries again for ever unless the store has answered that
// the state is missing or broken: then two hosts say so.
func (c *Coordinator) onStateVerifyFailed(now time.Time, e StateVerifyFailed) {
	if c.phase != phaseVerify || e.Ref != c.suspicion.read.Ref || c.timers.isSet(timerLoad) {
		c.dropped.OutOfPlace++
		return
	}
	if e.Kind == CorruptCheckpoint {
		message := c.suspicion.message + "; the JobManager finds: " + e.Reason
		c.suspicion = nil
		c.phase = phaseLoad
		c.onRestorePointCorrupt(now, message)
		return
	}
	d := c.retryLater(now, timerLoad)
	c.detail = fmt.Sprintf("cannot read state of %s that was found corrupt, trying again in %s: %s", e.Ref.URI, d, e.Reason)
	c.note(now, c.detail)
}

// onRestorePointCorrupt: the metadata of the restore point is missing or broken,
// or so is state of it by the word of a task and of the JobManager. No attempt
// has begun with it since, so none fails.
func (c *Coordinator) onRestorePointCorrupt(now time.Time, reason string) {
	f := c.leaveRestorePoint(now, Failure{Kind: CorruptCheckpoint, Message: reason})
	if len(c.broken) == 0 {
		c.failForGood(now, f)
		return
	}
	c.record.desired.Cause = &f
	c.note(now, f.Message)
	c.retries = 0
	c.restored = restorePoint{ref: c.restorable(), sweepDue: c.restored.sweepDue}
	c.load()
}

// leaveRestorePoint notes that the restore point is corrupt and finds out
// whether there is another. If so it is among the broken ones from here on, if
// not none is. The failure it returns says which it is and what follows; it is
// the cause to show, whatever brought the job to restore.
func (c *Coordinator) leaveRestorePoint(now time.Time, f Failure) Failure {
	ref := c.restored.ref
	c.restarts.rootCause = nil
	own := c.record.desired.Latest.ID != 0
	if !own {
		c.broken = nil
		f.Message = fmt.Sprintf("corrupt checkpoint %s: %s; the job was to start from it and has none of its own yet: submit it with another savepoint or checkpoint",
			ref.URI, f.Message)
		return f
	}
	c.markCorrupt(now, ref, f.Message)
	f.Message = fmt.Sprintf("corrupt checkpoint %d: %s", ref.ID, f.Message)
	older, ok := c.olderThan(ref.ID)
	if reason := c.refuseFallback(older, ok); reason != "" {
		c.broken = nil
		f.Message += "; " + reason
		return f
	}
	c.broken = append(c.broken, ref)
	f.Message += fmt.Sprintf("; falling back to checkpoint %d, %s", older.ID, older.URI)
	return f
}

// refuseFallback says why the job may not go on from an older checkpoint, and
// what its user can do; empty if it may.
func (c *Coordinator) refuseFallback(older CheckpointRef, ok bool) string {
	desired := &c.record.desired
	if desired.StopSavepoint {
		// The savepoint is its user's since it was published. Other jobs may
		// have started from it, which count on its output (I1); and to read on
		// from an older checkpoint is not what a stop is.
		return fmt.Sprintf("it is the savepoint that the job was stopped with, and the job does not go back behind that%s", c.override(older, ok))
	}
	if !ok {
		return fmt.Sprintf("no older checkpoint of the job is retained (execution.checkpointing.num-retained is %d)%s",
			c.cfg.Checkpointing.Retained, c.override(older, ok))
	}
	for _, s := range desired.Savepoints {
		for _, ref := range desired.Retained {
			if older.ID < ref.ID && ref.ID < s {
				// What it has not prepared itself it takes for committed.
				return fmt.Sprintf("savepoint %d counts on the output that checkpoint %d committed, so that is not taken back: submit the job with --from-savepoint and that savepoint, which is newer",
					s, ref.ID)
			}
		}
	}
	if c.cfg.AllowDuplicates {
		return ""
	}
	for _, op := range c.graph.Job.Operators {
		if op.TwoPhase && !op.CommitsRevocable {
			return fmt.Sprintf("sink %q cannot take back what it has committed since checkpoint %d%s (a job with %s goes on from it by itself)",
				op.UID, older.ID, c.override(older, ok), "execution.checkpointing.fallback.allow-duplicates=true")
		}
	}
	return ""
}

// override tells the user of a job that fails what there is left to do.
func (c *Coordinator) override(older CheckpointRef, ok bool) string {
	switch {
	case !ok && c.cfg.RestoreFrom != "":
		return "; start the job again from " + c.cfg.RestoreFrom + ", or from another savepoint"
	case !ok:
		return "; start the job anew, or from a savepoint"
	case !c.cfg.Checkpointing.Retention.Keeps(FailedStatus):
		return "; older checkpoints are removed with the job (execution.checkpointing.externalized-checkpoint-retention)"
	}
	return fmt.Sprintf("; to go on from checkpoint %d all the same, with the output since then twice: flinkctl submit --from-savepoint %s", older.ID, older.URI)
}

// markCorrupt shows in the history of checkpoints what became of one.
func (c *Coordinator) markCorrupt(now time.Time, ref CheckpointRef, reason string) {
	for i := range c.history.values {
		if v := &c.history.values[i]; v.ID == ref.ID {
			v.Status, v.Reason = CheckpointFailed, "corrupt: "+reason
			return
		}
	}
	// It was completed under another JobManager.
	c.history.add(CheckpointView{
		ID: ref.ID, Status: CheckpointFailed, Reason: "corrupt: " + reason, Subtasks: c.layout.total(), TriggeredAt: now, Path: ref.URI,
	}, checkpointsMax)
}

// fallBack makes the checkpoint that was loaded the latest in the record, and
// those that are broken no longer retained.
func (c *Coordinator) fallBack(now time.Time) {
	desired := &c.record.desired
	to := c.restored.ref
	invariant.Check(c.record.publishing == nil && len(c.record.queue) == 0, "I10",
		"the job falls back to checkpoint %d while a publication is under way", to.ID)
	invariant.Check(to.ID < desired.Latest.ID && slices.Contains(desired.Retained, to), "I1",
		"the job falls back from checkpoint %d to %d, which is not older and retained", desired.Latest.ID, to.ID)
	c.note(now, fmt.Sprintf("falling back from checkpoint %d, which is corrupt, to %d", desired.Latest.ID, to.ID))
	keep := slices.Index(desired.Retained, to) + 1
	c.abandoned = append(c.abandoned, desired.Retained[keep:]...)
	desired.Retained = slices.Clone(desired.Retained[:keep])
	desired.Latest = to
	c.broken = nil
	c.record.update()
	c.phase = phaseFallback
	c.detail = fmt.Sprintf("recording the fallback to checkpoint %d", to.ID)
}

// advanceFallback goes on when the record with the older restore point is durable.
func (c *Coordinator) advanceFallback(now time.Time) {
	if !c.record.isSettled() {
		return
	}
	c.discardAbandoned()
	// What a checkpoint refers to whose metadata is broken is known by now to
	// be of no other.
	c.sweepFenced()
	c.requestSlots(now)
}

// discardAbandoned deletes the checkpoints that a fallback has left, once the
// record says so. Files that a retained one shares with them stay (I4).
func (c *Coordinator) discardAbandoned() {
	for _, ref := range c.abandoned {
		invariant.Check(ref.ID != c.record.desired.Latest.ID && !slices.Contains(c.record.desired.Retained, ref), "I4",
			"checkpoint %d is discarded, which is retained", ref.ID)
		c.discardRetained(ref)
	}
	c.abandoned = nil
}
