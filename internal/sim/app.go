package sim

import (
	"fmt"

	"github.com/weirstream/weir/internal/sim/simjob"
)

// app is a job with all the jobs that go on where it ended, one after the
// other, and the world that they write to. Those of one run share the cluster.
type app struct {
	c     *cluster
	name  string
	world *simjob.World
	// jobs are in the order of their submission.
	jobs []*job
	// rescales are what its users are to do to it.
	rescales []Rescale

	// hasRestored: an attempt of one of its jobs has restored a checkpoint.
	hasRestored bool
	// visible is how often each output record is visible.
	visible map[simjob.Count]int
	// fork is the savepoint that a user went back to, forkedAt how many jobs
	// there were then. What they commit behind it is not in the output that the
	// later ones write.
	fork     *published
	forkedAt uint64
	// forkPending are the records that the savepoint is still to commit.
	forkPending map[simjob.Count]bool
	// forgotten are transactions that were visible when a user went back.
	forgotten map[string]bool
}

func (c *cluster) newApp(rescales []Rescale) *app {
	a := &app{
		c: c, name: fmt.Sprintf("app-%d", len(c.apps)+1), world: simjob.NewWorld(), rescales: rescales,
		visible: map[simjob.Count]int{}, forgotten: map[string]bool{},
	}
	c.apps = append(c.apps, a)
	a.world.Observer = &simjob.Observer{
		Record: c.interrupt, Fails: c.userCodeFails, Opened: c.checkOpened, Restored: c.checkRestored, Committed: c.checkCommitted,
		Aborted: c.checkAborted, Revoked: c.checkRevoked, Abandoned: c.isAbandoned, Frozen: c.noteFrozen, Expires: c.checkExpires, Fired: c.noteFired,
		Broken: func(rule, message string) { c.fail(rule, "%s: %s", c.stepped.name, message) },
	}
	c.plantInWorld(a.world)
	return a
}

// last is the job that goes on where all others have ended.
func (a *app) last() *job { return a.jobs[len(a.jobs)-1] }

// isDone reports whether the last job has ended and no other follows.
func (a *app) isDone() bool { return a.last().ended }

// isDone reports whether nothing is left to run.
func (c *cluster) isDone() bool {
	for _, a := range c.apps {
		if !a.isDone() {
			return false
		}
	}
	return true
}

// anyApp draws one of the applications.
func (c *cluster) anyApp() *app {
	if len(c.apps) == 1 {
		return c.apps[0]
	}
	return c.apps[c.random.IntN(len(c.apps))]
}

// isLast reports whether no job has followed this one.
func (c *cluster) isLast(j *job) bool { return j.app.last() == j }
