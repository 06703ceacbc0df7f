package driver

import (
	"fmt"
	"time"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
)

// EventOfReport translates what an executor of the attempt reports. ok is
// false for reports that are no event of the job (hello, heartbeat). The
// error says that the report makes no sense: the session that sent it cannot
// be trusted any more.
func EventOfReport(executor ids.ExecutorID, report *pb.ExecutorReport) (event coordinator.Event, ok bool, err error) {
	switch kind := report.GetKind().(type) {
	case *pb.ExecutorReport_TaskStatus:
		event, err = taskStatusEvent(executor.Attempt, kind.TaskStatus)
	case *pb.ExecutorReport_Acked:
		event, err = ackedEvent(executor.Attempt, kind.Acked)
	case *pb.ExecutorReport_Declined:
		var subtask ids.SubtaskID
		subtask, err = subtaskOfRef(kind.Declined.GetSubtask())
		event = coordinator.CheckpointDeclined{
			Attempt: executor.Attempt, Checkpoint: ids.CheckpointID(kind.Declined.GetCheckpoint()),
			Subtask: subtask, Reason: kind.Declined.GetReason(),
		}
	case *pb.ExecutorReport_CommitAcked:
		var subtask ids.SubtaskID
		subtask, err = subtaskOfRef(kind.CommitAcked.GetSubtask())
		event = coordinator.CommitAcked{
			Attempt: executor.Attempt, Checkpoint: ids.CheckpointID(kind.CommitAcked.GetCheckpoint()), Subtask: subtask,
		}
	case *pb.ExecutorReport_Splits:
		splits := coordinator.SplitsDiscovered{
			Attempt: executor.Attempt, Operator: ids.OperatorUID(kind.Splits.GetOperator()), Complete: kind.Splits.GetComplete(),
		}
		err = splits.Operator.Validate()
		for _, split := range kind.Splits.GetSplits() {
			splits.Splits = append(splits.Splits, snapshot.SplitFromProto(split))
		}
		event = splits
	case *pb.ExecutorReport_Failure:
		event = coordinator.ExecutorLost{Executor: executor, Failure: FailureFromProto(kind.Failure)}
	case *pb.ExecutorReport_Hello, *pb.ExecutorReport_Heartbeat:
		return nil, false, nil
	default:
		err = fmt.Errorf("report of unknown kind %T", kind)
	}
	if err != nil {
		return nil, false, fmt.Errorf("report of executor %s: %w", executor, err)
	}
	return event, true, nil
}

func taskStatusEvent(attempt ids.AttemptID, p *pb.TaskStatusChanged) (coordinator.Event, error) {
	subtask, err := subtaskOfRef(p.GetSubtask())
	if err != nil {
		return nil, err
	}
	event := coordinator.TaskStatusChanged{Attempt: attempt, Subtask: subtask}
	switch p.GetStatus() {
	case pb.TaskStatus_TASK_STATUS_INITIALIZING:
		event.Status = coordinator.Initializing
	case pb.TaskStatus_TASK_STATUS_RUNNING:
		event.Status = coordinator.Running
	case pb.TaskStatus_TASK_STATUS_INPUT_ENDED:
		event.Status = coordinator.RunningInputEnded
	case pb.TaskStatus_TASK_STATUS_END_OF_DATA:
		event.Status = coordinator.RunningEndOfData
	case pb.TaskStatus_TASK_STATUS_FINISHED:
		event.Status = coordinator.Finished
	case pb.TaskStatus_TASK_STATUS_CANCELED:
		event.Status = coordinator.Canceled
	case pb.TaskStatus_TASK_STATUS_FAILED:
		event.Status = coordinator.Failed
		event.Failure = FailureFromProto(p.GetFailure())
	case pb.TaskStatus_TASK_STATUS_UNSPECIFIED:
		return nil, fmt.Errorf("subtask %s has no status", subtask)
	default:
		return nil, fmt.Errorf("subtask %s has the unknown status %d", subtask, p.GetStatus())
	}
	return event, nil
}

func ackedEvent(attempt ids.AttemptID, p *pb.CheckpointAcked) (coordinator.Event, error) {
	state, err := snapshot.SubtaskStateFromProto(p.GetState())
	if err != nil {
		return nil, fmt.Errorf("acknowledgement of checkpoint %d: %w", p.GetCheckpoint(), err)
	}
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	stats := snapshot.SubtaskStats{
		Alignment: us(p.GetAlignmentUs()), Sync: us(p.GetSyncUs()), Async: us(p.GetAsyncUs()),
		ProcessedBytes: p.GetProcessedBytes(), PersistedBytes: p.GetPersistedBytes(), Unaligned: p.GetUnaligned(),
	}
	return coordinator.CheckpointAcked{Attempt: attempt, Checkpoint: ids.CheckpointID(p.GetCheckpoint()), State: state, Stats: stats}, nil
}

func subtaskOfRef(p *pb.SubtaskRef) (ids.SubtaskID, error) {
	if p == nil || p.GetVertex() < 0 || p.GetIndex() < 0 {
		return ids.SubtaskID{}, fmt.Errorf("subtask %d/%d does not exist", p.GetVertex(), p.GetIndex())
	}
	return ids.SubtaskID{Vertex: ids.VertexID(p.GetVertex()), Index: p.GetIndex()}, nil
}

func refOfSubtask(s ids.SubtaskID) *pb.SubtaskRef {
	return &pb.SubtaskRef{Vertex: int32(s.Vertex), Index: s.Index}
}

// FailureFromProto reads a failure. One without a kind is the user's: only
// the runtime knows of the others, and it says so.
func FailureFromProto(p *pb.Failure) coordinator.Failure {
	f := coordinator.Failure{
		Kind: coordinator.UserFailure, Message: p.GetMessage(), Stack: p.GetStack(), Operator: ids.OperatorUID(p.GetOperator()),
	}
	switch p.GetKind() {
	case pb.FailureKind_FAILURE_KIND_LOST:
		f.Kind = coordinator.LostProcess
	case pb.FailureKind_FAILURE_KIND_CORRUPT:
		f.Kind = coordinator.CorruptCheckpoint
	case pb.FailureKind_FAILURE_KIND_PERMANENT:
		f.Kind = coordinator.PermanentFailure
	case pb.FailureKind_FAILURE_KIND_USER, pb.FailureKind_FAILURE_KIND_UNSPECIFIED:
	}
	if f.Message == "" {
		f.Message = "failed without a message"
	}
	return f
}

// FailureToProto makes the wire form of a cause; nil stays nil.
func FailureToProto(f *coordinator.Failure) *pb.Failure {
	if f == nil {
		return nil
	}
	p := &pb.Failure{Message: f.Message, Stack: f.Stack, Operator: string(f.Operator)}
	switch f.Kind {
	case coordinator.LostProcess:
		p.Kind = pb.FailureKind_FAILURE_KIND_LOST
	case coordinator.UserFailure:
		p.Kind = pb.FailureKind_FAILURE_KIND_USER
	case coordinator.CorruptCheckpoint:
		p.Kind = pb.FailureKind_FAILURE_KIND_CORRUPT
	case coordinator.PermanentFailure:
		p.Kind = pb.FailureKind_FAILURE_KIND_PERMANENT
	default:
		invariant.Check(false, "failure kind", "failure of unknown kind %d", f.Kind)
	}
	return p
}

// deployCommand is the only command that an executor needs to start.
func deployCommand(e coordinator.DeployTasks, checkpointDir string, defaultParallelism int) *pb.ExecutorCommand {
	plan := e.Plan
	deploy := &pb.DeployTasks{
		RestoreBase:        plan.RestoreBase,
		RestoredCheckpoint: uint64(plan.RestoredCheckpoint),
		CheckpointDir:      checkpointDir,
		Suspended:          plan.Suspended,
		DefaultParallelism: int32(defaultParallelism),
	}
	for _, id := range plan.Savepoints {
		deploy.Savepoints = append(deploy.Savepoints, uint64(id))
	}
	for _, peer := range plan.Peers {
		deploy.Peers = append(deploy.Peers, &pb.Peer{TaskManagerId: string(peer.TaskManager), DataAddress: peer.DataAddress})
	}
	for _, placement := range plan.Placements {
		deploy.Placements = append(deploy.Placements, &pb.SubtaskPlacement{
			Subtask: refOfSubtask(placement.Subtask), Peer: int32(placement.Peer),
		})
	}
	for _, task := range e.Tasks {
		deployment := &pb.TaskDeployment{Subtask: refOfSubtask(task.Subtask), EndOfData: task.EndOfData}
		for _, state := range task.Restore {
			deployment.Restore = append(deployment.Restore, state.ToProto())
		}
		for _, assignment := range task.Splits {
			deployment.Splits = append(deployment.Splits, assignmentToProto(assignment))
		}
		for _, in := range task.InFlight {
			deployment.InFlight = append(deployment.InFlight, inFlightToProto(in))
		}
		for _, w := range task.Watermarks {
			deployment.Watermarks = append(deployment.Watermarks, &pb.RestoredWatermark{Edge: int32(w.Edge), Watermark: w.Watermark})
		}
		deploy.Tasks = append(deploy.Tasks, deployment)
	}
	return &pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Deploy{Deploy: deploy}}
}

func assignmentToProto(a coordinator.SplitAssignment) *pb.AssignSplits {
	p := &pb.AssignSplits{
		Subtask: refOfSubtask(a.Subtask), Operator: string(a.Operator),
		Indexes: a.Indexes, Complete: a.Complete, List: a.List,
	}
	for _, split := range a.Splits {
		p.Splits = append(p.Splits, split.ToProto())
	}
	return p
}

func inFlightToProto(in coordinator.RestoredInFlight) *pb.RestoredInFlight {
	p := &pb.RestoredInFlight{Handle: in.Handle.ToProto()}
	for _, part := range in.Parts {
		p.Parts = append(p.Parts, &pb.RestoredPart{Channel: int32(part.Channel), Offset: part.Offset, Length: part.Length, Rekey: part.Rekey})
	}
	return p
}

func endLoopsCommand(e coordinator.EndLoops) *pb.ExecutorCommand {
	end := &pb.EndLoops{}
	for _, subtask := range e.Subtasks {
		end.Subtasks = append(end.Subtasks, refOfSubtask(subtask))
	}
	return &pb.ExecutorCommand{Kind: &pb.ExecutorCommand_EndLoops{EndLoops: end}}
}

func triggerCommand(e coordinator.TriggerCheckpoint) *pb.ExecutorCommand {
	trigger := &pb.TriggerCheckpoint{
		Checkpoint: uint64(e.Barrier.Checkpoint), Savepoint: e.Barrier.Savepoint,
		Stop: e.Barrier.Stop, SavepointDir: e.Barrier.SavepointDir, Base: uint64(e.Barrier.Base),
		Drain: e.Barrier.Drain, Alignment: uint32(e.Barrier.Alignment), AlignedTimeoutMs: uint64(e.Barrier.AlignedTimeout),
	}
	for _, subtask := range e.Subtasks {
		trigger.Subtasks = append(trigger.Subtasks, refOfSubtask(subtask))
	}
	return &pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Trigger{Trigger: trigger}}
}

func notifyCommand(checkpoint ids.CheckpointID, aborted bool, reason string) *pb.ExecutorCommand {
	return &pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Notify{
		Notify: &pb.NotifyCheckpoint{Checkpoint: uint64(checkpoint), Aborted: aborted, Reason: reason},
	}}
}
