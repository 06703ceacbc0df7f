package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Role is what a process does in the cluster.
type Role string

// The roles.
const (
	JobManager  Role = "jobmanager"
	TaskManager Role = "taskmanager"
	S3          Role = "s3"
)

// Process is one process of a cluster as Status shows it.
type Process struct {
	Name string
	Role Role
	// PID is 0 when the process does not run.
	PID int
	// Address is host:port.
	Address string
	// Log is the file with the process's output.
	Log string
}

// NotFoundError says that a directory has never had a cluster.
type NotFoundError struct{ Dir string }

// Error names the directory.
func (e *NotFoundError) Error() string { return "there is no cluster in " + e.Dir }

// Status lists the processes of the cluster in dir, in the order in which
// they are started. The error is a *NotFoundError when there is no cluster.
func Status(dir string) ([]Process, error) {
	dir, r, err := openRecord(dir)
	if err != nil {
		return nil, err
	}
	return r.list(dir)
}

func (r *record) list(dir string) ([]Process, error) {
	listed := make([]Process, 0, len(r.Processes))
	for _, p := range r.Processes {
		shown := Process{Name: p.Name, Role: p.Role, Address: p.Address, Log: logFile(dir, p.Name)}
		alive, err := p.Identity.isAlive()
		if err != nil {
			return nil, err
		}
		if alive {
			shown.PID = p.Identity.PID
		}
		listed = append(listed, shown)
	}
	return listed, nil
}

// openRecord returns dir as an absolute path and the record of its cluster.
func openRecord(dir string) (absolute string, r *record, err error) {
	absolute, err = filepath.Abs(dir)
	if err != nil {
		return "", nil, fmt.Errorf("find cluster: %w", err)
	}
	r, err = readRecord(absolute)
	if errors.Is(err, errNoCluster) {
		return "", nil, &NotFoundError{Dir: dir}
	}
	return absolute, r, err
}

// makeDirectories makes what a cluster needs, readable by its owner only.
func makeDirectories(dir string) error {
	for _, name := range []string{"", "log", "work", "ha", "checkpoints", "savepoints"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return fmt.Errorf("make cluster directory: %w", err)
		}
	}
	return nil
}

// Registered asks the JobManager at address for the PIDs of the TaskManagers
// that are registered with it. An error means that it does not answer yet.
type Registered func(ctx context.Context, address string) ([]int, error)
