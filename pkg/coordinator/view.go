package coordinator

import (
	"slices"
	"time"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// Status is what users may see of a job: a copy that does not change any more.
// Copies share memory with each other, so nobody may change one.
type Status struct {
	Job    ids.JobID
	Name   string
	Status JobStatus
	// Detail says in words what the job waits for, e.g. "waiting for 6 slots, 4 free".
	Detail   string
	Attempt  ids.AttemptID
	Restarts int
	// Restored is what the current attempt started from, Latest what the next
	// one would; ID 0 for none.
	Restored, Latest CheckpointRef
	// Cause is the root cause of the last failure: the first one since a
	// checkpoint completed. Nil when there was none.
	Cause              *Failure
	StartedAt, EndedAt time.Time
	// Subtasks are listed by vertex, then index.
	Subtasks  []SubtaskView
	Executors []ExecutorView
	// Events are the last ones, newest last; bounded.
	Events []EventView
	// Checkpoints are the pending and last ended ones, newest first; bounded.
	Checkpoints []CheckpointView
	// Completed and Aborted count the checkpoints and savepoints of this JobManager's leadership.
	Completed, Aborted int64
	Acks               AckCounts
	Dropped            DroppedEvents
}

// SubtaskView is one subtask: zero Status and no TaskManager before it is placed.
type SubtaskView struct {
	Subtask     ids.SubtaskID
	Status      TaskStatus
	TaskManager ids.TaskManagerID
}

// ExecutorView is one executor of the current attempt.
type ExecutorView struct {
	TaskManager ids.TaskManagerID
	DataAddress string // empty until it is ready
	Slots       int
}

// EventView is something that happened to the job.
type EventView struct {
	At   time.Time
	Text string
}

// CheckpointStatus is where a checkpoint stands.
type CheckpointStatus string

// The statuses of a checkpoint, in Flink's words.
const (
	CheckpointInProgress CheckpointStatus = "IN_PROGRESS"
	CheckpointCompleted  CheckpointStatus = "COMPLETED"
	CheckpointFailed     CheckpointStatus = "FAILED"
)

// CheckpointView is one checkpoint or savepoint.
type CheckpointView struct {
	ID          ids.CheckpointID
	Kind        snapshot.Kind
	Status      CheckpointStatus
	Reason      string // why it failed
	TriggeredAt time.Time
	Duration    time.Duration // from trigger to end; 0 while in progress
	Size        int64         // bytes of all files it refers to, of what is acknowledged
	Uploaded    int64         // of these, the bytes that were uploaded for it: its incremental size
	Acked       int
	Subtasks    int
	Path        string // of a completed one
	// Of the subtasks that have acknowledged: the longest alignment, the bytes of
	// records in flight (part of Size), and whether a barrier overtook any.
	Alignment    time.Duration
	ChannelBytes int64
	Unaligned    bool
}

// AckCounts counts acknowledgements by what became of them.
type AckCounts struct{ Accepted, Duplicate, Late, Unknown, Refused int64 }

// DroppedEvents counts the events that no longer applied when they came.
type DroppedEvents struct {
	// StaleAttempt: of another attempt than the current one.
	StaleAttempt int64
	// StaleToken: answers to what another leadership did.
	StaleToken int64
	// OutOfPlace: of this attempt and leadership, but nothing waits for them (any more).
	OutOfPlace int64
}

const (
	// eventsMax bounds the events shown: a few screens. Older ones are in the log.
	eventsMax = 100
	// checkpointsMax bounds the ended checkpoints shown. At an interval of a
	// second they reach half a minute back.
	checkpointsMax = 32
)

// ring keeps the newest values up to a bound.
type ring[T any] struct {
	values []T
	next   int
}

func (r *ring[T]) add(v T, limit int) {
	if len(r.values) < limit {
		r.values = append(r.values, v)
		return
	}
	r.values[r.next] = v
	r.next = (r.next + 1) % limit
}

// all lists the values, oldest first.
func (r *ring[T]) all() []T {
	return append(slices.Clone(r.values[r.next:]), r.values[:r.next]...)
}

// shown holds the parts of a Status that rarely change, so that a driver may
// take one after every event. A part is nil when it has changed.
type shown struct {
	subtasks  []SubtaskView
	executors []ExecutorView
	events    []EventView
}

// show makes anew what has changed.
func (c *Coordinator) show() {
	if c.shown.events == nil {
		c.shown.events = c.events.all()
	}
	if c.shown.subtasks != nil {
		return
	}
	c.shown.subtasks = make([]SubtaskView, c.layout.total())
	for i := range c.shown.subtasks {
		c.shown.subtasks[i].Subtask = c.layout.subtasks[i]
		if c.attempt.isPlaced() {
			c.shown.subtasks[i].Status = c.attempt.status[i]
			c.shown.subtasks[i].TaskManager = c.attempt.executorOf(i).id.TaskManager
		}
	}
	c.shown.executors = nil
	for _, x := range c.attempt.executors {
		c.shown.executors = append(c.shown.executors, ExecutorView{TaskManager: x.id.TaskManager, DataAddress: x.address, Slots: x.slots})
	}
}

// attemptChanged makes the next Status show the attempt anew.
func (c *Coordinator) attemptChanged() { c.shown.subtasks = nil }

// Status returns what users may see. It is cheap enough to be taken after
// every event.
func (c *Coordinator) Status() Status {
	s := Status{
		Job:       c.cfg.Job,
		Name:      c.cfg.JobName,
		Status:    c.status,
		Detail:    c.detail,
		Attempt:   c.attempt.id,
		Restarts:  c.record.desired.Restarts,
		Restored:  c.restored.ref,
		Latest:    c.record.desired.Latest,
		StartedAt: c.record.desired.StartedAt,
		EndedAt:   c.record.desired.EndedAt,
		Completed: c.completed,
		Aborted:   c.aborted,
		Acks:      c.acks,
		Dropped:   c.dropped,
	}
	if cause := c.record.desired.Cause; cause != nil {
		copied := *cause
		s.Cause = &copied
	}
	c.show()
	s.Subtasks, s.Executors, s.Events = c.shown.subtasks, c.shown.executors, c.shown.events
	for _, p := range c.pending {
		s.Checkpoints = append(s.Checkpoints, p.view(c.layout.total()))
	}
	s.Checkpoints = append(s.Checkpoints, c.history.all()...)
	slices.SortStableFunc(s.Checkpoints, func(a, b CheckpointView) int {
		switch {
		case a.ID > b.ID:
			return -1
		case a.ID < b.ID:
			return 1
		}
		return 0
	})
	return s
}

// note adds to the events that users see.
func (c *Coordinator) note(now time.Time, text string) {
	c.events.add(EventView{At: now, Text: text}, eventsMax)
	c.shown.events = nil
}

// setStatus moves the job on and notes it.
func (c *Coordinator) setStatus(now time.Time, s JobStatus) {
	if c.status == s {
		return
	}
	c.note(now, c.status.String()+" -> "+s.String())
	c.status = s
}
