package subtask

import (
	"context"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// Host is what a subtask acts on. Its methods are called on the subtask's
// goroutine and must not block or call back into the subtask.
type Host interface {
	// Send passes a frame on. Records are only sent against credit, so what a
	// Host may have to queue is bounded by the credit given plus the few
	// control elements of the checkpoints under way.
	Send(out Output, f element.Frame)
	// Grant gives the producer of input channel in credit for that many bytes.
	Grant(in int, bytes int64)
	// Go carries out work on another goroutine and passes what Run returns to
	// Complete. Work of one lane never overlaps.
	Go(w Work)
	// Report tells the JobManager.
	Report(r Report)
}

// Output names an output channel of a subtask.
type Output struct {
	// Edge is the place in Vertex.Outputs, Channel that among the edge's channels.
	Edge, Channel int
}

// Lane separates work that may go on at the same time.
type Lane uint8

// The lanes.
const (
	// RestoreLane runs once, before anything else.
	RestoreLane Lane = iota + 1
	// ListLane is listing the splits of a source.
	ListLane
	// FetchLane is fetching the next batch of a source. May wait for ever.
	FetchLane
	// SnapshotLane is writing a snapshot.
	SnapshotLane
	// CommitLane is committing what a published checkpoint had prepared, and
	// last of all aborting what none will have.
	CommitLane
)

// Lanes is the number of lanes, for bounds of hosts.
const Lanes = 5

// String names the lane.
func (l Lane) String() string {
	switch l {
	case RestoreLane:
		return "restore"
	case ListLane:
		return "list"
	case FetchLane:
		return "fetch"
	case SnapshotLane:
		return "snapshot"
	case CommitLane:
		return "commit"
	}
	return "unknown"
}

// Work is something to be done off the subtask's goroutine.
type Work struct {
	Lane Lane
	// Name describes it for traces and errors.
	Name string
	// Cleanup is what a cancelled subtask does before it ends. Its context
	// does not end with the cancel, but after a part of the time that the
	// subtask has for returning.
	Cleanup bool
	// Run does it. The context ends when the subtask is cancelled or closed.
	// It returns what Complete must be given. A panic in it is an error of the
	// subtask: the Host passes it to Fail.
	Run func(ctx context.Context) Done
}

// Done finishes a piece of work on the subtask's goroutine.
type Done func()

// Report is what a subtask tells the JobManager.
type Report interface{ isReport() }

// The reports.
type (
	// StatusReport means that the task's status changed.
	StatusReport struct {
		Status  coordinator.TaskStatus
		Failure coordinator.Failure // with Failed
	}
	// AckReport means that the snapshot is durable.
	AckReport struct {
		Checkpoint ids.CheckpointID
		State      snapshot.SubtaskState
		Stats      snapshot.SubtaskStats
	}
	// DeclineReport means that the snapshot cannot be taken.
	DeclineReport struct {
		Checkpoint ids.CheckpointID
		Reason     string
	}
	// CommitReport means that everything prepared up to the checkpoint is committed.
	CommitReport struct{ Checkpoint ids.CheckpointID }
	// RestoredReport says what was read to restore the subtask, if it was
	// anything. It comes before the subtask runs, and is for this process only.
	RestoredReport struct {
		Checkpoint ids.CheckpointID
		// Of the files, with their bytes, some were on local disk.
		FilesFetched, FilesLocal int
		BytesFetched, BytesLocal int64
	}
	// LocalCopyReport says why the files of a checkpoint were not kept, or older
	// ones not removed, on local disk; for this process only.
	LocalCopyReport struct {
		Checkpoint ids.CheckpointID
		Err        error
	}
	// SplitsReport means that the source listed its splits.
	SplitsReport struct {
		Operator ids.OperatorUID
		Splits   []snapshot.Split
		Complete bool
	}
)

func (StatusReport) isReport()    {}
func (AckReport) isReport()       {}
func (DeclineReport) isReport()   {}
func (CommitReport) isReport()    {}
func (SplitsReport) isReport()    {}
func (RestoredReport) isReport()  {}
func (LocalCopyReport) isReport() {}

// Progress says why Step returned.
type Progress uint8

// The outcomes of Step.
const (
	// More means that the stretch is over, there is more to do; step again.
	More Progress = iota + 1
	// Idle means that no input waits; everything collected has been sent.
	Idle
	// Blocked means that an output is out of credit.
	Blocked
	// Ended means that the subtask finished, was cancelled or failed; only Close may follow.
	Ended
)
