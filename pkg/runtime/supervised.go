package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/logfield"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
)

// flushTimeout bounds how long the report of an exit waits for the output
// before it: a failover waits with it.
const flushTimeout = 200 * time.Millisecond

// supervised is one executor from the command that launches it to its exit
// report.
type supervised struct {
	id ids.ExecutorID
	// cancel ends the start, while there is no execution yet.
	cancel context.CancelFunc
	mu     struct {
		sync.Mutex
		execution Execution // nil before it was started
		killed    bool
		ending    bool
		killer    *time.Timer // of endWithin
	}
}

// kill ends it at once, or as soon as it exists.
func (s *supervised) kill() {
	s.cancel()
	s.mu.Lock()
	s.mu.killed = true
	execution := s.mu.execution
	s.mu.Unlock()
	if execution != nil {
		execution.Kill()
	}
}

// end asks it to end.
func (s *supervised) end() {
	s.cancel()
	s.mu.Lock()
	s.mu.ending = true
	execution := s.mu.execution
	s.mu.Unlock()
	if execution != nil {
		execution.End()
	}
}

// endWithin asks it to end and kills it when it has not within the grace.
func (s *supervised) endWithin(grace time.Duration) {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.killer == nil {
		s.mu.killer = time.AfterFunc(grace, s.kill)
	}
}

// started takes the execution over; if it was to end meanwhile, it ends now.
func (s *supervised) started(execution Execution) {
	s.mu.Lock()
	s.mu.execution = execution
	killed, ending := s.mu.killed, s.mu.ending
	s.mu.Unlock()
	if killed {
		execution.Kill()
	} else if ending {
		execution.End()
	}
}

func (s *supervised) ended() {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.killer != nil {
		s.mu.killer.Stop()
	}
}

// supervise starts an executor, waits for its end and reports it: always, so
// that nobody waits for one that could not be started.
func (t *TaskManager) supervise(ctx context.Context, s *supervised, command *pb.LaunchExecutor) {
	report := &pb.ExecutorExited{Executor: command.GetExecutor()}
	exit, err := t.runExecutor(ctx, s, command)
	if err != nil {
		report.ExitCode = -1
		report.Error = err.Error()
		report.Kind = pb.FailureKind_FAILURE_KIND_LOST
		if errors.Is(err, ErrUnusable) {
			report.Kind = pb.FailureKind_FAILURE_KIND_PERMANENT
		}
		t.log.Warn("executor was not started", logfield.Executor(s.id), zap.Error(err))
	} else {
		report.ExitCode = int32(exit.Code)
		report.Signal = exit.Signal
		report.StderrTail = exit.StderrTail
		report.Kind = exit.Kind
		t.log.Info("executor has ended", logfield.Executor(s.id), logfield.ExitCode(exit.Code), logfield.Signal(exit.Signal))
	}
	s.ended()
	t.mu.Lock()
	delete(t.mu.running, s.id)
	connected := t.mu.uplink != nil
	t.mu.Unlock()
	if connected {
		// Its last lines go before the word that it is gone.
		flush, cancel := context.WithTimeout(context.Background(), flushTimeout)
		t.output.waitSent(flush)
		cancel()
	}
	t.report(&pb.TaskManagerReport{Kind: &pb.TaskManagerReport_ExecutorExited{ExecutorExited: report}})
}

// runExecutor is an executor's whole life. The error says why it has had none.
func (t *TaskManager) runExecutor(ctx context.Context, s *supervised, command *pb.LaunchExecutor) (Exit, error) {
	spec := LaunchSpec{
		Executor:         s.id,
		JobName:          command.GetJobName(),
		Args:             command.GetArgs(),
		Environment:      command.GetEnvironment(),
		Config:           t.configOf(command.GetConfig()),
		Slots:            int(command.GetSlots()),
		Graph:            command.GetGraph(),
		JobManager:       t.options.JobManager,
		BindHost:         config.TaskManagerBindHost.Get(t.options.Config),
		Host:             t.options.Host,
		MemoryLimitBytes: t.memoryLimit(int(command.GetSlots())),
		Output:           func(line string) { t.output.add(s.id.Job, line) },
	}
	if sum := command.GetArtifactSha256(); sum != "" && t.artifacts != nil {
		path, release, err := t.artifacts.acquire(ctx, sum)
		if err != nil {
			return Exit{}, err
		}
		defer release()
		spec.Binary = path
	}
	spec.Dir = filepath.Join(t.executors, fmt.Sprintf("%s-%s", s.id.Job, s.id.Attempt))
	if err := os.Mkdir(spec.Dir, 0o700); err != nil {
		return Exit{}, fmt.Errorf("make directory of executor: %w", err)
	}
	defer func() {
		if err := os.RemoveAll(spec.Dir); err != nil {
			t.log.Warn("directory of an executor was not removed", logfield.File(spec.Dir), zap.Error(err))
		}
	}()
	spec.LocalDir = t.kept.acquire(s.id.Job)
	defer t.kept.release(s.id.Job)
	execution, err := t.options.Launcher.Start(ctx, spec)
	if err != nil {
		return Exit{}, err
	}
	s.started(execution)
	t.report(&pb.TaskManagerReport{Kind: &pb.TaskManagerReport_ExecutorStarted{
		ExecutorStarted: &pb.ExecutorStarted{Executor: command.GetExecutor(), Pid: int32(execution.PID())},
	}})
	return execution.Wait(), nil
}
