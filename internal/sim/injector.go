package sim

import (
	"errors"
	"math"
	"time"

	"github.com/weirstream/weir/internal/sim/simjob"
)

// stability is how long a process lives at least before the injector crashes
// it, so that faults do not degenerate to noise.
const stability = time.Second

// scheduleFault lets the next fault come.
func (c *cluster) scheduleFault() {
	wait := time.Duration(-math.Log(1-c.random.Float64()) * float64(c.options.FaultMean))
	c.after(wait, "fault", func() {
		if c.healed {
			return
		}
		kind := c.drawFault()
		if kind < faultKinds && c.inject(kind) {
			c.trace.add("fault: %s", kind)
			c.result.Faults[kind]++
		}
		c.scheduleFault()
	})
}

// drawFault chooses a kind by the weights; faultKinds when there is none.
func (c *cluster) drawFault() FaultKind {
	total := 0
	for _, w := range c.options.Weights {
		total += w
	}
	if total == 0 {
		return faultKinds
	}
	n := c.random.IntN(total)
	for kind := range faultKinds {
		if n -= c.options.Weights[kind]; n < 0 {
			return kind
		}
	}
	return faultKinds
}

// inject makes a fault, if there is something that it can happen to.
func (c *cluster) inject(kind FaultKind) bool {
	switch kind {
	case TaskManagerCrash:
		tm := c.taskManagers[c.random.IntN(len(c.taskManagers))]
		if tm.dead || c.now-tm.bornAt < stability {
			return false
		}
		tm.crash()
	case HostPause:
		return c.pauseHost()
	case ExecutorCrash:
		x := c.anyExecutor()
		if x == nil {
			return false
		}
		x.die("crashed")
	case JobManagerCrash:
		jm := c.stableLeader()
		if jm == nil {
			return false
		}
		jm.crash()
	case JobManagerPause:
		return c.pauseLeader()
	case JobManagerStall:
		jm := c.stableLeader()
		if jm == nil {
			return false
		}
		jm.paused = true
		c.after(c.between(0, c.options.HeartbeatTimeout/2), "resume", jm.resume)
	case Takeover:
		jm := c.stableLeader()
		if jm == nil {
			return false
		}
		c.startJobManager()
		jm.breakSessions(c.options.HeartbeatTimeout)
	case SessionBreak:
		tm := c.taskManagers[c.random.IntN(len(c.taskManagers))]
		if tm.dead || tm.session == nil || tm.session.broken {
			return false
		}
		tm.session.breakAfter(c.options.HeartbeatTimeout)
	case ExecutorSessionBreak:
		x := c.anyExecutor()
		if x == nil || x.session.broken {
			return false
		}
		x.session.breakAfter(c.options.HeartbeatTimeout)
	case LinkBreak:
		l := c.anyLink()
		if l == nil {
			return false
		}
		l.breakAfter(c.options.HeartbeatTimeout)
	case LinkStall:
		l := c.anyLink()
		if l == nil {
			return false
		}
		l.stalledUntil = c.now + c.between(100*time.Millisecond, 3*time.Second)
	case CorruptFile:
		jm := c.stableLeader()
		j := c.anyApp().last()
		if jm == nil || j.ended || c.corrupts >= corruptMax {
			return false
		}
		if n := len(c.ownRetained(j)); n == 0 || n == 1 && c.chance(0.8) {
			return false // the job would only fail, and the run be over
		}
		// Damaged is what the next leader finds: by then nobody can publish
		// anything that refers to it.
		c.corrupts++
		j.corrupt = true
		jm.crash()
	case StoreOutage:
		c.storage.outageUntil = c.now + c.between(50*time.Millisecond, 1500*time.Millisecond)
	case ClockJump:
		host := c.random.IntN(len(c.clocks))
		c.clocks[host] += c.between(-3*time.Second, time.Second)
	case CrashInWrite, StoreBefore, StoreAfter, StoreLate, StoreSlow, DoubledReport, DoubledNotice, LateNotice, SourceError, PersistError, CommitError, StuckTask, faultKinds:
		return false
	}
	return true
}

// userCodeFails lets sources and sinks fail.
func (c *cluster) userCodeFails(at simjob.Moment) error {
	kind := SourceError
	switch at {
	case simjob.Fetching:
	case simjob.Persisting, simjob.Persisted:
		kind = PersistError
	case simjob.Committing, simjob.HasCommitted, simjob.Aborting:
		kind = CommitError
	}
	if !c.happens(kind) {
		return nil
	}
	c.trace.add("fault: %s", kind)
	return errUserCode
}

var errUserCode = errors.New("failed on purpose")

// pauseHost stops the processes of a host. Whoever waits for their heartbeats
// gives them up after the timeout.
func (c *cluster) pauseHost() bool {
	tm := c.taskManagers[c.random.IntN(len(c.taskManagers))]
	if tm.dead || tm.paused || c.now-tm.bornAt < stability {
		return false
	}
	stopped := []*process{&tm.process}
	sessions := []*session{tm.session}
	for _, x := range tm.executors {
		stopped = append(stopped, &x.process)
		sessions = append(sessions, x.session)
	}
	for _, p := range stopped {
		p.paused = true
	}
	c.after(c.options.HeartbeatTimeout, "heartbeats missing", func() {
		for _, s := range sessions {
			if s != nil && stopped[0].paused {
				s.breakAfter(exitNotice)
			}
		}
	})
	c.after(c.between(0, 4*c.options.HeartbeatTimeout), "wake", func() {
		c.trace.add("%s wakes", tm.id)
		for _, p := range stopped {
			p.resume()
		}
	})
	return true
}

// pauseLeader stops the leader until after another has taken over.
func (c *cluster) pauseLeader() bool {
	jm := c.stableLeader()
	if jm == nil {
		return false
	}
	jm.paused = true
	c.trace.add("%s is paused", jm.name)
	takeover := c.between(c.options.HeartbeatTimeout, 2*c.options.HeartbeatTimeout)
	c.after(takeover, "takeover", func() {
		if c.leader == jm {
			jm.breakSessions(c.options.HeartbeatTimeout)
			c.startJobManager()
		}
	})
	c.after(takeover+c.between(0, 4*time.Second), "wake", func() {
		c.trace.add("%s wakes", jm.name)
		jm.resume()
	})
	return true
}

func (c *cluster) stableLeader() *jobManager {
	jm := c.leader
	if jm == nil || jm.dead || jm.paused || c.now-jm.bornAt < stability {
		return nil
	}
	return jm
}

func (c *cluster) anyExecutor() *executor {
	var all []*executor
	for _, tm := range c.taskManagers {
		all = append(all, tm.executors...)
	}
	if len(all) == 0 {
		return nil
	}
	return all[c.random.IntN(len(all))]
}

func (c *cluster) anyLink() *link {
	if len(c.linkOrder) == 0 {
		return nil
	}
	l := c.linkOrder[c.random.IntN(len(c.linkOrder))]
	if l.broken || l.from == nil || l.to == nil {
		return nil
	}
	return l
}
