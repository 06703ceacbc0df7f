package coordinator

import (
	"time"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/ids"
)

// cancelsMax bounds the users who wait for the same cancel.
const cancelsMax = 64

// onCancelRequested cancels the job, wherever it stands. The answer comes when
// the job has ended; one that ends another way first says so.
func (c *Coordinator) onCancelRequested(now time.Time, e CancelRequested) {
	if len(c.cancels) >= cancelsMax {
		c.emit(Answer{Request: e.Request, Status: c.status, Error: "the job is already being cancelled"})
		return
	}
	c.cancels = append(c.cancels, e.Request)
	switch c.phase {
	case phaseClaim:
		// There is no record yet to write the end into. The claim sees it.
		c.note(now, "cancel requested: waiting for the job's record")
	case phaseCancel, phaseEnd, phaseEnded, phaseSteppedDown:
	case phaseRestart, phaseLoad, phaseVerify, phaseFallback, phaseSlots, phaseLaunch, phaseDeploy, phaseRun:
		c.cancel(now)
	}
}

// cancel asks the tasks to end. What does not within the grace is killed:
// goroutines cannot be stopped, processes can.
func (c *Coordinator) cancel(now time.Time) {
	c.phase = phaseCancel
	c.setStatus(now, Cancelling)
	c.detail = "waiting for tasks to end"
	c.timers = timers{}
	// On record, so that a JobManager that takes over goes on cancelling.
	c.record.desired.Status = Cancelling
	c.record.update()
	c.abortAll(now, JobCancelling, "the job was cancelled")
	if !c.attempt.deployed {
		return // advance ends the job at once
	}
	keep := c.neededUpTo()
	for _, x := range c.attempt.executors {
		if !x.lost {
			c.emit(CancelTasks{Executor: x.id, KeepUpTo: keep})
		}
	}
	c.timers.set(timerCancel, now.Add(c.cfg.CancellationTimeout))
}

// neededUpTo is the newest checkpoint or savepoint that exists, or may turn out
// to: a publication whose outcome is not known, or a savepoint that is not yet
// on record. Everything else under way has been aborted. What sinks prepared
// for later ones will never be committed (I1).
func (c *Coordinator) neededUpTo() ids.CheckpointID {
	w := &c.record
	invariant.Check(len(c.pending) == 0 || len(c.pending) == 1 && c.pending[0] == w.publishing, "I4",
		"tasks are cancelled with %d checkpoints under way", len(c.pending))
	needed := w.desired.Latest.ID
	if w.publishing != nil {
		needed = max(needed, w.publishing.id)
	}
	for _, id := range w.desired.Savepoints { // those not yet on record too
		needed = max(needed, id)
	}
	return needed
}

func (c *Coordinator) onCancelTimeout(now time.Time) {
	c.note(now, "tasks did not end within the grace of the cancel: killing their executors")
	c.endJob(now, CanceledStatus)
}
