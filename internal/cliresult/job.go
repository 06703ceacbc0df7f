package cliresult

import "time"

// Job is one job in the output of list.
type Job struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Status    string     `json:"status"`
	Restarts  int32      `json:"restarts"`
	Submitted *time.Time `json:"submitted,omitempty"`
	Ended     *time.Time `json:"ended,omitempty"`
}

// Submitted is the output of submit, printed as soon as the job is accepted.
type Submitted struct {
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	Warnings []string `json:"warnings"`
}

// JobStatus is the output of status.
type JobStatus struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Status string `json:"status"`
	// Detail says what the job waits for, as in "waiting for 6 slots, 4 free".
	Detail             string `json:"detail"`
	Restarts           int32  `json:"restarts"`
	Attempt            int32  `json:"attempt"`
	RestoredCheckpoint uint64 `json:"restored_checkpoint"`
	LastCheckpoint     uint64 `json:"last_checkpoint"`
	LastCheckpointPath string `json:"last_checkpoint_path"`
	// Cause is why the job failed last: what happened, then the stack if there is one.
	Cause     string     `json:"cause"`
	Submitted *time.Time `json:"submitted,omitempty"`
	Started   *time.Time `json:"started,omitempty"`
	Ended     *time.Time `json:"ended,omitempty"`
	Vertices  []Vertex   `json:"vertices"`
	Executors []Executor `json:"executors"`
	// Events are what happened to the job, newest last.
	Events []Event `json:"events"`
}

// The statuses of a job that have ended.
const (
	Finished = "FINISHED"
	Failed   = "FAILED"
	Canceled = "CANCELED"
)

// Running is the status of a job all of whose subtasks run.
const Running = "RUNNING"

// IsTerminal reports whether the job has ended.
func (s *JobStatus) IsTerminal() bool {
	return s.Status == Finished || s.Status == Failed || s.Status == Canceled
}

// Vertex is one chain of operators of a job.
type Vertex struct {
	ID          int32  `json:"id"`
	Name        string `json:"name"`
	Parallelism int32  `json:"parallelism"`
	// Records of the current attempt, from and to other vertices; what a source
	// reads counts as in, what a sink writes does not count as out.
	RecordsIn      int64   `json:"records_in"`
	RecordsOut     int64   `json:"records_out"`
	RecordsInRate  float64 `json:"records_in_rate"`
	RecordsOutRate float64 `json:"records_out_rate"`
	// SpilledBytes came round a loop and were put on disk.
	SpilledBytes int64            `json:"spilled_bytes,omitempty"`
	Tasks        map[string]int32 `json:"tasks"`
	Subtasks     []Subtask        `json:"subtasks"`
}

// Subtask is one parallel instance of a vertex.
type Subtask struct {
	Index         int32  `json:"index"`
	Status        string `json:"status"`
	TaskManagerID string `json:"task_manager_id"`
	Host          string `json:"host"`
	RecordsIn     int64  `json:"records_in"`
	RecordsOut    int64  `json:"records_out"`
}

// Event is one thing that happened to a job.
type Event struct {
	Time time.Time `json:"time"`
	Text string    `json:"text"`
}

// Executor is one task executor process.
type Executor struct {
	TaskManagerID string `json:"task_manager_id,omitempty"`
	JobID         string `json:"job_id"`
	Attempt       string `json:"attempt"`
	PID           int32  `json:"pid"`
	DataAddress   string `json:"data_address"`
}

// Statuses of checkpoints, in Flink's words.
const (
	CheckpointInProgress = "IN_PROGRESS"
	CheckpointCompleted  = "COMPLETED"
	CheckpointFailed     = "FAILED"
)

// Checkpoint is one checkpoint or savepoint of a job.
type Checkpoint struct {
	ID         uint64     `json:"id"`
	Kind       string     `json:"kind"`
	Status     string     `json:"status"`
	Reason     string     `json:"reason,omitempty"`
	Triggered  *time.Time `json:"triggered,omitempty"`
	DurationMS int64      `json:"duration_ms"`
	Size       int64      `json:"size"`
	Uploaded   int64      `json:"uploaded"`
	Acked      int32      `json:"acked"`
	Subtasks   int32      `json:"subtasks"`
	Path       string     `json:"path,omitempty"`
	// AlignmentMS is that of the slowest subtask. ChannelBytes, of records in
	// flight, are part of Size and Uploaded.
	AlignmentMS  float64 `json:"alignment_ms"`
	ChannelBytes int64   `json:"channel_bytes"`
	Unaligned    bool    `json:"unaligned"`
}

// CheckpointDetails is the output of checkpoints --id.
type CheckpointDetails struct {
	Checkpoint
	// Failure names why it failed, as in declined, and DeclinedBy by whom.
	Failure    string      `json:"failure,omitempty"`
	DeclinedBy *SubtaskRef `json:"declined_by,omitempty"`
	// Vertices are empty while it is in progress.
	Vertices []CheckpointVertex `json:"vertices"`
}

// SubtaskRef names a subtask by its place.
type SubtaskRef struct {
	Vertex int32 `json:"vertex"`
	Index  int32 `json:"index"`
}

// CheckpointVertex is the part of one vertex in a checkpoint.
type CheckpointVertex struct {
	ID       int32               `json:"id"`
	Name     string              `json:"name"`
	Subtasks []CheckpointSubtask `json:"subtasks"`
}

// CheckpointSubtask is the part of one subtask in a checkpoint; all is 0 until
// it has acknowledged it.
type CheckpointSubtask struct {
	Index int32 `json:"index"`
	Acked bool  `json:"acked"`
	// EndMS is the time from the trigger to the acknowledgement, of which the others are parts.
	EndMS          float64 `json:"end_ms"`
	StartDelayMS   float64 `json:"start_delay_ms"`
	AlignmentMS    float64 `json:"alignment_ms"`
	SyncMS         float64 `json:"sync_ms"`
	AsyncMS        float64 `json:"async_ms"`
	ProcessedBytes int64   `json:"processed_bytes"`
	PersistedBytes int64   `json:"persisted_bytes"`
	Size           int64   `json:"size"`
	Uploaded       int64   `json:"uploaded"`
	ChannelBytes   int64   `json:"channel_bytes"`
	Unaligned      bool    `json:"unaligned"`
}

// Checkpoints is the output of checkpoints, newest first. Those listed may have
// been taken under earlier JobManagers; the counts are of this one.
type Checkpoints struct {
	Completed   int64        `json:"completed"`
	Failed      int64        `json:"failed"`
	Checkpoints []Checkpoint `json:"checkpoints"`
}

// Savepoint is the output of savepoint and stop.
type Savepoint struct {
	Path       string `json:"savepoint"`
	Checkpoint uint64 `json:"checkpoint"`
}

// TakenCheckpoint is the output of checkpoint.
type TakenCheckpoint struct {
	ID   uint64 `json:"checkpoint"`
	Path string `json:"path"`
}

// Cancellation is the output of cancel.
type Cancellation struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

// LogLine is one line of the output of logs: an object on a line of its own.
type LogLine struct {
	Time   *time.Time `json:"time,omitempty"`
	Source string     `json:"source"`
	Text   string     `json:"text"`
	// Dropped is the number of lines lost before this one.
	Dropped int64 `json:"dropped,omitempty"`
}
