package coordinator

import (
	"time"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/ids"
)

// endJob ends the job with a terminal status, which counts once it is
// recorded. Executors are stopped and slots released meanwhile.
func (c *Coordinator) endJob(now time.Time, status JobStatus) {
	invariant.Check(status.IsTerminal(), "coordinator", "the job cannot end as %s", status)
	c.phase = phaseEnd
	text, reason := "the job is "+status.String(), JobCancelling
	if status == FailedStatus {
		reason = JobFailing
	}
	c.leaveAttempt(now, status != FinishedStatus, reason, text)
	desired := &c.record.desired
	desired.Status, desired.EndedAt = status, now
	c.record.update()
	c.detail = "recording " + status.String()
}

// finishEnd: the terminal status is durable, and no write of a checkpoint is
// under way any more. Users hear of it before the clean-up, which may take long.
func (c *Coordinator) finishEnd(now time.Time) {
	c.phase = phaseEnded
	c.timers = timers{}
	status := c.record.desired.Status
	c.setStatus(now, status)
	c.detail = ""
	c.answerStop()
	for _, r := range c.cancels {
		a := Answer{Request: r, Status: status}
		if status != CanceledStatus {
			a.Error = "already " + status.String()
		}
		c.emit(a)
	}
	c.cancels = nil
	c.discardAbandoned()
	keep := c.ownRetained()
	if !c.cfg.Checkpointing.Retention.Keeps(status) {
		for _, ref := range c.record.desired.Retained {
			c.emit(c.discardOf(ref))
		}
		keep = nil
	}
	c.discardLeftovers()
	// Files that executors had written and not yet acknowledged when they were
	// stopped, and shared files that no checkpoint refers to which is kept: all, if none is.
	below := ids.AttemptID{Token: c.token, Number: c.attempt.id.Number + 1}
	c.emit(SweepAttempts{Token: c.token, Below: below, Keep: keep, Over: true})
	c.files = registry{}
	c.emit(JobEnded{Status: status})
}
