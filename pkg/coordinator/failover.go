package coordinator

import (
	"fmt"
	"slices"
	"time"
)

// failover ends the attempt and begins the way to the next one, or ends the
// job. It is called once for an attempt: what else the attempt reports is
// stale from here on, so a shower of echoes makes one restart.
//
// A publication that is under way is not touched: until its outcome is known
// neither may its files be discarded nor a restore point be chosen (I10). The
// next attempt waits for it.
func (c *Coordinator) failover(now time.Time, f Failure) {
	a := &c.attempt
	if a.checkpointed && now.Sub(a.runningSince) >= c.cfg.Restart.StableAfter {
		c.restarts.onStable()
	}
	root := c.restarts.onFailure(f)
	echo := c.isEcho(now, f)
	var delay time.Duration
	var giveUp string
	if !echo {
		delay, giveUp = c.decide(now, f)
	}
	c.note(now, fmt.Sprintf("attempt %s failed (%s): %s", a.id, f.Kind, f.Message))
	desired := &c.record.desired
	desired.Cause = &root
	c.phase = phaseRestart
	// The status first: users whose requests end with the attempt are told it.
	if giveUp != "" {
		c.note(now, "giving up: "+giveUp)
		c.setStatus(now, Failing)
		c.leaveAttempt(now, true, JobFailing, f.Message)
		c.endJob(now, FailedStatus)
		return
	}
	c.setStatus(now, Restarting)
	c.leaveAttempt(now, true, JobFailing, f.Message)
	desired.Status = Restarting
	if !echo {
		desired.Restarts++
	}
	c.record.update()
	c.nextAttempt()
	c.detail = "waiting for the outcome of a publication"
	if delay > 0 {
		c.detail = fmt.Sprintf("restarting after %s: %s", delay, f.Message)
		c.timers.set(timerRestart, now.Add(delay))
	}
}

// failForGood ends a job that has nothing to restart.
func (c *Coordinator) failForGood(now time.Time, f Failure) {
	root := c.restarts.onFailure(f)
	c.record.desired.Cause = &root
	c.note(now, fmt.Sprintf("failed (%s): %s", f.Kind, f.Message))
	c.setStatus(now, Failing)
	c.endJob(now, FailedStatus)
}

// leaveAttempt stops the attempt's executors, gives its slots back, gives up
// its checkpoints and answers the users who waited for them. The phase is
// already another one.
func (c *Coordinator) leaveAttempt(now time.Time, kill bool, reason AbortReason, text string) {
	a := &c.attempt
	c.timers = timers{}
	if !a.left {
		a.left = true
		for _, x := range a.executors {
			stop := StopExecutor{Executor: x.id, Kill: kill}
			if !kill {
				stop.Grace = c.cfg.CancellationTimeout
			}
			c.emit(stop)
		}
		// Also when this attempt has not asked for any: what attempts of
		// leaders before us hold is older, and released by this.
		c.emit(ReleaseSlots{Attempt: a.id})
	}
	c.abortAll(now, reason, text)
}

// abortAll gives up every checkpoint whose publication is not under way.
func (c *Coordinator) abortAll(now time.Time, reason AbortReason, text string) {
	for _, p := range slices.Clone(c.pending) {
		if p != c.record.publishing {
			c.abort(now, p, reason, text)
		}
	}
	c.refuseWaiting(text)
}
