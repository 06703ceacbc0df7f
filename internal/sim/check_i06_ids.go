package sim

import (
	"github.com/weirstream/weir/pkg/coordinator"
)

// I6: checkpoint IDs grow, also across JobManager failover. A leader that does
// not know yet that it is over may still trigger, but only with IDs that were
// reserved for it, below those of its successors.

// checkTriggered sees a barrier on its way to an executor.
func (c *cluster) checkTriggered(j *job, e coordinator.TriggerCheckpoint) {
	id, token := e.Barrier.Checkpoint, e.Executor.Attempt.Token
	name := checkpointName{j.id, id}
	if t, ok := c.checks.triggered[name]; ok {
		if t.token != token {
			c.fail("I6", "%s: checkpoint %d was triggered by the holder of token %d and again by that of %d", j.name, id, t.token, token)
		}
		return // for another executor
	}
	for other, t := range c.checks.triggered {
		if other.job != j.id {
			continue
		}
		if t.token == token && other.id > id || t.token < token && other.id >= id || t.token > token && other.id <= id {
			c.fail("I6", "%s: checkpoint %d is triggered with token %d after %d with token %d", j.name, id, token, other.id, t.token)
		}
	}
	c.checks.triggered[name] = triggered{barrier: e.Barrier, token: token, attempt: e.Executor.Attempt}
}
