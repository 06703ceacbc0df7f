package sim

import (
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
)

// I10: an unknown write result is not a failure. A coordinator that is told
// that its checkpoint was not published may delete it, so it must surely not be:
// neither then nor by a write that takes effect later.

// noteOutcome sees every event before its machine does.
func (c *cluster) noteOutcome(d *jobDriver, event coordinator.Event) {
	e, ok := event.(coordinator.PublishFailed)
	if !ok {
		return
	}
	name := checkpointName{d.job.id, e.Checkpoint}
	c.checks.unpublished[name] = e.Token
	if p := c.checks.published[name]; p != nil && c.checks.records[d.job.id].Token == e.Token {
		c.fail("I10", "%s is told that checkpoint %d is not published: the record has it", d.jm.name, e.Checkpoint)
	}
}

// checkKnown sees a checkpoint published: nobody was told that it was not.
func (c *cluster) checkKnown(j *job, id ids.CheckpointID) {
	if token, ok := c.checks.unpublished[checkpointName{j.id, id}]; ok {
		c.fail("I10", "%s: checkpoint %d is published, the holder of token %d was told that it is not", j.name, id, token)
	}
}
