package sim

import (
	"fmt"
	"time"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/coordinator/slots"
	"github.com/weirstream/weir/pkg/ids"
)

// jobManager is one life of a JobManager: the slot table, the sessions, and a
// driver for each job.
type jobManager struct {
	process
	number       int
	table        slots.Table
	taskManagers map[ids.TaskManagerID]*session
	executors    map[ids.ExecutorID]*session
	drivers      []*jobDriver
	mailbox      inTurn
	bornAt       time.Duration
}

// startJobManager starts a JobManager that from now on TaskManagers look for.
// It takes over every job that there is.
func (c *cluster) startJobManager() *jobManager {
	c.jobManagers = append(c.jobManagers, nil)
	jm := &jobManager{
		number: len(c.jobManagers), bornAt: c.now,
		taskManagers: map[ids.TaskManagerID]*session{}, executors: map[ids.ExecutorID]*session{},
	}
	c.jobManagers[jm.number-1] = jm
	jm.process = process{c: c, name: fmt.Sprintf("jm-%d", jm.number), onDeath: jm.crash}
	c.trace.add("%s starts", jm.name)
	c.leader = jm
	for _, j := range c.jobs {
		jm.start(j)
	}
	return jm
}

// start gives a job a driver.
func (jm *jobManager) start(j *job) {
	if jm.dead {
		return
	}
	d := newJobDriver(jm, j)
	jm.drivers = append(jm.drivers, d)
	jm.after(0, "start job", func() { d.step(coordinator.DeadlinePassed{}) })
}

func (jm *jobManager) driverOf(j *job) *jobDriver {
	for _, d := range jm.drivers {
		if d.job == j {
			return d
		}
	}
	return nil
}

// deliver gives a job an event.
func (jm *jobManager) deliver(j *job, event coordinator.Event) {
	if d := jm.driverOf(j); d != nil {
		d.step(event)
	}
}

// later puts an event into the mailbox of a job's driver.
func (jm *jobManager) later(j *job, event coordinator.Event) {
	jm.c.at(jm.mailbox.next(jm.c.now), "event", func() { jm.do(func() { jm.deliver(j, event) }) })
}

// register takes a TaskManager in. What it still runs belongs to attempts that
// were given up when its last session broke, or to another JobManager's.
func (jm *jobManager) register(id ids.TaskManagerID, count int, running []ids.ExecutorID, s *session) {
	if old := jm.taskManagers[id]; old != nil {
		jm.taskManagerLost(id, old)
	}
	jm.c.trace.add("%s registers %s", jm.name, id)
	jm.taskManagers[id] = s
	for _, x := range running {
		jm.stop(coordinator.StopExecutor{Executor: x, Kill: true})
	}
	jm.notify(jm.table.Register(id, count))
}

// taskManagerLost follows a broken session.
func (jm *jobManager) taskManagerLost(id ids.TaskManagerID, s *session) {
	if jm.taskManagers[id] != s {
		return
	}
	jm.c.trace.add("%s loses %s", jm.name, id)
	delete(jm.taskManagers, id)
	// The loss goes first: a grant that the freed table makes belongs behind it.
	for _, d := range jm.drivers {
		jm.later(d.job, coordinator.TaskManagerLost{TaskManager: id, Reason: "its session broke"})
	}
	jm.notify(jm.table.Lose(id))
}

func (jm *jobManager) executorReady(id ids.ExecutorID, s *session) {
	jm.executors[id] = s
	jm.deliver(jm.c.jobOf(id.Job), coordinator.ExecutorReady{Executor: id, DataAddress: string(id.TaskManager)})
}

// executorLost follows a broken session s, or with nil the report of a TaskManager.
func (jm *jobManager) executorLost(id ids.ExecutorID, s *session, why string) {
	if s != nil && jm.executors[id] != nil && jm.executors[id] != s {
		return
	}
	delete(jm.executors, id)
	jm.deliver(jm.c.jobOf(id.Job), coordinator.ExecutorLost{
		Executor: id, Failure: coordinator.Failure{Kind: coordinator.LostProcess, Message: why},
	})
}

// notify passes the notices of the slot table on.
func (jm *jobManager) notify(notices []slots.Notice) {
	jm.table.Check()
	for _, n := range notices {
		jm.c.trace.add("%s: %s", jm.name, n)
		switch n := n.(type) {
		case slots.Grant:
			jm.c.checkGranted(jm, n)
			jm.later(jm.c.jobOf(n.Job), coordinator.SlotsGranted{Attempt: n.Attempt, Slots: n.Slots})
		case slots.Shortage:
			jm.later(jm.c.jobOf(n.Job), coordinator.SlotsShort{Attempt: n.Attempt, Want: n.Want, Free: n.Free})
		}
	}
}

// launch asks a TaskManager for an executor.
func (jm *jobManager) launch(e coordinator.LaunchExecutor) {
	s := jm.taskManagers[e.Executor.TaskManager]
	if s == nil {
		jm.later(jm.c.jobOf(e.Executor.Job), coordinator.ExecutorLost{
			Executor: e.Executor, Failure: coordinator.Failure{Kind: coordinator.LostProcess, Message: "its TaskManager is gone"},
		})
		return
	}
	tm := jm.c.taskManagerOf(e.Executor.TaskManager)
	s.toClient("launch", func() { tm.launch(e.Executor, jm, s) })
}

// stop asks a TaskManager to end an executor.
func (jm *jobManager) stop(e coordinator.StopExecutor) {
	if s := jm.taskManagers[e.Executor.TaskManager]; s != nil {
		tm := jm.c.taskManagerOf(e.Executor.TaskManager)
		s.toClient("stop", func() { tm.stop(e.Executor, e.Kill, e.Grace) })
	}
}

// send gives an executor a command. One that is gone takes it and does nothing.
func (jm *jobManager) send(id ids.ExecutorID, effect coordinator.Effect) {
	s := jm.executors[id]
	if s == nil {
		return
	}
	send := func() {
		s.toClient("command", func() {
			if x := jm.c.executorOf(id); x != nil {
				x.carryOut(effect)
			}
		})
	}
	switch effect.(type) {
	case coordinator.NotifyComplete, coordinator.NotifyAborted:
		if jm.c.happens(DoubledNotice) {
			jm.after(jm.c.between(0, lateMax), "notice again", send)
		}
		if jm.c.happens(LateNotice) {
			jm.after(jm.c.between(0, lateMax), "late notice", send)
			return
		}
	}
	send()
}

// crash ends the JobManager: the store is all that is left. Another follows.
func (jm *jobManager) crash() {
	if jm.dead {
		return
	}
	jm.dead = true
	jm.c.trace.add("%s crashes", jm.name)
	jm.breakSessions(exitNotice)
	if jm.c.leader == jm {
		jm.c.leader = nil
		jm.c.after(jm.c.between(100*time.Millisecond, 2*time.Second), "restart", func() {
			if jm.c.leader == nil {
				jm.c.startJobManager()
			}
		})
	}
}

// breakSessions breaks all sessions with the JobManager, each noticed within that time.
func (jm *jobManager) breakSessions(notice time.Duration) {
	for _, tm := range jm.c.taskManagers {
		if s := tm.session; s != nil && s.jm == jm {
			s.breakAfter(notice)
		}
		for _, x := range tm.executors {
			if x.session.jm == jm {
				x.session.breakAfter(notice)
			}
		}
	}
}
