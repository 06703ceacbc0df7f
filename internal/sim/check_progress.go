package sim

import (
	"slices"

	"github.com/weirstream/weir/pkg/coordinator"
)

// Eventually: once nothing fails any more, the jobs end within a budget of
// virtual time. Finally: their output is whole, and nothing stays behind.

// checkProgress demands that the healed cluster has finished.
func (c *cluster) checkProgress() {
	if c.isDone() {
		return
	}
	i := slices.IndexFunc(c.apps, func(a *app) bool { return !a.isDone() })
	j := c.apps[i].last()
	status := "no JobManager leads"
	if c.leader != nil && c.leader.driverOf(j) != nil {
		s := c.leader.driverOf(j).machine.Status()
		status = s.Status.String() + ", " + s.Detail
		for _, sub := range s.Subtasks {
			status += " " + sub.Subtask.String() + "=" + sub.Status.String()
		}
	}
	c.fail("progress", "%s has not ended within %s of healing: %s", j.name, healBudget, status)
}

// checkFinally looks at what is left when everything has settled.
func (c *cluster) checkFinally() {
	for _, a := range c.apps {
		j := a.last()
		c.checkOutputAtEnd(j, j.status == coordinator.FinishedStatus)
	}
	for _, tm := range c.taskManagers {
		if len(tm.executors) > 0 {
			c.fail("progress", "%s still runs %s", tm.id, tm.executors[0].name)
		}
	}
	if jm := c.leader; jm != nil {
		if total, free := jm.table.Count(); total != free || total != len(c.taskManagers)*c.options.Slots {
			c.fail("I7", "%d of %d slots are free, and there are %d", free, total, len(c.taskManagers)*c.options.Slots)
		}
	}
	c.checkOrphans()
}
