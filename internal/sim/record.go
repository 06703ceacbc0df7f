package sim

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/coordinator/driver"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
)

// recordWriter does all that one driver does to its job's record, one write
// at a time and in order.
type recordWriter struct {
	d     *jobDriver
	prev  checkpointstore.VersionedRecord
	queue []recordWrite
	busy  bool
	// over: this leader has been fenced and touches the record no more.
	over bool
}

// recordWrite is one of the three things to do to the record.
type recordWrite struct {
	claim   bool
	update  *coordinator.UpdateRecord
	publish *coordinator.PublishCheckpoint
}

// enqueue takes a write. An update that directly follows one that still waits
// replaces it.
func (w *recordWriter) enqueue(write recordWrite) {
	if last := len(w.queue) - 1; write.update != nil && last >= 0 && w.queue[last].update != nil {
		w.queue[last] = write
	} else {
		w.queue = append(w.queue, write)
	}
	w.next()
}

func (w *recordWriter) next() {
	if w.busy || w.over || len(w.queue) == 0 {
		return
	}
	write := w.queue[0]
	w.queue = w.queue[1:]
	w.busy = true
	switch {
	case write.claim:
		w.claim()
	case write.update != nil:
		u := write.update
		w.swap(w.stored(u.Token, u.Record), 1, false, func(written bool) {
			if !written {
				// A record must get through some day: the job's status depends on it.
				w.d.jm.after(w.d.jm.c.pause(4), "update again", func() {
					w.busy = false
					w.queue = append([]recordWrite{write}, w.queue...)
					w.next()
				})
				return
			}
			w.done(coordinator.RecordUpdated{Token: u.Token, Revision: u.Revision})
		})
	default:
		p := write.publish
		w.swap(w.stored(p.Token, p.Record), 1, false, func(written bool) {
			if written {
				w.done(coordinator.CheckpointPublished{Token: p.Token, Checkpoint: p.Checkpoint})
			} else {
				w.done(coordinator.PublishFailed{Token: p.Token, Checkpoint: p.Checkpoint, Reason: "the record could not be written"})
			}
		})
	}
}

// done answers the write at hand and begins the next.
func (w *recordWriter) done(event coordinator.Event) {
	w.busy = false
	w.d.step(event)
	w.next()
}

// claim swaps our token in.
func (w *recordWriter) claim() {
	c := w.d.jm.c
	w.d.jm.io("claim", func() func() {
		fail := func(err error) func() {
			return func() { w.done(coordinator.JobClaimFailed{Reason: err.Error()}) }
		}
		found, err := c.storage.records.ReadRecord(context.Background(), w.d.job.id)
		if err != nil {
			return fail(err)
		}
		before, err := driver.FromStored(found.JobRecord)
		if err != nil {
			return fail(err)
		}
		if c.plant == ReusesIDs {
			before.NextCheckpointBlock = before.Latest.ID + 1
		}
		claimed := found.JobRecord
		claimed.Token++
		claimed.Nonce = c.nonce()
		result := c.storage.records.SwapRecord(context.Background(), found, claimed)
		if result.Outcome != checkpointstore.Swapped {
			return fail(fmt.Errorf("%s: %w", result.Outcome, errors.Join(result.Err, errNotClaimed)))
		}
		w.prev = result.Record
		return func() { w.done(coordinator.JobClaimed{Token: claimed.Token, Record: before}) }
	})
}

var errNotClaimed = errors.New("the job was not claimed")

func (w *recordWriter) stored(token ids.FencingToken, record coordinator.Record) checkpointstore.JobRecord {
	return driver.ToStored(w.d.job.id, token, w.d.jm.c.nonce(), record)
}

// swap repeats one and the same write until its outcome is known.
func (w *recordWriter) swap(next checkpointstore.JobRecord, try int, unknown bool, end func(written bool)) {
	c := w.d.jm.c
	w.d.jm.io("swap record", func() func() {
		result := c.storage.records.SwapRecord(context.Background(), w.prev, next)
		c.trace.add("%s: swap of record: %s", w.d.jm.name, result.Outcome)
		again := func() {
			w.d.jm.after(c.pause(try), "swap again", func() { w.swap(next, try+1, true, end) })
		}
		fenced := func(token ids.FencingToken) func() {
			return func() {
				w.over = true
				w.d.step(coordinator.Fenced{Token: token})
			}
		}
		switch result.Outcome {
		case checkpointstore.Swapped:
			w.prev = result.Record
			return func() { end(true) }
		case checkpointstore.Lost:
			if c.plant == OldTokenPublishes {
				c.overwrite(next)
			}
			return fenced(result.Record.Token)
		case checkpointstore.NotWritten:
			if errors.Is(result.Err, objectstore.ErrNotExist) {
				return fenced(0)
			}
			if !unknown {
				return func() { end(false) }
			}
			return again
		case checkpointstore.Unknown:
			if c.plant == UnknownIsFailure {
				return func() { end(false) }
			}
		}
		return again
	})
}

// nonce is a text that no other call gives.
func (c *cluster) nonce() string { return fmt.Sprintf("%016x", c.random.Uint64()) }
