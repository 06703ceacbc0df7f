package sim

import (
	"context"
	"maps"
	"math"
	"os"
	"path/filepath"

	"github.com/weirstream/weir/internal/sim/simjob"
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
		// A subtask may have restored a damaged file from its local copy, and
		// refer to it.
		if content, ok := c.checks.damaged[objectName(base)+"/"+h.Name]; ok {
			return content, nil
		}
		return c.storage.exactCheckpoints.ReadState(context.Background(), base, h)
	}
	scratch := ""
	if c.disks != "" {
		scratch = filepath.Join(c.disks, "read", j.name)
		if err := os.MkdirAll(scratch, 0o700); err != nil {
			panic(err)
		}
	}
	stored, err := j.options.ReadStored(checkpoint, j.code, &j.graph, scratch, read)
	if err != nil {
		c.fail("I2", "%s: checkpoint %d: %v", j.name, id, err)
	}
	c.result.InFlight += stored.Flight.Len()
	for _, e := range j.graph.Job.Edges {
		if e.Feedback {
			c.result.LoopLogged += len(stored.Flight.Tokens[simjob.Channel{From: e.From, To: e.To, Input: e.Input}])
		}
	}
	p := &published{uri: uri, base: base, checkpoint: checkpoint, stored: stored}
	want := j.options.ExpectedLines(stored)
	apart := stored.Lines.Short(want)
	if j.options.Mode != simjob.AtLeastOnce || c.isWithoutRepeats(j, checkpoint) {
		apart = stored.Lines.Apart(want, simjob.IsByChance)
	}
	if len(apart) > 0 {
		c.fail("I2", "%s: checkpoint %d does not have what its positions %v give: %v", j.name, id, stored.Positions, apart)
	}
	p.output = c.checkFlight(j, p)
	c.trace.add("%s %d of %s is published: positions %v", checkpoint.Kind, id, j.name, stored.Positions)
	return p
}

// isWithoutRepeats reports whether a checkpoint holds exactly what its positions
// give in at-least-once mode too: nothing was restored before, and no record
// can have come behind its barrier. In a loop some always can: what its head has
// logged it passes on behind the barrier, and the body holds nothing back.
func (c *cluster) isWithoutRepeats(j *job, p *snapshot.CompletedCheckpoint) bool {
	for _, e := range j.graph.Job.Edges {
		if e.Feedback {
			return false
		}
	}
	return !j.app.hasRestored && (p.Kind == snapshot.FinalCheckpoint || p.Kind == snapshot.StopSavepoint)
}

// isReplaced reports whether a later attempt has been deployed: a process that was
// held up may begin with an earlier one only now.
func (c *cluster) isReplaced(j *job, attempt ids.AttemptID) bool {
	for name, a := range c.checks.attempts {
		if name.job == j.id && attempt.Less(name.attempt) && len(a.deployed) > 0 {
			return true
		}
	}
	return false
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
		j.app.hasRestored = true
		a.restored = c.checks.published[checkpointName{j.id, id}]
		if a.restored == nil && j.from != nil && j.from.checkpoint.ID == id {
			a.restored = j.from
		}
		if a.restored == nil {
			c.fail("I2", "%s: attempt %s is restored from checkpoint %d, which nobody published", j.name, plan.Attempt, id)
		}
		if a.restored.base != plan.RestoreBase {
			c.fail("I2", "%s: attempt %s restores checkpoint %d from %s, it is in %s", j.name, plan.Attempt, id, plan.RestoreBase, a.restored.base)
		}
		if a.restored.stored.InFiles {
			c.result.FromFiles++
		}
	}
	if newest := c.latest(j); plan.Attempt.Token == c.checks.records[j.id].Token && !c.isReplaced(j, plan.Attempt) && a.restored != newest {
		c.fail("I2", "%s: attempt %s starts from checkpoint %d, which is not the newest", j.name, plan.Attempt, plan.RestoredCheckpoint)
	}
}

// checkRestored sees the state of an operator right after its restore: all
// subtasks together have what the checkpoint has, each line once, and every one
// has the whole of what is united or broadcast (I7).
func (c *cluster) checkRestored(by *operator.Context, live *simjob.Stored) {
	j := c.jobOf(by.Job)
	a := c.attempt(j, by.Attempt)
	want := simjob.Lines{}
	groups := map[uint32]uint64{}
	watermark := int64(math.MinInt64)
	if a.restored != nil {
		want, groups = a.restored.stored.Lines, a.restored.stored.Groups
		if stored := a.restored.stored.Watermarks[by.Operator]; len(stored) > 0 {
			var err error
			if watermark, err = operator.LowestTime(stored, by.KeyGroups); err != nil {
				c.fail("I2", "%s: attempt %s: watermarks: %v", j.name, by.Attempt, err)
			}
		}
	}
	if by.Operator == simjob.Counts && !maps.Equal(live.Groups, groups) {
		c.fail("I7", "%s: subtask %d of attempt %s restored the union list %v, want %v", j.name, by.Index, by.Attempt, live.Groups, groups)
	}
	if by.Watermark != watermark {
		c.fail("I11", "%s: subtask %d of attempt %s restored watermark %d, want %d", j.name, by.Index, by.Attempt, by.Watermark, watermark)
	}
	all := a.live[by.Operator]
	if all == nil {
		all = &liveCheck{lines: simjob.Lines{}}
		a.live[by.Operator] = all
	}
	for name, v := range live.Lines {
		is, had := all.lines[name]
		switch {
		case had && !simjob.IsEverywhere(name):
			c.fail("I7", "%s: %s is restored twice in attempt %s", j.name, name, by.Attempt)
		case had && is != v:
			c.fail("I7", "%s: %s is %s in one subtask of attempt %s and %s in another", j.name, name, is, by.Attempt, v)
		}
		all.lines[name] = v
	}
	for name, v := range want {
		if simjob.IsEverywhere(name) && simjob.IsOf(name, by.Operator) && live.Lines[name] != v {
			c.fail("I7", "%s: %s is %q in subtask %d of attempt %s, want %s", j.name, name, live.Lines[name], by.Index, by.Attempt, v)
		}
	}
	all.parts = append(all.parts, live.Parts...)
	all.ready++
	if all.ready < by.Parallelism {
		return
	}
	whole := simjob.Stored{Lines: all.lines, Parts: all.parts, Groups: live.Groups}
	if j.options.Stateful && by.Operator == simjob.Counts && a.restored != nil {
		whole.Finish()
	}
	if apart := whole.Lines.Apart(want, func(name string) bool { return !simjob.IsOf(name, by.Operator) }); len(apart) > 0 {
		c.fail("I2", "%s: attempt %s restored something else: %v", j.name, by.Attempt, apart)
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
	if len(a.ready) == j.graph.SubtaskCount() && c.isLast(j) && a.restored != nil && a.restored == c.latest(j) {
		c.checkWholeOutput(j.app, a.restored)
	}
}

// locationOf is where a checkpoint or savepoint is stored.
func locationOf(j *job, t triggered) checkpointstore.Location {
	if t.barrier.Savepoint {
		return checkpointstore.SavepointLocation(t.barrier.SavepointDir, j.id, t.barrier.Checkpoint)
	}
	return checkpointstore.CheckpointLocation(checkpointDir, j.id, t.barrier.Checkpoint)
}
