package cliresult

import "time"

// TaskManager is one registered TaskManager in the output of taskmanagers.
type TaskManager struct {
	ID         string     `json:"id"`
	Host       string     `json:"host"`
	PID        int32      `json:"pid"`
	Slots      int32      `json:"slots"`
	SlotsFree  int32      `json:"slots_free"`
	Platform   string     `json:"platform"`
	Version    string     `json:"version"`
	Registered *time.Time `json:"registered,omitempty"`
	Executors  []Executor `json:"executors"`
}

// Process is one process of a local cluster in the output of cluster status.
type Process struct {
	Name string `json:"name"`
	// Role is jobmanager, taskmanager or s3.
	Role string `json:"role"`
	// PID is 0 when the process does not run.
	PID     int    `json:"pid"`
	Address string `json:"address"`
	Log     string `json:"log"`
}

// The roles of processes of a local cluster.
const (
	JobManagerRole  = "jobmanager"
	TaskManagerRole = "taskmanager"
	S3Role          = "s3"
)

// Version is the output of version. The JobManager's part is absent where it
// was not asked for.
type Version struct {
	Version    string             `json:"version"`
	Go         string             `json:"go"`
	Platform   string             `json:"platform"`
	JobManager *JobManagerVersion `json:"jobmanager,omitempty"`
}

// JobManagerVersion is what a JobManager says of itself.
type JobManagerVersion struct {
	Address     string `json:"address"`
	Version     string `json:"version"`
	WireVersion uint32 `json:"wire_version"`
	ClusterID   string `json:"cluster_id"`
}
