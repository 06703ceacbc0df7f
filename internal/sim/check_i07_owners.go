package sim

import (
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/coordinator/slots"
)

// I7: every key group, every split and every slot has exactly one owner. (Key
// groups and splits are looked at where they are restored and opened, in
// check_i02_state.go; jobManager.notify has the slot table check itself.)

// checkGranted sees slots given to an attempt.
func (c *cluster) checkGranted(jm *jobManager, g slots.Grant) {
	seen := map[slots.Slot]bool{}
	for _, s := range g.Slots {
		if seen[s] || jm.taskManagers[s.TaskManager] == nil {
			c.fail("I7", "%s grants slot %s, which is granted twice or gone", jm.name, s)
		}
		seen[s] = true
	}
}

// checkDeployed sees a subtask start in an executor: the only one of its name
// in the attempt, where the plan says, and within the executor's slots.
func (c *cluster) checkDeployed(h *host, plan *coordinator.Deployment) {
	j := h.x.job
	c.checkRestorePoint(j, plan)
	a := c.attempt(j, plan.Attempt)
	if other := a.deployed[h.id]; other != nil {
		c.fail("I7", "%s is deployed on %s and on %s", h.name, other.x.name, h.x.name)
	}
	a.deployed[h.id] = h
	of := 0
	for _, p := range plan.Placements {
		if p.Subtask == h.id && plan.Peers[p.Peer].TaskManager == h.x.tm.id {
			of++
		}
	}
	if of != 1 {
		c.fail("I7", "the plan of attempt %s has %s %d times on %s", plan.Attempt, h.id, of, h.x.tm.id)
	}
	inVertex := 0
	for _, other := range h.x.hosts {
		if other.id.Vertex == h.id.Vertex {
			inVertex++
		}
	}
	if inVertex > h.x.tm.slots {
		c.fail("I7", "%s runs %d subtasks of a vertex in %d slots", h.x.name, inVertex, h.x.tm.slots)
	}
}
