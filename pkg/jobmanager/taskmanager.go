package jobmanager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/logfield"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/transport"
)

// taskManager is a registered TaskManager. The server's mutex guards lost.
type taskManager struct {
	id         ids.TaskManagerID
	hello      *pb.TaskManagerHello
	session    transport.TaskManagerSession
	registered time.Time
	lost       bool
}

// TaskManagerSession serves one TaskManager until its stream ends, which is
// its loss: a TaskManager that lives on comes back with a session of its own,
// and is told to kill the executors that it still has.
func (s *Server) TaskManagerSession(_ context.Context, session transport.TaskManagerSession) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.background.Done()
	tm, err := s.registerTaskManager(session)
	if err != nil || tm == nil {
		return err
	}
	dog := watch(s.heartbeatTimeout, func() {
		s.loseTaskManager(tm, "no heartbeat for "+config.FormatDuration(s.heartbeatTimeout))
		session.Close()
	})
	defer dog.stop()
	for {
		dog.listen()
		report, err := session.Recv()
		dog.heard()
		if err != nil {
			s.loseTaskManager(tm, lossReason(err))
			return nil
		}
		s.handleTaskManager(tm, report)
	}
}

// enter counts a handler, unless the server closes.
func (s *Server) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closing {
		return transport.Errorf(transport.ErrUnavailable, "the JobManager is shutting down")
	}
	s.background.Add(1)
	return nil
}

// lossReason says in words how a session ended.
func lossReason(err error) string {
	if errors.Is(err, io.EOF) {
		return "it ended its session"
	}
	if errors.Is(err, context.Canceled) {
		// What gRPC makes of a peer whose socket closed, as a killed one's does.
		return "its connection broke"
	}
	return "its connection broke: " + err.Error()
}

// registerTaskManager takes the hello and gives the TaskManager its place.
// Without an error and a TaskManager it was refused in order.
func (s *Server) registerTaskManager(session transport.TaskManagerSession) (*taskManager, error) {
	// A peer that connects and says nothing must not stay for ever.
	dog := watch(s.heartbeatTimeout, session.Close)
	first, err := session.Recv()
	dog.stop()
	if err != nil {
		return nil, nil //nolint:nilerr // it left before it had said who it is
	}
	hello := first.GetHello()
	if reason := refusalOfTaskManager(hello); reason != "" {
		s.log.Warn("TaskManager refused", logfield.TaskManager(ids.TaskManagerID(hello.GetTaskManagerId())), logfield.Reason(reason))
		return nil, session.Send(&pb.TaskManagerCommand{Kind: &pb.TaskManagerCommand_Refused{
			Refused: &pb.HelloRefused{Reason: reason, Final: true},
		}})
	}
	tm := &taskManager{
		id: ids.TaskManagerID(hello.GetTaskManagerId()), hello: hello, session: session, registered: time.Now(),
	}
	if err := session.Send(&pb.TaskManagerCommand{Kind: &pb.TaskManagerCommand_Accepted{Accepted: s.accepted()}}); err != nil {
		return nil, err
	}
	// Whatever it runs belongs to attempts that were given up when its last
	// session broke, or to those of an earlier JobManager.
	for _, ref := range hello.GetRunning() {
		if err := session.Send(stopCommand(ref, true, 0)); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closing {
		return nil, transport.Errorf(transport.ErrUnavailable, "the JobManager is shutting down")
	}
	if old := s.mu.taskManagers[tm.id]; old != nil {
		// The stream of its earlier session has not been noticed to be broken.
		s.loseTaskManagerLocked(old, "it registered again")
	}
	s.mu.taskManagers[tm.id] = tm
	s.deliverLocked(s.mu.slots.Register(tm.id, int(hello.GetSlots())))
	s.log.Info("TaskManager registered", logfield.TaskManager(tm.id), logfield.Slots(int(hello.GetSlots())),
		logfield.PID(int(hello.GetPid())), logfield.Version(hello.GetVersion()))
	return tm, nil
}

// slotsMax bounds what one TaskManager may offer, see taskmanager.numberOfTaskSlots.
const slotsMax = 1024

func refusalOfTaskManager(hello *pb.TaskManagerHello) string {
	switch {
	case hello == nil:
		return "the first message is no hello"
	case hello.GetWireVersion() != transport.WireVersion:
		return wireVersionReason("TaskManager", hello.GetWireVersion())
	case hello.GetTaskManagerId() == "":
		return "the TaskManager has no ID"
	case hello.GetSlots() < 1 || hello.GetSlots() > slotsMax:
		return fmt.Sprintf("the TaskManager offers %d slots: 1 to %d are allowed", hello.GetSlots(), slotsMax)
	}
	return ""
}

func wireVersionReason(who string, theirs uint32) string {
	return fmt.Sprintf("the %s speaks wire version %d, the JobManager version %d: run both from the same release", who, theirs, transport.WireVersion)
}

func (s *Server) accepted() *pb.HelloAccepted {
	return &pb.HelloAccepted{
		HeartbeatIntervalMs: s.heartbeatInterval.Milliseconds(),
		HeartbeatTimeoutMs:  s.heartbeatTimeout.Milliseconds(),
	}
}

// loseTaskManager removes a TaskManager with its executors, and tells every
// job once. It may be called more than once.
func (s *Server) loseTaskManager(tm *taskManager, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseTaskManagerLocked(tm, reason)
}

func (s *Server) loseTaskManagerLocked(tm *taskManager, reason string) {
	if tm.lost {
		return
	}
	tm.lost = true
	// Should it live after all, it must not take itself for registered.
	tm.session.Close() // does not wait
	if s.mu.taskManagers[tm.id] == tm {
		delete(s.mu.taskManagers, tm.id)
	}
	if !s.mu.closing {
		s.log.Warn("TaskManager lost", logfield.TaskManager(tm.id), logfield.Reason(reason))
	}
	// The loss goes first: a grant that the freed table makes belongs behind it.
	for _, j := range s.mu.jobs {
		if j.driver != nil {
			j.driver.Deliver(coordinator.TaskManagerLost{TaskManager: tm.id, Reason: reason})
		}
	}
	for _, e := range s.mu.executors {
		if e.taskManager == tm {
			s.dropExecutorLocked(e)
		}
	}
	s.deliverLocked(s.mu.slots.Lose(tm.id))
}

func (s *Server) handleTaskManager(tm *taskManager, report *pb.TaskManagerReport) {
	switch kind := report.GetKind().(type) {
	case *pb.TaskManagerReport_Heartbeat:
		// An error is the session's end, which Recv tells of.
		_ = tm.session.SendAhead(&pb.TaskManagerCommand{Kind: &pb.TaskManagerCommand_Heartbeat{Heartbeat: kind.Heartbeat}})
	case *pb.TaskManagerReport_ExecutorStarted:
		s.executorStarted(tm, kind.ExecutorStarted)
	case *pb.TaskManagerReport_ExecutorExited:
		s.executorExited(tm, kind.ExecutorExited)
	case *pb.TaskManagerReport_LogLines:
		s.appendLog(kind.LogLines)
	case *pb.TaskManagerReport_Hello:
		s.log.Warn("second hello ignored", logfield.TaskManager(tm.id))
	default:
		s.log.Warn("report of unknown kind ignored", logfield.TaskManager(tm.id), zap.String("kind", fmt.Sprintf("%T", kind)))
	}
}

func (s *Server) appendLog(lines *pb.LogLines) {
	s.mu.Lock()
	j := s.mu.jobs[ids.JobID(lines.GetJobId())]
	s.mu.Unlock()
	if j == nil {
		return // a job that was forgotten or never ours
	}
	if err := j.log.append(lines.GetLines(), lines.GetDropped()); err != nil {
		s.log.Warn("output of the job was not kept", logfield.Job(j.id), zap.Error(err))
	}
}

// closeSessions ends all sessions, so that their handlers return.
func (s *Server) closeSessions() {
	s.mu.Lock()
	var closers []func()
	for _, tm := range s.mu.taskManagers {
		closers = append(closers, tm.session.Close)
	}
	for _, e := range s.mu.executors {
		if e.session != nil {
			closers = append(closers, e.session.Close)
		}
	}
	s.mu.Unlock()
	for _, closeSession := range closers {
		closeSession()
	}
}

// hostOf is the host of a registered TaskManager, else empty.
func (s *Server) hostOf(id ids.TaskManagerID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if tm := s.mu.taskManagers[id]; tm != nil {
		return tm.hello.GetHost()
	}
	return ""
}

// ListTaskManagers lists the registered TaskManagers by ID.
func (s *Server) ListTaskManagers(context.Context, *pb.ListTaskManagersRequest) (*pb.ListTaskManagersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	response := &pb.ListTaskManagersResponse{}
	for _, use := range s.mu.slots.TaskManagers() {
		tm := s.mu.taskManagers[use.TaskManager]
		if tm == nil {
			continue
		}
		status := s.taskManagerStatusLocked(tm, func(*executor) bool { return true })
		status.SlotsFree = int32(use.Free)
		response.TaskManagers = append(response.TaskManagers, status)
	}
	return response, nil
}

// taskManagerStatusLocked shows a TaskManager with those of its executors that
// are wanted.
func (s *Server) taskManagerStatusLocked(tm *taskManager, wanted func(*executor) bool) *pb.TaskManagerStatus {
	status := &pb.TaskManagerStatus{
		Id: string(tm.id), Host: tm.hello.GetHost(), Pid: tm.hello.GetPid(), Slots: tm.hello.GetSlots(),
		Platform: tm.hello.GetPlatform(), Version: tm.hello.GetVersion(),
		RegisteredUnixMs: snapshot.TimeToProto(tm.registered),
	}
	for _, e := range s.executorsLocked() {
		if e.taskManager == tm && wanted(e) {
			status.Executors = append(status.Executors, &pb.ExecutorStatus{
				JobId: string(e.id.Job), Attempt: e.id.Attempt.String(), Pid: e.pid, DataAddress: e.dataAddress,
			})
		}
	}
	return status
}
