package stream

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/weirstream/weir/pkg/minicluster"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/executor"
)

// Exit codes of direct mode.
const (
	exitFailed = 1
	// exitInterrupted is what shells give for an interrupt.
	exitInterrupted = 130
)

// runDirect runs the job on an embedded cluster. An interrupt cancels the job;
// a second one ends the process as it would any other.
func runDirect(p *process, program *operator.Program, options directOptions) int {
	ctx, restoreSignals := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer restoreSignals()
	defer context.AfterFunc(ctx, restoreSignals)()
	progress := &progress{name: p.name, to: p.stderr}
	err := minicluster.Run(ctx, p.name, program, minicluster.RunOptions{
		Parallelism: options.parallelism,
		Config:      options.configuration,
		Output:      p.stdout,
		Progress:    progress.show,
	})
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		return p.fail(exitInterrupted, err)
	}
	var failed *minicluster.FailedError
	if errors.As(err, &failed) && failed.Cause.GetStack() != "" {
		defer func() { _, _ = p.stderr.Write([]byte(failed.Cause.GetStack() + "\n")) }()
	}
	return p.fail(exitFailed, err)
}

// runExecutor runs subtasks for a TaskManager.
func runExecutor(program *operator.Program) int { return executor.Main(program) }
