package logfield

import (
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/pkg/ids"
)

// The keys of the fields, in one place.
const (
	keyAddress      = "address"
	keyAttempt      = "attempt"
	keyBytes        = "bytes"
	keyBytesFetched = "bytes_fetched"
	keyBytesLocal   = "bytes_local"
	keyChannel      = "channel"
	keyCheckpoint   = "checkpoint"
	keyCount        = "count"
	keyDeadline     = "deadline"
	keyElapsed      = "elapsed"
	keyEvent        = "event"
	keyExecutor     = "executor"
	keyExitCode     = "exit_code"
	keyFencingToken = "fencing_token"
	keyFile         = "file"
	keyFilesFetched = "files_fetched"
	keyFilesLocal   = "files_local"
	keyJob          = "job"
	keyJobName      = "job_name"
	keyJobStatus    = "job_status"
	keyOperator     = "operator"
	keyPID          = "pid"
	keyReason       = "reason"
	keyRetryIn      = "retry_in"
	keySignal       = "signal"
	keySlots        = "slots"
	keySubtask      = "subtask"
	keyTaskManager  = "taskmanager"
	keyTaskStatus   = "task_status"
	keyTry          = "try"
	keyURI          = "uri"
	keyVersion      = "version"
	keyVertex       = "vertex"
)

// Job is the job that the entry is about.
func Job(id ids.JobID) zap.Field { return zap.String(keyJob, string(id)) }

// JobName is the name that the user gave the job.
func JobName(name string) zap.Field { return zap.String(keyJobName, name) }

// Attempt is the attempt of the job.
func Attempt(id ids.AttemptID) zap.Field { return zap.Stringer(keyAttempt, id) }

// FencingToken is the leadership under which something is done or refused.
func FencingToken(token ids.FencingToken) zap.Field {
	return zap.Uint64(keyFencingToken, uint64(token))
}

// Checkpoint is the checkpoint or savepoint.
func Checkpoint(id ids.CheckpointID) zap.Field { return zap.Uint64(keyCheckpoint, uint64(id)) }

// Vertex is the vertex of the ExecutionGraph.
func Vertex(id ids.VertexID) zap.Field { return zap.Int32(keyVertex, int32(id)) }

// Subtask is the subtask, as vertex/index.
func Subtask(id ids.SubtaskID) zap.Field { return zap.Stringer(keySubtask, id) }

// Operator is the operator by its UID.
func Operator(uid ids.OperatorUID) zap.Field { return zap.String(keyOperator, string(uid)) }

// TaskManager is the TaskManager.
func TaskManager(id ids.TaskManagerID) zap.Field { return zap.String(keyTaskManager, string(id)) }

// Executor is the executor process, as job/attempt@taskmanager.
func Executor(id ids.ExecutorID) zap.Field { return zap.Stringer(keyExecutor, id) }

// JobStatus is the job's status after what the entry reports. Statuses have a
// String method in every package that has one of its own.
func JobStatus(status interface{ String() string }) zap.Field {
	return zap.Stringer(keyJobStatus, status)
}

// TaskStatus is the task's status after what the entry reports.
func TaskStatus(status interface{ String() string }) zap.Field {
	return zap.Stringer(keyTaskStatus, status)
}

// Event is the event or effect of a protocol that is handled.
func Event(event interface{ String() string }) zap.Field { return zap.Stringer(keyEvent, event) }

// Channel is the index of an input or output channel.
func Channel(index int) zap.Field { return zap.Int(keyChannel, index) }

// Slots is a number of slots.
func Slots(count int) zap.Field { return zap.Int(keySlots, count) }

// Address is a network address, host:port.
func Address(address string) zap.Field { return zap.String(keyAddress, address) }

// URI names an object or a directory in object storage. It must not hold credentials.
func URI(uri string) zap.Field { return zap.String(keyURI, uri) }

// File is a local path.
func File(path string) zap.Field { return zap.String(keyFile, path) }

// PID is an operating system process.
func PID(pid int) zap.Field { return zap.Int(keyPID, pid) }

// ExitCode is how a process ended.
func ExitCode(code int) zap.Field { return zap.Int(keyExitCode, code) }

// Signal is the signal that ended a process or was sent to it.
func Signal(name string) zap.Field { return zap.String(keySignal, name) }

// Reason says why something was decided, where that is not an error.
func Reason(reason string) zap.Field { return zap.String(keyReason, reason) }

// Try counts the attempts at one call, from 1. The attempt of a job is Attempt.
func Try(number int) zap.Field { return zap.Int(keyTry, number) }

// RetryIn is the time until the next try.
func RetryIn(pause time.Duration) zap.Field { return zap.Duration(keyRetryIn, pause) }

// Elapsed is how long something took.
func Elapsed(duration time.Duration) zap.Field { return zap.Duration(keyElapsed, duration) }

// Deadline is the time by which something has to have happened.
func Deadline(at time.Time) zap.Field { return zap.Time(keyDeadline, at) }

// Bytes is a size in bytes.
func Bytes(count int64) zap.Field { return zap.Int64(keyBytes, count) }

// Count is a number of whatever the message names.
func Count(count int) zap.Field { return zap.Int(keyCount, count) }

// Version is the version of a binary.
func Version(version string) zap.Field { return zap.String(keyVersion, version) }

// FilesFetched is the number of files that came from storage.
func FilesFetched(count int) zap.Field { return zap.Int(keyFilesFetched, count) }

// BytesFetched is the size of what came from storage, in bytes.
func BytesFetched(count int64) zap.Field { return zap.Int64(keyBytesFetched, count) }

// FilesLocal is the number of files that were on this host already.
func FilesLocal(count int) zap.Field { return zap.Int(keyFilesLocal, count) }

// BytesLocal is the size of what was on this host already, in bytes.
func BytesLocal(count int64) zap.Field { return zap.Int64(keyBytesLocal, count) }
