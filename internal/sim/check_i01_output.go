package sim

import (
	"slices"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
)

// I1: the output is exactly that of the published checkpoints (in at-least-once
// mode, at least: after a restore records may be there twice). No record is
// visible twice or before the checkpoint that has it is published, and once
// all commits of the newest are acknowledged nothing is missing.

// checkCommitted sees every transaction become visible.
func (c *cluster) checkCommitted(by *operator.Context, name string, records []simjob.Count) {
	c.trace.add("%s is committed by %s/%d, %d records", name, by.Attempt, by.Index, len(records))
	c.result.Transactions++
	a := c.jobOf(by.Job).app
	if token, ok := c.checks.abandoned[name]; ok && by.Attempt.Token < token && by.Job == c.jobOfTransaction(name) {
		// By a process that does not know yet that it was replaced: see
		// operator.Recovery. If the attempt that fell back has cleaned up before,
		// nothing in the sink can stop it.
		a.world.TakeBack(name)
		c.result.Leftovers++
		return
	}
	if !c.checks.allowed[name] {
		c.fail("I1", "transaction %s is committed, no published checkpoint has it", name)
	}
	if a.fork != nil && c.jobOf(by.Job).number() <= a.forkedAt && !a.isInFork(name, records) {
		a.world.Forget(name)
		a.forgotten[name] = true
		return
	}
	for _, r := range records {
		if a.visible[r] > 0 && a.mayRepeat() {
			c.result.Duplicates++
		} else if a.visible[r] > 0 {
			c.fail("I1", "%d of key %x is visible twice, the second time by %s", r.N, r.Key, name)
		}
		a.visible[r]++
	}
}

// checkAborted sees every transaction go away because its job is cancelled:
// nothing that was published needs it, nor will anything (see checkPublication).
func (c *cluster) checkAborted(by *operator.Context, name string) {
	c.trace.add("%s is aborted by %s/%d", name, by.Attempt, by.Index)
	c.result.TransactionsAborted++
	c.checks.aborted[name] = true
	if id, ok := c.checks.needed[name]; ok {
		c.fail("I1", "transaction %s is aborted, checkpoint %d has it", name, id)
	}
}

// checkCommitReported sees a subtask say that all up to a checkpoint is committed.
func (c *cluster) checkCommitReported(h *host, id ids.CheckpointID) {
	a := c.attempt(h.x.job, h.x.id.Attempt)
	a.committed[h.id] = id
	for _, s := range h.x.job.graph.Subtasks() {
		if a.committed[s] < id {
			return
		}
	}
	if newest := c.latest(h.x.job); c.isLast(h.x.job) && newest.checkpoint.Job == h.x.job.id && newest.checkpoint.ID == id {
		c.checkWholeOutput(h.x.job.app, newest)
	}
}

// checkWholeOutput compares the output with what the source positions of a
// checkpoint give, all of which is committed and nothing newer.
func (c *cluster) checkWholeOutput(a *app, p *published) {
	for r := range p.output {
		if a.visible[r] == 0 {
			c.fail("I1", "checkpoint %d is committed, but %d of key %x is not visible", p.checkpoint.ID, r.N, r.Key)
		}
	}
	possible := p.output
	if a.last().options.Mode == simjob.AtLeastOnce {
		// Behind the barriers of the checkpoint, too.
		possible = a.last().options.PossibleOutput()
	} else if len(p.output) == len(a.visible) {
		return
	}
	for r := range a.visible {
		if !possible[r] {
			c.fail("I1", "checkpoint %d has %d records before it, %d are visible, as is %d of key %x", p.checkpoint.ID, len(p.output), len(a.visible), r.N, r.Key)
		}
	}
}

// mayRepeat reports whether output may be there twice.
func (a *app) mayRepeat() bool {
	return a.last().options.Mode == simjob.AtLeastOnce && a.hasRestored
}

// fork follows a user who goes back to a savepoint, with the output that there
// was then.
func (c *cluster) fork(a *app, p *published) {
	a.fork, a.forkedAt = p, uint64(len(c.jobs))
	a.forkPending = map[simjob.Count]bool{}
	for _, name := range p.stored.Transactions {
		for _, r := range a.world.Records(name) {
			a.forkPending[r] = true
		}
	}
	for _, name := range a.world.Transactions() {
		records := a.world.Records(name)
		if a.isInFork(name, records) {
			continue
		}
		a.hide(records)
		a.forgotten[name] = true
		a.world.Forget(name)
	}
}

// hide takes records out of what is visible.
func (a *app) hide(records []simjob.Count) {
	for _, r := range records {
		if a.visible[r]--; a.visible[r] <= 0 {
			delete(a.visible, r)
		}
	}
}

// isInFork reports whether a committed transaction is part of the output at
// the savepoint that a user went back to. What the savepoint is still to commit
// the job may have written again after a failure, under another name.
func (a *app) isInFork(name string, records []simjob.Count) bool {
	p := a.fork
	return slices.Contains(p.stored.Transactions, name) || p.output[records[0]] && !a.forkPending[records[0]]
}

// checkOutputAtEnd looks at the world itself, at what it complained of, and at
// what savepoints need of it.
func (c *cluster) checkOutputAtEnd(j *job, complete bool) {
	a := j.app
	out := a.world.Committed()
	for _, r := range out {
		if a.visible[r] == 0 {
			c.fail("I1", "at the end %d of key %x is there, which nobody committed", r.N, r.Key)
		}
	}
	visible := 0
	for _, n := range a.visible {
		visible += n
	}
	if len(out) != visible {
		c.fail("I1", "at the end %d records are there, %d were committed", len(out), visible)
	}
	if complete {
		p := c.latest(j)
		for split, at := range p.stored.Positions {
			// One that never ends was stopped somewhere, as was one that was drained.
			if !j.options.IsUnbounded() && !c.isDrained(p) && at != j.options.Records(split) {
				c.fail("I1", "%s is finished and has read split %d to %d of %d", j.name, split, at, j.options.Records(split))
			}
		}
		c.checkWholeOutput(a, p)
	}
	c.checkSavepointsKept(a)
	for _, v := range a.world.Violations() {
		c.fail("I1", "%s", v)
	}
}
