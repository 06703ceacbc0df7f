package executor

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
	"github.com/weirstream/weir/pkg/runtime/task"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/transport"
)

// reconnectPause is the time between two attempts to open a session: short
// against the time that there is for it, and no load for a JobManager.
const reconnectPause = 100 * time.Millisecond

// conversation is the executor's side of its sessions, one after the other.
type conversation struct {
	*Executor
	jobManager *transport.JobManager
	// heard is when the last acknowledged heartbeat was sent, on the
	// monotonic clock: the JobManager counts from then or later.
	heard    time.Time
	limit    time.Duration // how long may pass since heard
	interval time.Duration // between heartbeats
	deployed bool
	refused  error // why this program cannot run the job; reported
}

// converse keeps a session with the JobManager until the executor is to end.
func (e *Executor) converse(ctx context.Context, jobManager *transport.JobManager) error {
	c := &conversation{
		Executor: e, jobManager: jobManager, heard: time.Now(),
		limit:    cutOff(config.HeartbeatTimeout.Get(e.config)),
		interval: config.HeartbeatInterval.Get(e.config),
	}
	for {
		err := c.session(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil, errors.Is(err, ErrStale), errors.Is(err, ErrCutOff), errors.Is(err, ErrUnusable), errors.Is(err, ErrStuck):
			return err
		case errors.Is(err, io.EOF) && e.HasEnded():
			return nil // the JobManager needs nothing more
		}
		left := c.limit - time.Since(c.heard)
		if left <= reconnectPause {
			return fmt.Errorf("%w for %s: %w", ErrCutOff, config.FormatDuration(c.limit), err)
		}
		e.log.Warn("session with the JobManager lost", zap.Error(err), logfield.RetryIn(reconnectPause))
		pause := time.NewTimer(reconnectPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil
		}
	}
}

func cutOff(timeout time.Duration) time.Duration {
	return time.Duration(cutOffShare * float64(timeout))
}

// session is one session from hello to end. An error that is none of the
// package's means that another one may be tried.
func (c *conversation) session(ctx context.Context) error {
	s, cancel, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	commands, received := make(chan *pb.ExecutorCommand), make(chan error, 1)
	go func() {
		defer close(commands)
		for {
			m, err := s.Recv()
			if err != nil {
				received <- err
				return
			}
			commands <- m // somebody receives until the session has ended
		}
	}()
	err = c.serve(ctx, s, commands, received)
	c.reports.detach()
	// Reads on meanwhile, so that Close sees the JobManager's end of it.
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for range commands {
		}
	}()
	s.Close()
	cancel()
	<-drained
	return err
}

// open opens the stream of a session, as long as ctx and the time that is left
// allow. The stream itself outlives ctx, so that it can end in order.
func (c *conversation) open(ctx context.Context) (transport.ExecutorUplink, func(), error) {
	stream, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	timeout := time.AfterFunc(c.limit-time.Since(c.heard), cancel)
	s, err := c.jobManager.ExecutorSession(stream)
	stop()
	timeout.Stop()
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return s, cancel, nil
}

func (c *conversation) hello() *pb.ExecutorReport {
	id := c.spec.Executor
	return &pb.ExecutorReport{Kind: &pb.ExecutorReport_Hello{Hello: &pb.ExecutorHello{
		Executor:      &pb.ExecutorRef{JobId: string(id.Job), Attempt: snapshot.AttemptToProto(id.Attempt)},
		TaskManagerId: string(id.TaskManager), DataAddress: c.address, Pid: pid(), WireVersion: transport.WireVersion,
	}}}
}

// serve says hello, and then handles commands and sends heartbeats.
func (c *conversation) serve(ctx context.Context, s transport.ExecutorUplink, commands <-chan *pb.ExecutorCommand, received <-chan error) error {
	if err := s.Send(c.hello()); err != nil {
		return err
	}
	silence := time.NewTimer(c.limit - time.Since(c.heard))
	defer silence.Stop()
	var heartbeats <-chan time.Time // nil until we are accepted
	for {
		select {
		case m, ok := <-commands:
			if !ok {
				return <-received
			}
			if accepted := m.GetAccepted(); accepted != nil && heartbeats == nil {
				c.accepted(accepted, s)
				ticker := time.NewTicker(c.interval)
				defer ticker.Stop()
				heartbeats = ticker.C
				c.beat()
			} else if err := c.handle(m); err != nil {
				return err
			}
			silence.Reset(c.limit - time.Since(c.heard))
			if c.refused != nil {
				// The report of it goes out with the end of the session.
				return fmt.Errorf("%w: %w", ErrUnusable, c.refused)
			}
		case <-heartbeats:
			c.beat()
			if c.reports.hasDropped() {
				return fmt.Errorf("%w: more than %d reports are not acknowledged", ErrCutOff, unackedMax)
			}
		case <-silence.C:
			return fmt.Errorf("%w: no heartbeat was acknowledged for %s", ErrCutOff, config.FormatDuration(c.limit))
		case <-c.stuck:
			if err := c.stuckError(); err != nil {
				return err
			}
			c.stuck = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// accepted: the JobManager takes our reports from now on.
func (c *conversation) accepted(m *pb.HelloAccepted, s transport.ExecutorUplink) {
	if ms := m.GetHeartbeatIntervalMs(); ms > 0 {
		c.interval = time.Duration(ms) * time.Millisecond
	}
	if ms := m.GetHeartbeatTimeoutMs(); ms > 0 {
		c.limit = cutOff(time.Duration(ms) * time.Millisecond)
	}
	c.reports.attach(s)
	if err := c.checkProgram(); err != nil {
		c.refuse(err)
	}
}

// refuse reports that this program cannot run the job.
func (c *conversation) refuse(err error) {
	c.refused = err
	c.log.Error("cannot run the job", zap.Error(err))
	c.reports.send(&pb.ExecutorReport{Kind: &pb.ExecutorReport_Failure{Failure: failureToProto(coordinator.Failure{
		Kind: coordinator.PermanentFailure, Message: err.Error(),
	})}})
}

func (c *conversation) beat() {
	metrics := make([]*pb.SubtaskMetrics, len(c.ordered))
	for i, t := range c.ordered {
		metrics[i] = metricsToProto(t)
	}
	c.reports.heartbeat(metrics)
}

// handle carries out one command.
func (c *conversation) handle(m *pb.ExecutorCommand) error {
	switch kind := m.GetKind().(type) {
	case *pb.ExecutorCommand_Accepted:
	case *pb.ExecutorCommand_Refused:
		if kind.Refused.GetFinal() {
			return fmt.Errorf("%w: %s", ErrStale, kind.Refused.GetReason())
		}
		return fmt.Errorf("hello refused: %s", kind.Refused.GetReason())
	case *pb.ExecutorCommand_Heartbeat:
		if sent, ok := c.reports.acked(kind.Heartbeat); ok {
			c.heard = sent
		}
	case *pb.ExecutorCommand_Deploy:
		c.deployOnce(kind.Deploy)
	case *pb.ExecutorCommand_Trigger:
		barrier := barrierFromProto(kind.Trigger)
		for _, ref := range kind.Trigger.GetSubtasks() {
			if t := c.task(ref); t != nil {
				t.Trigger(barrier)
			}
		}
	case *pb.ExecutorCommand_Notify:
		id := ids.CheckpointID(kind.Notify.GetCheckpoint())
		for _, t := range c.ordered {
			if kind.Notify.GetAborted() {
				t.NotifyAborted(id)
			} else {
				t.NotifyComplete(id)
			}
		}
		if !kind.Notify.GetAborted() {
			c.tidyLocal(id)
		}
	case *pb.ExecutorCommand_AssignSplits:
		assignment, err := assignmentFromProto(kind.AssignSplits)
		if err != nil {
			c.refuse(err)
			return nil
		}
		if t := c.task(kind.AssignSplits.GetSubtask()); t != nil {
			t.AssignSplits(assignment)
		}
	case *pb.ExecutorCommand_EndLoops:
		for _, ref := range kind.EndLoops.GetSubtasks() {
			if t := c.task(ref); t != nil {
				t.EndLoop()
			}
		}
	case *pb.ExecutorCommand_Finish:
		// Nothing is left to count: these counters are what remains of the job,
		// and one that is over within a heartbeat interval has sent no others.
		c.beat()
		for _, t := range c.ordered {
			t.Finish()
		}
	case *pb.ExecutorCommand_Cancel:
		c.cancelTasks(ids.CheckpointID(kind.Cancel.GetKeepUpTo()))
	default:
		c.log.Warn("command of a kind that this version does not know was ignored", zap.String("kind", fmt.Sprintf("%T", kind)))
	}
	return nil
}

// deployOnce starts the tasks, the first time it is asked to.
func (c *conversation) deployOnce(m *pb.DeployTasks) {
	if c.deployed {
		c.log.Warn("a second deployment was ignored")
		return
	}
	c.deployed = true
	if err := c.deploy(m); err != nil {
		c.refuse(err)
	}
}

// task finds a task of this executor.
func (c *conversation) task(ref *pb.SubtaskRef) *task.Task {
	id := subtaskFromProto(ref)
	if t := c.tasks[id]; t != nil {
		return t
	}
	c.log.Warn("command for a subtask that does not run here was ignored", logfield.Subtask(id))
	return nil
}
