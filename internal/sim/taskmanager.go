package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirstream/weir/pkg/ids"
)

// taskManager is one life of a TaskManager: it registers its slots and starts
// and ends executors.
type taskManager struct {
	process
	id      ids.TaskManagerID
	host    int
	life    int
	slots   int
	session *session
	// accepted is the session once the JobManager has answered.
	accepted *session
	// executors that live, in the order of their start.
	executors []*executor
	// stopped are executors that were stopped before they had started. As
	// many as attempts that failed during a launch.
	stopped []ids.ExecutorID
	bornAt  time.Duration
}

// reconnectMax is the longest between two tries of a TaskManager to register,
// launchMax that of starting a process.
const (
	reconnectMax = 300 * time.Millisecond
	launchMax    = 150 * time.Millisecond
)

func (c *cluster) startTaskManager(host, life int) *taskManager {
	id := ids.TaskManagerID(fmt.Sprintf("tm-%d.%d", host, life))
	tm := &taskManager{id: id, host: host, life: life, slots: c.options.Slots, bornAt: c.now}
	tm.process = process{c: c, name: string(id)}
	c.trace.add("%s starts", id)
	c.taskManagers[host] = tm
	c.everyManager[id] = tm
	tm.connect()
	return tm
}

// connect registers at the leading JobManager, sooner or later.
func (tm *taskManager) connect() {
	jm := tm.c.leader
	if jm == nil || jm.dead || jm.paused {
		tm.after(tm.c.between(0, reconnectMax), "reconnect", tm.connect)
		return
	}
	s := tm.c.newSession(&tm.process, jm)
	tm.session = s
	s.clientLost = func() { tm.sessionLost(s) }
	s.jmLost = func() { jm.taskManagerLost(tm.id, s) }
	var running []ids.ExecutorID
	for _, x := range tm.executors {
		running = append(running, x.id)
	}
	s.toJobManager("register", func() {
		jm.register(tm.id, tm.slots, running, s)
		s.toClient("accepted", func() { tm.accepted = s })
	})
}

// sessionLost registers again, sooner or later. If that takes too long, the
// TaskManager is cut off and ends the executors that it still has.
func (tm *taskManager) sessionLost(s *session) {
	if tm.session != s {
		return
	}
	tm.session, tm.accepted, tm.stopped = nil, nil, nil
	tm.after(tm.c.between(0, reconnectMax), "reconnect", tm.connect)
	cut := slices.Clone(tm.executors)
	tm.after(tm.c.options.HeartbeatTimeout*6/10, "cut off", func() {
		if tm.accepted != nil {
			return
		}
		for _, x := range cut {
			x.die("its TaskManager is cut off")
		}
	})
}

// launch starts an executor for the JobManager that asks.
func (tm *taskManager) launch(id ids.ExecutorID, jm *jobManager, from *session) {
	tm.after(tm.c.between(launchMax/10, launchMax), "launch", func() {
		switch {
		case tm.session != from:
		case slices.Contains(tm.stopped, id):
			tm.exited(id, "was stopped")
		default:
			tm.executors = append(tm.executors, tm.c.startExecutor(tm, id, jm))
		}
	})
}

// stop ends an executor: at once, or when its tasks have ended or the grace is over.
func (tm *taskManager) stop(id ids.ExecutorID, kill bool, grace time.Duration) {
	i := slices.IndexFunc(tm.executors, func(x *executor) bool { return x.id == id })
	switch {
	case i < 0:
		tm.stopped = append(tm.stopped, id)
	case kill:
		tm.executors[i].die("killed")
	default:
		tm.executors[i].leave(grace)
	}
}

// exited reports the end of an executor.
func (tm *taskManager) exited(id ids.ExecutorID, why string) {
	tm.executors = slices.DeleteFunc(tm.executors, func(x *executor) bool { return x.id == id })
	if s := tm.session; s != nil && !tm.dead {
		s.toJobManager("executor exited", func() { s.jm.executorLost(id, nil, why) })
	}
}

// crash ends the TaskManager with all its executors. A new life follows.
func (tm *taskManager) crash() {
	tm.dead = true
	tm.c.trace.add("%s crashes", tm.id)
	for _, x := range slices.Clone(tm.executors) {
		x.die("its TaskManager died")
	}
	if tm.session != nil {
		tm.session.breakAfter(exitNotice)
	}
	tm.c.after(tm.c.between(200*time.Millisecond, 3*time.Second), "restart", func() {
		tm.c.startTaskManager(tm.host, tm.life+1)
	})
}
