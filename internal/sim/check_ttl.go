package sim

import (
	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/operator"
)

// Time-to-live: what has expired is not returned, what has not is not dropped,
// and neither a clock that goes back nor a restore brings anything back. Beside
// each value with time-to-live the job keeps, in a state without, when it was
// written. The model's clock is the latest that a subtask was told.

// frozenClocks is when a snapshot was frozen, by the clocks of its subtasks.
type frozenClocks struct {
	in attemptName
	// clocks of the counter, by key group.
	clocks map[keygroup.Group]int64
}

// noteFrozen notes the clock of a snapshot: what has expired by it is not in it.
func (c *cluster) noteFrozen(by *operator.Context, id ids.CheckpointID) {
	if by.Operator != simjob.Counts {
		return
	}
	name := checkpointName{by.Job, id}
	f := c.checks.frozen[name]
	if f == nil {
		f = &frozenClocks{in: attemptName{by.Job, by.Attempt}, clocks: map[keygroup.Group]int64{}}
		c.checks.frozen[name] = f
	}
	clock := c.hostOf(by).clock
	for g := by.KeyGroups.First; g <= by.KeyGroups.Last; g++ {
		f.clocks[g] = clock
	}
}

// hostOf finds the subtask that an operator runs in.
func (c *cluster) hostOf(by *operator.Context) *host {
	j := c.jobOf(by.Job)
	for id, h := range c.attempt(j, by.Attempt).deployed {
		v := &j.graph.Vertices[id.Vertex]
		for _, uid := range v.Chain {
			if uid == by.Operator && int(id.Index) == by.Index {
				return h
			}
		}
	}
	c.fail("sim", "operator %s of subtask %d of %s runs nowhere", by.Operator, by.Index, by.Job)
	return nil
}

// checkExpires sees what a state with time-to-live gave.
func (c *cluster) checkExpires(key uint64, was simjob.Written, id uint64, found bool) simjob.Written {
	h := c.stepped
	clock, ttl := h.clock, h.x.job.options.TTL.Milliseconds()
	alive := was.Job != 0 && clock-was.At < ttl && !c.wasDropped(h, key, was, ttl)
	switch {
	case found && !alive:
		c.fail("TTL", "%s: key %d has value %d, written at %d, at %d: its time-to-live is %d ms", h.name, key, id, was.At, clock, ttl)
	case !found && alive:
		c.fail("TTL", "%s: key %d has no value, one was written at %d, it is %d: its time-to-live is %d ms", h.name, key, was.At, clock, ttl)
	case found && id != was.ID:
		c.fail("TTL", "%s: key %d has value %d, the last written is %d", h.name, key, id, was.ID)
	case found:
		c.result.Alive++
	case was.Job != 0:
		c.result.Expired++
	}
	return simjob.Written{
		At: clock, Job: h.x.job.number(), Token: uint64(h.x.id.Attempt.Token), Number: uint64(h.x.id.Attempt.Number), ID: id,
	}
}

// wasDropped reports whether a value had expired when a snapshot was frozen
// that lies between its being written and now.
func (c *cluster) wasDropped(h *host, key uint64, was simjob.Written, ttl int64) bool {
	group := simjob.GroupOf(key, h.x.job.options.MaxParallelism)
	at := attemptName{h.x.job.id, h.x.id.Attempt}
	for {
		j := c.jobOf(at.job)
		if j.number() == was.Job && uint64(at.attempt.Token) == was.Token && uint64(at.attempt.Number) == was.Number {
			return false
		}
		restored := c.attempt(j, at.attempt).restored
		if restored == nil {
			c.fail("TTL", "%s: key %d was written by attempt %d.%d of job %d, from which nothing was restored", h.name, key, was.Token, was.Number, was.Job)
		}
		f := c.checks.frozen[checkpointName{restored.checkpoint.Job, restored.checkpoint.ID}]
		if f.clocks[group]-was.At >= ttl {
			return true
		}
		at = f.in
	}
}

// noteFired counts timers.
func (c *cluster) noteFired(eventTime bool) {
	if eventTime {
		c.result.EventTimers++
	} else {
		c.result.ProcessingTimers++
	}
}
