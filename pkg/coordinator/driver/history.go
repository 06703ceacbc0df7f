package driver

import (
	"cmp"
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
	// loadFactor times as many reports as are kept may be stored before it is known
	// which of them ended last, and are read to find out: more than an earlier
	// JobManager leaves that was killed, or could not delete for a while.
	loadFactor = 2
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
		loaded bool
		added  uint64 // how many ended here
		// entries are by ID, and at most keep: those that ended last, which a slow
		// savepoint may do long after newer checkpoints.
		entries []historyEntry
		queue   []*snapshot.CheckpointReport
		// ending: no more comes; run returns when the queue is empty.
		ending bool
	}
	ready chan struct{}
}

// historyEntry keeps a report in its stored form, which is far smaller.
type historyEntry struct {
	view coordinator.CheckpointView
	// added counts those that ended here, in the order in which they did, which
	// holds when the clock is set back; 0 for what an earlier JobManager wrote.
	added   uint64
	content []byte
	// report is set until content is.
	report *snapshot.CheckpointReport
}

// byEnd orders entries by when they ended: those of earlier JobManagers by
// their clocks, and before those that ended here.
func byEnd(a, b historyEntry) int {
	return cmp.Or(
		cmp.Compare(a.added, b.added),
		a.view.TriggeredAt.Add(a.view.Duration).Compare(b.view.TriggeredAt.Add(b.view.Duration)),
		cmp.Compare(a.view.ID, b.view.ID),
	)
}

// NewHistory makes the history of a job, of the keep checkpoints that ended last. It
// reads what is stored when it is first asked.
func NewHistory(job ids.JobID, store HistoryStore, keep int, log *zap.Logger) *History {
	return &History{job: job, store: store, keep: keep, log: log, ready: make(chan struct{}, 1)}
}

// add takes a report without waiting.
func (h *History) add(report *snapshot.CheckpointReport) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.added++
	h.insertLocked(historyEntry{view: coordinator.ViewOf(report), added: h.mu.added, report: report})
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
	if len(h.mu.entries) > h.keep {
		first := slices.MinFunc(h.mu.entries, byEnd).view.ID
		h.mu.entries = slices.DeleteFunc(h.mu.entries, func(e historyEntry) bool { return e.view.ID == first })
	}
}

func byID(e historyEntry, id ids.CheckpointID) int { return cmp.Compare(e.view.ID, id) }

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
	remembered := make(map[ids.CheckpointID]bool, len(h.mu.entries))
	newest := report.ID
	for i := range h.mu.entries {
		e := &h.mu.entries[i]
		if e.view.ID == report.ID {
			e.content, e.report = content, nil
		}
		remembered[e.view.ID] = true
		newest = max(newest, e.view.ID)
	}
	keep := h.keep
	if !h.mu.loaded {
		keep = loadFactor * h.keep
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
	surplus := len(stored) - keep
	for _, id := range stored {
		if surplus <= 0 || id > newest { // newer ones are another leader's
			break
		}
		if remembered[id] {
			continue
		}
		if err := h.store.DeleteReport(ctx, h.job, id); err != nil {
			return err
		}
		surplus--
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
	for _, id := range slices.Backward(stored[max(0, len(stored)-loadFactor*h.keep):]) {
		if h.has(id) {
			continue
		}
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

func (h *History) has(id ids.CheckpointID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, found := slices.BinarySearchFunc(h.mu.entries, id, byID)
	return found
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
