package sim

import (
	"slices"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/ids"
)

// I8: whoever holds an old fencing token changes nothing in the record. (That
// an old attempt makes nothing visible is I1's: only what a published
// checkpoint has may be.)

// checkRecordWritten sees every change of a job's record in the store.
func (c *cluster) checkRecordWritten(name string, before, after []byte) {
	id, ok := isRecord(name)
	if !ok {
		return
	}
	now, err := checkpointstore.DecodeRecord(after)
	if err != nil {
		c.fail("record", "a record was written that cannot be read: %v", err)
	}
	var was checkpointstore.JobRecord
	if len(before) > 0 {
		if was, err = checkpointstore.DecodeRecord(before); err != nil {
			c.fail("record", "the record before cannot be read: %v", err)
		}
	}
	j := c.jobOf(id)
	c.trace.add("record of %s: token %d, %s, latest %d, retained %v, IDs below %d", j.name, now.Token, now.Status, now.Latest.ID, now.Retained, now.NextCheckpointBlock)
	switch {
	case now.Token < was.Token:
		c.fail("I8", "%s: the holder of token %d changed the record after %d had claimed it", j.name, now.Token, was.Token)
	case now.NextCheckpointBlock < was.NextCheckpointBlock:
		c.fail("I6", "%s: IDs below %d may be used, the record went back to %d", j.name, was.NextCheckpointBlock, now.NextCheckpointBlock)
	case now.Latest.ID < was.Latest.ID:
		c.checkFallback(j, was, now)
	case isTerminal(was.Status) && now.Status != was.Status:
		c.fail("I8", "%s had ended as %s and is %s now", j.name, was.Status, now.Status)
	}
	c.checks.records[id] = now
	if now.Token > was.Token && j.corrupt && !isTerminal(now.Status) {
		j.corrupt = false
		c.damage(j)
	}
	c.checkPublication(j, was, now)
	c.updateReferenced()
}

// checkPublication reads back what a record names for the first time.
func (c *cluster) checkPublication(j *job, was, now checkpointstore.JobRecord) {
	publish := func(id ids.CheckpointID, uri string) {
		name := checkpointName{j.id, id}
		if c.checks.published[name] == nil {
			c.checkKnown(j, id)
			p := c.readBack(j, id, uri)
			c.checks.published[name] = p
			c.checks.byURI[uri] = p
			for _, transaction := range p.stored.Transactions {
				c.checks.needed[transaction] = id
				if c.checks.aborted[transaction] {
					c.fail("I1", "checkpoint %d is published with transaction %s, which was aborted", id, transaction)
				}
			}
		}
	}
	for _, id := range now.Savepoints {
		if !slices.Contains(was.Savepoints, id) {
			publish(id, checkpointstore.SavepointLocation(savepointDir, j.id, id).URI())
		}
	}
	if now.Latest.ID <= was.Latest.ID {
		return
	}
	publish(now.Latest.ID, now.Latest.URI)
	c.result.Completed++
	for _, name := range c.checks.published[checkpointName{j.id, now.Latest.ID}].stored.Transactions {
		c.checks.allowed[name] = true
	}
}

func isTerminal(status string) bool {
	return status == "FINISHED" || status == "CANCELED" || status == "FAILED"
}
