package minicluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/runtime"
	"github.com/weirstream/weir/pkg/runtime/executor"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/transport"
)

// programVariable tells the launcher which of the cluster's programs a job is.
const programVariable = "WEIR_MINICLUSTER_PROGRAM"

// ExecutorFunc runs one executor until its work is done or ctx ends. An error
// is why it could not work.
type ExecutorFunc func(ctx context.Context, spec runtime.LaunchSpec, program *operator.Program, network transport.Network) error

// executors runs package executor's, as the processes do.
func executors(open func(*config.Config) checkpointstore.Opener, backend statebackend.Backend, log *zap.Logger) ExecutorFunc {
	return func(ctx context.Context, spec runtime.LaunchSpec, program *operator.Program, network transport.Network) error {
		c, err := config.FromMap(spec.Config)
		if err != nil {
			return errors.Join(err, executor.ErrUnusable)
		}
		e, err := executor.New(executor.Options{
			Spec: spec.ExecutorSpec(), Program: program, Network: network,
			Store: checkpointstore.New(open(c)), Log: log.Named("executor"), Output: &lineWriter{each: spec.Output}, Backend: backend,
		})
		if err != nil {
			return errors.Join(err, executor.ErrUnusable)
		}
		return e.Run(ctx)
	}
}

// lineWriter cuts what is written into lines. Writes do not overlap and end
// with a line's end; what comes without one is a line too.
type lineWriter struct{ each func(line string) }

// Write implements io.Writer.
func (w *lineWriter) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		w.each(strings.TrimSuffix(line, "\n"))
	}
	return len(p), nil
}

// errKilled is why an executor's context ends when it is killed.
var errKilled = errors.New("killed")

// launcher starts executors as goroutines.
type launcher struct {
	run     ExecutorFunc
	network transport.Network
	program func(name string) *operator.Program
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		executions map[*execution]bool
	}
}

var _ runtime.Launcher = (*launcher)(nil)

// Start implements runtime.Launcher. The executor outlives ctx.
func (l *launcher) Start(_ context.Context, spec runtime.LaunchSpec) (runtime.Execution, error) {
	program := l.program(spec.Environment[programVariable])
	if program == nil {
		return nil, fmt.Errorf("the program of job %s is not in this process: %w", spec.Executor.Job, runtime.ErrUnusable)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	e := &execution{cancel: cancel, ended: make(chan struct{})}
	l.mu.Lock()
	if l.mu.executions == nil {
		l.mu.executions = map[*execution]bool{}
	}
	l.mu.executions[e] = true
	l.mu.Unlock()
	l.running.Go(func() {
		defer close(e.ended)
		defer l.forget(e)
		defer cancel(nil)
		err := l.run(ctx, spec, program, l.network)
		switch {
		case errors.Is(context.Cause(ctx), errKilled):
			e.exit = runtime.Exit{Code: -1, Signal: "killed"}
		case err != nil:
			e.exit = runtime.Exit{Code: executor.ExitFailed, Kind: kindOf(err), StderrTail: err.Error()}
		}
	})
	return e, nil
}

func (l *launcher) forget(e *execution) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.executions, e)
}

// killAll kills the executors that run now.
func (l *launcher) killAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := range l.mu.executions {
		e.Kill()
	}
}

// Close implements runtime.Launcher.
func (l *launcher) Close() error {
	l.running.Wait()
	return nil
}

// kindOf says whose fault the end of an executor was.
func kindOf(err error) pb.FailureKind {
	if errors.Is(err, executor.ErrUnusable) {
		return pb.FailureKind_FAILURE_KIND_PERMANENT
	}
	return pb.FailureKind_FAILURE_KIND_LOST
}

// execution is one executor's goroutine.
type execution struct {
	cancel context.CancelCauseFunc
	ended  chan struct{}
	exit   runtime.Exit // set before ended is closed
}

// PID implements runtime.Execution.
func (e *execution) PID() int { return os.Getpid() }

// Wait implements runtime.Execution.
func (e *execution) Wait() runtime.Exit {
	<-e.ended
	return e.exit
}

// End implements runtime.Execution.
func (e *execution) End() { e.cancel(nil) }

// Kill implements runtime.Execution.
func (e *execution) Kill() { e.cancel(errKilled) }
