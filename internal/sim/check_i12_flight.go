package sim

import (
	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/snapshot"
)

// I12: everything in flight between two checkpoints is in one of them: timers
// that have not fired, records that a barrier overtook or that go round in a
// loop, transactions that are not committed yet.

// checkFlight sees a checkpoint that was read back: what it keeps is what the
// records in front of it left, each once. It gives the output in front of it.
func (c *cluster) checkFlight(j *job, p *published) map[simjob.Count]bool {
	output, err := j.options.ExpectedOutput(p.stored)
	if err != nil {
		c.fail("I12", "%s: checkpoint %d with positions %v: %v", j.name, p.checkpoint.ID, p.stored.Positions, err)
	}
	// What still goes round a loop registers timers behind the barrier of a stop.
	if t := c.checks.triggered[checkpointName{j.id, p.checkpoint.ID}]; t.barrier.Drain && !j.options.HasLoop() && len(p.stored.Due) > 0 {
		c.fail("I12", "%s: savepoint %d is drained, and timers are left in it: %v", j.name, p.checkpoint.ID, p.stored.Due)
	}
	return output
}

// checkSavepointsKept demands at the end that what savepoints are still to
// commit exists.
func (c *cluster) checkSavepointsKept(a *app) {
	for _, p := range c.checks.published {
		if p.checkpoint.Kind != snapshot.Savepoint || c.jobOf(p.checkpoint.Job).app != a {
			continue
		}
		for _, name := range p.stored.Transactions {
			if !a.world.Has(name) && !a.forgotten[name] {
				c.fail("I12", "transaction %s is lost, savepoint %d needs it", name, p.checkpoint.ID)
			}
		}
	}
}
