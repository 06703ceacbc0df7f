package coordinator

import (
	"time"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// Effect is something that must now be done. Effects are values with a String
// method, so that a script prints them and the simulator hashes them.
type Effect interface {
	isEffect()
	String() string
}

// Effects. Each names the attempt or token it belongs to; whoever carries it
// out on the other side refuses it when it knows a newer one.
type (
	// ClaimJob swaps our fencing token into the job's record, before a restore
	// point is chosen. → JobClaimed, JobClaimFailed
	ClaimJob struct{}
	// LoadCheckpoint reads the metadata of what is restored.
	// → CheckpointLoaded, CheckpointLoadFailed
	LoadCheckpoint struct {
		Token ids.FencingToken
		Ref   CheckpointRef
	}
	// UpdateRecord swaps the record to the given content. The driver repeats
	// until the outcome is known; later records replace earlier waiting ones.
	// → RecordUpdated, Fenced
	UpdateRecord struct {
		Token    ids.FencingToken
		Revision uint64
		Record   Record
	}
	// VerifyState reads files of what is restored, and compares them with their
	// handles, because a task said that its own were corrupt. → StateVerified,
	// StateVerifyFailed
	VerifyState struct {
		Token   ids.FencingToken
		Ref     CheckpointRef
		Base    string
		Handles []snapshot.StateHandle
	}
	// RequestSlots asks the slot table. → SlotsGranted, SlotsShort
	RequestSlots struct {
		Attempt ids.AttemptID
		Count   int
		// Avoid are the TaskManagers whose slots come last.
		Avoid []ids.TaskManagerID
	}
	// ReleaseSlots gives back every slot of the attempt, or withdraws the request.
	ReleaseSlots struct{ Attempt ids.AttemptID }
	// LaunchExecutor starts the attempt's executor on a TaskManager. → ExecutorReady, ExecutorLost
	LaunchExecutor struct {
		Executor ids.ExecutorID
		Slots    int
	}
	// StopExecutor ends it: killed at once, or after the grace when it ends by itself.
	StopExecutor struct {
		Executor ids.ExecutorID
		Kill     bool
		Grace    time.Duration
	}
	// DeployTasks starts the subtasks of one executor. One effect for each executor.
	DeployTasks struct {
		Executor ids.ExecutorID
		Plan     *Deployment // shared by all executors of the attempt
		Tasks    []TaskDeployment
	}
	// AssignSplits gives splits to a source subtask, or tells it to list them.
	AssignSplits struct {
		Executor   ids.ExecutorID
		Assignment SplitAssignment
	}
	// TriggerCheckpoint tells the source subtasks of an executor to emit the barrier.
	TriggerCheckpoint struct {
		Executor ids.ExecutorID
		Barrier  element.Barrier
		Subtasks []ids.SubtaskID
	}
	// PersistMetadata writes the _metadata of a checkpoint. → MetadataPersisted, MetadataPersistFailed
	PersistMetadata struct {
		Token      ids.FencingToken
		Checkpoint *snapshot.CompletedCheckpoint
		Dir        string // savepoints: the directory below which it gets its own; else empty
	}
	// PublishCheckpoint swaps the record to the content in which the checkpoint
	// is the latest. → CheckpointPublished, PublishFailed, Fenced
	PublishCheckpoint struct {
		Token      ids.FencingToken
		Checkpoint ids.CheckpointID
		Record     Record
	}
	// NotifyComplete tells all subtasks of an executor that the checkpoint is published.
	NotifyComplete struct {
		Executor   ids.ExecutorID
		Checkpoint ids.CheckpointID
	}
	// NotifyAborted tells them that it is given up.
	NotifyAborted struct {
		Executor   ids.ExecutorID
		Checkpoint ids.CheckpointID
		Reason     AbortReason
	}
	// DiscardHandles deletes files of a checkpoint that will never be published.
	DiscardHandles struct {
		Checkpoint ids.CheckpointID
		Dir        string // savepoints: as in PersistMetadata
		Handles    []snapshot.StateHandle
		// Metadata is set when its _metadata was written, or may have been.
		// Nobody writes to the checkpoint any more, so all of it can go.
		Metadata bool
	}
	// DiscardCheckpoint deletes a subsumed checkpoint with its metadata and the
	// files that are private to it. Its shared files are the coordinator's to
	// discard, unless it is Claimed: then those go that it refers to and that no
	// checkpoint beside it refers to. It stays if something else is there now: of
	// another ID than Ref or of another job, where these are given, or completed
	// after CompletedBy.
	DiscardCheckpoint struct {
		Ref         CheckpointRef
		Claimed     bool
		Job         ids.JobID
		CompletedBy time.Time
	}
	// RecordHistory keeps for people what became of a checkpoint or savepoint.
	// Nothing comes back, and nothing depends on it. The report does not change any more.
	RecordHistory struct{ Report *snapshot.CheckpointReport }
	// SweepAttempts deletes the files of fenced attempts: those of checkpoints
	// that are not in Keep, and the shared ones that none in Keep refers to.
	SweepAttempts struct {
		Token ids.FencingToken
		Below ids.AttemptID   // attempts older than this one are fenced
		Keep  []CheckpointRef // the retained ones below the job's own base
		// Over: the job has ended, so that what is not in Keep is nobody's, also if
		// it is broken and does not say whose it was.
		Over bool
	}
	// EndLoops tells heads of loops that nothing goes round any more, as the
	// published checkpoint has found.
	EndLoops struct {
		Executor   ids.ExecutorID
		Checkpoint ids.CheckpointID
		Subtasks   []ids.SubtaskID
	}
	// FinishTasks ends the tasks of an executor, all work being committed. → TaskStatusChanged Finished
	FinishTasks struct{ Executor ids.ExecutorID }
	// CancelTasks ends them without: their sinks abort what they prepared for
	// checkpoints after KeepUpTo, none of which will ever be published.
	// → TaskStatusChanged Canceled
	CancelTasks struct {
		Executor ids.ExecutorID
		KeepUpTo ids.CheckpointID
	}
	// Answer ends a user's request.
	Answer struct {
		Request RequestID
		// Path of the savepoint or checkpoint. With Error set as well, a stop's savepoint is
		// complete and restorable, but the job ended before all was committed.
		Path       string
		Checkpoint ids.CheckpointID // that was taken
		Status     JobStatus
		Error      string // empty on success
	}
	// JobEnded says that the terminal status is recorded; the driver may stop.
	JobEnded struct{ Status JobStatus }
	// StepDown is ordered because another leader owns the job; the driver stops without touching anything.
	StepDown struct{ Token ids.FencingToken }
)

// Deployment is what all executors of an attempt are told alike.
type Deployment struct {
	Attempt ids.AttemptID
	Peers   []Peer
	// Placements lists all subtasks by vertex, then index.
	Placements []Placement
	// RestoredCheckpoint is 0 when the job starts empty.
	RestoredCheckpoint ids.CheckpointID
	RestoreBase        string
	Savepoints         []ids.CheckpointID
	// Suspended means that a published stop-with-savepoint is being finished; commit, read nothing.
	Suspended bool
}

// Peer is an executor as others reach it.
type Peer struct {
	TaskManager ids.TaskManagerID
	DataAddress string
}

// Placement says on which peer a subtask runs.
type Placement struct {
	Subtask ids.SubtaskID
	Peer    int
}

// TaskDeployment is what one subtask starts from.
type TaskDeployment struct {
	Subtask   ids.SubtaskID
	Restore   []snapshot.OperatorSubtaskState
	Splits    []SplitAssignment
	EndOfData bool
	// InFlight are the records that were in flight to the subtask, each channel's
	// in order. It processes them before anything new.
	InFlight []RestoredInFlight
	// Watermarks are where the channels of edges begin, behind those records.
	Watermarks []RestoredWatermark
}

// RestoredInFlight is what a subtask gets of a file of records in flight.
type RestoredInFlight struct {
	Handle snapshot.StateHandle
	Parts  []RestoredPart
}

// RestoredPart is what one input channel delivers.
type RestoredPart struct {
	// Channel is the number of the input channel.
	Channel        int
	Offset, Length int64
	// Rekey: only the records whose keys the subtask owns.
	Rekey bool
}

// RestoredWatermark is where the channels of an edge begin.
type RestoredWatermark struct {
	Edge      int
	Watermark int64
}

// SplitAssignment gives one source subtask its part of the split list.
type SplitAssignment struct {
	Subtask  ids.SubtaskID
	Operator ids.OperatorUID
	// Indexes are places in the source's split list, Splits their content.
	Indexes []int64
	Splits  []snapshot.Split
	// Complete means that no further split will come.
	Complete bool
	// List means that this subtask is to list the splits, none being known yet.
	List bool
}
