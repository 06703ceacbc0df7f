package coordinator

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
)

// phase is where the job stands. Each names what it waits for.
type phase uint8

const (
	// phaseClaim: for the record to be swapped to our token.
	phaseClaim phase = iota + 1
	// phaseRestart: for the restart delay, and for the outcome of a
	// publication that was under way when the last attempt failed.
	phaseRestart
	// phaseLoad: for the metadata of the restore point.
	phaseLoad
	// phaseVerify: for the state that a task found corrupt to be read again, see fallback.go.
	phaseVerify
	// phaseFallback: for the record to name an older restore point, see fallback.go.
	phaseFallback
	// phaseSlots: for slots.
	phaseSlots
	// phaseLaunch: for executors to register.
	phaseLaunch
	// phaseDeploy: for tasks to be running.
	phaseDeploy
	// phaseRun: for the job to end.
	phaseRun
	// phaseCancel: for tasks to end, or for the grace of the cancel.
	phaseCancel
	// phaseEnd: for the terminal status to be recorded.
	phaseEnd
	// phaseEnded and phaseSteppedDown: for nothing. They are never left.
	phaseEnded
	phaseSteppedDown
)

// hasAttempt reports whether an attempt is under way that can fail.
func (p phase) hasAttempt() bool {
	return p == phaseSlots || p == phaseLaunch || p == phaseDeploy || p == phaseRun
}

// Coordinator is the state machine of one job under one JobManager. One
// goroutine owns it; none of its methods may be called concurrently.
type Coordinator struct {
	cfg    Config
	graph  graph.ExecutionGraph
	layout layout
	random *rand.Rand // of the seed: jitter only

	phase    phase
	status   JobStatus
	detail   string
	token    ids.FencingToken
	record   recordWriter
	timers   timers
	retries  int // of the current claim or load
	attempt  attempt
	restored restorePoint
	sources  []*source
	restarts restartPolicy
	// Fallback to older checkpoints, see fallback.go.
	broken    []CheckpointRef // corrupt, and in the record still; bounded by the retained ones
	abandoned []CheckpointRef // out of the record with the write under way; then deleted
	suspicion *suspicion      // what a task has said of the restore point; nil for nothing
	// distrusted are the TaskManagers that called a checkpoint corrupt which is
	// not: their slots come last. Bounded by those that were not lost since.
	distrusted []ids.TaskManagerID
	// ranOn is where the last attempt that was deployed ran, by slot: the next
	// one goes there again if it can, to what subtasks keep on local disks. A
	// JobManager that takes over does not know it; it costs downloads only.
	ranOn []ids.TaskManagerID

	// Checkpoints, see checkpoint.go.
	nextID         ids.CheckpointID
	pending        []*pendingCheckpoint // by ID
	unsettled      []*pendingCheckpoint // aborted while their metadata was being written
	recent         ring[endedCheckpoint]
	leftovers      []endedCheckpoint // savepoints given up by this attempt or one before; bounded by leftoversMax
	files          registry          // of published checkpoints that still exist
	claimedJob     ids.JobID         // whose checkpoint the job was started from, if this leader has read it
	sweepOwed      bool              // unread checkpoints were released since the last sweep
	nextTrigger    time.Time
	lastEnd        time.Time // of a periodic checkpoint, for min-pause
	failuresInARow int
	finalFailures  int

	// Requests of users, see savepoint.go, request.go and cancel.go.
	waiting   []savepointRequest
	requested []RequestID // checkpoints, not yet triggered
	stop      stopState
	cancels   []RequestID

	// What users may see, see view.go.
	shown              shown
	events             ring[EventView]
	history            ring[CheckpointView]
	completed, aborted int64
	acks               AckCounts
	dropped            DroppedEvents

	effects []Effect // of the step at hand
}

// New makes the coordinator of a job. It has done nothing yet, and
// NextDeadline is already past: the first DeadlinePassed starts it.
func New(cfg Config, g graph.ExecutionGraph) *Coordinator {
	cfg = cfg.defaults()
	c := &Coordinator{
		cfg:    cfg,
		graph:  g,
		layout: newLayout(&g),
		random: rand.New(rand.NewPCG(cfg.Seed, 0)),
		phase:  phaseClaim,
		status: Created,
		detail: "waiting for the job's record",
	}
	c.timers.set(timerClaim, time.Time{})
	return c
}

// Step advances the job by one event and returns what must now be done, in
// order. It never blocks and never fails: events that no longer apply are
// dropped and counted. Equal coordinators given equal events and times return
// equal effects.
func (c *Coordinator) Step(now time.Time, ev Event) []Effect {
	c.effects = nil
	switch {
	case c.phase == phaseEnded || c.phase == phaseSteppedDown:
		c.refuseWhenOver(ev)
	case c.isStale(ev):
		c.discardStaleAck(ev)
	default:
		c.handle(now, ev)
	}
	c.advance(now)
	out := c.effects
	c.effects = nil
	return out
}

// NextDeadline tells the driver when to send DeadlinePassed, unless an earlier
// event moves it; false when the coordinator waits for no time.
func (c *Coordinator) NextDeadline() (time.Time, bool) {
	if c.phase == phaseEnded || c.phase == phaseSteppedDown {
		return time.Time{}, false
	}
	at, armed := c.timers.next()
	earlier := func(t time.Time) {
		if !armed || t.Before(at) {
			at, armed = t, true
		}
	}
	for _, p := range c.pending {
		if p.canExpire() {
			earlier(p.deadline)
		}
	}
	if c.wantsPeriodic() && !c.awaitsIDs() {
		earlier(c.periodicDue())
	}
	if c.wantsLoopCheck() && !c.awaitsIDs() {
		earlier(c.loopCheckDue())
	}
	return at, armed
}

// isStale is the one place where events of other attempts and leaderships are
// dropped (I8).
func (c *Coordinator) isStale(ev Event) bool {
	switch e := ev.(type) {
	case CheckpointLoaded:
		return c.isForeignToken(e.Token)
	case CheckpointLoadFailed:
		return c.isForeignToken(e.Token)
	case StateVerified:
		return c.isForeignToken(e.Token)
	case StateVerifyFailed:
		return c.isForeignToken(e.Token)
	case MetadataPersisted:
		return c.isForeignToken(e.Token)
	case MetadataPersistFailed:
		return c.isForeignToken(e.Token)
	case CheckpointPublished:
		return c.isForeignToken(e.Token)
	case PublishFailed:
		return c.isForeignToken(e.Token)
	case RecordUpdated:
		return c.isForeignToken(e.Token)
	case Fenced:
		// The token is ours, or that of the leader who has replaced us.
		if e.Token < c.token {
			c.dropped.StaleToken++
			return true
		}
		return false
	case SlotsGranted:
		return c.isOldAttempt(e.Attempt)
	case SlotsShort:
		return c.isOldAttempt(e.Attempt)
	case TaskStatusChanged:
		return c.isOldAttempt(e.Attempt)
	case SplitsDiscovered:
		return c.isOldAttempt(e.Attempt)
	case CheckpointAcked:
		return c.isOldAttempt(e.Attempt)
	case CheckpointDeclined:
		return c.isOldAttempt(e.Attempt)
	case CommitAcked:
		return c.isOldAttempt(e.Attempt)
	case ExecutorReady:
		return e.Executor.Job != c.cfg.Job || c.isOldAttempt(e.Executor.Attempt)
	case ExecutorLost:
		return e.Executor.Job != c.cfg.Job || c.isOldAttempt(e.Executor.Attempt)
	}
	return false
}

func (c *Coordinator) isForeignToken(t ids.FencingToken) bool {
	if t != c.token {
		c.dropped.StaleToken++
	}
	return t != c.token
}

func (c *Coordinator) isOldAttempt(a ids.AttemptID) bool {
	if a != c.attempt.id {
		c.dropped.StaleAttempt++
	}
	return a != c.attempt.id
}

// handle dispatches an event that is of this attempt and leadership.
func (c *Coordinator) handle(now time.Time, ev Event) {
	switch e := ev.(type) {
	case JobClaimed:
		c.onJobClaimed(now, e)
	case JobClaimFailed:
		c.onJobClaimFailed(now, e)
	case Fenced:
		c.onFenced(now)
	case CheckpointLoaded:
		c.onCheckpointLoaded(now, e)
	case CheckpointLoadFailed:
		c.onCheckpointLoadFailed(now, e)
	case StateVerified:
		c.onStateVerified(now, e)
	case StateVerifyFailed:
		c.onStateVerifyFailed(now, e)
	case SlotsGranted:
		c.onSlotsGranted(now, e)
	case SlotsShort:
		c.onSlotsShort(e)
	case ExecutorReady:
		c.onExecutorReady(now, e)
	case ExecutorLost:
		c.onExecutorLost(now, e.Executor.TaskManager, e.Failure)
	case TaskManagerLost:
		c.onTaskManagerLost(now, e)
	case TaskStatusChanged:
		c.onTaskStatusChanged(now, e)
	case SplitsDiscovered:
		c.onSplitsDiscovered(e)
	case CheckpointAcked:
		c.onCheckpointAcked(now, e)
	case CheckpointDeclined:
		c.onCheckpointDeclined(now, e)
	case MetadataPersisted:
		c.onMetadataPersisted(now, e)
	case MetadataPersistFailed:
		c.onMetadataPersistFailed(now, e)
	case CheckpointPublished:
		c.onCheckpointPublished(now, e)
	case PublishFailed:
		c.onPublishFailed(now, e)
	case RecordUpdated:
		c.onRecordUpdated(now, e)
	case CommitAcked:
		c.onCommitAcked(e)
	case SavepointRequested:
		c.onSavepointRequested(e)
	case CheckpointRequested:
		c.onCheckpointRequested(e)
	case CancelRequested:
		c.onCancelRequested(now, e)
	case DeadlinePassed:
		c.onDeadlinePassed(now)
	default:
		invariant.Check(false, "coordinator", "event %T is unknown", ev)
	}
}

// advance does what has become possible. It looks at where the job stands and
// not at the event, so nothing is forgotten because two things happened in an
// unusual order. It costs the same whatever the parallelism.
func (c *Coordinator) advance(now time.Time) {
	switch c.phase {
	case phaseRestart:
		if !c.timers.isSet(timerRestart) && c.record.publishing == nil {
			c.beginAttempt(now)
		}
	case phaseFallback:
		c.advanceFallback(now)
	case phaseDeploy:
		if c.attempt.active() == c.layout.total() {
			c.enterRunning(now)
			c.advanceRunning(now)
		}
	case phaseRun:
		c.advanceRunning(now)
	case phaseCancel:
		if c.attempt.isQuiet() {
			c.endJob(now, CanceledStatus)
		}
	case phaseEnd:
		if c.record.isSettled() && len(c.unsettled) == 0 {
			c.finishEnd(now)
		}
	case phaseClaim, phaseLoad, phaseVerify, phaseSlots, phaseLaunch, phaseEnded, phaseSteppedDown:
	}
	c.flushRecord(now)
}

// refuseWhenOver answers the requests that come after the end.
func (c *Coordinator) refuseWhenOver(ev Event) {
	reason := "already " + c.status.String()
	if c.phase == phaseSteppedDown {
		reason = "another JobManager has taken the job over: ask it"
	}
	switch e := ev.(type) {
	case SavepointRequested:
		c.emit(Answer{Request: e.Request, Status: c.status, Error: reason})
	case CheckpointRequested:
		c.emit(Answer{Request: e.Request, Status: c.status, Error: reason})
	case CancelRequested:
		c.emit(Answer{Request: e.Request, Status: c.status, Error: reason})
	default:
		c.dropped.OutOfPlace++
	}
}

// onFenced stops this leadership. Nothing else is touched: the job, its files
// and its executors are the new leader's, who fences the latter by their token.
func (c *Coordinator) onFenced(now time.Time) {
	c.note(now, "fenced: another JobManager has taken the job over")
	c.detail = "another JobManager has taken the job over"
	c.phase = phaseSteppedDown
	c.timers = timers{}
	c.emit(StepDown{Token: c.token})
}

func (c *Coordinator) emit(e Effect) { c.effects = append(c.effects, e) }

func (c *Coordinator) onDeadlinePassed(now time.Time) {
	for kind := range timerCount {
		if c.timers.fire(kind, now) {
			c.onTimer(now, kind)
		}
	}
	c.expirePending(now)
}

func (c *Coordinator) onTimer(now time.Time, kind timerKind) {
	switch kind {
	case timerClaim:
		c.emit(ClaimJob{})
	case timerLoad:
		c.readAgain()
	case timerSlots:
		c.onSlotsTimeout(now)
	case timerLaunch:
		c.onLaunchTimeout(now)
	case timerCancel:
		c.onCancelTimeout(now)
	case timerRestart, timerFinal:
		// That they are no longer set is what advance looks at.
	case timerCount:
	}
}

// layout numbers all subtasks of the job: by vertex, then index.
type layout struct {
	first    []int // of each vertex; one more entry for the total
	subtasks []ids.SubtaskID
}

func newLayout(g *graph.ExecutionGraph) layout {
	l := layout{subtasks: g.Subtasks()}
	n := 0
	for i := range g.Vertices {
		l.first = append(l.first, n)
		n += g.Vertices[i].Parallelism
	}
	l.first = append(l.first, n)
	return l
}

func (l *layout) total() int { return len(l.subtasks) }

// index is the number of a subtask, and false for one that the job does not have.
func (l *layout) index(s ids.SubtaskID) (int, bool) {
	if s.Vertex < 0 || int(s.Vertex) >= len(l.first)-1 || s.Index < 0 {
		return 0, false
	}
	i := l.first[s.Vertex] + int(s.Index)
	return i, i < l.first[s.Vertex+1]
}

// backoff is the delay before try n (0 for the first retry).
func (c *Coordinator) backoff(b Backoff, n int) time.Duration {
	d := float64(b.Initial)
	for range n {
		if d >= float64(b.Max) {
			break
		}
		d *= b.Multiplier
	}
	d = min(d, float64(b.Max))
	d *= 1 + b.Jitter*(2*c.random.Float64()-1)
	return time.Duration(d).Round(time.Millisecond)
}

// retryLater arms a timer for the next try of a store operation.
func (c *Coordinator) retryLater(now time.Time, kind timerKind) time.Duration {
	d := c.backoff(Backoff{Initial: retryInitial, Max: retryMax, Multiplier: 2, Jitter: 0.1}, c.retries)
	c.retries++
	c.timers.set(kind, now.Add(d))
	return d
}

// describe prints a subtask with the name that users know it by.
func (c *Coordinator) describe(s ids.SubtaskID) string {
	if _, ok := c.layout.index(s); !ok {
		return "subtask " + s.String()
	}
	v := &c.graph.Vertices[s.Vertex]
	return fmt.Sprintf("%s (%d/%d)", v.Name, s.Index+1, v.Parallelism)
}
