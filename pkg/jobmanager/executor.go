package jobmanager

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/logfield"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/coordinator/driver"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/transport"
)

// exitReportGrace is how long a broken session of an executor waits for its
// TaskManager to say how the process ended: the TaskManager sees the exit
// within milliseconds, and only it knows of a panic. It delays nothing but the
// notice of a connection that broke while both processes live.
const exitReportGrace = 500 * time.Millisecond

// executor is an executor that a driver had launched and that has not been
// noticed to be gone. The server's mutex guards all but id and taskManager.
type executor struct {
	id          ids.ExecutorID
	taskManager *taskManager
	pid         int32
	dataAddress string
	session     transport.ExecutorSession // nil before its hello
	// gone is set when it has left the registry.
	gone bool
	// orphan fires when the session has broken and no exit report has come.
	orphan *time.Timer
}

// ExecutorSession serves one executor until its stream ends.
func (s *Server) ExecutorSession(ctx context.Context, session transport.ExecutorSession) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.background.Done()
	e, d, err := s.connectExecutor(session)
	if err != nil || e == nil {
		return err
	}
	dog := watch(s.heartbeatTimeout, func() {
		s.executorLost(e, coordinator.Failure{
			Kind:    coordinator.LostProcess,
			Message: "no heartbeat for " + config.FormatDuration(s.heartbeatTimeout),
		}, true)
		session.Close()
	})
	defer dog.stop()
	var reports uint64 // that were handled, without heartbeats
	for {
		dog.listen()
		report, err := session.Recv()
		dog.heard()
		switch {
		case err != nil:
		case report.GetHeartbeat() != nil:
			err = s.answerHeartbeat(e, d, report.GetHeartbeat(), reports)
		default:
			err = s.handleExecutor(ctx, e, d, report)
			reports++
		}
		if err != nil {
			s.executorDisconnected(e, err)
			return nil
		}
	}
}

// connectExecutor takes the hello. Without an error and an executor it was
// refused in order.
func (s *Server) connectExecutor(session transport.ExecutorSession) (*executor, *driver.Driver, error) {
	dog := watch(s.heartbeatTimeout, session.Close)
	first, err := session.Recv()
	dog.stop()
	if err != nil {
		return nil, nil, nil //nolint:nilerr // it left before it had said who it is
	}
	hello := first.GetHello()
	e, d, reason := s.admitExecutor(hello, session)
	if reason != "" {
		s.log.Warn("executor refused", logfield.Job(ids.JobID(hello.GetExecutor().GetJobId())),
			logfield.TaskManager(ids.TaskManagerID(hello.GetTaskManagerId())), logfield.Reason(reason))
		return nil, nil, session.Send(&pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Refused{
			Refused: &pb.HelloRefused{Reason: reason, Final: true},
		}})
	}
	return e, d, nil
}

// admitExecutor finds the executor that the hello is of. Only those that a
// driver of this server has launched, and not yet given up, are admitted (I8).
func (s *Server) admitExecutor(hello *pb.ExecutorHello, session transport.ExecutorSession) (*executor, *driver.Driver, string) {
	if hello == nil {
		return nil, nil, "the first message is no hello"
	}
	if hello.GetWireVersion() != transport.WireVersion {
		return nil, nil, wireVersionReason("executor", hello.GetWireVersion())
	}
	id := ids.ExecutorID{
		Job:         ids.JobID(hello.GetExecutor().GetJobId()),
		Attempt:     snapshot.AttemptFromProto(hello.GetExecutor().GetAttempt()),
		TaskManager: ids.TaskManagerID(hello.GetTaskManagerId()),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, j := s.mu.executors[id], s.mu.jobs[id.Job]
	if e == nil || j == nil || j.driver == nil {
		return nil, nil, fmt.Sprintf("attempt %s of job %s is over", id.Attempt, id.Job)
	}
	if e.session != nil {
		return nil, nil, fmt.Sprintf("executor %s has a session already", id)
	}
	// Accepted goes first: what the driver sends comes behind it.
	if err := session.Send(&pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Accepted{Accepted: s.accepted()}}); err != nil {
		return nil, nil, err.Error()
	}
	e.session, e.dataAddress, e.pid = session, hello.GetDataAddress(), hello.GetPid()
	j.driver.Deliver(coordinator.ExecutorReady{Executor: id, DataAddress: e.dataAddress})
	return e, j.driver, ""
}

// answerHeartbeat tells the executor that it was heard, and how many of the
// reports of this session need not be sent again.
func (s *Server) answerHeartbeat(e *executor, d *driver.Driver, heartbeat *pb.ExecutorHeartbeat, reports uint64) error {
	d.Metrics(e.id.Attempt, heartbeat.GetMetrics())
	return e.session.SendAhead(&pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Heartbeat{
		Heartbeat: &pb.Heartbeat{Sequence: heartbeat.GetSequence(), Reports: reports},
	}})
}

func (s *Server) handleExecutor(ctx context.Context, e *executor, d *driver.Driver, report *pb.ExecutorReport) error {
	event, ok, err := driver.EventOfReport(e.id, report)
	if err != nil {
		return err
	}
	if !ok {
		return nil
	}
	if lost, isLost := event.(coordinator.ExecutorLost); isLost {
		// The executor as a whole has failed: it ends, and this is why.
		s.executorLost(e, lost.Failure, false)
		return nil
	}
	return d.Report(ctx, event)
}

// executorDisconnected: the session broke, or what came on it made no sense.
func (s *Server) executorDisconnected(e *executor, err error) {
	failure := coordinator.Failure{
		Kind:    coordinator.LostProcess,
		Message: lossReason(err),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.gone || s.mu.closing || e.orphan != nil {
		return
	}
	e.orphan = time.AfterFunc(exitReportGrace, func() { s.executorLost(e, failure, true) })
}

// executorLost removes the executor and tells its job why; with kill its
// TaskManager ends the process, should it live on. Only the first call counts.
func (s *Server) executorLost(e *executor, failure coordinator.Failure, kill bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseExecutorLocked(e, failure, kill)
}

func (s *Server) loseExecutorLocked(e *executor, failure coordinator.Failure, kill bool) {
	if e.gone {
		return
	}
	s.dropExecutorLocked(e)
	if kill {
		// An error is the TaskManager's loss, which ends its executors too.
		_ = e.taskManager.session.Send(stopCommand(executorRef(e.id), true, 0))
	}
	s.deliverToLocked(e.id.Job, coordinator.ExecutorLost{Executor: e.id, Failure: failure})
}

func (s *Server) dropExecutorLocked(e *executor) {
	e.gone = true
	delete(s.mu.executors, e.id)
	if e.orphan != nil {
		e.orphan.Stop()
	}
	if e.session != nil {
		e.session.Close() // does not wait
	}
	if j := s.mu.jobs[e.id.Job]; j != nil {
		s.noticeQuietLocked(j)
	}
}

// dropExecutorsLocked kills what is left of a job that has ended.
func (s *Server) dropExecutorsLocked(job ids.JobID) {
	for _, e := range s.executorsLocked() {
		if e.id.Job == job {
			s.dropExecutorLocked(e)
			_ = e.taskManager.session.Send(stopCommand(executorRef(e.id), true, 0))
		}
	}
}

func (s *Server) executorsLocked() []*executor {
	all := make([]*executor, 0, len(s.mu.executors))
	for _, e := range s.mu.executors {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *executor) int { return cmp.Compare(a.id.String(), b.id.String()) })
	return all
}

func (s *Server) executorStarted(tm *taskManager, p *pb.ExecutorStarted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.mu.executors[executorOfRef(p.GetExecutor(), tm.id)]; e != nil {
		e.pid = p.GetPid()
	}
}

func (s *Server) executorExited(tm *taskManager, p *pb.ExecutorExited) {
	id := executorOfRef(p.GetExecutor(), tm.id)
	s.mu.Lock()
	e := s.mu.executors[id]
	s.mu.Unlock()
	if e == nil {
		return // stopped by us, or given up before
	}
	failure := failureOfExit(tm.id, p)
	s.log.Info("executor exited", logfield.Executor(id), logfield.ExitCode(int(p.GetExitCode())),
		logfield.Signal(p.GetSignal()), zap.String("error", p.GetError()))
	s.executorLost(e, failure, false)
}

func executorOfRef(ref *pb.ExecutorRef, tm ids.TaskManagerID) ids.ExecutorID {
	return ids.ExecutorID{Job: ids.JobID(ref.GetJobId()), Attempt: snapshot.AttemptFromProto(ref.GetAttempt()), TaskManager: tm}
}

func executorRef(id ids.ExecutorID) *pb.ExecutorRef {
	return &pb.ExecutorRef{JobId: string(id.Job), Attempt: snapshot.AttemptToProto(id.Attempt)}
}

func stopCommand(ref *pb.ExecutorRef, kill bool, grace time.Duration) *pb.TaskManagerCommand {
	return &pb.TaskManagerCommand{Kind: &pb.TaskManagerCommand_StopExecutor{
		StopExecutor: &pb.StopExecutor{Executor: ref, Kill: kill, GraceMs: grace.Milliseconds()},
	}}
}
