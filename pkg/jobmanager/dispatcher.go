package jobmanager

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/coordinator/driver"
	"github.com/weirstream/weir/pkg/coordinator/slots"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

// dispatcher is the server as its drivers see it. Each call is one short turn
// of the server's mutex; commands go into the queues of sessions.
type dispatcher struct{ s *Server }

var _ driver.Cluster = dispatcher{}

// RequestSlots implements driver.Cluster.
func (d dispatcher) RequestSlots(job ids.JobID, attempt ids.AttemptID, count int, avoid []ids.TaskManagerID) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.s.deliverLocked(d.s.mu.slots.Request(job, attempt, count, avoid...))
}

// ReleaseSlots implements driver.Cluster.
func (d dispatcher) ReleaseSlots(job ids.JobID, attempt ids.AttemptID) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.s.deliverLocked(d.s.mu.slots.Release(job, attempt))
}

// deliverLocked passes on what the slot table has to say.
func (s *Server) deliverLocked(notices []slots.Notice) {
	for _, notice := range notices {
		switch n := notice.(type) {
		case slots.Grant:
			s.deliverToLocked(n.Job, coordinator.SlotsGranted{Attempt: n.Attempt, Slots: n.Slots})
		case slots.Shortage:
			s.deliverToLocked(n.Job, coordinator.SlotsShort{Attempt: n.Attempt, Want: n.Want, Free: n.Free})
		}
	}
}

func (s *Server) deliverToLocked(job ids.JobID, event coordinator.Event) {
	if j := s.mu.jobs[job]; j != nil && j.driver != nil {
		j.driver.Deliver(event)
	}
}

// LaunchExecutor implements driver.Cluster.
func (d dispatcher) LaunchExecutor(id ids.ExecutorID, slotCount int) {
	s := d.s
	s.mu.Lock()
	defer s.mu.Unlock()
	j, tm := s.mu.jobs[id.Job], s.mu.taskManagers[id.TaskManager]
	if j == nil || j.driver == nil {
		return
	}
	if tm == nil {
		j.driver.Deliver(coordinator.ExecutorLost{Executor: id, Failure: coordinator.Failure{
			Kind: coordinator.LostProcess, Message: fmt.Sprintf("TaskManager %s is not registered any more", id.TaskManager),
		}})
		return
	}
	e := &executor{id: id, taskManager: tm}
	s.mu.executors[id] = e
	err := tm.session.Send(&pb.TaskManagerCommand{Kind: &pb.TaskManagerCommand_LaunchExecutor{LaunchExecutor: &pb.LaunchExecutor{
		Executor:       executorRef(id),
		ArtifactSha256: j.spec.GetArtifactSha256(),
		Args:           j.spec.GetArgs(),
		Environment:    j.spec.GetEnvironment(),
		Config:         j.config.Map(),
		Slots:          int32(slotCount),
		Graph:          j.spec.GetGraph(),
		JobName:        j.spec.GetName(),
	}}})
	s.failUnsentLocked(e, err)
}

// StopExecutor implements driver.Cluster.
func (d dispatcher) StopExecutor(id ids.ExecutorID, kill bool, grace time.Duration) {
	s := d.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if tm := s.mu.taskManagers[id.TaskManager]; tm != nil {
		_ = tm.session.Send(stopCommand(executorRef(id), kill, grace))
	}
}

// Send implements driver.Cluster.
func (d dispatcher) Send(id ids.ExecutorID, command *pb.ExecutorCommand) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if e := d.s.mu.executors[id]; e != nil && e.session != nil {
		d.s.failUnsentLocked(e, e.session.Send(command))
	}
}

// failUnsentLocked fails the job whose command is larger than a message may
// be: the session goes on, so that nobody else would notice, and the job would
// wait for ever for what the executor was never told. Any other error is the
// end of the session, which its handler reports.
func (s *Server) failUnsentLocked(e *executor, err error) {
	if !errors.Is(err, transport.ErrTooLarge) {
		return
	}
	s.loseExecutorLocked(e, coordinator.Failure{
		Kind: coordinator.PermanentFailure,
		Message: fmt.Sprintf("what the executor on TaskManager %s has to be told does not fit: %v; use more slots on other TaskManagers, "+
			"lower %s, or list fewer splits", e.id.TaskManager, err, config.CheckpointInlineThreshold.Key()),
	}, true)
}
