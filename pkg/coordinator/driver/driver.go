package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/internal/logfield"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
)

// Machine is the brain that the driver drives; *coordinator.Coordinator.
type Machine interface {
	Step(now time.Time, event coordinator.Event) []coordinator.Effect
	NextDeadline() (time.Time, bool)
	Status() coordinator.Status
}

// Cluster is how a job reaches slots, TaskManagers and executors. Its methods
// return at once; what comes of a call arrives as an event by Deliver or
// Report. They are called on the driver's goroutine.
type Cluster interface {
	RequestSlots(job ids.JobID, attempt ids.AttemptID, count int, avoid []ids.TaskManagerID)
	ReleaseSlots(job ids.JobID, attempt ids.AttemptID)
	LaunchExecutor(executor ids.ExecutorID, slots int)
	StopExecutor(executor ids.ExecutorID, kill bool, grace time.Duration)
	// Send gives a command to an executor. One that is gone takes it and does
	// nothing: its loss is an event of its own.
	Send(executor ids.ExecutorID, command *pb.ExecutorCommand)
}

// CheckpointStore is where checkpoints are; *checkpointstore.Store.
type CheckpointStore interface {
	LoadMetadata(ctx context.Context, uri string) (*snapshot.CompletedCheckpoint, string, error)
	VerifyState(ctx context.Context, base string, handle snapshot.StateHandle) error
	IsVisible(ctx context.Context, uri string) (bool, error)
	PersistMetadata(ctx context.Context, loc checkpointstore.Location, checkpoint *snapshot.CompletedCheckpoint) (string, error)
	DiscardHandles(ctx context.Context, base string, handles []snapshot.StateHandle) (left []snapshot.StateHandle, err error)
	DiscardCheckpoint(ctx context.Context, loc checkpointstore.Location) error
	DiscardRetained(ctx context.Context, uri string, expected checkpointstore.Expected) (left int, err error)
	Sweep(ctx context.Context, request checkpointstore.SweepRequest) (checkpointstore.SweepResult, error)
}

// Options are what a Driver is made of.
type Options struct {
	Job  ids.JobID
	Name string
	// Graph is the expanded graph, for display.
	Graph *graph.ExecutionGraph
	// Machine is owned by the driver from New on.
	Machine Machine
	// Records and Checkpoints are the stores. Their calls return within a
	// bounded time or when their context ends.
	Records     RecordStore
	Checkpoints CheckpointStore
	Cluster     Cluster
	// History is the driver's to write from New on.
	History *History
	// CheckpointDir is the resolved execution.checkpointing.dir.
	CheckpointDir      string
	DefaultParallelism int
	SubmittedAt        time.Time
	// Nonce gives a text that no other call in the world gives.
	Nonce func() string
	Log   *zap.Logger
}

// End is why a driver has ended.
type End uint8

// The ends of a driver.
const (
	// Ended: the job has reached a terminal status, and the record says so.
	Ended End = iota + 1
	// SteppedDown: another JobManager leads the job.
	SteppedDown
	// Stopped by Stop: the job is left as it is, for the next leader.
	Stopped
)

// Errors of requests.
var (
	// ErrJobEnded: the job ended before the request was answered.
	ErrJobEnded = errors.New("the job has ended")
	// ErrSteppedDown: another JobManager leads the job now, or this one shuts down.
	ErrSteppedDown = errors.New("this JobManager no longer leads the job")
)

// deletionGrace bounds how long the end of a job waits for its deletions, and
// for its history. The rest stays until the job's directory is swept or removed
// by hand.
const deletionGrace = 30 * time.Second

// Driver runs one job. All methods may be called from any goroutine.
type Driver struct {
	options  Options
	log      *zap.Logger
	mail     *mailbox
	writer   *recordWriter
	deleter  *deleter
	requests requests
	metrics  *metrics

	status  atomic.Pointer[coordinator.Status]
	workers sync.WaitGroup // metadata reads and writes, record writer
	cancel  context.CancelFunc
	end     End // set before done is closed
	done    chan struct{}
}

// Start makes a driver and starts its goroutines. It runs until the job ends,
// another leader fences it, or Stop.
func Start(options Options) *Driver {
	log := options.Log.With(logfield.Job(options.Job), logfield.JobName(options.Name))
	d := &Driver{
		options: options,
		log:     log,
		mail:    newMailbox(),
		deleter: newDeleter(options.Checkpoints.DiscardHandles, log),
		metrics: newMetrics(options.Graph),
		done:    make(chan struct{}),
	}
	d.writer = newRecordWriter(options.Job, options.Records, options.Nonce, d.mail.put, log)
	d.publishStatus()
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	go d.run(ctx)
	return d
}

// Deliver gives the job an event without waiting.
func (d *Driver) Deliver(event coordinator.Event) { d.mail.put(event) }

// Report gives the job what an executor reported. It waits while the job is
// busy; the error is ctx's.
func (d *Driver) Report(ctx context.Context, event coordinator.Event) error {
	return d.mail.report(ctx, event)
}

// Metrics takes the counters of a heartbeat. Those of older attempts than the
// newest seen are dropped.
func (d *Driver) Metrics(attempt ids.AttemptID, counters []*pb.SubtaskMetrics) {
	d.metrics.update(time.Now(), attempt, counters)
}

// Stop ends the driver and waits for it. The job stays as its record says.
func (d *Driver) Stop() {
	d.cancel()
	<-d.done
}

// Done is closed when the driver has ended and its goroutines are gone.
func (d *Driver) Done() <-chan struct{} { return d.done }

// End says why the driver has ended. Only after Done.
func (d *Driver) End() End { return d.end }

// Status is the job's status after the last events that were handled: a copy
// that nobody changes.
func (d *Driver) Status() coordinator.Status { return *d.status.Load() }

func (d *Driver) publishStatus() {
	status := d.options.Machine.Status()
	d.status.Store(&status)
}

// run is the driver's goroutine.
func (d *Driver) run(ctx context.Context) {
	defer close(d.done)
	defer d.cancel()
	deletions, stopDeletions := context.WithCancel(ctx)
	var deleting sync.WaitGroup // and what is remembered
	deleting.Go(func() { d.deleter.run(deletions) })
	deleting.Go(func() { d.options.History.run(deletions) })
	d.workers.Go(func() { d.writer.run(ctx) })

	d.end = d.loop(ctx)

	d.mail.close()
	switch d.end {
	case Ended:
		d.requests.failAll(ErrJobEnded)
		timer := time.AfterFunc(deletionGrace, stopDeletions)
		d.deleter.finish()
		d.options.History.finish()
		deleting.Wait()
		timer.Stop()
	case SteppedDown, Stopped:
		// What another leader may rely on is not ours to delete any more.
		d.requests.failAll(ErrSteppedDown)
	}
	stopDeletions()
	d.cancel()
	deleting.Wait()
	d.workers.Wait()
}

// loop steps the machine until the job or this leadership ends.
func (d *Driver) loop(ctx context.Context) End {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return Stopped
		case <-d.mail.ready:
		case <-timer.C:
			if end, over := d.step(ctx, coordinator.DeadlinePassed{}); over {
				d.publishStatus()
				return end
			}
		}
		for _, event := range d.mail.take() {
			if end, over := d.step(ctx, event); over {
				d.publishStatus()
				return end
			}
		}
		d.publishStatus()
		if at, ok := d.options.Machine.NextDeadline(); ok {
			timer.Reset(time.Until(at))
		} else {
			timer.Stop()
		}
	}
}

// step gives the machine one event and carries out what it decides.
func (d *Driver) step(ctx context.Context, event coordinator.Event) (End, bool) {
	effects := d.options.Machine.Step(time.Now(), event)
	for _, effect := range effects {
		// Whoever is answered may ask for the status at once.
		if _, isAnswer := effect.(coordinator.Answer); isAnswer {
			d.publishStatus()
			break
		}
	}
	for _, effect := range effects {
		d.log.Debug("effect", logfield.Event(effect))
		if end, over := d.carryOut(ctx, effect); over {
			return end, true
		}
	}
	return 0, false
}

// carryOut does, or starts, what one effect says.
func (d *Driver) carryOut(ctx context.Context, effect coordinator.Effect) (End, bool) {
	cluster, job := d.options.Cluster, d.options.Job
	switch e := effect.(type) {
	case coordinator.ClaimJob:
		d.writer.enqueue(recordWrite{claim: &e})
	case coordinator.UpdateRecord:
		d.writer.enqueue(recordWrite{update: &e})
	case coordinator.PublishCheckpoint:
		d.writer.enqueue(recordWrite{publish: &e})
	case coordinator.LoadCheckpoint:
		d.workers.Go(func() { d.load(ctx, e) })
	case coordinator.VerifyState:
		d.workers.Go(func() { d.verify(ctx, e) })
	case coordinator.PersistMetadata:
		d.workers.Go(func() { d.persist(ctx, e) })

	case coordinator.RequestSlots:
		cluster.RequestSlots(job, e.Attempt, e.Count, e.Avoid)
	case coordinator.ReleaseSlots:
		cluster.ReleaseSlots(job, e.Attempt)
	case coordinator.LaunchExecutor:
		cluster.LaunchExecutor(e.Executor, e.Slots)
	case coordinator.StopExecutor:
		cluster.StopExecutor(e.Executor, e.Kill, e.Grace)
	case coordinator.DeployTasks:
		cluster.Send(e.Executor, deployCommand(e, d.options.CheckpointDir, d.options.DefaultParallelism))
	case coordinator.AssignSplits:
		cluster.Send(e.Executor, &pb.ExecutorCommand{Kind: &pb.ExecutorCommand_AssignSplits{AssignSplits: assignmentToProto(e.Assignment)}})
	case coordinator.TriggerCheckpoint:
		cluster.Send(e.Executor, triggerCommand(e))
	case coordinator.EndLoops:
		cluster.Send(e.Executor, endLoopsCommand(e))
	case coordinator.NotifyComplete:
		cluster.Send(e.Executor, notifyCommand(e.Checkpoint, false, ""))
	case coordinator.NotifyAborted:
		cluster.Send(e.Executor, notifyCommand(e.Checkpoint, true, e.Reason.String()))
	case coordinator.FinishTasks:
		cluster.Send(e.Executor, &pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Finish{Finish: &pb.FinishTasks{}}})
	case coordinator.CancelTasks:
		cluster.Send(e.Executor, &pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Cancel{Cancel: &pb.CancelTasks{KeepUpTo: uint64(e.KeepUpTo)}}})

	case coordinator.DiscardHandles:
		d.discardHandles(e)
	case coordinator.DiscardCheckpoint:
		d.discardCheckpoint(e)
	case coordinator.SweepAttempts:
		d.sweep(e)
	case coordinator.RecordHistory:
		d.options.History.add(e.Report)

	case coordinator.Answer:
		d.requests.answer(e)
	case coordinator.JobEnded:
		d.log.Info("job has ended", logfield.JobStatus(e.Status))
		return Ended, true
	case coordinator.StepDown:
		d.log.Warn("another JobManager leads the job: stepping down", logfield.FencingToken(e.Token))
		return SteppedDown, true
	default:
		invariant.Check(false, "effects", "effect %T has no one to carry it out", effect)
	}
	return 0, false
}

// location is where a checkpoint goes; dir is that of a savepoint, or empty.
func (d *Driver) location(id ids.CheckpointID, dir string) checkpointstore.Location {
	if dir != "" {
		return checkpointstore.SavepointLocation(dir, d.options.Job, id)
	}
	return checkpointstore.CheckpointLocation(d.options.CheckpointDir, d.options.Job, id)
}

func (d *Driver) discardHandles(e coordinator.DiscardHandles) {
	location := d.location(e.Checkpoint, e.Dir)
	if !e.Metadata {
		d.deleter.enqueueFiles(filesOf{base: location.Base, handles: e.Handles})
		return
	}
	d.deleter.enqueue(deletion{
		what: fmt.Sprintf("%d files of checkpoint %d", len(e.Handles), e.Checkpoint),
		do: func(ctx context.Context) (bool, error) {
			return false, d.options.Checkpoints.DiscardCheckpoint(ctx, location)
		},
	})
}

func (d *Driver) discardCheckpoint(e coordinator.DiscardCheckpoint) {
	d.deleter.enqueue(deletion{
		what: "checkpoint " + e.Ref.URI,
		do: func(ctx context.Context) (bool, error) {
			if !e.Claimed {
				return false, d.options.Checkpoints.DiscardCheckpoint(ctx, checkpointstore.LocationOf(e.Ref.URI))
			}
			left, err := d.options.Checkpoints.DiscardRetained(ctx, e.Ref.URI,
				checkpointstore.Expected{Job: e.Job, ID: e.Ref.ID, CompletedBy: e.CompletedBy})
			if errors.Is(err, checkpointstore.ErrUnexpected) {
				d.log.Warn("where a claimed checkpoint was is something else: it stays", logfield.URI(e.Ref.URI), zap.Error(err))
				return false, nil
			}
			if left > 0 {
				d.log.Warn("files of a claimed checkpoint stay: one beside it, which may refer to them, cannot be read",
					logfield.URI(e.Ref.URI), logfield.Count(left))
			}
			return false, err
		},
	})
}

func (d *Driver) sweep(e coordinator.SweepAttempts) {
	request := checkpointstore.SweepRequest{
		Base: checkpointstore.JobBase(d.options.CheckpointDir, d.options.Job), Below: e.Below, Over: e.Over,
	}
	for _, ref := range e.Keep {
		request.Keep = append(request.Keep, ref.ID)
	}
	d.deleter.enqueue(deletion{
		what: "files of attempts before " + e.Below.String(),
		do: func(ctx context.Context) (bool, error) {
			result, err := d.options.Checkpoints.Sweep(ctx, request)
			if result.Deleted > 0 {
				d.log.Info("swept files of fenced attempts", logfield.Count(result.Deleted))
			}
			if result.Left > 0 && !result.More {
				d.log.Warn("files of fenced attempts stay: a retained checkpoint, which may refer to them, cannot be read", logfield.Count(result.Left))
			}
			return result.More, err
		},
	})
}
