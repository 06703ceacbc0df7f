package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/runtime/align"
	"github.com/weirstream/weir/pkg/runtime/subtask"
)

// host is what one subtask acts on: the simulated counterpart of package task.
type host struct {
	x    *executor
	id   ids.SubtaskID
	name string
	s    *subtask.Subtask
	in   []*link
	out  [][]*link
	// stepping: a step is scheduled.
	stepping bool
	ended    bool
	closed   bool
	// cancelled: work that is no clean-up finds its context ended.
	cancelled bool
	// lost: a channel to a peer broke. The task has failed with that.
	lost bool
	// working is how many pieces of work are under way; last is the report of
	// the end, which waits for them.
	working   int
	last      coordinator.Event
	alignment *alignmentCheck
	// kinds are those of its input channels.
	kinds []align.ChannelKind
	// inFlight: records that were in flight are among what it restores.
	inFlight bool
	// stoppedFor is the stop-with-savepoint whose barrier a source has emitted.
	stoppedFor ids.CheckpointID
	// aborted are the checkpoints that it was told are given up. A barrier of
	// one may still wait for credit behind records, and goes out later.
	aborted map[ids.CheckpointID]bool

	// spilled are the bytes that it put on disk.
	spilled int64

	// clock is the latest that its states with time-to-live have been told.
	clock int64
	// told is the latest that it was told by Advance, alarm when it is woken to
	// be told again.
	told  int64
	alarm time.Duration
	idling
}

var _ subtask.Host = (*host)(nil)

// wake schedules a step.
func (h *host) wake() {
	if h.stepping || h.ended {
		return
	}
	h.stepping = true
	h.x.after(h.x.c.between(0, h.pace()), "step", func() {
		h.stepping = false
		h.step()
	})
}

// pace is the longest that the subtask waits for the processor when it has
// something to do. One vertex may be slower than the others, so that records
// queue in front of it.
func (h *host) pace() time.Duration {
	if o := &h.x.c.options; o.SlowMax > 0 && !h.x.c.healed && int(h.id.Vertex) == 1+o.SlowVertex%max(1, len(h.x.job.graph.Vertices)-1) {
		return o.SlowMax
	}
	return time.Millisecond
}

func (h *host) step() {
	if h.ended {
		return
	}
	c := h.x.c
	c.stepped = h
	h.s.Pace().MailRead()
	h.told = max(h.told, h.hostNow().UnixMilli())
	h.s.Advance(h.told)
	progress := h.s.Step(1 + c.random.IntN(c.options.StepBudget))
	c.stepped = nil
	h.noteProgress(progress)
	if spilled := h.s.Metrics().SpilledBytes; spilled > h.spilled {
		c.result.LoopSpilled += spilled - h.spilled
		h.spilled = spilled
	}
	h.setAlarm()
	switch progress {
	case subtask.More:
		h.wake()
	case subtask.Idle, subtask.Blocked, subtask.Ended:
	}
}

// hostNow is what the clock of the host shows.
func (h *host) hostNow() time.Time { return h.x.c.wall().Add(h.x.c.clocks[h.x.tm.host]) }

// readClock is the clock of states with time-to-live.
func (h *host) readClock() time.Time {
	now := h.hostNow()
	h.clock = max(h.clock, now.UnixMilli())
	return now
}

// setAlarm lets the subtask step when time alone gives it something to do.
func (h *host) setAlarm() {
	at, ok := h.s.NextAdvance()
	if !ok || h.ended {
		return
	}
	c := h.x.c
	when := c.now + max(0, time.UnixMilli(at).Sub(h.hostNow()))
	if h.alarm > c.now && h.alarm <= when {
		return
	}
	h.alarm = when
	h.x.after(when-c.now, "alarm", h.wake)
}

// interrupt leaves mail between two records, so that the rest of the frame
// waits for the next step.
func (c *cluster) interrupt() {
	c.checkStopped()
	if c.stepped != nil {
		c.stepped.took = true
	}
	if c.stepped != nil && c.chance(c.options.InterruptOdds) {
		c.stepped.s.Pace().MailWaits()
	}
}

// Send implements subtask.Host.
func (h *host) Send(out subtask.Output, f element.Frame) { h.out[out.Edge][out.Channel].send(f) }

// Grant implements subtask.Host.
func (h *host) Grant(in int, bytes int64) { h.in[in].grant(bytes) }

// Go implements subtask.Host: Run is carried out at one moment, some time from
// now, and what it returns is given back some time after that.
func (h *host) Go(w subtask.Work) {
	c := h.x.c
	h.working++
	run := func() func() {
		ctx := context.Background()
		if (h.ended || h.cancelled) && !w.Cleanup {
			ctx = canceled
		}
		done := w.Run(ctx)
		return func() {
			h.working--
			h.s.Complete(done)
			h.wake()
			h.endIfQuiet()
		}
	}
	if w.Lane == subtask.FetchLane {
		wait := c.options.FetchMax
		if c.healed {
			wait /= 4 // what is left is to be read in time, by however few sources
		}
		h.x.after(c.between(0, wait), "fetch", func() { h.x.callStore("fetch", run) })
		return
	}
	h.x.io(w.Name, run)
}

// canceled is the context of work that goes on when its task has ended.
var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// endIfQuiet closes an ended subtask and reports its end, when nothing of it
// runs any more.
func (h *host) endIfQuiet() {
	if !h.ended || h.working > 0 || h.closed {
		return
	}
	h.closed = true
	switch err := h.s.Close(); {
	case err == nil:
	case errors.Is(err, errUserCode): // an abort that failed: what it was about stays prepared
		h.x.c.trace.add("%s: %v", h.name, err)
	default:
		h.x.c.fail("close", "%s: %v", h.name, err)
	}
	if h.last != nil {
		h.x.report("status", h.last)
	}
	h.x.leaveIfEnded()
}

// misreadOdds is how often a read that fails comes out as if the file were not
// what was written.
const misreadOdds = 0.3

// Report implements subtask.Host.
func (h *host) Report(r subtask.Report) {
	if h.lost {
		return // the failure has been reported
	}
	c, attempt := h.x.c, h.x.id.Attempt
	switch r := r.(type) {
	case subtask.StatusReport:
		c.trace.add("%s is %s %s", h.name, r.Status, r.Failure.Message)
		if r.Status == coordinator.Running {
			c.checkRunning(h)
		}
		if r.Failure.Kind == coordinator.LostProcess && (c.plant == FallsBackOnFailedRead || c.chance(misreadOdds)) {
			// Of a host whose memory or disk is bad. Nobody else finds the same.
			r.Failure.Kind = coordinator.CorruptCheckpoint
		}
		event := coordinator.TaskStatusChanged{Attempt: attempt, Subtask: h.id, Status: r.Status, Failure: r.Failure}
		switch r.Status {
		case coordinator.Finished, coordinator.Canceled:
			// A failure is told at once, any other end when all is quiet.
			h.ended, h.last = true, event
		case coordinator.Failed:
			h.ended = true
			h.x.report("status", event)
		case coordinator.Deploying, coordinator.Initializing, coordinator.Running, coordinator.RunningInputEnded, coordinator.RunningEndOfData:
			h.x.report("status", event)
		}
	case subtask.AckReport:
		c.trace.add("%s acknowledges %d", h.name, r.Checkpoint)
		r.State = c.plantedState(h.x.job, r.State)
		c.checkAcked(h, r)
		h.x.report("ack", coordinator.CheckpointAcked{Attempt: attempt, Checkpoint: r.Checkpoint, State: r.State, Stats: r.Stats})
	case subtask.DeclineReport:
		c.trace.add("%s declines %d: %s", h.name, r.Checkpoint, r.Reason)
		h.x.report("decline", coordinator.CheckpointDeclined{Attempt: attempt, Checkpoint: r.Checkpoint, Subtask: h.id, Reason: r.Reason})
	case subtask.CommitReport:
		c.trace.add("%s has committed %d", h.name, r.Checkpoint)
		c.checkCommitReported(h, r.Checkpoint)
		h.x.report("committed", coordinator.CommitAcked{Attempt: attempt, Checkpoint: r.Checkpoint, Subtask: h.id})
	case subtask.SplitsReport:
		h.x.report("splits", coordinator.SplitsDiscovered{Attempt: attempt, Operator: r.Operator, Splits: slices.Clone(r.Splits), Complete: r.Complete})
	case subtask.RestoredReport:
		c.trace.add("%s has read %d files of %d, %d of them locally", h.name, r.FilesFetched+r.FilesLocal, r.Checkpoint, r.FilesLocal)
		c.result.LocalFiles += r.FilesLocal
	case subtask.LocalCopyReport:
		// Nothing fails on a disk here, so that nothing may be missing.
		c.fail("disk", "%s has no local copies of %d: %v", h.name, r.Checkpoint, r.Err)
	}
}

// peerLost ends the subtask because a channel from a peer broke: a connection
// was lost, which is no fault of user code.
func (h *host) peerLost() {
	if h.ended || h.lost {
		return
	}
	h.x.c.trace.add("%s has lost a channel", h.name)
	h.x.report("status", coordinator.TaskStatusChanged{
		Attempt: h.x.id.Attempt, Subtask: h.id, Status: coordinator.Failed,
		Failure: coordinator.Failure{Kind: coordinator.LostProcess, Message: "channel broke"},
	})
	h.lost, h.ended = true, true
	h.s.Cancel(subtask.KeepAll)
	h.endIfQuiet()
}
