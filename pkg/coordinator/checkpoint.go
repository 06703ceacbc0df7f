package coordinator

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// wantsPeriodic reports whether a periodic checkpoint waits for nothing but its time.
func (c *Coordinator) wantsPeriodic() bool {
	return c.cfg.Checkpointing.Interval > 0 && c.mayCheckpoint()
}

// mayCheckpoint reports whether there may be one more periodic checkpoint now.
func (c *Coordinator) mayCheckpoint() bool {
	if c.phase != phaseRun || c.attempt.finishing || c.attempt.awaited != 0 ||
		c.record.desired.StopSavepoint || c.isAllEndOfData() {
		return false
	}
	periodic := 0
	for _, p := range c.pending {
		switch p.kind {
		case snapshot.Checkpoint:
			periodic++
		case snapshot.StopSavepoint, snapshot.FinalCheckpoint:
			return false
		case snapshot.Savepoint:
		}
	}
	for _, r := range c.waiting {
		if r.stop {
			return false
		}
	}
	return periodic < c.cfg.Checkpointing.MaxConcurrent
}

// periodicDue is when the next periodic checkpoint may be triggered.
func (c *Coordinator) periodicDue() time.Time {
	due := c.nextTrigger
	if pause := c.cfg.Checkpointing.MinPause; !c.lastEnd.IsZero() && c.lastEnd.Add(pause).After(due) {
		due = c.lastEnd.Add(pause)
	}
	return due
}

func (c *Coordinator) isAllEndOfData() bool {
	return c.attempt.counts[RunningEndOfData] == c.layout.total()
}

// wantsFinal reports whether the last checkpoint of a bounded job is due: all
// input was read, however long the interval (a job shorter than its interval
// ends at once). A checkpoint that is under way is waited for, so that no task
// has two of them; at the end of data it has nothing to wait for itself.
func (c *Coordinator) wantsFinal() bool {
	if !c.isAllEndOfData() || c.timers.isSet(timerFinal) || len(c.waiting) > 0 {
		return false
	}
	for _, p := range c.pending {
		if p.kind != snapshot.Savepoint {
			return false
		}
	}
	return true
}

// startCheckpoint triggers a periodic checkpoint if it is time for one, or if
// users have asked for one. All who have share it.
func (c *Coordinator) startCheckpoint(now time.Time) {
	isDue := c.wantsPeriodic() && !now.Before(c.periodicDue())
	if !isDue && (len(c.requested) == 0 || !c.mayCheckpoint()) {
		return
	}
	p := c.trigger(now, snapshot.Checkpoint, savepointRequest{})
	if p == nil {
		return
	}
	if isDue {
		c.nextTrigger = now.Add(c.cfg.Checkpointing.Interval)
	}
	if p.askedBy, c.requested = c.requested, nil; len(p.askedBy) > 0 {
		c.note(now, fmt.Sprintf("checkpoint %d triggered by a user", p.id))
	}
}

// trigger starts a checkpoint, unless no ID is reserved yet: then it returns nil.
func (c *Coordinator) trigger(now time.Time, kind snapshot.Kind, request savepointRequest) *pendingCheckpoint {
	id, ok := c.takeID()
	if !ok {
		return nil
	}
	p := &pendingCheckpoint{
		id: id, kind: kind, attempt: c.attempt.id, stage: collecting,
		triggeredAt: now, deadline: now.Add(c.cfg.Checkpointing.Timeout),
		request: request, acks: make([]*snapshot.SubtaskState, c.layout.total()),
		measured: measured{subtasks: make([]snapshot.SubtaskReport, c.layout.total())},
	}
	barrier := element.Barrier{Checkpoint: id}
	barrier.Alignment, barrier.AlignedTimeout = c.alignment(p)
	if base := c.record.desired.Latest.ID; c.cfg.Checkpointing.Incremental && !p.isSavepoint() && c.files.canBeBase(base) {
		c.files.pin(base)
		p.base, barrier.Base = base, base
	}
	if p.isSavepoint() {
		p.dir = request.dir
		barrier.Savepoint, barrier.SavepointDir = true, p.dir
		barrier.Stop = kind == snapshot.StopSavepoint
		barrier.Drain = request.drain
		c.note(now, fmt.Sprintf("%s %d triggered", kind, id))
	}
	if n := len(c.pending); n > 0 {
		invariant.Check(c.pending[n-1].id < id, "I6", "checkpoint %d is triggered after %d", id, c.pending[n-1].id)
	}
	c.pending = append(c.pending, p)
	for _, x := range c.attempt.executors {
		if len(x.sources) > 0 {
			c.emit(TriggerCheckpoint{Executor: x.id, Barrier: barrier, Subtasks: x.sources})
		}
	}
	return p
}

// alignment says how the barriers of a checkpoint pass records. Those of
// savepoints keep their place: a savepoint has no channel state, so that it can be
// restored by a changed program. And no barrier may overtake one of them, or
// what it overtook would be in front of the savepoint and behind it.
func (c *Coordinator) alignment(p *pendingCheckpoint) (element.Alignment, int64) {
	k := &c.cfg.Checkpointing
	switch {
	case k.Mode == AtLeastOnce:
		return element.AtLeastOnce, 0
	case !k.Unaligned || p.isSavepoint() || c.hasSavepointBarriers():
		return element.Aligned, 0
	case k.AlignedTimeout > 0:
		return element.Aligned, int64((k.AlignedTimeout + time.Millisecond - 1) / time.Millisecond)
	}
	return element.Unaligned, 0
}

// hasSavepointBarriers reports whether barriers of a savepoint are on their
// way: when all subtasks have acknowledged it, all barriers have arrived.
func (c *Coordinator) hasSavepointBarriers() bool {
	return slices.ContainsFunc(c.pending, func(p *pendingCheckpoint) bool { return p.isSavepoint() && p.stage == collecting })
}

// onCheckpointAcked takes an acknowledgement of the current attempt.
func (c *Coordinator) onCheckpointAcked(now time.Time, e CheckpointAcked) {
	switch c.acknowledge(now, e) {
	case Accepted:
		c.acks.Accepted++
	case Duplicate:
		c.acks.Duplicate++
	case Late:
		c.acks.Late++
	case Unknown:
		c.acks.Unknown++
	case Refused:
		c.acks.Refused++
	}
}

func (c *Coordinator) acknowledge(now time.Time, e CheckpointAcked) AckResult {
	i, ok := c.layout.index(e.State.Subtask)
	p := c.findPending(e.Checkpoint)
	switch {
	case !ok:
		return Unknown
	case p == nil:
		return c.lateAck(e)
	case p.acks[i] != nil:
		c.discardOthers(p, e.State)
		return Duplicate
	}
	invariant.Check(p.stage == collecting, "I3", "checkpoint %d is being persisted without %v", p.id, e.State.Subtask)
	state := e.State
	p.acks[i] = &state
	if reason := c.misplaced(p, &state); reason != "" {
		p.measured.culprit = &state.Subtask
		c.abort(now, p, Declined, fmt.Sprintf("acknowledgement of %s: %s", c.describe(state.Subtask), reason))
		return Refused
	}
	p.acked++
	p.measure(now, i, e)
	if p.acked == c.layout.total() {
		c.persist(now, p)
	}
	return Accepted
}

// discardOthers deletes what a repeated acknowledgement brings beyond the
// accepted one: an upload that was tried twice. What was accepted stays.
func (c *Coordinator) discardOthers(p *pendingCheckpoint, again snapshot.SubtaskState) {
	accepted := make(map[string]bool)
	p.eachHandle(func(h snapshot.StateHandle) { accepted[h.Name] = true })
	c.discard(p.id, p.dir, false, func(f func(snapshot.StateHandle)) {
		again.EachHandle(func(h snapshot.StateHandle) {
			if !accepted[h.Name] {
				f(h)
			}
		})
	})
}

// lateAck takes an acknowledgement for a checkpoint that is not pending.
func (c *Coordinator) lateAck(e CheckpointAcked) AckResult {
	ended, known := c.findEnded(e.Checkpoint)
	switch {
	case known && ended.completed:
		// All subtasks had acknowledged it: these files are in use, or were and
		// go with it. Shared files that nothing refers to are of a second upload,
		// and do not lie where the rest of it is deleted.
		c.discardUnused(e)
		return Duplicate
	case known:
		c.discard(e.Checkpoint, ended.dir, false, e.State.EachHandle)
		return Late
	}
	for _, p := range c.unsettled {
		if p.id == e.Checkpoint {
			c.discardOthers(p, e.State)
			return Duplicate // the others go with its metadata
		}
	}
	for _, g := range c.record.goals {
		if g.savepoint.id == e.Checkpoint {
			return Duplicate
		}
	}
	if slices.Contains(c.record.desired.Savepoints, e.Checkpoint) {
		return Unknown // savepoints stay, however long ago
	}
	c.discard(e.Checkpoint, "", false, e.State.EachHandle)
	return Unknown
}

// discardUnused deletes the shared files that a repeated acknowledgement of a
// published checkpoint brings and that nothing refers to.
func (c *Coordinator) discardUnused(e CheckpointAcked) {
	c.discard(e.Checkpoint, "", false, func(f func(snapshot.StateHandle)) {
		e.State.EachHandle(func(h snapshot.StateHandle) {
			if h.IsShared() {
				f(h)
			}
		})
	})
}

// discardStaleAck deletes the files of an older attempt of ours that come too
// late, when it is certain that nobody needs them. Of an older leadership
// nothing is known here: the sweep at its takeover has its files.
func (c *Coordinator) discardStaleAck(ev Event) {
	e, ok := ev.(CheckpointAcked)
	if !ok || e.Attempt.Token != c.token || c.token == 0 || c.phase == phaseClaim {
		return
	}
	switch ended, known := c.findEnded(e.Checkpoint); {
	case known && !ended.completed:
		c.discard(e.Checkpoint, ended.dir, false, e.State.EachHandle)
	case known:
		c.discardUnused(e)
	}
}

func (c *Coordinator) onCheckpointDeclined(now time.Time, e CheckpointDeclined) {
	p := c.findPending(e.Checkpoint)
	if p == nil || p.stage != collecting {
		c.dropped.OutOfPlace++
		return
	}
	p.measured.culprit = &e.Subtask
	c.abort(now, p, Declined, fmt.Sprintf("%s: %s", c.describe(e.Subtask), e.Reason))
}

// persist writes the metadata of a checkpoint that everybody has acknowledged.
func (c *Coordinator) persist(now time.Time, p *pendingCheckpoint) {
	cc, err := c.complete(now, p)
	if err != nil {
		c.abort(now, p, Declined, err.Error())
		return
	}
	p.stage = persisting
	c.emit(PersistMetadata{Token: c.token, Checkpoint: cc, Dir: p.dir})
}

func (c *Coordinator) onMetadataPersisted(now time.Time, e MetadataPersisted) {
	if c.settle(e.Checkpoint) {
		return
	}
	p := c.findPending(e.Checkpoint)
	if p == nil || p.stage != persisting {
		c.dropped.OutOfPlace++
		return
	}
	p.uri = e.URI
	if p.kind == snapshot.Savepoint {
		c.recordSavepoint(p)
		return
	}
	p.stage = publishing
	c.record.queue = append(c.record.queue, p)
}

func (c *Coordinator) onMetadataPersistFailed(now time.Time, e MetadataPersistFailed) {
	if c.settle(e.Checkpoint) {
		return
	}
	p := c.findPending(e.Checkpoint)
	if p == nil || p.stage != persisting {
		c.dropped.OutOfPlace++
		return
	}
	// The write may have succeeded all the same. It was not published, so
	// nobody restores from it, and its ID is not used again: it can go.
	p.stage = publishing
	c.abort(now, p, MetadataNotPersisted, e.Reason)
}

// settle deletes a checkpoint that was given up while its metadata was being
// written, now that the write is over.
func (c *Coordinator) settle(id ids.CheckpointID) bool {
	for i, p := range c.unsettled {
		if p.id == id {
			c.unsettled = append(c.unsettled[:i], c.unsettled[i+1:]...)
			c.discard(p.id, p.dir, true, p.eachHandle)
			c.recent.add(endedCheckpoint{id: p.id, dir: p.dir}, endedMax)
			if p.isSavepoint() {
				c.leave(endedCheckpoint{id: p.id, dir: p.dir}) // a write of unknown outcome may still come
			}
			return true
		}
	}
	return false
}

// publish swaps the record to one in which the checkpoint is the latest.
func (c *Coordinator) publish(p *pendingCheckpoint) {
	w := &c.record
	invariant.Check(p.stage == publishing && p.uri != "", "I3", "checkpoint %d is published before its metadata is durable", p.id)
	invariant.Check(p.id > w.desired.Latest.ID, "I6", "checkpoint %d is published after %d", p.id, w.desired.Latest.ID)
	next := w.desired.clone()
	next.NextCheckpointBlock = max(next.NextCheckpointBlock, c.nextID+checkpointBlock)
	next.Latest = CheckpointRef{ID: p.id, URI: p.uri}
	w.unretained = nil
	if ref, ok := c.claimed(); ok {
		next.Retained = append(next.Retained, ref)
	}
	if p.kind == snapshot.StopSavepoint {
		next.StopSavepoint = true
		next.Savepoints = append(next.Savepoints, p.id)
	} else {
		next.Retained = append(next.Retained, next.Latest)
		if drop := len(next.Retained) - c.cfg.Checkpointing.Retained; drop > 0 {
			w.unretained = slices.Clone(next.Retained[:drop])
			next.Retained = slices.Clone(next.Retained[drop:])
		}
	}
	w.publishing, w.swapped = p, next
	c.emit(PublishCheckpoint{Token: c.token, Checkpoint: p.id, Record: next.clone()})
}

func (c *Coordinator) onCheckpointPublished(now time.Time, e CheckpointPublished) {
	w := &c.record
	p := w.publishing
	if p == nil || p.id != e.Checkpoint {
		c.dropped.OutOfPlace++
		return
	}
	w.publishing = nil
	w.desired.Latest, w.desired.Retained = w.swapped.Latest, w.swapped.Retained
	if p.kind == snapshot.StopSavepoint {
		// Not the list that was swapped in: a savepoint may have completed
		// meanwhile and waits in desired for the next write.
		w.desired.StopSavepoint = true
		w.desired.Savepoints = append(w.desired.Savepoints, p.id)
	}
	w.desired.NextCheckpointBlock = max(w.desired.NextCheckpointBlock, w.swapped.NextCheckpointBlock)
	w.blockEnd = w.swapped.NextCheckpointBlock
	w.swapped = Record{}
	if p.kind != snapshot.StopSavepoint {
		c.files.retain(p.id, p.eachHandle) // before its base is unpinned
	}
	c.endPending(now, p, "")
	if p.kind == snapshot.StopSavepoint {
		c.stop.publish(p)
		c.note(now, fmt.Sprintf("stop-savepoint %d is complete: %s", p.id, p.uri))
	}
	c.failuresInARow = 0
	c.restarts.onCheckpoint()
	if c.phase == phaseRun && p.attempt == c.attempt.id {
		c.attempt.checkpointed = true
		if p.kind == snapshot.StopSavepoint || p.kind == snapshot.FinalCheckpoint {
			c.awaitCommits(p.id)
		}
		c.notifyComplete(p)
		c.endEmptyLoops(p)
		c.subsumeBefore(now, p.id)
	}
	c.answerCheckpoint(p, "")
	for _, ref := range w.unretained {
		invariant.Check(ref.ID != w.desired.Latest.ID && !slices.Contains(w.desired.Retained, ref), "I4",
			"checkpoint %d is discarded, which is retained", ref.ID)
		c.discardRetained(ref)
	}
	w.unretained = nil
	c.sweepReleased()
}

// discardRetained deletes a checkpoint that is no longer retained, and the
// shared files that nothing else refers to.
func (c *Coordinator) discardRetained(ref CheckpointRef) {
	c.emit(c.discardOf(ref))
	if !c.isClaimed(ref) {
		c.sweepOwed = c.sweepOwed || c.files.isUnread(ref.ID)
		c.discardShared(ref.ID, c.files.release(ref.ID))
	}
}

// notifyComplete tells all executors to commit. It is called while handling
// CheckpointPublished and from nowhere else, and nobody else makes the effect:
// that is how I3 is held. An executor that does not get it has lost its
// stream, so it is an ExecutorLost, and the restart commits: there is nothing
// to be notified again.
func (c *Coordinator) notifyComplete(p *pendingCheckpoint) {
	invariant.Check(c.record.desired.Latest.ID == p.id, "I3", "checkpoint %d is notified, %d is published", p.id, c.record.desired.Latest.ID)
	invariant.Check(p.attempt == c.attempt.id, "I8", "checkpoint %d of attempt %s is notified to attempt %s", p.id, p.attempt, c.attempt.id)
	for _, x := range c.attempt.executors {
		c.emit(NotifyComplete{Executor: x.id, Checkpoint: p.id})
	}
}

// subsumeBefore gives up the periodic checkpoints that a newer one has
// overtaken. Savepoints are never: their user waits.
func (c *Coordinator) subsumeBefore(now time.Time, id ids.CheckpointID) {
	for _, p := range slices.Clone(c.pending) {
		if p.id < id && p.kind == snapshot.Checkpoint {
			c.abort(now, p, Subsumed, subsumedBy(id))
		}
	}
}

func subsumedBy(id ids.CheckpointID) string {
	return fmt.Sprintf("the newer checkpoint %d completed first", id)
}

func (c *Coordinator) onPublishFailed(now time.Time, e PublishFailed) {
	w := &c.record
	p := w.publishing
	if p == nil || p.id != e.Checkpoint {
		c.dropped.OutOfPlace++
		return
	}
	w.publishing, w.unretained, w.swapped = nil, nil, Record{}
	c.abort(now, p, NotPublished, e.Reason)
}

func (c *Coordinator) onCommitAcked(e CommitAcked) {
	a := &c.attempt
	i, ok := c.layout.index(e.Subtask)
	if !ok || !a.deployed || e.Checkpoint <= a.committed[i] {
		c.dropped.OutOfPlace++
		return
	}
	if a.awaited != 0 && a.committed[i] < a.awaited && e.Checkpoint >= a.awaited {
		a.commitsAwaited--
	}
	a.committed[i] = e.Checkpoint
}

// awaitCommits makes the job end when everybody has committed the checkpoint.
func (c *Coordinator) awaitCommits(id ids.CheckpointID) {
	a := &c.attempt
	a.awaited, a.commitsAwaited = id, 0
	for _, done := range a.committed {
		if done < id {
			a.commitsAwaited++
		}
	}
	c.detail = fmt.Sprintf("waiting for the commits of checkpoint %d", id)
}

// expirePending gives up what is older than the timeout.
func (c *Coordinator) expirePending(now time.Time) {
	for _, p := range slices.Clone(c.pending) {
		if p.canExpire() && !now.Before(p.deadline) && c.findPending(p.id) == p {
			c.abort(now, p, Expired, fmt.Sprintf("%d of %d subtasks acknowledged within %s", p.acked, c.layout.total(), c.cfg.Checkpointing.Timeout))
		}
	}
}

// abort gives a checkpoint up. Its swap is not under way: it was never
// published and never will be (I10), so what is known of its files goes, now
// or when the write of its metadata is over.
func (c *Coordinator) abort(now time.Time, p *pendingCheckpoint, reason AbortReason, detail string) {
	invariant.Check(c.record.publishing != p, "I10", "checkpoint %d is aborted while its publication is under way", p.id)
	c.record.queue = slices.DeleteFunc(c.record.queue, func(q *pendingCheckpoint) bool { return q == p })
	text := reason.String()
	if detail != "" {
		text += ": " + detail
	}
	// Its tasks cannot go on from the end of event time: they are not told, but stopped.
	drained := p.request.drain && p.attempt == c.attempt.id && c.phase == phaseRun
	persistUnderWay := p.stage == persisting
	p.measured.failure = reason
	// A savepoint is alone in its directory, so what was written for it and
	// never acknowledged goes too: no sweep comes there. See leave for what
	// is written later.
	metadata := p.stage == publishing || p.isSavepoint()
	c.endPending(now, p, text)
	if p.attempt == c.attempt.id && c.phase == phaseRun && !drained {
		for _, x := range c.attempt.executors {
			c.emit(NotifyAborted{Executor: x.id, Checkpoint: p.id, Reason: reason})
		}
	}
	if persistUnderWay {
		// Bounded by the writes under way: each is answered.
		c.unsettled = append(c.unsettled, p)
	} else {
		c.discard(p.id, p.dir, metadata, p.eachHandle)
	}
	if reason != Subsumed {
		c.note(now, fmt.Sprintf("%s %d aborted: %s", p.kind, p.id, text))
	}
	if p.isSavepoint() {
		if p.acked < c.layout.total() {
			c.leave(endedCheckpoint{id: p.id, dir: p.dir})
		}
		answer := fmt.Sprintf("%s %d failed: %s", p.kind, p.id, text)
		if drained {
			// Not the user's code's doing: the restart strategy has no say in it.
			c.failover(now, Failure{Kind: LostProcess, Message: fmt.Sprintf(
				"stop with drain failed, and no task can go on from the end of event time: %s %d %s", p.kind, p.id, text)})
			answer += "; event time had been brought to its end, so the job restarts from its last checkpoint"
		}
		c.answerSavepoint(p, answer)
		return
	}
	c.answerCheckpoint(p, fmt.Sprintf("%s %d failed: %s", p.kind, p.id, text))
	c.countFailure(now, p, reason, text)
}

// leave remembers the directory of a savepoint that was given up before all
// subtasks had acknowledged it. Those that had not may still be writing, which
// nothing interrupts, and may end without saying of what: their attempt fails, or
// is cancelled.
func (c *Coordinator) leave(e endedCheckpoint) {
	if c.leftovers = append(c.leftovers, e); len(c.leftovers) > leftoversMax {
		c.discardLeftover(c.leftovers[0])
		c.leftovers = slices.Delete(c.leftovers, 0, 1)
	}
}

// discardLeftovers deletes the directories of savepoints that were given up
// in attempts which have ended. The sweep of attempts looks at checkpoints only;
// now their executors are gone for sure.
func (c *Coordinator) discardLeftovers() {
	for _, e := range c.leftovers {
		c.discardLeftover(e)
	}
	c.leftovers = nil
}

func (c *Coordinator) discardLeftover(e endedCheckpoint) {
	c.emit(DiscardHandles{Checkpoint: e.id, Dir: e.dir, Metadata: true})
}

// countFailure fails the job over when too many checkpoints in a row have failed.
func (c *Coordinator) countFailure(now time.Time, p *pendingCheckpoint, reason AbortReason, text string) {
	switch reason {
	case Subsumed, JobFailing, JobCancelling:
		return
	case Declined, Expired, MetadataNotPersisted, NotPublished:
	}
	if c.phase != phaseRun || p.attempt != c.attempt.id {
		return
	}
	c.failuresInARow++
	if limit := c.cfg.Checkpointing.TolerableFailures; limit >= 0 && c.failuresInARow > limit {
		message := fmt.Sprintf("%d checkpoints in a row have failed, %d are tolerated; the last, checkpoint %d, %s", c.failuresInARow, limit, p.id, text)
		c.failuresInARow = 0 // as many are tolerated after the restart, as in Flink
		c.failover(now, Failure{Kind: UserFailure, Message: message})
		return
	}
	if p.kind == snapshot.FinalCheckpoint {
		c.timers.set(timerFinal, now.Add(c.backoff(c.cfg.Restart.Backoff, c.finalFailures)))
		c.finalFailures++
	}
}

// endPending moves a checkpoint from the pending ones to the history.
func (c *Coordinator) endPending(now time.Time, p *pendingCheckpoint, failure string) {
	c.removePending(p)
	if p.base != 0 {
		c.discardShared(p.base, c.files.unpin(p.base))
		p.base = 0
	}
	if p.kind == snapshot.Checkpoint {
		c.lastEnd = now
	}
	view := p.view(c.layout.total())
	view.Duration = now.Sub(p.triggeredAt)
	if failure == "" {
		c.completed++
		view.Status, view.Path = CheckpointCompleted, p.uri
	} else {
		c.aborted++
		view.Status, view.Reason = CheckpointFailed, failure
	}
	c.history.add(view, checkpointsMax)
	c.emit(RecordHistory{Report: c.report(p, view)})
	if p.stage != persisting {
		c.recent.add(endedCheckpoint{id: p.id, completed: failure == "", dir: p.dir}, endedMax)
	}
}
