package coordinator

import "fmt"

// JobStatus is the lifecycle of a job, in Flink's words.
type JobStatus uint8

// The statuses of a job. The last three are terminal: a job never leaves them.
const (
	// Created: accepted, never yet run; it waits for its restore point, slots or executors.
	Created JobStatus = iota + 1
	// RunningStatus: all tasks are running.
	RunningStatus
	// Restarting: it has run and is on its way to running again.
	Restarting
	// Cancelling: a user cancelled it; tasks are being ended.
	Cancelling
	// Failing: it has failed for good, which is being recorded.
	Failing
	// FinishedStatus: all input was read, or it was stopped with a savepoint; all is committed.
	FinishedStatus
	// CanceledStatus: ended by a user.
	CanceledStatus
	// FailedStatus: ended by the failure in Cause.
	FailedStatus
)

// String is the word that flinkctl shows.
func (s JobStatus) String() string {
	switch s {
	case Created:
		return "CREATED"
	case RunningStatus:
		return "RUNNING"
	case Restarting:
		return "RESTARTING"
	case Cancelling:
		return "CANCELLING"
	case Failing:
		return "FAILING"
	case FinishedStatus:
		return "FINISHED"
	case CanceledStatus:
		return "CANCELED"
	case FailedStatus:
		return "FAILED"
	}
	return fmt.Sprintf("JobStatus(%d)", uint8(s))
}

// IsTerminal reports whether the job has ended.
func (s JobStatus) IsTerminal() bool {
	return s == FinishedStatus || s == CanceledStatus || s == FailedStatus
}

// AbortReason says why a checkpoint was given up: a closed list.
type AbortReason uint8

// The reasons.
const (
	// Declined: a subtask could not take its snapshot.
	Declined AbortReason = iota + 1
	// Expired: not complete at execution.checkpointing.timeout.
	Expired
	// Subsumed: a newer checkpoint completed first.
	Subsumed
	// JobFailing: the job is failing over.
	JobFailing
	// JobCancelling: a user cancelled the job.
	JobCancelling
	// MetadataNotPersisted: _metadata could not be written.
	MetadataNotPersisted
	// NotPublished: the record could not be swapped.
	NotPublished
)

// String names the reason in words for users.
func (r AbortReason) String() string {
	switch r {
	case Declined:
		return "declined"
	case Expired:
		return "expired"
	case Subsumed:
		return "subsumed"
	case JobFailing:
		return "job-failing"
	case JobCancelling:
		return "job-cancelling"
	case MetadataNotPersisted:
		return "metadata-not-persisted"
	case NotPublished:
		return "not-published"
	}
	return fmt.Sprintf("AbortReason(%d)", uint8(r))
}
