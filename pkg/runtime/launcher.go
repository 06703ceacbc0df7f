package runtime

import (
	"context"
	"errors"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/runtime/executor"
)

// LaunchSpec is everything that an executor is started with.
type LaunchSpec struct {
	Executor ids.ExecutorID
	JobName  string
	// Binary is the local path of the job's binary; empty without an artifact.
	Binary string
	// Dir is an empty directory for files of the executor. It is removed when
	// the executor has ended.
	Dir string
	// LocalDir is where the executors of the job keep files that its next one
	// here may restore from. It need not exist.
	LocalDir    string
	Args        []string
	Environment map[string]string
	// Config is the resolved configuration of the job on this host.
	Config map[string]string
	Slots  int
	Graph  *pb.JobGraph
	// JobManager is the address at which the executor finds the JobManager.
	JobManager string
	// BindHost is where the executor listens, Host where others reach it.
	BindHost, Host string
	// MemoryLimitBytes is the soft limit of its memory, 0 for none.
	MemoryLimitBytes int64
	// Output takes the lines that the executor prints. It does not block.
	Output func(line string)
}

// ExecutorSpec is the part that the executor itself needs.
func (s LaunchSpec) ExecutorSpec() executor.Spec {
	return executor.Spec{
		Executor: s.Executor, JobName: s.JobName, JobManager: s.JobManager, BindHost: s.BindHost, Host: s.Host,
		Config: s.Config, Graph: s.Graph, Dir: s.Dir, LocalDir: s.LocalDir,
	}
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
	// Kind says whose fault it was where the code means that; else unspecified.
	Kind pb.FailureKind
	// StderrTail is what it wrote last, with the start of its panic if there was one.
	StderrTail string
}

// KindOfExitCode says whose fault the end of an executor was, from the codes
// that package executor gives a meaning. Others are the program's own.
func KindOfExitCode(code int) pb.FailureKind {
	switch code {
	case executor.ExitUnusable:
		return pb.FailureKind_FAILURE_KIND_PERMANENT
	case executor.ExitFailed, executor.ExitStale, executor.ExitCutOff, executor.ExitLifeline, executor.ExitStuck:
		return pb.FailureKind_FAILURE_KIND_LOST
	}
	return pb.FailureKind_FAILURE_KIND_UNSPECIFIED
}

// ErrUnusable marks an executor that cannot be started by trying again: the
// binary cannot run here.
var ErrUnusable = errors.New("unusable")
