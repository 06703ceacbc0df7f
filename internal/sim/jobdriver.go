package sim

import (
	"context"
	"errors"
	"time"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
)

// jobDriver carries out what the coordinator of one job decides: the simulated
// counterpart of package driver, with I/O as items of the heap.
type jobDriver struct {
	jm      *jobManager
	job     *job
	machine *coordinator.Coordinator
	writer  recordWriter
	deleter deleter
	// over: the job or this leadership has ended.
	over bool
	// wakeAt is the deadline that is scheduled.
	wakeAt time.Duration
	armed  bool
}

func newJobDriver(jm *jobManager, j *job) *jobDriver {
	d := &jobDriver{jm: jm, job: j}
	d.machine = coordinator.New(jm.c.coordinatorConfig(j), j.graph)
	d.writer.d, d.deleter.d = d, d
	return d
}

// step gives the machine one event and carries out what it decides.
func (d *jobDriver) step(event coordinator.Event) {
	if d.over {
		return
	}
	c := d.jm.c
	c.noteOutcome(d, event)
	effects := d.machine.Step(c.wall(), event)
	c.trace.event(d, event)
	for _, effect := range effects {
		c.trace.add("%s %s: %s", d.jm.name, d.job.name, effect)
		c.checkEffect(d, effect)
		d.carryOut(c.planted(d, effect))
	}
	d.arm()
}

// arm schedules the machine's next deadline.
func (d *jobDriver) arm() {
	at, ok := d.machine.NextDeadline()
	if !ok || d.over {
		return
	}
	c := d.jm.c
	when := max(at.Sub(epoch), c.now)
	if d.armed && d.wakeAt <= when {
		return
	}
	d.armed, d.wakeAt = true, when
	c.at(when, "deadline", func() {
		d.jm.do(func() {
			if d.armed && d.wakeAt == when {
				d.armed = false
				d.step(coordinator.DeadlinePassed{})
			}
		})
	})
}

// carryOut does, or starts, what one effect says.
func (d *jobDriver) carryOut(effect coordinator.Effect) {
	jm, c := d.jm, d.jm.c
	switch e := effect.(type) {
	case coordinator.ClaimJob:
		d.writer.enqueue(recordWrite{claim: true})
	case coordinator.UpdateRecord:
		d.writer.enqueue(recordWrite{update: &e})
	case coordinator.PublishCheckpoint:
		d.writer.enqueue(recordWrite{publish: &e})
	case coordinator.LoadCheckpoint:
		d.load(e)
	case coordinator.VerifyState:
		d.verify(e)
	case coordinator.PersistMetadata:
		d.persist(e, 1)

	case coordinator.RequestSlots:
		jm.notify(jm.table.Request(d.job.id, e.Attempt, e.Count, e.Avoid...))
	case coordinator.ReleaseSlots:
		jm.notify(jm.table.Release(d.job.id, e.Attempt))
	case coordinator.LaunchExecutor:
		jm.launch(e)
	case coordinator.StopExecutor:
		jm.stop(e)
	case coordinator.DeployTasks:
		jm.send(e.Executor, e)
	case coordinator.AssignSplits:
		jm.send(e.Executor, e)
	case coordinator.TriggerCheckpoint:
		jm.send(e.Executor, e)
	case coordinator.EndLoops:
		jm.send(e.Executor, e)
	case coordinator.NotifyComplete:
		jm.send(e.Executor, e)
	case coordinator.NotifyAborted:
		jm.send(e.Executor, e)
	case coordinator.FinishTasks:
		jm.send(e.Executor, e)
	case coordinator.CancelTasks:
		jm.send(e.Executor, e)

	case coordinator.DiscardHandles:
		d.deleter.enqueue("discard handles", d.job.id, d.discardHandles(e))
	case coordinator.DiscardCheckpoint:
		owner, label := d.job.id, "discard checkpoint"
		if e.Claimed {
			owner, label = e.Job, claimedLabel
		}
		d.deleter.enqueue(label, owner, func(ctx context.Context) (bool, error) {
			if e.Claimed {
				c.checkHolders(e.Ref.URI)
				_, err := c.storage.checkpoints.DiscardRetained(ctx, e.Ref.URI,
					checkpointstore.Expected{Job: e.Job, ID: e.Ref.ID, CompletedBy: e.CompletedBy})
				return false, err
			}
			return false, c.storage.checkpoints.DiscardCheckpoint(ctx, checkpointstore.LocationOf(e.Ref.URI))
		})
	case coordinator.SweepAttempts:
		d.deleter.enqueue(sweepLabel, d.job.id, d.sweep(e))

	case coordinator.Answer:
		c.users.answered(d, e)
	case coordinator.JobEnded:
		d.over = true
		c.jobEnded(d, e.Status)
	case coordinator.StepDown:
		d.over = true
		d.deleter.queue = nil // what another leader may rely on is not ours any more
		if jm == c.leader {
			// One that should have been replaced has claimed the job after
			// us. Whoever is fenced starts anew and claims it back.
			jm.after(0, "fenced", jm.crash)
		}
	case coordinator.RecordHistory: // for people
	case nil: // forgotten by a plant
	default:
		c.fail("driver", "effect %T has no one to carry it out", effect)
	}
}

func (d *jobDriver) location(e coordinator.DiscardHandles) checkpointstore.Location {
	if e.Dir != "" {
		return checkpointstore.SavepointLocation(e.Dir, d.job.id, e.Checkpoint)
	}
	return checkpointstore.CheckpointLocation(checkpointDir, d.job.id, e.Checkpoint)
}

func (d *jobDriver) discardHandles(e coordinator.DiscardHandles) deletion {
	location := d.location(e)
	c := d.jm.c
	store, handles := c.storage.checkpoints, e.Handles
	return func(ctx context.Context) (more bool, err error) {
		if e.Metadata {
			if e.Dir == "" || d.hasLeft(e.Checkpoint) {
				c.checks.swept[location.URI()] = c.now
			}
			return false, store.DiscardCheckpoint(ctx, location)
		}
		handles, err = store.DiscardHandles(ctx, location.Base, handles)
		return false, err
	}
}

// hasLeft reports whether a checkpoint is of an attempt that has ended, so that
// nobody who belongs to the job writes for it any more.
func (d *jobDriver) hasLeft(id ids.CheckpointID) bool {
	if d.over {
		return true
	}
	status := d.machine.Status()
	return status.Status == coordinator.RunningStatus && status.Attempt != d.jm.c.checks.triggered[checkpointName{d.job.id, id}].attempt
}

func (d *jobDriver) sweep(e coordinator.SweepAttempts) deletion {
	request := checkpointstore.SweepRequest{Base: checkpointstore.JobBase(checkpointDir, d.job.id), Below: e.Below, Over: e.Over}
	for _, ref := range e.Keep {
		request.Keep = append(request.Keep, ref.ID)
	}
	c := d.jm.c
	return func(ctx context.Context) (bool, error) {
		result, err := c.storage.checkpoints.Sweep(ctx, request)
		if err == nil && c.plant == SweepsBlindly {
			c.sweepBlindly(request)
		}
		if err == nil && !result.More {
			c.checks.swept[request.Base] = c.now
		}
		return result.More, err
	}
}

// load reads what the job is to restore from.
func (d *jobDriver) load(e coordinator.LoadCheckpoint) {
	c := d.jm.c
	d.jm.io("load checkpoint", func() func() {
		checkpoint, base, err := c.storage.checkpoints.LoadMetadata(context.Background(), e.Ref.URI)
		var event coordinator.Event = coordinator.CheckpointLoaded{Token: e.Token, Ref: e.Ref, Base: base, Checkpoint: checkpoint}
		if err != nil {
			kind := coordinator.LostProcess
			if checkpointstore.IsBroken(err) {
				kind = coordinator.CorruptCheckpoint
			}
			if kind == coordinator.CorruptCheckpoint && !d.over && !c.isDamaged(objectName(e.Ref.URI)+"/_metadata") && e.Token == c.checks.records[d.job.id].Token {
				c.fail("I4", "the restore point is gone: %v", err)
			}
			if c.plant == ErrorIsAbsence {
				kind = coordinator.CorruptCheckpoint
			}
			event = coordinator.CheckpointLoadFailed{Token: e.Token, Ref: e.Ref, Reason: err.Error(), Kind: kind}
		}
		return func() { d.step(event) }
	})
}

// verify reads state that a task found corrupt.
func (d *jobDriver) verify(e coordinator.VerifyState) {
	c := d.jm.c
	d.jm.io("verify state", func() func() {
		var event coordinator.Event = coordinator.StateVerified{Token: e.Token, Ref: e.Ref}
		if c.plant == FallsBackOnFailedRead {
			event = coordinator.StateVerifyFailed{Token: e.Token, Ref: e.Ref, Reason: "as the task says", Kind: coordinator.CorruptCheckpoint}
			return func() { d.step(event) }
		}
		for _, h := range e.Handles {
			err := c.storage.checkpoints.VerifyState(context.Background(), e.Base, h)
			if err == nil {
				continue
			}
			kind := coordinator.LostProcess
			if checkpointstore.IsBroken(err) {
				kind = coordinator.CorruptCheckpoint
			}
			event = coordinator.StateVerifyFailed{Token: e.Token, Ref: e.Ref, Reason: err.Error(), Kind: kind}
			break
		}
		return func() { d.step(event) }
	})
}

// persistTriesMax is package driver's.
const persistTriesMax = 4

// persist writes _metadata.
func (d *jobDriver) persist(e coordinator.PersistMetadata, try int) {
	c := d.jm.c
	location := checkpointstore.CheckpointLocation(checkpointDir, d.job.id, e.Checkpoint.ID)
	if e.Dir != "" {
		location = checkpointstore.SavepointLocation(e.Dir, d.job.id, e.Checkpoint.ID)
	}
	d.jm.io("persist metadata", func() func() {
		uri, err := c.storage.checkpoints.PersistMetadata(context.Background(), location, e.Checkpoint)
		if err == nil {
			return func() { d.step(coordinator.MetadataPersisted{Token: e.Token, Checkpoint: e.Checkpoint.ID, URI: uri}) }
		}
		passes := errors.Is(err, objectstore.ErrUnknownOutcome) || errors.Is(err, objectstore.ErrUnavailable)
		if passes && try < persistTriesMax {
			return func() { d.jm.after(c.pause(try), "persist again", func() { d.persist(e, try+1) }) }
		}
		return func() {
			d.step(coordinator.MetadataPersistFailed{Token: e.Token, Checkpoint: e.Checkpoint.ID, Reason: err.Error()})
		}
	})
}

// pause is the delay before a repeat.
func (c *cluster) pause(try int) time.Duration {
	return min(50*time.Millisecond<<min(try, 10), 5*time.Second)
}

// deletion deletes; more says that it wants to be called again.
type deletion func(context.Context) (more bool, err error)

// deleter deletes one thing at a time.
type deleter struct {
	d       *jobDriver
	queue   []namedDeletion
	running bool
}

type namedDeletion struct {
	label string
	owner ids.JobID // whose files it is about
	do    deletion
	tries int
}

// savepointsOf is the key of a job's savepoints in checks.unswept.
func savepointsOf(job ids.JobID) string { return "savepoints of " + string(job) }

// sweepLabel names the deletion that looks for leftovers, claimedLabel that of
// what another job left, where nobody will look for them.
const sweepLabel, claimedLabel = "sweep", "discard claimed checkpoint"

// deletionTriesMax is package driver's, for as long as there are faults.
const deletionTriesMax = 5

func (x *deleter) enqueue(label string, owner ids.JobID, do deletion) {
	x.queue = append(x.queue, namedDeletion{label: label, owner: owner, do: do})
	x.next()
}

func (x *deleter) next() {
	if x.running || len(x.queue) == 0 {
		return
	}
	item := x.queue[0]
	x.queue = x.queue[1:]
	x.running = true
	jm := x.d.jm
	jm.io(item.label, func() func() {
		more, err := item.do(context.Background())
		return func() {
			x.running = false
			if checkpointstore.GotOn(err) {
				item.tries = -1 // as in package driver
			}
			switch {
			case err != nil && item.tries+1 >= deletionTriesMax:
				jm.c.trace.add("%s: %s is given up: %v", jm.name, item.label, err)
				// What it was about stays, and nobody looks into a savepoint's directory again.
				jm.c.checks.unswept[savepointsOf(item.owner)] = true
				if item.label == sweepLabel || item.label == claimedLabel {
					jm.c.checks.unswept[checkpointstore.JobBase(checkpointDir, item.owner)] = true
				}
			case err != nil:
				item.tries++
				x.running = true
				jm.after(jm.c.pause(item.tries), item.label, func() {
					x.running = false
					x.queue = append([]namedDeletion{item}, x.queue...)
					x.next()
				})
				return
			case more:
				x.queue = append([]namedDeletion{item}, x.queue...)
			}
			x.next()
		}
	})
}
