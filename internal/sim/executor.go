package sim

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/statebackend/filetest"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

// executor is the process that runs the subtasks of one attempt on one TaskManager.
type executor struct {
	process
	id      ids.ExecutorID
	tm      *taskManager
	job     *job
	session *session
	hosts   []*host
	// leaving: it ends when its tasks have ended.
	leaving bool
}

func (c *cluster) startExecutor(tm *taskManager, id ids.ExecutorID, jm *jobManager) *executor {
	x := &executor{id: id, tm: tm, job: c.jobOf(id.Job)}
	x.process = process{c: c, name: fmt.Sprintf("executor %s@%s", id.Attempt, id.TaskManager)}
	x.onDeath = func() { x.die("died while it wrote") }
	c.trace.add("%s starts", x.name)
	s := c.newSession(&x.process, jm)
	x.session = s
	s.clientLost = func() {
		// It cannot be told to stop any more, so it stops by itself. Until
		// then it goes on as if nothing had happened.
		x.after(c.between(0, c.options.HeartbeatTimeout*6/10), "cut off", func() { x.die("lost its JobManager") })
	}
	s.jmLost = func() { jm.executorLost(id, s, "its session broke") }
	s.toJobManager("executor ready", func() { jm.executorReady(id, s) })
	if jm.dead {
		s.breakAfter(exitNotice)
	}
	return x
}

// deploy starts subtasks.
func (x *executor) deploy(e coordinator.DeployTasks) {
	for _, d := range e.Tasks {
		h := &host{x: x, id: d.Subtask, aborted: map[ids.CheckpointID]bool{}, name: fmt.Sprintf("%s@%s", d.Subtask, x.id.Attempt)}
		d = x.c.plantedDeployment(d)
		h.inFlight = len(d.InFlight) > 0
		for _, in := range d.InFlight {
			for _, p := range in.Parts {
				if p.Rekey {
					x.c.result.Rekeyed++
				}
			}
		}
		config := subtask.Config{
			Job: x.job.id, Attempt: x.id.Attempt, Program: x.job.program, Graph: &x.job.graph, Deployment: d,
			RestoredCheckpoint: e.Plan.RestoredCheckpoint, RestoreBase: e.Plan.RestoreBase,
			Savepoints: e.Plan.Savepoints, Suspended: e.Plan.Suspended,
			Store: x.c.storage.checkpoints, CheckpointDir: checkpointDir,
			InlineBytesMax: x.c.options.InlineBytesMax, CreditBytes: x.c.options.CreditBytes,
			Backend: memory.New(), Now: h.readClock, Output: io.Discard, NewBuffer: x.c.newBuffer, Aligner: h.newAligner,
			LoopBytesMax: x.c.options.LoopBytesMax,
			Incremental:  x.c.options.Incremental, FileReaders: map[string]subtask.FileReader{filetest.Name: filetest.Canonical},
		}
		if x.c.disks != "" {
			config.Dir = filepath.Join(x.dir(), subtask.LocalName(d.Subtask))
		}
		if x.job.inFiles {
			config.Backend = &filetest.Backend{GroupsPerFile: x.c.options.GroupsPerFile}
			if x.c.options.LocalCopies {
				config.LocalDir = filepath.Join(x.tm.disk(), "local", x.job.name)
			}
		}
		s, err := subtask.New(config, h)
		if err != nil {
			x.c.fail("deploy", "subtask %s cannot be made: %v", d.Subtask, err)
			return
		}
		h.s = s
		x.hosts = append(x.hosts, h)
		x.c.attach(h)
		x.c.checkDeployed(h, e.Plan)
	}
	for _, h := range x.hosts {
		h.s.Start()
		h.wake()
	}
}

// dir is where the executor has its live state.
func (x *executor) dir() string {
	return filepath.Join(x.tm.disk(), "executors", x.job.name+"-"+x.id.Attempt.String())
}

// disk is the directory of this life of the TaskManager: the next begins with
// an empty one.
func (tm *taskManager) disk() string { return filepath.Join(tm.c.disks, string(tm.id)) }

// newBuffer gives a buffer of about the size of the simulated frames.
func (c *cluster) newBuffer() ([]byte, element.Owner) {
	b := &buffer{c: c, bytes: make([]byte, 0, 64)}
	return b.bytes, b
}

// buffer spoils its bytes when it is given back, as its next user would.
type buffer struct {
	c     *cluster
	bytes []byte
	freed bool
}

// Free implements element.Owner.
func (b *buffer) Free() {
	if b.freed {
		b.c.fail("buffers", "a buffer is given back twice")
	}
	b.freed = true
	spoilt := b.bytes[:cap(b.bytes)]
	for i := range spoilt {
		spoilt[i] = 0xa5
	}
}

// each calls f for every subtask and lets it step afterwards.
func (x *executor) each(f func(*host)) {
	for _, h := range x.hosts {
		f(h)
		h.wake()
	}
}

func (x *executor) find(id ids.SubtaskID) *host {
	for _, h := range x.hosts {
		if h.id == id {
			return h
		}
	}
	return nil
}

// carryOut does what the JobManager says.
func (x *executor) carryOut(effect coordinator.Effect) {
	switch e := effect.(type) {
	case coordinator.DeployTasks:
		x.deploy(e)
	case coordinator.AssignSplits:
		if h := x.find(e.Assignment.Subtask); h != nil {
			h.s.AssignSplits(e.Assignment)
			h.wake()
		}
	case coordinator.TriggerCheckpoint:
		for _, id := range e.Subtasks {
			if h := x.find(id); h != nil {
				h.s.Trigger(e.Barrier)
				h.wake()
			}
		}
	case coordinator.EndLoops:
		x.c.result.LoopsEnded += len(e.Subtasks)
		for _, id := range e.Subtasks {
			if h := x.find(id); h != nil {
				h.s.EndLoop()
				h.wake()
			}
		}
	case coordinator.NotifyComplete:
		x.c.checkNotified(x, e.Checkpoint)
		x.each(func(h *host) { h.s.NotifyComplete(e.Checkpoint) })
	case coordinator.NotifyAborted:
		x.c.checkGivenUp(x, e.Checkpoint)
		x.each(func(h *host) {
			h.aborted[e.Checkpoint] = true
			if h.stoppedFor == e.Checkpoint {
				h.stoppedFor = 0
			}
			h.s.NotifyAborted(e.Checkpoint)
		})
	case coordinator.FinishTasks:
		x.each(func(h *host) { h.s.Finish() })
	case coordinator.CancelTasks:
		if x.c.happens(StuckTask) {
			return // until it is killed
		}
		x.each(func(h *host) {
			h.cancelled = true
			h.s.Cancel(e.KeepUpTo)
		})
	}
	for _, h := range x.hosts {
		h.endIfQuiet()
	}
}

// lateMax is by how much a message comes too late at most: several
// checkpoints may have come and gone.
const lateMax = 2 * time.Second

// report sends something to the JobManager that started the executor.
func (x *executor) report(label string, event coordinator.Event) {
	jm, job := x.session.jm, x.job
	x.session.toJobManager(label, func() { jm.deliver(job, event) })
	switch event.(type) {
	case coordinator.CheckpointAcked, coordinator.CheckpointDeclined, coordinator.CommitAcked:
		if x.c.happens(DoubledReport) {
			x.after(x.c.between(0, lateMax), "report again", func() {
				x.session.toJobManager(label, func() { jm.deliver(job, event) })
			})
		}
	}
}

// leave ends the executor when its tasks have ended, or after the grace.
func (x *executor) leave(grace time.Duration) {
	x.leaving = true
	x.after(grace, "grace", func() { x.die("the grace is over") })
	x.leaveIfEnded()
}

func (x *executor) leaveIfEnded() {
	if !x.leaving || x.dead {
		return
	}
	for _, h := range x.hosts {
		if !h.closed {
			return
		}
	}
	x.die("done")
}

// die ends the process: subtasks are gone as they are, peers and JobManager
// notice.
func (x *executor) die(why string) {
	if x.dead {
		return
	}
	x.dead = true
	x.c.trace.add("%s ends: %s", x.name, why)
	for _, h := range x.hosts {
		h.detach()
	}
	if x.c.disks != "" {
		if err := os.RemoveAll(x.dir()); err != nil {
			x.c.fail("disk", "%v", err)
		}
	}
	x.session.breakAfter(exitNotice)
	x.tm.exited(x.id, why)
}
