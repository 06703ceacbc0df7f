package task

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/subtask"
)

// stepBudget is how many frames or batches a step may handle before the task
// looks into its inbox again: long enough that the lock costs nothing, short
// enough that frames of other channels, and the barriers among them, take
// their turn within about a millisecond.
const stepBudget = 16

// Subtask is what a task drives; *subtask.Subtask is one.
type Subtask interface {
	Start()
	Receive(in int, f element.Frame)
	AddCredit(out subtask.Output, bytes int64)
	Trigger(b element.Barrier)
	NotifyComplete(id ids.CheckpointID)
	NotifyAborted(id ids.CheckpointID)
	AssignSplits(a coordinator.SplitAssignment)
	EndLoop()
	Complete(done subtask.Done)
	Fail(err error, stack string)
	Finish()
	Cancel(keepUpTo ids.CheckpointID)
	Step(budget int) subtask.Progress
	Advance(now int64)
	NextAdvance() (int64, bool)
	Flush()
	SetInputRate(bytesPerSecond float64)
	Pace() *operator.Pace
	Metrics() subtask.Metrics
	Close() error
}

// Wire is the subtask's end of its channels. Its methods do not block.
type Wire interface {
	// Send passes a frame on.
	Send(out subtask.Output, f element.Frame)
	// Grant gives the producer of an input channel credit.
	Grant(in int, bytes int64)
}

// Config is what a task is made from.
type Config struct {
	ID ids.SubtaskID
	// New makes the subtask; it is called on the task's goroutine.
	New  func(subtask.Host) (Subtask, error)
	Wire Wire
	// BufferTimeout bounds how long a record may wait in a batch while the
	// subtask is busy with others (execution.buffer-timeout); 0 for no bound.
	BufferTimeout time.Duration
	// CleanupTimeout bounds what a cancelled subtask still does: less than the
	// time after which a task that does not end costs its executor.
	CleanupTimeout time.Duration
	// Report takes what the subtask reports, on the task's goroutine, and does
	// not block. The last report is a StatusReport of Finished, Canceled or
	// Failed. Failed comes at once; the others when nothing of the subtask
	// runs any more.
	Report func(ids.SubtaskID, subtask.Report)
}

// Task runs one subtask. Its methods may be called by any goroutine, do not
// block, and do nothing once the task has ended.
type Task struct {
	cfg     Config
	inbox   inbox
	subtask Subtask
	ctx     context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup
	done    chan struct{}
	metrics published
	// closeErr is what Close of the subtask returned; written before done is closed.
	closeErr error

	// What follows belongs to the task's goroutine.
	busy     [subtask.Lanes + 1]bool // by lane: work is under way
	external *coordinator.Failure    // given to Fail
	last     subtask.Report          // held back until everything has ended
	ended    bool
}

// New makes a task that has not started. It can be sent to already.
func New(cfg Config) *Task {
	ctx, cancel := context.WithCancel(context.Background())
	return &Task{cfg: cfg, ctx: ctx, cancel: cancel, done: make(chan struct{}), inbox: inbox{wake: make(chan struct{}, 1)}}
}

// Start begins to run the subtask. It is called once. The task ends after
// Finish, Cancel or a failure.
func (t *Task) Start() { go t.run() }

// ID is the subtask's identity.
func (t *Task) ID() ids.SubtaskID { return t.cfg.ID }

// Done is closed when the task, everything that it started, and its
// operators have ended.
func (t *Task) Done() <-chan struct{} { return t.done }

// Err is what closing the operators returned. It may be called after Done.
func (t *Task) Err() error { return t.closeErr }

// Receive takes a frame of an input channel.
func (t *Task) Receive(in int, f element.Frame) { t.inbox.pushFrame(in, f) }

// AddCredit takes credit for an output channel.
func (t *Task) AddCredit(out subtask.Output, bytes int64) { t.inbox.pushCredit(out, bytes) }

// Trigger makes a source emit the barrier.
func (t *Task) Trigger(b element.Barrier) { t.inbox.pushMail(func() { t.subtask.Trigger(b) }) }

// NotifyComplete says that the checkpoint is published.
func (t *Task) NotifyComplete(id ids.CheckpointID) {
	t.inbox.pushMail(func() { t.subtask.NotifyComplete(id) })
}

// NotifyAborted says that the checkpoint is given up.
func (t *Task) NotifyAborted(id ids.CheckpointID) {
	t.inbox.pushMail(func() { t.subtask.NotifyAborted(id) })
}

// AssignSplits gives a source splits.
func (t *Task) AssignSplits(a coordinator.SplitAssignment) {
	t.inbox.pushMail(func() { t.subtask.AssignSplits(a) })
}

// EndLoop tells the head of a loop that nothing goes round any more.
func (t *Task) EndLoop() { t.inbox.pushMail(func() { t.subtask.EndLoop() }) }

// Finish ends the task, all its work being committed.
func (t *Task) Finish() { t.inbox.pushMail(func() { t.subtask.Finish() }) }

// Cancel ends the task. Its work is told at once, by its context; user code
// that runs on the task's own goroutine is waited for. What sinks prepared for
// checkpoints after keepUpTo is aborted.
func (t *Task) Cancel(keepUpTo ids.CheckpointID) {
	// The mail first: work that returns because of the context must find the
	// subtask cancelled, or it would count as failed.
	t.inbox.pushMail(func() { t.subtask.Cancel(keepUpTo) })
	t.cancel()
}

// Fail ends the task with a failure from outside its code.
func (t *Task) Fail(f coordinator.Failure) {
	t.inbox.pushMail(func() {
		if t.external == nil {
			t.external = &f
		}
		t.subtask.Fail(errors.New(f.Message), f.Stack)
	})
}

// run is the task's goroutine.
func (t *Task) run() {
	defer close(t.done)
	defer t.cancel()
	defer t.inbox.close()
	// If user code ends this goroutine, nothing below is reached.
	left := true
	defer func() {
		if left {
			// The subtask too, or what still comes back from its work goes on with it.
			if t.subtask == nil || protect(func() { t.subtask.Fail(errGoexit, "") }) != nil {
				t.failWithout(errGoexit, "")
			}
			t.stop()
		}
	}()
	if t.make() {
		if p := protect(t.loop); p != nil {
			t.panicked(p)
		}
		t.stop()
	}
	left = false
	if t.last != nil {
		t.cfg.Report(t.cfg.ID, t.last)
	}
}

// make makes the subtask; without one the task has failed.
func (t *Task) make() bool {
	var err error
	if p := protect(func() { t.subtask, err = t.cfg.New(host{t}) }); p != nil {
		t.failWithout(p, p.stack)
		return false
	}
	if err != nil {
		t.failWithout(err, "")
		return false
	}
	t.inbox.setPace(t.subtask.Pace())
	return true
}

// failWithout reports a failure that the subtask cannot report itself.
func (t *Task) failWithout(err error, stack string) {
	kind := coordinator.UserFailure
	if operator.IsPermanent(err) {
		kind = coordinator.PermanentFailure
	}
	t.report(subtask.StatusReport{Status: coordinator.Failed, Failure: coordinator.Failure{
		Kind: kind, Message: err.Error(), Stack: stack,
	}})
}

// loop runs the subtask until it has ended.
func (t *Task) loop() {
	t.subtask.Start()
	var spare arrivals
	flushed := time.Now()
	rate := rateMeter{since: flushed}
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for !t.ended {
		began := time.Now()
		arrived := t.inbox.take(spare)
		t.deliver(&arrived)
		arrived.reset()
		spare = arrived
		// UnixMilli rounds down: no timer fires before its millisecond has come.
		t.subtask.Advance(began.UnixMilli())
		progress := t.subtask.Step(stepBudget)
		stepped := time.Now()
		counted := t.subtask.Metrics()
		t.metrics.publish(counted, stepped.Sub(began))
		if bytesPerSecond, ok := rate.measure(counted.BytesIn, stepped); ok {
			t.subtask.SetInputRate(bytesPerSecond)
		}
		switch progress {
		case subtask.More:
			if d := t.cfg.BufferTimeout; d > 0 && stepped.Sub(flushed) >= d {
				t.subtask.Flush()
				flushed = stepped
			}
		case subtask.Ended:
		case subtask.Idle:
			flushed = stepped
			t.wait(alarm)
		case subtask.Blocked:
			t.wait(alarm)
			t.metrics.addBackpressured(time.Since(stepped))
		}
	}
}

// wait waits until something has arrived, or the subtask has something to do
// by the clock.
func (t *Task) wait(alarm *time.Timer) {
	next, ok := t.subtask.NextAdvance()
	if !ok {
		<-t.inbox.wake
		return
	}
	alarm.Reset(time.Until(time.UnixMilli(next)))
	select {
	case <-t.inbox.wake:
	case <-alarm.C:
	}
}

// ratePeriod is how often the input rate is measured: often enough to follow a
// job that has just started, and seldom enough that a pause of the scheduler
// does not look like a change.
const ratePeriod = 100 * time.Millisecond

// rateMeter measures the rate of a counter.
type rateMeter struct {
	since time.Time
	count int64
}

// measure returns the rate since the last time it did, if that is long enough ago.
func (r *rateMeter) measure(count int64, now time.Time) (perSecond float64, ok bool) {
	passed := now.Sub(r.since)
	if passed < ratePeriod {
		return 0, false
	}
	perSecond = float64(count-r.count) / passed.Seconds()
	r.since, r.count = now, count
	return perSecond, true
}

// deliver hands over what has arrived.
func (t *Task) deliver(a *arrivals) {
	for i := range a.frames {
		t.subtask.Receive(a.frames[i].in, a.frames[i].frame)
	}
	for _, c := range a.credits {
		t.subtask.AddCredit(c.out, c.bytes)
	}
	for _, do := range a.mail {
		do()
	}
}

// stop waits for the work that is under way, lets it come back to the
// subtask, which needs to know what it has to close, and closes that.
func (t *Task) stop() {
	t.cancel()
	t.workers.Wait()
	if t.subtask == nil {
		return
	}
	rest := t.inbox.take(arrivals{})
	for i := range rest.frames {
		rest.frames[i].frame.Free()
	}
	for _, do := range rest.mail {
		if p := protect(do); p != nil {
			t.panicked(p)
		}
	}
	if p := protect(func() { t.closeErr = t.subtask.Close() }); p != nil {
		t.closeErr = p
	}
}

// panicked fails the task after a panic in its subtask.
func (t *Task) panicked(p *panicError) {
	if again := protect(func() { t.subtask.Fail(p, p.stack) }); again != nil {
		t.failWithout(p, p.stack)
	}
	// A subtask that panicked cannot be trusted to say that it has ended.
	t.ended = true
}

// report passes a report on, or holds it until everything has ended.
func (t *Task) report(r subtask.Report) {
	status, ok := r.(subtask.StatusReport)
	if !ok {
		t.cfg.Report(t.cfg.ID, r)
		return
	}
	if t.ended {
		return // the first end counts
	}
	switch status.Status {
	case coordinator.Failed:
		t.ended = true
		if t.external != nil {
			status.Failure = *t.external
		}
		t.cfg.Report(t.cfg.ID, status)
	case coordinator.Finished, coordinator.Canceled:
		t.ended = true
		t.last = status
	case coordinator.Deploying, coordinator.Initializing, coordinator.Running, coordinator.RunningInputEnded, coordinator.RunningEndOfData:
		t.cfg.Report(t.cfg.ID, status)
	}
}

// host is what the subtask sees of its task.
type host struct{ t *Task }

var _ subtask.Host = host{}

// Send implements subtask.Host.
func (h host) Send(out subtask.Output, f element.Frame) { h.t.cfg.Wire.Send(out, f) }

// Grant implements subtask.Host.
func (h host) Grant(in int, bytes int64) { h.t.cfg.Wire.Grant(in, bytes) }

// Report implements subtask.Host.
func (h host) Report(r subtask.Report) { h.t.report(r) }

// Go implements subtask.Host.
func (h host) Go(w subtask.Work) {
	t := h.t
	invariant.Check(!t.busy[w.Lane], "one work per lane", "subtask %s: %s while the %s lane is busy", t.cfg.ID, w.Name, w.Lane)
	t.busy[w.Lane] = true
	t.workers.Go(func() {
		var done subtask.Done
		p := &panicError{value: errGoexit} // unless Run returns or panics
		defer func() {
			t.inbox.pushMail(func() {
				t.busy[w.Lane] = false
				if p != nil {
					t.subtask.Fail(p, p.stack)
					return
				}
				t.subtask.Complete(done)
			})
		}()
		ctx := t.ctx
		if w.Cleanup {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), t.cfg.CleanupTimeout)
			defer cancel()
		}
		p = protect(func() { done = w.Run(ctx) })
	})
}
