package runtime

import (
	"context"
	"errors"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
)

// LaunchSpec is everything that an executor is started with.
type LaunchSpec struct {
	Executor ids.ExecutorID
	JobName  string
	// Binary is the local path of the job's binary; empty without an artifact.
	Binary string
	// Dir is an empty directory for files of the executor. It is removed when
	// the executor has ended.
	Dir         string
	Args        []string
	Environment map[string]string
	// Config is the resolved configuration of the job on this host.
	Config map[string]string
	Slots  int
	Graph  *pb.JobGraph
	// JobManager is the address at which the executor finds the JobManager.
	JobManager string
	// Host is where other hosts reach this one.
	Host string
	// MemoryLimitBytes is the soft limit of its memory, 0 for none.
	MemoryLimitBytes int64
	// Output takes the lines that the executor prints: source is who printed.
	// It does not block.
	Output func(source, line string)
}

// Launcher starts executors.
type Launcher interface {
	// Start starts one and returns when it exists. ctx bounds the start only.
	// An error that matches ErrUnusable will be the same at every try.
	Start(ctx context.Context, spec LaunchSpec) (Execution, error)
	// Close waits for all executors, which have been killed, and frees what
	// the launcher holds.
	Close() error
}

// Execution is one running executor. Its methods may be called concurrently.
type Execution interface {
	// PID is its process, or this one's.
	PID() int
	// Wait waits until it has ended, and tells how. Called once.
	Wait() Exit
	// End asks it to end by itself.
	End()
	// Kill ends it at once. Ending what has ended does nothing.
	Kill()
}

// Exit is how an executor ended.
type Exit struct {
	Code int
	// Signal is the name of the signal that ended it, or empty.
	Signal string
	// StderrTail is what it wrote last, with the start of its panic if there was one.
	StderrTail string
}

// ErrUnusable marks an executor that cannot be started by trying again: the
// binary cannot run here.
var ErrUnusable = errors.New("unusable")
