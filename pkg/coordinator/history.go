package coordinator

import (
	"time"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// measured is what is known of the parts of a pending checkpoint.
type measured struct {
	subtasks []snapshot.SubtaskReport // by number of subtask
	// Of those that have acknowledged: the longest alignment, the bytes of records in
	// flight, and whether a barrier overtook any.
	alignment    time.Duration
	channelBytes int64
	unaligned    bool
	// failure and culprit say why it was given up, by whom it was declined.
	failure AbortReason
	culprit *ids.SubtaskID
}

// measure takes what an acknowledgement says, after sizes and files are known to be sound.
func (p *pendingCheckpoint) measure(now time.Time, i int, e CheckpointAcked) {
	r := snapshot.SubtaskReport{Acked: true, End: max(0, now.Sub(p.triggeredAt)), Stats: e.Stats}
	e.State.EachHandle(func(h snapshot.StateHandle) {
		r.StateBytes += h.Size
		if !h.IsShared() || h.SharedSince == p.id {
			r.UploadedBytes += h.Size
		}
	})
	for _, in := range e.State.InFlight {
		r.ChannelBytes += in.Handle.Size
	}
	p.size += r.StateBytes
	p.uploaded += r.UploadedBytes
	m := &p.measured
	m.subtasks[i] = r
	m.alignment = max(m.alignment, r.Stats.Alignment)
	m.channelBytes += r.ChannelBytes
	m.unaligned = m.unaligned || r.Stats.Unaligned
}

// report tells what became of a checkpoint that has ended. Nothing changes
// the parts any more.
func (c *Coordinator) report(p *pendingCheckpoint, view CheckpointView) *snapshot.CheckpointReport {
	r := &snapshot.CheckpointReport{
		ID: p.id, Kind: p.kind, Completed: view.Status == CheckpointCompleted, Detail: view.Reason, Culprit: p.measured.culprit,
		TriggeredAt: p.triggeredAt, Duration: view.Duration, Path: view.Path,
		Parallelism: make([]int32, len(c.graph.Vertices)), Subtasks: p.measured.subtasks,
	}
	if !r.Completed {
		r.Failure = p.measured.failure.String()
	}
	for v := range c.graph.Vertices {
		r.Parallelism[v] = int32(c.graph.Vertices[v].Parallelism)
	}
	return r
}

// ViewOf is what users see of an ended checkpoint in a list.
func ViewOf(r *snapshot.CheckpointReport) CheckpointView {
	v := CheckpointView{
		ID: r.ID, Kind: r.Kind, Status: CheckpointFailed, Reason: r.Detail, TriggeredAt: r.TriggeredAt,
		Duration: r.Duration, Subtasks: len(r.Subtasks), Path: r.Path,
	}
	if r.Completed {
		v.Status = CheckpointCompleted
	}
	for _, s := range r.Subtasks {
		if s.Acked {
			v.Acked++
		}
		v.Size += s.StateBytes
		v.Uploaded += s.UploadedBytes
		v.ChannelBytes += s.ChannelBytes
		v.Alignment = max(v.Alignment, s.Stats.Alignment)
		v.Unaligned = v.Unaligned || s.Stats.Unaligned
	}
	return v
}
