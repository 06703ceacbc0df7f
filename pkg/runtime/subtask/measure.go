package subtask

import (
	"slices"
	"time"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// measured is when the parts of a snapshot began.
type measured struct {
	frozen time.Time
	bytes  int64 // processed until the first barrier
}

// clock is the time by Config.Clock; zero without one.
func (s *Subtask) clock() time.Time {
	if s.cfg.Clock == nil {
		return time.Time{}
	}
	return s.cfg.Clock()
}

// begun is how it was when the first barrier of a checkpoint came.
type begun struct {
	id    ids.CheckpointID
	at    time.Time
	bytes int64 // processed until then
}

// begunMax bounds the checkpoints whose beginning is remembered: those that are
// given up before they are taken never ask for it, and the coordinator has
// few under way at once.
const begunMax = 16

// measureFrom follows a barrier that has come: the first of a checkpoint begins
// its alignment.
func (s *Subtask) measureFrom(id ids.CheckpointID) {
	q := &s.snapshot
	if n := len(q.begun); n > 0 && id <= q.begun[n-1].id {
		return // not its first: barriers come in the order of their IDs
	}
	if len(q.begun) == begunMax {
		q.begun = slices.Delete(q.begun, 0, 1)
	}
	q.begun = append(q.begun, begun{id: id, at: s.clock(), bytes: s.bytesIn})
}

// measureTaken begins the synchronous part of a snapshot and returns when.
func (s *Subtask) measureTaken(t *taken) time.Time {
	now := s.clock()
	t.stats.Unaligned = t.barrier.Alignment == element.Unaligned
	t.measured.bytes = s.bytesIn
	for _, b := range s.snapshot.begun {
		if b.id == t.barrier.Checkpoint {
			t.stats.Alignment = now.Sub(b.at)
			t.measured.bytes = b.bytes
		}
	}
	t.stats.ProcessedBytes = s.bytesIn - t.measured.bytes
	return now
}

// measureSync ends it.
func (s *Subtask) measureSync(t *taken, began time.Time) {
	t.measured.frozen = s.clock()
	t.stats.Sync = t.measured.frozen.Sub(began)
}

// measureTo follows the last barrier.
func (s *Subtask) measureTo(t *taken) {
	t.stats.ProcessedBytes = s.bytesIn - t.measured.bytes
}

// measuredStats ends the asynchronous part.
func (s *Subtask) measuredStats(t *taken) snapshot.SubtaskStats {
	if t.flight != nil {
		for _, in := range t.flight.parts {
			t.stats.PersistedBytes += in.Handle.Size
		}
	}
	t.stats.Async = s.clock().Sub(t.measured.frozen)
	return t.stats
}
