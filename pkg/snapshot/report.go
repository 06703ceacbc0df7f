package snapshot

import (
	"time"

	"github.com/weirstream/weir/pkg/ids"
)

// CheckpointReport is what is told of a checkpoint or savepoint that has
// ended, completed or not: for people, nothing is decided by it.
type CheckpointReport struct {
	ID        ids.CheckpointID
	Kind      Kind
	Completed bool
	// Failure names why it did not complete, Detail says it in words.
	Failure, Detail string
	// Culprit is the subtask that declined it; nil if none did.
	Culprit *ids.SubtaskID
	// TriggeredAt and Duration, from there to the end, are by the JobManager's clock.
	TriggeredAt time.Time
	Duration    time.Duration
	// Path of a completed one.
	Path string
	// Parallelism of each vertex. Subtasks has all subtasks, by vertex, then index.
	Parallelism []int32
	Subtasks    []SubtaskReport
}

// SubtaskReport is one subtask's part of a checkpoint; the zero value if it
// had not acknowledged it.
type SubtaskReport struct {
	Acked bool
	// End is the time from the trigger to the acknowledgement by the
	// JobManager's clock, of which Stats are parts, by the subtask's.
	End   time.Duration
	Stats SubtaskStats
	// StateBytes are the bytes of all files that it refers to, and
	// UploadedBytes those of them that were uploaded for it. ChannelBytes are those
	// of records in flight, part of both.
	StateBytes, UploadedBytes, ChannelBytes int64
}

// StartDelay is the time that the barrier took to reach the subtask, and the
// acknowledgement to come back: what the subtask did not measure itself. The
// clocks are two, so it may come out a little wrong, but never below 0.
func (r SubtaskReport) StartDelay() time.Duration {
	return max(0, r.End-r.Stats.Alignment-r.Stats.Sync-r.Stats.Async)
}

// Vertex returns the reports of one vertex's subtasks.
func (r *CheckpointReport) Vertex(v int) []SubtaskReport {
	first := 0
	for _, p := range r.Parallelism[:v] {
		first += int(p)
	}
	return r.Subtasks[first : first+int(r.Parallelism[v])]
}
