package sim

import (
	"context"
	"strings"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/snapshot"
)

// I3: no notice before the checkpoint is published; no publication before its
// metadata is durable; no acknowledgement before its snapshot is.

// checkEffect sees every effect before it is carried out.
func (c *cluster) checkEffect(d *jobDriver, effect coordinator.Effect) {
	switch e := effect.(type) {
	case coordinator.TriggerCheckpoint:
		c.checkTriggered(d.job, e)
	case coordinator.PublishCheckpoint:
		// A leader that is over does not know that its checkpoint was swept.
		_, _, err := c.storage.exactCheckpoints.LoadMetadata(context.Background(), e.Record.Latest.URI)
		if err != nil && e.Token == c.checks.records[d.job.id].Token {
			c.fail("I3", "%s publishes checkpoint %d before its metadata is durable: %v", d.jm.name, e.Checkpoint, err)
		}
	case coordinator.NotifyComplete:
		if c.checks.published[checkpointName{d.job.id, e.Checkpoint}] == nil {
			c.fail("I3", "%s notifies checkpoint %d before it is published", d.jm.name, e.Checkpoint)
		}
	case coordinator.NotifyAborted:
		for _, v := range d.machine.Status().Checkpoints {
			if v.ID == e.Checkpoint && v.Kind != snapshot.Checkpoint && strings.Contains(v.Reason, "subsumed") {
				c.fail("I3", "%s gives up %s %d: %s", d.jm.name, v.Kind, v.ID, v.Reason)
			}
		}
	case coordinator.StepDown:
		c.result.Fenced++
	}
}

// checkGivenUp sees an executor told that a checkpoint is given up: whoever says
// so has given it up.
func (c *cluster) checkGivenUp(x *executor, id ids.CheckpointID) {
	d := x.session.jm.driverOf(x.job)
	if d == nil || d.over || d.jm.dead {
		return
	}
	for _, v := range d.machine.Status().Checkpoints {
		if v.ID == id && v.Status == coordinator.CheckpointInProgress {
			c.fail("I3", "%s is told that %s %d is given up, which is in progress", x.name, v.Kind, id)
		}
	}
}

// checkNotified sees a notice reach an executor.
func (c *cluster) checkNotified(x *executor, id ids.CheckpointID) {
	if c.checks.published[checkpointName{x.job.id, id}] == nil {
		c.fail("I3", "%s is told to commit checkpoint %d, which is not published", x.name, id)
	}
}

// checkAcked sees an acknowledgement leave a subtask: every file it names is there.
func (c *cluster) checkAcked(h *host, r subtask.AckReport) {
	t, ok := c.checks.triggered[checkpointName{h.x.job.id, r.Checkpoint}]
	ofBase := c.sharedOf(h.x.job, t.barrier.Base)
	if !ok {
		c.fail("I3", "%s acknowledges checkpoint %d, which was never triggered", h.name, r.Checkpoint)
	}
	base := objectName(locationOf(h.x.job, t).Base)
	r.State.EachHandle(func(handle snapshot.StateHandle) {
		if handle.IsInline() {
			return
		}
		if handle.IsShared() && handle.SharedSince != r.Checkpoint {
			c.result.SharedReused++
			if of := ofBase[handle.Name]; of.SharedSince != handle.SharedSince || of.Size != handle.Size || of.CRC32C != handle.CRC32C {
				c.fail("I4", "%s acknowledges checkpoint %d with %s of %d, which its base %d does not have", h.name, r.Checkpoint, handle.Name, handle.SharedSince, t.barrier.Base)
			}
		}
		size, exists := c.storage.objects.exists(base + "/" + handle.Name)
		// What was given up meanwhile may have been deleted meanwhile.
		if !c.checks.deleted[base+"/"+handle.Name] && !c.isDamaged(base+"/"+handle.Name) && (!exists || size != handle.Size) {
			c.fail("I3", "%s acknowledges checkpoint %d with %s of %d bytes, the store has %d", h.name, r.Checkpoint, handle.Name, handle.Size, size)
		}
	})
}

// checkStopped sees every record: a source emits none behind the barrier of a
// stop, unless the stop was given up.
func (c *cluster) checkStopped() {
	if h := c.stepped; h != nil && h.stoppedFor != 0 && h.x.job.graph.IsSource(h.id.Vertex) {
		c.fail("stop", "%s emits a record behind the barrier of stop-savepoint %d", h.name, h.stoppedFor)
	}
}

// checkAnswer sees a user told that his savepoint is complete.
func (c *cluster) checkAnswer(d *jobDriver, a coordinator.Answer) {
	if a.Path == "" {
		return
	}
	checkpoint, _, err := c.storage.exactCheckpoints.LoadMetadata(context.Background(), a.Path)
	if err != nil || checkpoint.ID != a.Checkpoint {
		c.fail("I3", "%s says that savepoint %d is complete in %s, which cannot be read: %v", d.jm.name, a.Checkpoint, a.Path, err)
	}
}

// objectName is the name in the store of what a URI names.
func objectName(uri string) string { return strings.TrimPrefix(uri, storeRoot+"/") }

// isRecord finds the job whose record has that name in the store.
func isRecord(name string) (ids.JobID, bool) {
	rest, ok := strings.CutPrefix(name, objectName(checkpointstore.ClusterURI(haDir, clusterID))+"/jobs/")
	job, isRecord := strings.CutSuffix(rest, "/record")
	return ids.JobID(job), ok && isRecord
}
