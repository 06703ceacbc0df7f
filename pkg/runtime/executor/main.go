package executor

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/operator"
)

// The exit codes of an executor's process. 1 and 2 are left to the program and
// to Go, which exits with 2 after a panic; a signal has none.
const (
	ExitOK = 0
	// ExitFailed: something failed that another attempt may get past.
	ExitFailed = 10
	// ExitUnusable: this program cannot run the job (ErrUnusable), or its spec
	// cannot be read.
	ExitUnusable = 11
	// ExitStale: the attempt is over (ErrStale).
	ExitStale = 12
	// ExitCutOff: the JobManager could not be reached in time (ErrCutOff).
	ExitCutOff = 13
	// ExitLifeline: the TaskManager died, or told it to go while tasks ran.
	ExitLifeline = 14
	// ExitStuck: a cancelled task did not return (ErrStuck).
	ExitStuck = 15
)

// Main is executor mode of a job's program: it runs the subtasks that the
// TaskManager which started this process wants, and returns the exit code. The
// process must then exit: goroutines may be left.
func Main(program *operator.Program) int {
	name := os.Getenv(SpecVariable)
	if name == "" {
		return exit(fmt.Errorf("$%s is not set: this mode is for TaskManagers, which start programs in it: %w", SpecVariable, ErrUnusable))
	}
	spec, err := ReadSpec(name)
	if err != nil {
		return exit(errors.Join(err, ErrUnusable))
	}
	log, err := newLogger(spec)
	if err != nil {
		return exit(errors.Join(err, ErrUnusable))
	}
	e, err := New(Options{Spec: spec, Program: program, Log: log, Output: os.Stdout})
	if err != nil {
		return exit(errors.Join(err, ErrUnusable))
	}
	defer governGarbage(e.config)()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if spec.HasLifeline {
		go watchLifeline(e, os.NewFile(LifelineFD, "lifeline"), cancel, os.Exit)
	}
	return exit(e.Run(ctx))
}

// watchLifeline waits for the TaskManager to let go. An executor whose tasks
// have ended leaves in order; any other ends at once, because whoever let go
// may be dead, and the next attempt must not meet this one. It lives as long
// as the process.
func watchLifeline(e *Executor, lifeline *os.File, leave func(), die func(int)) {
	var b [1]byte
	for {
		// Nothing is ever written, so that every return is the end of it or a fault.
		n, err := lifeline.Read(b[:])
		if n == 0 && err != nil {
			break
		}
	}
	if e.HasEnded() {
		leave()
		return
	}
	die(ExitLifeline)
}

// exit says why on stderr, of which the TaskManager keeps the end, and gives
// the code.
func exit(err error) int {
	if err == nil {
		return ExitOK
	}
	fmt.Fprintln(os.Stderr, err)
	switch {
	case errors.Is(err, ErrStuck):
		return ExitStuck
	case errors.Is(err, ErrUnusable):
		return ExitUnusable
	case errors.Is(err, ErrStale):
		return ExitStale
	case errors.Is(err, ErrCutOff):
		return ExitCutOff
	}
	return ExitFailed
}

// newLogger logs to stderr, as the configuration of the TaskManager wants it.
func newLogger(spec Spec) (*zap.Logger, error) {
	c, err := config.FromMap(spec.Config)
	if err != nil {
		return nil, fmt.Errorf("configuration of executor %s: %w", spec.Executor, err)
	}
	var level zapcore.Level
	switch config.LogLevel.Get(c) {
	case config.LogDebug:
		level = zapcore.DebugLevel
	case config.LogInfo:
		level = zapcore.InfoLevel
	case config.LogWarn:
		level = zapcore.WarnLevel
	case config.LogError:
		level = zapcore.ErrorLevel
	}
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.ISO8601TimeEncoder
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(encoding), zapcore.Lock(os.Stderr), level)), nil
}
