package executor

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/runtime/task"
	"github.com/weirstream/weir/pkg/snapshot"
)

// ---- what the JobManager sends ----

func subtaskFromProto(p *pb.SubtaskRef) ids.SubtaskID {
	return ids.SubtaskID{Vertex: ids.VertexID(p.GetVertex()), Index: p.GetIndex()}
}

func barrierFromProto(p *pb.TriggerCheckpoint) element.Barrier {
	return element.Barrier{
		Checkpoint: ids.CheckpointID(p.GetCheckpoint()), Savepoint: p.GetSavepoint(),
		Stop: p.GetStop(), SavepointDir: p.GetSavepointDir(), Base: ids.CheckpointID(p.GetBase()),
		Drain: p.GetDrain(), Alignment: element.Alignment(p.GetAlignment()), AlignedTimeout: int64(p.GetAlignedTimeoutMs()),
	}
}

func assignmentFromProto(p *pb.AssignSplits) (coordinator.SplitAssignment, error) {
	a := coordinator.SplitAssignment{
		Subtask: subtaskFromProto(p.GetSubtask()), Operator: ids.OperatorUID(p.GetOperator()),
		Indexes: p.GetIndexes(), Complete: p.GetComplete(), List: p.GetList(),
	}
	if len(p.GetIndexes()) != len(p.GetSplits()) {
		return coordinator.SplitAssignment{}, fmt.Errorf("assignment to subtask %s has %d indexes for %d splits",
			a.Subtask, len(p.GetIndexes()), len(p.GetSplits()))
	}
	for _, split := range p.GetSplits() {
		a.Splits = append(a.Splits, snapshot.SplitFromProto(split))
	}
	return a, nil
}

func deploymentFromProto(p *pb.TaskDeployment) (coordinator.TaskDeployment, error) {
	d := coordinator.TaskDeployment{Subtask: subtaskFromProto(p.GetSubtask()), EndOfData: p.GetEndOfData()}
	for _, state := range p.GetRestore() {
		s, err := snapshot.OperatorSubtaskStateFromProto(state)
		if err != nil {
			return coordinator.TaskDeployment{}, fmt.Errorf("state of subtask %s: %w", d.Subtask, err)
		}
		d.Restore = append(d.Restore, s)
	}
	for _, assignment := range p.GetSplits() {
		a, err := assignmentFromProto(assignment)
		if err != nil {
			return coordinator.TaskDeployment{}, err
		}
		d.Splits = append(d.Splits, a)
	}
	for _, in := range p.GetInFlight() {
		h, err := snapshot.StateHandleFromProto(in.GetHandle())
		if err != nil {
			return coordinator.TaskDeployment{}, fmt.Errorf("records in flight to subtask %s: %w", d.Subtask, err)
		}
		r := coordinator.RestoredInFlight{Handle: h}
		for _, part := range in.GetParts() {
			r.Parts = append(r.Parts, coordinator.RestoredPart{
				Channel: int(part.GetChannel()), Offset: part.GetOffset(), Length: part.GetLength(), Rekey: part.GetRekey(),
			})
		}
		d.InFlight = append(d.InFlight, r)
	}
	for _, w := range p.GetWatermarks() {
		d.Watermarks = append(d.Watermarks, coordinator.RestoredWatermark{Edge: int(w.GetEdge()), Watermark: w.GetWatermark()})
	}
	return d, nil
}

// ---- what we send ----

func subtaskToProto(id ids.SubtaskID) *pb.SubtaskRef {
	return &pb.SubtaskRef{Vertex: int32(id.Vertex), Index: id.Index}
}

// fitting is the message of what a subtask reported, or if that has more than
// bytesMax, one that says so: a checkpoint is declined, and splits that cannot
// be told fail the job for good.
func fitting(id ids.SubtaskID, r subtask.Report, bytesMax int) *pb.ExecutorReport {
	m := reportToProto(id, r)
	size := proto.Size(m)
	if size <= bytesMax {
		return m
	}
	if ack, ok := r.(subtask.AckReport); ok {
		return reportToProto(id, subtask.DeclineReport{Checkpoint: ack.Checkpoint, Reason: fmt.Sprintf(
			"the acknowledgement has %d bytes, of which at most %d can be sent: make %s smaller or the parallelism larger",
			size, bytesMax, config.CheckpointInlineThreshold.Key())})
	}
	return &pb.ExecutorReport{Kind: &pb.ExecutorReport_Failure{Failure: failureToProto(coordinator.Failure{
		Kind:    coordinator.PermanentFailure,
		Message: fmt.Sprintf("report of subtask %s has %d bytes, of which at most %d can be sent: list fewer splits", id, size, bytesMax),
	})}}
}

// reportToProto makes the message of what a subtask reported.
func reportToProto(id ids.SubtaskID, r subtask.Report) *pb.ExecutorReport {
	switch r := r.(type) {
	case subtask.StatusReport:
		status := &pb.TaskStatusChanged{Subtask: subtaskToProto(id), Status: statusToProto(r.Status)}
		if r.Status == coordinator.Failed {
			status.Failure = failureToProto(r.Failure)
		}
		return &pb.ExecutorReport{Kind: &pb.ExecutorReport_TaskStatus{TaskStatus: status}}
	case subtask.AckReport:
		return &pb.ExecutorReport{Kind: &pb.ExecutorReport_Acked{Acked: &pb.CheckpointAcked{
			Checkpoint: uint64(r.Checkpoint), State: r.State.ToProto(),
			AlignmentUs: r.Stats.Alignment.Microseconds(), SyncUs: r.Stats.Sync.Microseconds(), AsyncUs: r.Stats.Async.Microseconds(),
			ProcessedBytes: r.Stats.ProcessedBytes, PersistedBytes: r.Stats.PersistedBytes, Unaligned: r.Stats.Unaligned,
		}}}
	case subtask.DeclineReport:
		return &pb.ExecutorReport{Kind: &pb.ExecutorReport_Declined{Declined: &pb.CheckpointDeclined{
			Subtask: subtaskToProto(id), Checkpoint: uint64(r.Checkpoint), Reason: r.Reason,
		}}}
	case subtask.CommitReport:
		return &pb.ExecutorReport{Kind: &pb.ExecutorReport_CommitAcked{CommitAcked: &pb.CommitAcked{
			Subtask: subtaskToProto(id), Checkpoint: uint64(r.Checkpoint),
		}}}
	case subtask.SplitsReport:
		splits := &pb.SplitsDiscovered{Subtask: subtaskToProto(id), Operator: string(r.Operator), Complete: r.Complete}
		for _, split := range r.Splits {
			splits.Splits = append(splits.Splits, split.ToProto())
		}
		return &pb.ExecutorReport{Kind: &pb.ExecutorReport_Splits{Splits: splits}}
	case subtask.RestoredReport, subtask.LocalCopyReport:
		// For this process: the executor has logged them.
	}
	invariant.Check(false, "reports", "subtask %s made a report of unknown type %T", id, r)
	return nil
}

func statusToProto(s coordinator.TaskStatus) pb.TaskStatus {
	switch s {
	case coordinator.Initializing:
		return pb.TaskStatus_TASK_STATUS_INITIALIZING
	case coordinator.Running:
		return pb.TaskStatus_TASK_STATUS_RUNNING
	case coordinator.RunningInputEnded:
		return pb.TaskStatus_TASK_STATUS_INPUT_ENDED
	case coordinator.RunningEndOfData:
		return pb.TaskStatus_TASK_STATUS_END_OF_DATA
	case coordinator.Finished:
		return pb.TaskStatus_TASK_STATUS_FINISHED
	case coordinator.Canceled:
		return pb.TaskStatus_TASK_STATUS_CANCELED
	case coordinator.Failed:
		return pb.TaskStatus_TASK_STATUS_FAILED
	case coordinator.Deploying:
	}
	invariant.Check(false, "reports", "status %d is not a task's own", s)
	return pb.TaskStatus_TASK_STATUS_UNSPECIFIED
}

// messageBytesMax bounds the text of a failure: users read its beginning, and
// it is stored in the job's record.
const messageBytesMax = 16 << 10

func failureToProto(f coordinator.Failure) *pb.Failure {
	message := f.Message
	if len(message) > messageBytesMax {
		message = message[:messageBytesMax] + "…"
	}
	p := &pb.Failure{Message: valid(message), Stack: valid(f.Stack), Operator: string(f.Operator)}
	switch f.Kind {
	case coordinator.LostProcess:
		p.Kind = pb.FailureKind_FAILURE_KIND_LOST
	case coordinator.UserFailure:
		p.Kind = pb.FailureKind_FAILURE_KIND_USER
	case coordinator.CorruptCheckpoint:
		p.Kind = pb.FailureKind_FAILURE_KIND_CORRUPT
	case coordinator.PermanentFailure:
		p.Kind = pb.FailureKind_FAILURE_KIND_PERMANENT
	}
	return p
}

func metricsToProto(t *task.Task) *pb.SubtaskMetrics {
	m := t.Metrics()
	return &pb.SubtaskMetrics{
		Subtask: subtaskToProto(t.ID()), RecordsIn: m.RecordsIn, RecordsOut: m.RecordsOut,
		BytesIn: m.BytesIn, BytesOut: m.BytesOut, BusyUs: m.Busy.Microseconds(),
		BackpressuredUs: m.Backpressured.Microseconds(), OverdraftBytes: m.OverdraftBytes,
		SpilledBytes: m.SpilledBytes,
	}
}
