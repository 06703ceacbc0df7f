package subtask

import (
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

// measureFrom follows the first barrier of a checkpoint.
func (s *Subtask) measureFrom(id ids.CheckpointID) {
	if q := &s.snapshot; id > q.begun {
		q.begun, q.beganAt, q.beganWith = id, s.clock(), s.bytesIn
	}
}

// measureTaken begins the synchronous part of a snapshot and returns when.
func (s *Subtask) measureTaken(t *taken) time.Time {
	now := s.clock()
	t.stats.Unaligned = t.barrier.Alignment == element.Unaligned
	t.measured.bytes = s.bytesIn
	if q := &s.snapshot; q.begun == t.barrier.Checkpoint {
		t.stats.Alignment = now.Sub(q.beganAt)
		t.measured.bytes = q.beganWith
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
