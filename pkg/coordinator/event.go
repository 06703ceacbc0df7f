package coordinator

import (
	"fmt"
	"time"

	"github.com/weirstream/weir/pkg/coordinator/slots"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// Event is something that has happened. All events are values; none is
// answered directly.
type Event interface{ isEvent() }

// RequestID names a user's request (savepoint, stop, cancel) so that the
// answer finds it. Made by the shell, unique within the driver's life.
type RequestID uint64

// FailureKind decides what the restart rules do with a failure.
type FailureKind uint8

// The kinds of failure.
const (
	// LostProcess means that an executor, TaskManager or connection was lost. The first
	// restart is immediate, later ones back off; never given up.
	LostProcess FailureKind = iota + 1
	// UserFailure is an error or panic of user code. Follows the restart strategy.
	UserFailure
	// CorruptCheckpoint means that the store has answered, and that a file of the
	// restored checkpoint is missing or is not what was written. If the JobManager
	// finds the same, the job goes on from an older one if it may (fallback.go), and
	// fails otherwise. A read that failed is never this: it is a LostProcess (I9).
	CorruptCheckpoint
	// PermanentFailure means that a restart cannot cure it. The job fails at once.
	PermanentFailure
)

// String names the kind in words for users.
func (k FailureKind) String() string {
	switch k {
	case LostProcess:
		return "lost-process"
	case UserFailure:
		return "user-failure"
	case CorruptCheckpoint:
		return "corrupt-checkpoint"
	case PermanentFailure:
		return "permanent"
	}
	return fmt.Sprintf("FailureKind(%d)", uint8(k))
}

// Failure is the cause of a failure as users see it.
type Failure struct {
	Kind     FailureKind
	Message  string
	Stack    string
	Operator ids.OperatorUID
}

// TaskStatus is the lifecycle of a task.
type TaskStatus uint8

// The statuses of a task.
const (
	// Deploying is sent to its executor, not yet heard of.
	Deploying TaskStatus = iota + 1
	// Initializing is restoring state.
	Initializing
	// Running has restored its state, committed what the restored checkpoint had
	// prepared, and processes.
	Running
	// RunningInputEnded is running as the head of a loop whose forward inputs have
	// all ended: records may still go round.
	RunningInputEnded
	// RunningEndOfData is running, and all its inputs have ended.
	RunningEndOfData
	// Finished has ended because FinishTasks said so.
	Finished
	// Canceled has ended because CancelTasks said so.
	Canceled
	// Failed has ended by an error or panic, see the event's Failure.
	Failed
)

// String is the word that flinkctl shows.
func (s TaskStatus) String() string {
	switch s {
	case Deploying:
		return "DEPLOYING"
	case Initializing:
		return "INITIALIZING"
	case Running:
		return "RUNNING"
	case RunningInputEnded:
		return "INPUT_ENDED"
	case RunningEndOfData:
		return "END_OF_DATA"
	case Finished:
		return "FINISHED"
	case Canceled:
		return "CANCELED"
	case Failed:
		return "FAILED"
	}
	return fmt.Sprintf("TaskStatus(%d)", uint8(s))
}

// hasEnded reports whether nothing more comes from the task.
func (s TaskStatus) hasEnded() bool { return s == Finished || s == Canceled || s == Failed }

// Slot is one leased slot, on a TaskManager.
type Slot = slots.Slot

// Record is the part of the job's record that the coordinator decides: the
// only truth about what the job restores from. See checkpointstore.JobRecord.
type Record struct {
	Status JobStatus
	// Latest is what a failure restores from; zero ID for none.
	Latest CheckpointRef
	// Retained are the published checkpoints that still exist, oldest first, Latest included unless it is a savepoint.
	Retained []CheckpointRef
	// NextCheckpointBlock means that all checkpoint IDs below it may have been used (I6).
	NextCheckpointBlock ids.CheckpointID
	// Savepoints completed by this job.
	Savepoints []ids.CheckpointID
	// StopSavepoint is set once stop-with-savepoint has published: the job only has to commit and end.
	StopSavepoint bool
	Restarts      int
	Cause         *Failure
	// StartedAt and EndedAt are for display.
	StartedAt, EndedAt time.Time
}

// CheckpointRef names a stored checkpoint.
type CheckpointRef struct {
	ID  ids.CheckpointID
	URI string
}

// Events. Those that come from an attempt carry it; those that answer a
// CAS carry the fencing token.
type (
	// JobClaimed means that the record was swapped to our token; its content is what was
	// there before (a new job: the zero Record with status Created).
	JobClaimed struct {
		Token  ids.FencingToken
		Record Record
	}
	// JobClaimFailed means that the store could not be read or written. Tried again with backoff.
	JobClaimFailed struct{ Reason string }
	// Fenced means that a swap found a larger token or foreign content. This leader is over.
	Fenced struct{ Token ids.FencingToken }

	// CheckpointLoaded answers LoadCheckpoint: the metadata was read.
	CheckpointLoaded struct {
		Token      ids.FencingToken
		Ref        CheckpointRef
		Base       string // handle names are relative to it
		Checkpoint *snapshot.CompletedCheckpoint
	}
	// CheckpointLoadFailed says why the metadata could not be loaded.
	// LostProcess: the read failed and is tried again (I9). CorruptCheckpoint:
	// the store has answered that it is missing or broken. PermanentFailure:
	// it is intact, and not for this program.
	CheckpointLoadFailed struct {
		Token  ids.FencingToken
		Ref    CheckpointRef
		Reason string
		Kind   FailureKind
	}

	// StateVerified answers VerifyState: all files are what was written.
	StateVerified struct {
		Token ids.FencingToken
		Ref   CheckpointRef
	}
	// StateVerifyFailed says why not, in the terms of CheckpointLoadFailed.
	// LostProcess: the read failed and is tried again (I9). CorruptCheckpoint: the
	// store has answered that a file is missing or is not what was written.
	StateVerifyFailed struct {
		Token  ids.FencingToken
		Ref    CheckpointRef
		Reason string
		Kind   FailureKind
	}

	// SlotsGranted answers RequestSlots.
	SlotsGranted struct {
		Attempt ids.AttemptID
		Slots   []Slot
	}
	// SlotsShort means that there are not enough slots now; the request stays queued.
	SlotsShort struct {
		Attempt    ids.AttemptID
		Want, Free int
	}
	// ExecutorReady means that the executor process registered.
	ExecutorReady struct {
		Executor    ids.ExecutorID
		DataAddress string
	}
	// ExecutorLost means that its stream broke, it exited, could not be started, or its TaskManager was lost.
	ExecutorLost struct {
		Executor ids.ExecutorID
		Failure  Failure
	}
	// TaskManagerLost means that its stream broke or its heartbeats ended.
	TaskManagerLost struct {
		TaskManager ids.TaskManagerID
		Reason      string
	}
	// TaskStatusChanged comes from a task.
	TaskStatusChanged struct {
		Attempt ids.AttemptID
		Subtask ids.SubtaskID
		Status  TaskStatus
		Failure Failure // with Failed
	}

	// SplitsDiscovered means that subtask 0 of a source listed splits that are new.
	SplitsDiscovered struct {
		Attempt  ids.AttemptID
		Operator ids.OperatorUID
		Splits   []snapshot.Split
		Complete bool
	}

	// CheckpointAcked means that a subtask's snapshot is durable.
	CheckpointAcked struct {
		Attempt    ids.AttemptID
		Checkpoint ids.CheckpointID
		State      snapshot.SubtaskState
		Stats      snapshot.SubtaskStats
	}
	// CheckpointDeclined means that a subtask cannot take its snapshot.
	CheckpointDeclined struct {
		Attempt    ids.AttemptID
		Checkpoint ids.CheckpointID
		Subtask    ids.SubtaskID
		Reason     string
	}
	// MetadataPersisted means that _metadata is durable.
	MetadataPersisted struct {
		Token      ids.FencingToken
		Checkpoint ids.CheckpointID
		URI        string
	}
	// MetadataPersistFailed means that it is not durable, or that nobody knows.
	MetadataPersistFailed struct {
		Token      ids.FencingToken
		Checkpoint ids.CheckpointID
		Reason     string
	}
	// CheckpointPublished means that the swap of the record to this checkpoint succeeded.
	CheckpointPublished struct {
		Token      ids.FencingToken
		Checkpoint ids.CheckpointID
	}
	// PublishFailed means that the swap surely did not happen. (An unknown outcome is
	// re-read by the driver until it is known.)
	PublishFailed struct {
		Token      ids.FencingToken
		Checkpoint ids.CheckpointID
		Reason     string
	}
	// RecordUpdated answers UpdateRecord.
	RecordUpdated struct {
		Token    ids.FencingToken
		Revision uint64
	}
	// CommitAcked means that a subtask has committed everything prepared up to the checkpoint.
	CommitAcked struct {
		Attempt    ids.AttemptID
		Checkpoint ids.CheckpointID
		Subtask    ids.SubtaskID
	}

	// SavepointRequested by a user; Stop for stop-with-savepoint.
	SavepointRequested struct {
		Request RequestID
		Dir     string // URI of the directory that gets the savepoint's directory
		Stop    bool
		// Drain, with Stop, brings event time to its end first: all timers fire,
		// and a job restored from the savepoint has nothing left to do.
		Drain bool
	}
	// CheckpointRequested by a user: a periodic checkpoint now, beside interval and min-pause.
	CheckpointRequested struct{ Request RequestID }
	// CancelRequested by a user.
	CancelRequested struct{ Request RequestID }

	// DeadlinePassed means that the time NextDeadline gave has come.
	DeadlinePassed struct{}
)

func (JobClaimed) isEvent()            {}
func (JobClaimFailed) isEvent()        {}
func (Fenced) isEvent()                {}
func (CheckpointLoaded) isEvent()      {}
func (CheckpointLoadFailed) isEvent()  {}
func (StateVerified) isEvent()         {}
func (StateVerifyFailed) isEvent()     {}
func (SlotsGranted) isEvent()          {}
func (SlotsShort) isEvent()            {}
func (ExecutorReady) isEvent()         {}
func (ExecutorLost) isEvent()          {}
func (TaskManagerLost) isEvent()       {}
func (TaskStatusChanged) isEvent()     {}
func (SplitsDiscovered) isEvent()      {}
func (CheckpointAcked) isEvent()       {}
func (CheckpointDeclined) isEvent()    {}
func (MetadataPersisted) isEvent()     {}
func (MetadataPersistFailed) isEvent() {}
func (CheckpointPublished) isEvent()   {}
func (PublishFailed) isEvent()         {}
func (RecordUpdated) isEvent()         {}
func (CommitAcked) isEvent()           {}
func (SavepointRequested) isEvent()    {}
func (CheckpointRequested) isEvent()   {}
func (CancelRequested) isEvent()       {}
func (DeadlinePassed) isEvent()        {}
