package sim

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/snapshot"
)

// I9: a failed read is not an absence. A job goes back to an older checkpoint only if every newer one that is
// retained is damaged, and fails only if it must: see "A broken checkpoint" in
// docs/ARCHITECTURE.md. A failed read is none of this.

// corruptMax bounds the times that files are damaged in a run.
const corruptMax = 2

// ownRetained are the retained checkpoints that a job has written, oldest first.
func (c *cluster) ownRetained(j *job) []*published {
	var own []*published
	for _, ref := range c.checks.records[j.id].Retained {
		if p := c.checks.published[checkpointName{j.id, ref.ID}]; p != nil && p.uri == ref.URI {
			own = append(own, p)
		}
	}
	return own
}

// damage damages or removes a file of the newest retained checkpoints of a job,
// mostly of one.
func (c *cluster) damage(j *job) {
	own := c.ownRetained(j)
	n := 1
	for n < len(own) && c.chance(0.3) {
		n++
	}
	for _, p := range own[max(0, len(own)-n):] {
		files := []string{objectName(p.uri) + "/_metadata"}
		p.checkpoint.EachHandle(func(h snapshot.StateHandle) {
			if !h.IsInline() {
				files = append(files, objectName(p.base)+"/"+h.Name)
			}
		})
		name := files[0]
		if c.chance(0.8) {
			name = files[c.random.IntN(len(files))]
		}
		content, exists := c.storage.objects.content(name)
		if c.isDamaged(name) || !exists || len(content) == 0 {
			continue
		}
		c.checks.damaged[name] = content
		err := c.storage.objects.Store.Delete(context.Background(), name)
		if err == nil && c.chance(0.5) {
			broken := bytes.Clone(content)
			if c.chance(0.5) {
				broken[c.random.IntN(len(broken))] ^= 1 << c.random.IntN(8)
			} else {
				broken = broken[:c.random.IntN(len(broken))]
			}
			err = c.storage.objects.Store.Put(context.Background(), name, func(w io.Writer) error {
				_, err := w.Write(broken)
				return err
			})
		}
		if err != nil {
			panic(err)
		}
		c.trace.add("%s is damaged, a file of checkpoint %d", name, p.checkpoint.ID)
	}
}

func (c *cluster) isDamaged(name string) bool {
	_, ok := c.checks.damaged[name]
	return ok
}

// isBroken reports whether a checkpoint cannot be restored.
func (c *cluster) isBroken(p *published) bool {
	broken := c.isDamaged(objectName(p.uri) + "/_metadata")
	p.checkpoint.EachHandle(func(h snapshot.StateHandle) {
		broken = broken || !h.IsInline() && c.isDamaged(objectName(p.base)+"/"+h.Name)
	})
	return broken
}

// checkFallback sees the latest checkpoint in a record go back.
func (c *cluster) checkFallback(j *job, was, now checkpointstore.JobRecord) {
	if !slices.Contains(was.Retained, now.Latest) || !j.options.Revocable || was.StopSavepoint {
		c.fail("I9", "%s: checkpoint %d is the latest, the record went back to %d", j.name, was.Latest.ID, now.Latest.ID)
	}
	for _, ref := range was.Retained {
		p := c.checks.published[checkpointName{j.id, ref.ID}]
		if ref.ID > now.Latest.ID && !c.isBroken(p) {
			c.fail("I9", "%s: the record went back to checkpoint %d, and %d is not broken", j.name, now.Latest.ID, ref.ID)
		}
		if slices.Contains(now.Retained, ref) != (ref.ID <= now.Latest.ID) {
			c.fail("I4", "%s: the record went back to checkpoint %d and retains %v of %v", j.name, now.Latest.ID, now.Retained, was.Retained)
		}
	}
	c.result.Fallbacks++
	for name := range c.checks.allowed {
		if job, _, checkpoint := simjob.TransactionOf(name); job == j.id && checkpoint > now.Latest.ID {
			c.checks.abandoned[name] = now.Token
		}
	}
	for name := range c.checks.abandoned {
		delete(c.checks.allowed, name)
	}
}

// isAheadOf reports whether output is visible that the job of a checkpoint has
// fallen back from and not taken back.
func (c *cluster) isAheadOf(p *published) bool {
	for _, name := range c.jobOf(p.checkpoint.Job).app.world.Transactions() {
		if c.isAbandoned(name) {
			return true
		}
	}
	return false
}

// isAbandoned reports whether a job has fallen back from a transaction.
func (c *cluster) isAbandoned(name string) bool {
	_, ok := c.checks.abandoned[name]
	return ok
}

func (c *cluster) jobOfTransaction(name string) ids.JobID {
	job, _, _ := simjob.TransactionOf(name)
	return job
}

// checkRevoked sees a sink take back a transaction, which it may only after
// its job has fallen back from it (I1).
func (c *cluster) checkRevoked(by *operator.Context, name string, records []simjob.Count) {
	c.trace.add("%s is taken back by %s/%d, %d records", name, by.Attempt, by.Index, len(records))
	c.result.Revoked++
	if !c.isAbandoned(name) {
		c.fail("I1", "transaction %s is taken back, its job has not fallen back from it", name)
	}
	c.jobOf(by.Job).app.hide(records)
}

// failsCorrupt sees a job that has failed: it may if what it was to restore is
// broken and it must not go back. Its cause names the checkpoint.
func (c *cluster) failsCorrupt(j *job, record checkpointstore.VersionedRecord) bool {
	p := c.latest(j)
	if p == nil || !c.isBroken(p) || record.Cause == nil || !strings.Contains(record.Cause.Message, "corrupt checkpoint") {
		return false
	}
	own := c.ownRetained(j)
	if len(own) > 0 && j.options.Revocable && !record.StopSavepoint && len(record.Savepoints) == 0 {
		for _, older := range own {
			if !c.isBroken(older) {
				c.fail("I9", "%s failed, and checkpoint %d is whole: %s", j.name, older.checkpoint.ID, record.Cause.Message)
			}
		}
	}
	c.result.FailedCorrupt++
	return true
}

// isWithheld reports whether an object is a shared file that a damaged
// checkpoint may refer to, for all that anyone can still know.
func (c *cluster) isWithheld(name string) bool {
	if !isShared(name) {
		return false
	}
	for damaged := range c.checks.damaged {
		dir, ok := strings.CutSuffix(damaged, "/_metadata")
		if ok && strings.HasPrefix(name, dir[:strings.LastIndex(dir, "/")]+"/") && c.checks.referenced[damaged] {
			return true
		}
	}
	return false
}
