package sim

import (
	"context"
	"maps"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/snapshot"
)

// I2: the state in a checkpoint, and the state restored from it, is the state
// at the source positions that the same checkpoint has.

// readBack reads a checkpoint that was just published, without faults, and
// compares its counts with its source positions.
func (c *cluster) readBack(j *job, id ids.CheckpointID, uri string) *published {
	checkpoint, base, err := c.storage.exactCheckpoints.LoadMetadata(context.Background(), uri)
	if err != nil {
		c.fail("I3", "%s: checkpoint %d is published, its metadata cannot be read: %v", j.name, id, err)
	}
	if checkpoint.ID != id || checkpoint.Job != j.id {
		c.fail("I3", "%s: %s has checkpoint %d of job %s, not %d", j.name, uri, checkpoint.ID, checkpoint.Job, id)
	}
	read := func(h snapshot.StateHandle) ([]byte, error) {
		return c.storage.exactCheckpoints.ReadState(context.Background(), base, h)
	}
	stored, err := j.options.ReadStored(checkpoint, read)
	if err != nil {
		c.fail("I2", "%s: checkpoint %d: %v", j.name, id, err)
	}
	p := &published{uri: uri, base: base, checkpoint: checkpoint, stored: stored, expected: j.options.Expected(stored.Position)}
	if !maps.Equal(stored.Counts, p.expected) {
		c.fail("I2", "%s: checkpoint %d has counts %v, its positions %v give %v", j.name, id, stored.Counts, stored.Positions, p.expected)
	}
	c.trace.add("%s %d of %s is published: positions %v", checkpoint.Kind, id, j.name, stored.Positions)
	return p
}

// checkRestorePoint sees what an attempt is restored from. The attempts of the
// leader in the record start from the newest published checkpoint.
func (c *cluster) checkRestorePoint(j *job, plan *coordinator.Deployment) {
	a := c.attempt(j, plan.Attempt)
	if len(a.deployed) > 0 {
		return
	}
	c.result.Attempts++
	if id := plan.RestoredCheckpoint; id != 0 {
		c.result.Restores++
		for from := j; from != nil && a.restored == nil; from = from.previous {
			a.restored = c.checks.published[checkpointName{from.id, id}]
		}
		if a.restored == nil {
			c.fail("I2", "%s: attempt %s is restored from checkpoint %d, which nobody published", j.name, plan.Attempt, id)
		}
		if a.restored.base != plan.RestoreBase {
			c.fail("I2", "%s: attempt %s restores checkpoint %d from %s, it is in %s", j.name, plan.Attempt, id, plan.RestoreBase, a.restored.base)
		}
	}
	if newest := c.latest(j); plan.Attempt.Token == c.checks.records[j.id].Token && a.restored != newest {
		c.fail("I2", "%s: attempt %s starts from checkpoint %d, which is not the newest", j.name, plan.Attempt, plan.RestoredCheckpoint)
	}
}

// checkRestored sees the keyed state of a counter right after its restore.
func (c *cluster) checkRestored(by *operator.Context, counts map[uint64]uint64) {
	j := c.jobOf(by.Job)
	a := c.attempt(j, by.Attempt)
	for key, n := range counts {
		if _, twice := a.counts[key]; twice {
			c.fail("I7", "%s: key %d is restored twice in attempt %s", j.name, key, by.Attempt)
		}
		a.counts[key] = n
	}
	a.countersReady++
	if a.countersReady < by.Parallelism {
		return
	}
	var want map[uint64]uint64
	if a.restored != nil {
		want = a.restored.expected
	}
	if !maps.Equal(a.counts, want) {
		c.fail("I2", "%s: attempt %s restored counts %v, want %v", j.name, by.Attempt, a.counts, want)
	}
}

// checkOpened sees a source open a reader: where the restored checkpoint
// stood, and once for each split in an attempt (I7).
func (c *cluster) checkOpened(by *operator.Context, split int, position uint64) {
	j := c.jobOf(by.Job)
	a := c.attempt(j, by.Attempt)
	if a.opened[split] {
		c.fail("I7", "%s: split %d is opened twice in attempt %s", j.name, split, by.Attempt)
	}
	a.opened[split] = true
	var want uint64
	if a.restored != nil {
		want = a.restored.stored.Positions[split]
	}
	if position != want {
		c.fail("I2", "%s: attempt %s reads split %d from %d, the restored position is %d", j.name, by.Attempt, split, position, want)
	}
}

// checkRunning sees a subtask whose restore is over. When all are, the
// committables of the restored checkpoint are committed (I1).
func (c *cluster) checkRunning(h *host) {
	j := h.x.job
	a := c.attempt(j, h.x.id.Attempt)
	a.ready[h.id] = true
	if len(a.ready) == j.graph.SubtaskCount() && a.restored != nil && a.restored == c.latest(j) {
		c.checkWholeOutput(a.restored)
	}
}

// locationOf is where a checkpoint or savepoint is stored.
func locationOf(j *job, t triggered) checkpointstore.Location {
	if t.barrier.Savepoint {
		return checkpointstore.SavepointLocation(t.barrier.SavepointDir, j.id, t.barrier.Checkpoint)
	}
	return checkpointstore.CheckpointLocation(checkpointDir, j.id, t.barrier.Checkpoint)
}
