package driver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/logfield"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// HistoryStore is where reports of ended checkpoints are; *checkpointstore.ClusterStore.
type HistoryStore interface {
	PutReport(ctx context.Context, job ids.JobID, id ids.CheckpointID, content []byte) error
	ReadReport(ctx context.Context, job ids.JobID, id ids.CheckpointID) (*snapshot.CheckpointReport, error)
	Reports(ctx context.Context, job ids.JobID) ([]ids.CheckpointID, error)
	DeleteReport(ctx context.Context, job ids.JobID, id ids.CheckpointID) error
}

const (
	// historyQueueMax bounds the reports that wait to be written. When the
	// store is slower than checkpoints end for so long, the oldest are not.
	historyQueueMax = 16
	// historyTimeout bounds one write, and reading what an earlier JobManager wrote.
	historyTimeout = 10 * time.Second
)

// History is what is told of a job's ended checkpoints: best effort, for
// people. Its methods may be called from any goroutine.
type History struct {
	job   ids.JobID
	store HistoryStore
	keep  int
	log   *zap.Logger

	// loading is held while what earlier JobManagers wrote is read.
	loading sync.Mutex
	mu      struct {
		sync.Mutex
		loaded  bool
		entries []historyEntry // by ID, at most keep
		queue   []*snapshot.CheckpointReport
		// ending: no more comes; run returns when the queue is empty.
		ending bool
	}
	ready chan struct{}
}

// historyEntry keeps a report in its stored form, which is far smaller.
type historyEntry struct {
	view    coordinator.CheckpointView
	content []byte
	// report is set until content is.
	report *snapshot.CheckpointReport
}

// NewHistory makes the history of a job, of the last keep checkpoints. It
// reads what is stored when it is first asked.
func NewHistory(job ids.JobID, store HistoryStore, keep int, log *zap.Logger) *History {
	return &History{job: job, store: store, keep: keep, log: log, ready: make(chan struct{}, 1)}
}

// add takes a report without waiting.
func (h *History) add(report *snapshot.CheckpointReport) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.insertLocked(historyEntry{view: coordinator.ViewOf(report), report: report})
	if len(h.mu.queue) >= historyQueueMax {
		h.log.Warn("the store is too slow for the history: a checkpoint is not remembered there", logfield.Checkpoint(h.mu.queue[0].ID))
		h.mu.queue = h.mu.queue[1:]
	}
	h.mu.queue = append(h.mu.queue, report)
	h.signal()
}

// insertLocked keeps the entries sorted and bounded. One that is there stays.
func (h *History) insertLocked(e historyEntry) {
	i, found := slices.BinarySearchFunc(h.mu.entries, e.view.ID, byID)
	if found {
		return
	}
	h.mu.entries = slices.Insert(h.mu.entries, i, e)
	if drop := len(h.mu.entries) - h.keep; drop > 0 {
		h.mu.entries = slices.Delete(h.mu.entries, 0, drop)
	}
}

func byID(e historyEntry, id ids.CheckpointID) int {
	switch {
	case e.view.ID < id:
		return -1
	case e.view.ID > id:
		return 1
	}
	return 0
}

// finish lets run return once what is queued has been tried.
func (h *History) finish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.ending = true
	h.signal()
}

func (h *History) signal() {
	select {
	case h.ready <- struct{}{}:
	default:
	}
}

// run writes reports, one at a time, until ctx ends, or until all is done
// after finish.
func (h *History) run(ctx context.Context) {
	if err := h.Load(ctx); err != nil && ctx.Err() == nil {
		h.log.Warn("what is remembered of earlier checkpoints could not be read", zap.Error(err))
	}
	for ctx.Err() == nil {
		h.mu.Lock()
		var report *snapshot.CheckpointReport
		if len(h.mu.queue) > 0 {
			report, h.mu.queue = h.mu.queue[0], h.mu.queue[1:]
		}
		ending := h.mu.ending
		h.mu.Unlock()
		switch {
		case report != nil:
			if err := h.write(ctx, report); err != nil && ctx.Err() == nil {
				h.log.Warn("what is told of a checkpoint was not stored", logfield.Checkpoint(report.ID), zap.Error(err))
			}
		case ending:
			return
		default:
			select {
			case <-h.ready:
			case <-ctx.Done():
			}
		}
	}
}

// write stores a report and deletes what it pushes out.
func (h *History) write(ctx context.Context, report *snapshot.CheckpointReport) error {
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	content, err := checkpointstore.EncodeReport(report)
	if err != nil {
		return err
	}
	h.mu.Lock()
	oldest := report.ID
	if i, found := slices.BinarySearchFunc(h.mu.entries, report.ID, byID); found {
		h.mu.entries[i].content, h.mu.entries[i].report = content, nil
		oldest = h.mu.entries[0].view.ID
	}
	h.mu.Unlock()
	if err := h.store.PutReport(ctx, h.job, report.ID, content); err != nil {
		return err
	}
	stored, err := h.store.Reports(ctx, h.job)
	if err != nil {
		return err
	}
	// Those that never were in memory go too: an earlier delete may have failed.
	for _, id := range stored[:max(0, len(stored)-h.keep)] {
		if id >= oldest {
			break
		}
		if err := h.store.DeleteReport(ctx, h.job, id); err != nil {
			return err
		}
	}
	return nil
}

// Load reads what earlier JobManagers wrote, unless that is done; for a job that
// runs it is when the job starts. A report that cannot be read is left out.
func (h *History) Load(ctx context.Context) error {
	h.loading.Lock()
	defer h.loading.Unlock()
	h.mu.Lock()
	loaded := h.mu.loaded
	h.mu.Unlock()
	if loaded {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	stored, err := h.store.Reports(ctx, h.job)
	if err != nil {
		return err
	}
	for _, id := range slices.Backward(stored[max(0, len(stored)-h.keep):]) {
		report, err := h.store.ReadReport(ctx, h.job, id)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			h.log.Warn("what is told of a checkpoint cannot be read", logfield.Checkpoint(id), zap.Error(err))
			continue
		}
		content, err := checkpointstore.EncodeReport(report)
		if err != nil {
			return err
		}
		h.mu.Lock()
		h.insertLocked(historyEntry{view: coordinator.ViewOf(report), content: content})
		h.mu.Unlock()
	}
	h.mu.Lock()
	h.mu.loaded = true
	h.mu.Unlock()
	return nil
}

// Views lists the ended checkpoints that are remembered, newest first.
func (h *History) Views() []coordinator.CheckpointView {
	h.mu.Lock()
	defer h.mu.Unlock()
	views := make([]coordinator.CheckpointView, 0, len(h.mu.entries))
	for _, e := range slices.Backward(h.mu.entries) {
		views = append(views, e.view)
	}
	return views
}

// Report returns what is told of an ended checkpoint; nil when it is not remembered.
func (h *History) Report(id ids.CheckpointID) (*snapshot.CheckpointReport, error) {
	h.mu.Lock()
	i, found := slices.BinarySearchFunc(h.mu.entries, id, byID)
	var e historyEntry
	if found {
		e = h.mu.entries[i]
	}
	h.mu.Unlock()
	switch {
	case !found:
		return nil, nil
	case e.report != nil:
		return e.report, nil
	}
	report, err := checkpointstore.DecodeReport(e.content)
	if err != nil {
		return nil, fmt.Errorf("report of checkpoint %d: %w", id, err)
	}
	return report, nil
}
