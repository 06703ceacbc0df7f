package sim

import (
	"context"
	"path"
	"strings"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// I4: nothing stays behind, and nothing that is still referred to is deleted.

// updateReferenced notes, after a record has changed, which objects the
// records refer to.
func (c *cluster) updateReferenced() {
	clear(c.checks.referenced)
	for _, j := range c.jobs {
		record := c.checks.records[j.id]
		for _, id := range record.Savepoints {
			if p := c.checks.published[checkpointName{j.id, id}]; !c.isClaimed(p) {
				c.refer(p)
			}
		}
		if record.Status == coordinator.FinishedStatus.String() ||
			record.Status == coordinator.FailedStatus.String() && c.options.Retention == coordinator.NoExternalizedCheckpoints ||
			record.Status == coordinator.CanceledStatus.String() && c.options.Retention != coordinator.RetainOnCancellation {
			continue // checkpoints of a job that has ended are deleted
		}
		for _, ref := range record.Retained {
			p := c.checks.byURI[ref.URI]
			if p.checkpoint.Job == j.id && c.isClaimed(p) {
				continue
			}
			c.refer(p)
		}
	}
}

// isClaimed reports whether a job has made a checkpoint of another its own,
// which it does with the first that it publishes.
func (c *cluster) isClaimed(p *published) bool {
	for _, j := range c.jobs {
		if j.claim && j.from == p && c.checks.records[j.id].Latest.ID != 0 {
			return true
		}
	}
	return false
}

func (c *cluster) refer(p *published) {
	base := objectName(p.base)
	c.checks.referenced[objectName(p.uri)+"/_metadata"] = true
	p.checkpoint.EachHandle(func(h snapshot.StateHandle) {
		if !h.IsInline() {
			c.checks.referenced[base+"/"+h.Name] = true
		}
	})
}

// sharedOf are the shared files of a published checkpoint of a job, by name.
func (c *cluster) sharedOf(j *job, id ids.CheckpointID) map[string]snapshot.StateHandle {
	shared := map[string]snapshot.StateHandle{}
	if p := c.checks.published[checkpointName{j.id, id}]; p != nil {
		p.checkpoint.EachHandle(func(h snapshot.StateHandle) {
			if h.IsShared() {
				shared[h.Name] = h
			}
		})
	}
	return shared
}

// checkPinned sees a shared file deleted: no checkpoint that is under way may
// still refer to it, because its base has it.
func (c *cluster) checkPinned(name string) {
	for _, jm := range c.jobManagers {
		for _, d := range jm.drivers {
			base := objectName(checkpointstore.JobBase(checkpointDir, d.job.id))
			file, ok := strings.CutPrefix(name, base+"/")
			if !ok || jm.dead || d.over {
				continue
			}
			status := d.machine.Status()
			for _, v := range status.Checkpoints {
				t, ok := c.checks.triggered[checkpointName{d.job.id, v.ID}]
				if v.Status != coordinator.CheckpointInProgress || !ok || t.token != c.checks.records[d.job.id].Token {
					continue
				}
				if _, has := c.sharedOf(d.job, t.barrier.Base)[file]; has {
					c.fail("I4", "%s is deleted, which base %d of checkpoint %d has, which is under way", name, t.barrier.Base, v.ID)
				}
			}
		}
	}
}

// checkDeleted sees every deletion.
func (c *cluster) checkDeleted(name string) {
	c.checks.deleted[name] = true
	if isShared(name) {
		c.checkPinned(name)
	}
	if c.checks.referenced[name] {
		c.fail("I4", "%s is deleted, which a published checkpoint refers to", name)
	}
}

// checkOrphans lists the store when everything has settled.
func (c *cluster) checkOrphans() {
	ha := objectName(checkpointstore.ClusterURI(haDir, clusterID)) + "/"
	for object, err := range c.storage.objects.List(context.Background(), "") {
		if err != nil {
			c.fail("I4", "list: %v", err)
		}
		switch {
		case c.checks.referenced[object.Name], strings.HasPrefix(object.Name, ha):
		case c.isBeyondSweeps(object.Name), c.checks.revenant[object.Name], c.checks.held[object.Name], c.isWithheld(object.Name):
			c.trace.add("%s stays behind, written by a process that had been replaced, or too late", object.Name)
			c.result.Leftovers++
		default:
			c.fail("I4", "%s stays behind", object.Name)
		}
	}
	for name := range c.checks.referenced {
		if _, exists := c.storage.objects.exists(name); !exists && !c.isDamaged(name) {
			c.fail("I4", "%s is gone, which a published checkpoint refers to", name)
		}
	}
}

// isBeyondSweeps reports whether an object was written by a process that had
// already been replaced, when nobody was to look for leftovers any more: after
// the last sweep of its job (or none could be made), or into a savepoint of a
// JobManager before the last, or one that was given up and looked into after its
// attempt had ended (or its deletion has failed too often). It does harm to nobody
// and nobody can prevent it, short of a lock on every write.
func (c *cluster) isBeyondSweeps(name string) bool {
	written := c.checks.written[name]
	for _, j := range c.jobs {
		if base := checkpointstore.JobBase(checkpointDir, j.id); strings.HasPrefix(name, objectName(base)+"/") {
			return written > c.checks.swept[base] || c.checks.unswept[base]
		}
	}
	for at, t := range c.checks.triggered {
		uri := checkpointstore.SavepointLocation(savepointDir, at.job, at.id).URI()
		if !strings.HasPrefix(name, objectName(uri)+"/") {
			continue
		}
		swept, ok := c.checks.swept[uri]
		return ok && written >= swept || t.token < c.checks.records[at.job].Token || c.checks.unswept[savepointsOf(at.job)]
	}
	return false
}

// returns notes an object that a write has made again which came late, after its
// repetition had succeeded and what that wrote was deleted. Nobody can know that
// it is there.
func (c *cluster) returns(name string, content []byte) {
	c.checks.revenant[name] = true
	if strings.HasSuffix(name, "/_metadata") {
		c.holds(name, content)
	}
}

// holds notes the shared files that metadata refers to which belongs to nobody:
// it returned too late, or a replaced JobManager wrote it after the last sweep. Who
// deletes a checkpoint beside it that has the same files cannot tell it from one
// that somebody keeps, and leaves them; and nobody comes back for them when it
// has gone.
func (c *cluster) holds(name string, content []byte) {
	checkpoint, err := checkpointstore.DecodeMetadata(content)
	if err != nil {
		return // isWithheld
	}
	base := path.Dir(path.Dir(name))
	checkpoint.EachHandle(func(h snapshot.StateHandle) {
		if h.IsShared() {
			c.checks.held[base+"/"+h.Name] = true
		}
	})
}

// checkHolders follows the deletion of a checkpoint that was claimed.
func (c *cluster) checkHolders(uri string) {
	deleted := objectName(uri)
	for object, err := range c.storage.objects.List(context.Background(), path.Dir(deleted)+"/") {
		if err != nil {
			c.fail("I4", "list: %v", err)
		}
		if strings.HasSuffix(object.Name, "/_metadata") && object.Name != deleted+"/_metadata" && !c.checks.referenced[object.Name] {
			content, _ := c.storage.objects.content(object.Name)
			c.holds(object.Name, content)
		}
	}
}
