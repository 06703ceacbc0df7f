package driver

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
)

// View makes what flinkctl status shows. Counters count since the current
// attempt started, see Driver.Metrics. hostOf names the host of a
// TaskManager, empty when it is not registered any more.
func (d *Driver) View(hostOf func(ids.TaskManagerID) string) *pb.JobStatusResponse {
	status := d.Status()
	p := &pb.JobStatusResponse{
		Id:                 string(d.options.Job),
		Name:               d.options.Name,
		Status:             status.Status.String(),
		Restarts:           int32(status.Restarts),
		RestoredCheckpoint: uint64(status.Restored.ID),
		LastCheckpoint:     uint64(status.Latest.ID),
		LastCheckpointPath: status.Latest.URI,
		Cause:              FailureToProto(status.Cause),
		Detail:             status.Detail,
		SubmittedUnixMs:    snapshot.TimeToProto(d.options.SubmittedAt),
		StartedUnixMs:      snapshot.TimeToProto(status.StartedAt),
		EndedUnixMs:        snapshot.TimeToProto(status.EndedAt),
		Attempt:            int32(status.Attempt.Number),
		Vertices:           verticesView(d.options.Graph, &status, d.metrics.of(time.Now()), hostOf),
	}
	for _, e := range status.Events {
		p.Events = append(p.Events, &pb.JobEvent{UnixMs: snapshot.TimeToProto(e.At), Text: e.Text})
	}
	return p
}

func verticesView(g *graph.ExecutionGraph, status *coordinator.Status, counted []vertexMetrics, hostOf func(ids.TaskManagerID) string) []*pb.VertexStatus {
	views := make([]*pb.VertexStatus, len(g.Vertices))
	for i := range g.Vertices {
		v, m := &g.Vertices[i], &counted[i]
		views[i] = &pb.VertexStatus{
			Id: int32(v.ID), Name: v.Name, Parallelism: int32(v.Parallelism),
			RecordsIn: m.in, RecordsOut: m.out, RecordsInRate: m.inRate, RecordsOutRate: m.outRate,
			SpilledBytes: m.spilled,
			Tasks:        map[string]int32{},
		}
	}
	for _, s := range status.Subtasks {
		view := views[s.Subtask.Vertex]
		word := taskWord(status.Status, s.Status)
		view.Tasks[word]++
		c := counted[s.Subtask.Vertex].subtasks[s.Subtask.Index]
		view.Subtasks = append(view.Subtasks, &pb.SubtaskStatus{
			Index: s.Subtask.Index, Status: word, TaskManagerId: string(s.TaskManager), Host: hostOf(s.TaskManager),
			RecordsIn: c.in, RecordsOut: c.out,
		})
	}
	return views
}

// taskWord is the word for a task's status. One that is not placed yet has
// none. One whose job has ended runs no more, although nobody may have been left
// to say so, as when its executor was killed.
func taskWord(job coordinator.JobStatus, s coordinator.TaskStatus) string {
	switch {
	case job.IsTerminal() && s < coordinator.Finished:
		return coordinator.Canceled.String()
	case s == 0:
		return "CREATED"
	default:
		return s.String()
	}
}

// CheckpointsView makes what flinkctl checkpoints shows, newest first: what is
// under way, and what is remembered. It counts those of this leadership.
func (d *Driver) CheckpointsView() *pb.ListCheckpointsResponse {
	status := d.Status()
	p := &pb.ListCheckpointsResponse{Completed: status.Completed, Failed: status.Aborted}
	views := slices.Clone(status.Checkpoints)
	for _, c := range d.options.History.Views() {
		if !slices.ContainsFunc(status.Checkpoints, func(other coordinator.CheckpointView) bool { return other.ID == c.ID }) {
			views = append(views, c)
		}
	}
	slices.SortStableFunc(views, func(a, b coordinator.CheckpointView) int { return cmp.Compare(b.ID, a.ID) })
	for _, c := range views {
		p.Checkpoints = append(p.Checkpoints, InfoOf(c))
	}
	return p
}

// InfoOf makes what flinkctl shows of a checkpoint in a list.
func InfoOf(c coordinator.CheckpointView) *pb.CheckpointInfo {
	return &pb.CheckpointInfo{
		Id: uint64(c.ID), Kind: c.Kind.String(), Status: string(c.Status), Reason: c.Reason,
		TriggeredUnixMs: snapshot.TimeToProto(c.TriggeredAt), DurationMs: c.Duration.Milliseconds(),
		Size: c.Size, Uploaded: c.Uploaded, Acked: int32(c.Acked), Subtasks: int32(c.Subtasks), Path: c.Path,
		AlignmentUs: c.Alignment.Microseconds(), ChannelBytes: c.ChannelBytes, Unaligned: c.Unaligned,
	}
}
