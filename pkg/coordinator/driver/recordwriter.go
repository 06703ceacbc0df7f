package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/internal/logfield"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
)

// RecordStore is where the job's record is; *checkpointstore.ClusterStore.
type RecordStore interface {
	ReadRecord(ctx context.Context, job ids.JobID) (checkpointstore.VersionedRecord, error)
	SwapRecord(ctx context.Context, prev checkpointstore.VersionedRecord, next checkpointstore.JobRecord) checkpointstore.SwapResult
}

// recordWriter does all that one driver does to its job's record, one write
// at a time and in order.
type recordWriter struct {
	job   ids.JobID
	store RecordStore
	nonce func() string
	post  func(coordinator.Event)
	log   *zap.Logger

	// prev is what our last write left, and what the next one compares with.
	// Only run touches it.
	prev checkpointstore.VersionedRecord

	mu struct {
		sync.Mutex
		// queue is bounded by the coordinator: a claim, the updates, of which
		// neighbours collapse into one, and the publications under way.
		queue []recordWrite
	}
	ready chan struct{}
}

// recordWrite is one thing to be done to the record: one of the three.
type recordWrite struct {
	claim   *coordinator.ClaimJob
	update  *coordinator.UpdateRecord
	publish *coordinator.PublishCheckpoint
}

func newRecordWriter(job ids.JobID, store RecordStore, nonce func() string, post func(coordinator.Event), log *zap.Logger) *recordWriter {
	return &recordWriter{job: job, store: store, nonce: nonce, post: post, log: log, ready: make(chan struct{}, 1)}
}

// enqueue takes a write without waiting. An update that directly follows one
// that still waits replaces it: only the latest content matters, and the
// answer to a revision covers the earlier ones.
func (w *recordWriter) enqueue(write recordWrite) {
	w.mu.Lock()
	if last := len(w.mu.queue) - 1; write.update != nil && last >= 0 && w.mu.queue[last].update != nil {
		w.mu.queue[last] = write
	} else {
		w.mu.queue = append(w.mu.queue, write)
	}
	w.mu.Unlock()
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

func (w *recordWriter) next() (recordWrite, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mu.queue) == 0 {
		return recordWrite{}, false
	}
	write := w.mu.queue[0]
	w.mu.queue = w.mu.queue[1:]
	return write, true
}

// run writes until ctx ends or this leader is over. After the latter it
// touches the record no more, whatever is still queued.
func (w *recordWriter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.ready:
		}
		for write, ok := w.next(); ok; write, ok = w.next() {
			if !w.do(ctx, write) {
				return
			}
		}
	}
}

// do carries out one write and reports whether there may be another.
func (w *recordWriter) do(ctx context.Context, write recordWrite) bool {
	switch {
	case write.claim != nil:
		return w.claim(ctx)
	case write.update != nil:
		return w.update(ctx, write.update)
	default:
		return w.publish(ctx, write.publish)
	}
}

// claim swaps our token in. Whoever claims last leads, so a claim that lost
// against another is simply made again on top of it, by the coordinator.
func (w *recordWriter) claim(ctx context.Context) bool {
	fail := func(err error) bool {
		w.post(coordinator.JobClaimFailed{Reason: err.Error()})
		return ctx.Err() == nil
	}
	found, err := w.store.ReadRecord(ctx, w.job)
	if err != nil {
		return fail(err)
	}
	before, err := FromStored(found.JobRecord)
	if err != nil {
		return fail(err)
	}
	claimed := found.JobRecord
	claimed.Token++
	claimed.Nonce = w.nonce()
	result := w.store.SwapRecord(ctx, found, claimed)
	switch result.Outcome {
	case checkpointstore.Swapped:
		w.prev = result.Record
		w.post(coordinator.JobClaimed{Token: claimed.Token, Record: before})
		return true
	case checkpointstore.Lost:
		return fail(fmt.Errorf("another JobManager claimed the job with fencing token %d at the same time", result.Record.Token))
	case checkpointstore.NotWritten, checkpointstore.Unknown:
		// If it happens after all, the next claim finds it and goes beyond it.
		return fail(result.Err)
	}
	invariant.Check(false, "swap outcome", "unknown outcome %d of a swap", result.Outcome)
	return false
}

func (w *recordWriter) update(ctx context.Context, u *coordinator.UpdateRecord) bool {
	next := w.stored(u.Token, u.Record)
	var pause backoff
	for {
		switch outcome := w.swap(ctx, next); outcome {
		case written:
			w.post(coordinator.RecordUpdated{Token: u.Token, Revision: u.Revision})
			return true
		case notWritten:
			// A record must get through some day: the job's status depends on it.
			if !pause.wait(ctx) {
				return false
			}
		case over:
			return false
		}
	}
}

func (w *recordWriter) publish(ctx context.Context, p *coordinator.PublishCheckpoint) bool {
	switch w.swap(ctx, w.stored(p.Token, p.Record)) {
	case written:
		w.post(coordinator.CheckpointPublished{Token: p.Token, Checkpoint: p.Checkpoint})
		return true
	case notWritten:
		w.post(coordinator.PublishFailed{Token: p.Token, Checkpoint: p.Checkpoint, Reason: "the job's record could not be written"})
		return true
	case over:
	}
	return false
}

func (w *recordWriter) stored(token ids.FencingToken, record coordinator.Record) checkpointstore.JobRecord {
	invariant.Check(token == w.prev.Token, "I8", "record of job %s written with token %d, claimed with %d", w.job, token, w.prev.Token)
	return ToStored(w.job, token, w.nonce(), record)
}

// swapEnd is how a swap ended for sure.
type swapEnd uint8

const (
	written swapEnd = iota + 1
	// notWritten: the record surely is as it was.
	notWritten
	// over: this leader is fenced, or the driver stops.
	over
)

// swap repeats one and the same write until its outcome is known.
func (w *recordWriter) swap(ctx context.Context, next checkpointstore.JobRecord) swapEnd {
	var pause backoff
	unknown := false
	for try := 1; ; try++ {
		result := w.store.SwapRecord(ctx, w.prev, next)
		switch result.Outcome {
		case checkpointstore.Swapped:
			w.prev = result.Record
			return written
		case checkpointstore.Lost:
			// Never less than ours, even if what is there now says so (a record
			// that was put back from a backup): the coordinator would take it
			// for an old echo, and the job would run on with nobody to write
			// its record.
			w.post(coordinator.Fenced{Token: max(result.Record.Token, next.Token)})
			return over
		case checkpointstore.NotWritten:
			if errors.Is(result.Err, objectstore.ErrNotExist) {
				// Somebody deleted the record: what we compare with is gone for good.
				w.post(coordinator.Fenced{Token: next.Token})
				return over
			}
			if !unknown {
				w.log.Warn("job record was not written", logfield.Try(try), zap.Error(result.Err))
				return notWritten
			}
			// An earlier try may still take effect: a refusal now proves nothing.
		case checkpointstore.Unknown:
			unknown = true
		}
		w.log.Warn("outcome of writing the job record is not known yet", logfield.Try(try), zap.Error(result.Err))
		if !pause.wait(ctx) {
			return over
		}
	}
}
