package coordinator

import (
	"fmt"
	"time"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// savepointsMax bounds the savepoints that are requested or under way at once:
// each is a full copy of the state, and users ask one at a time.
const savepointsMax = 8

// leftoversMax bounds the directories of savepoints given up that are looked into
// once more. An attempt may run for long and its savepoints fail again and again;
// what a subtask was writing when the oldest of so many was given up has been
// written by then, unless they fail as fast as users ask for them.
const leftoversMax = 64

// savepointRequest is a user's request that is not yet triggered.
type savepointRequest struct {
	id    RequestID
	dir   string
	stop  bool
	drain bool
}

// stopState is a stop whose savepoint is published. From here on the job only
// has to commit and end, whatever fails; and its user waits for that.
type stopState struct {
	waiting    bool // a user waits; not so after the JobManager was restarted
	request    RequestID
	checkpoint ids.CheckpointID
	path       string
}

func (s *stopState) publish(p *pendingCheckpoint) {
	*s = stopState{waiting: true, request: p.request.id, checkpoint: p.id, path: p.uri}
}

// onSavepointRequested takes a request on, or refuses it with the reason.
func (c *Coordinator) onSavepointRequested(e SavepointRequested) {
	if reason := c.refuseSavepoint(e); reason != "" {
		c.emit(Answer{Request: e.Request, Status: c.status, Error: reason})
		return
	}
	c.waiting = append(c.waiting, savepointRequest{id: e.Request, dir: e.Dir, stop: e.Stop, drain: e.Stop && e.Drain})
}

func (c *Coordinator) refuseSavepoint(e SavepointRequested) string {
	underWay := len(c.waiting) + len(c.record.goals)
	for _, p := range c.pending {
		if p.isSavepoint() {
			underWay++
		}
	}
	reason := c.refuseNew()
	switch {
	case reason != "":
		return reason
	case e.Drain && c.hasLoops():
		return "a job with a loop cannot be drained: records would still go round behind the end of event time; stop it without draining"
	case e.Dir == "":
		return "no directory for the savepoint: name one, or set execution.checkpointing.savepoint-dir"
	case underWay >= savepointsMax:
		return fmt.Sprintf("%d savepoints are under way: wait for one of them", underWay)
	}
	return ""
}

// refuseNew says why no savepoint or checkpoint that a user asks for can be
// taken on; empty if it can.
func (c *Coordinator) refuseNew() string {
	stopping := c.record.desired.StopSavepoint
	ending := c.attempt.awaited != 0 || c.attempt.finishing || c.isAllEndOfData()
	for _, r := range c.waiting {
		stopping = stopping || r.stop
	}
	for _, p := range c.pending {
		stopping = stopping || p.kind == snapshot.StopSavepoint
		ending = ending || p.kind == snapshot.FinalCheckpoint
	}
	switch {
	case c.phase == phaseEnd:
		return fmt.Sprintf("the job is ending: %s", c.record.desired.Status)
	case c.phase != phaseRun:
		return fmt.Sprintf("the job is %s, not RUNNING: ask again when it runs", c.status)
	case stopping:
		return "the job is already being stopped with a savepoint"
	case ending:
		return "the job has read all its input and is finishing"
	}
	return ""
}

// startSavepoints triggers what users have asked for, in order.
func (c *Coordinator) startSavepoints(now time.Time) {
	for len(c.waiting) > 0 {
		kind := snapshot.Savepoint
		if c.waiting[0].stop {
			kind = snapshot.StopSavepoint
		}
		if c.trigger(now, kind, c.waiting[0]) == nil {
			return
		}
		c.waiting = c.waiting[1:]
	}
	c.waiting = nil
}

// recordSavepoint lists a savepoint in the record. It is never the latest
// checkpoint: nothing of it is committed, and no failure goes back to it. The
// tasks need to hear nothing: what their sinks prepared for it stays in their
// next checkpoint.
func (c *Coordinator) recordSavepoint(p *pendingCheckpoint) {
	w := &c.record
	p.stage = recording
	c.removePending(p)
	w.desired.Savepoints = append(w.desired.Savepoints, p.id)
	w.update()
	// If a write is under way the one after it carries this.
	w.goals = append(w.goals, recordGoal{revision: w.revision + 1, savepoint: p})
}

// completeSavepoint answers: the savepoint is durable and on record.
func (c *Coordinator) completeSavepoint(now time.Time, p *pendingCheckpoint) {
	c.endPending(now, p, "")
	c.note(now, fmt.Sprintf("savepoint %d is complete: %s", p.id, p.uri))
	c.emit(Answer{Request: p.request.id, Checkpoint: p.id, Path: p.uri, Status: c.status})
}

// answerSavepoint tells the user that the savepoint failed.
func (c *Coordinator) answerSavepoint(p *pendingCheckpoint, reason string) {
	c.emit(Answer{Request: p.request.id, Checkpoint: p.id, Status: c.status, Error: reason})
}

// refuseWaiting answers the savepoints and checkpoints that were not yet triggered.
func (c *Coordinator) refuseWaiting(reason string) {
	for _, r := range c.waiting {
		c.emit(Answer{Request: r.id, Status: c.status, Error: "the savepoint was not taken: " + reason})
	}
	for _, id := range c.requested {
		c.emit(Answer{Request: id, Status: c.status, Error: "the checkpoint was not taken: " + reason})
	}
	c.waiting, c.requested = nil, nil
}

// answerStop ends the stop request when the job has ended.
func (c *Coordinator) answerStop() {
	if !c.stop.waiting {
		return
	}
	c.stop.waiting = false
	a := Answer{Request: c.stop.request, Checkpoint: c.stop.checkpoint, Path: c.stop.path, Status: c.status}
	if c.status != FinishedStatus {
		a.Error = fmt.Sprintf("the savepoint is complete, but the job is %s before all output was committed; a job restored from the savepoint commits it", c.status)
		if cause := c.record.desired.Cause; cause != nil && c.status == FailedStatus {
			a.Error += ": " + cause.Message
		}
	}
	c.emit(a)
}
