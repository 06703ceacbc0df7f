package coordinator

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/coordinator/schedule"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// attempt is one execution of all subtasks.
type attempt struct {
	id        ids.AttemptID
	executors []*executor // by their first slot
	// The rest is by number of subtask, and there once slots are granted.
	placement []int // position in executors
	// slotOwners is the TaskManager of each slot, by number of the subtasks in it.
	slotOwners []ids.TaskManagerID
	status     []TaskStatus
	counts     [Failed + 1]int // subtasks by status
	committed  []ids.CheckpointID
	// awaited is the stop savepoint or final checkpoint whose commits end the
	// job; commitsAwaited how many are outstanding.
	awaited        ids.CheckpointID
	commitsAwaited int

	left         bool // its executors were told to stop, its slots released
	deployed     bool
	finishing    bool // FinishTasks was sent
	runningSince time.Time
	checkpointed bool // has published one
	loops        loops
}

// executor is one executor of the attempt.
type executor struct {
	id       ids.ExecutorID
	slots    int
	address  string
	ready    bool
	lost     bool
	subtasks []ids.SubtaskID
	sources  []ids.SubtaskID
}

func (a *attempt) isPlaced() bool { return len(a.placement) > 0 }

func (a *attempt) executorOf(i int) *executor { return a.executors[a.placement[i]] }

// active is the number of tasks that are up.
func (a *attempt) active() int {
	return a.counts[Running] + a.counts[RunningInputEnded] + a.counts[RunningEndOfData]
}

// isQuiet reports whether nothing of the attempt runs any more.
func (a *attempt) isQuiet() bool {
	if !a.deployed {
		return true
	}
	for i, s := range a.status {
		if !s.hasEnded() && !a.executorOf(i).lost {
			return false
		}
	}
	return true
}

func (a *attempt) find(tm ids.TaskManagerID) *executor {
	for _, x := range a.executors {
		if x.id.TaskManager == tm {
			return x
		}
	}
	return nil
}

// requestSlots begins the deployment of the attempt.
func (c *Coordinator) requestSlots(now time.Time) {
	invariant.Check(c.restored.ref.ID != 0 || c.record.desired.Latest.ID == 0 && c.cfg.RestoreFrom == "", "I9",
		"attempt %s starts from nothing although there is something to restore", c.attempt.id)
	if c.nextID >= c.record.blockEnd {
		c.reserveIDs()
	}
	c.phase = phaseSlots
	n := c.graph.LargestParallelism()
	c.detail = fmt.Sprintf("waiting for %d slots", n)
	c.timers.set(timerSlots, now.Add(c.cfg.SlotRequestTimeout))
	c.emit(RequestSlots{Attempt: c.attempt.id, Count: n, Avoid: slices.Clone(c.distrusted)})
}

func (c *Coordinator) onSlotsShort(e SlotsShort) {
	if c.phase != phaseSlots {
		c.dropped.OutOfPlace++
		return
	}
	c.detail = fmt.Sprintf("waiting for %d slots, %d free", e.Want, e.Free)
}

// onSlotsTimeout fails a job that has never run. One that has run had its
// slots once: it treats the lack as one more lost process.
func (c *Coordinator) onSlotsTimeout(now time.Time) {
	message := fmt.Sprintf("not enough slots within %s: %s; start TaskManagers, or lower the parallelism",
		c.cfg.SlotRequestTimeout, c.detail)
	if c.record.desired.StartedAt.IsZero() {
		c.failForGood(now, permanent("%s", message))
		return
	}
	c.failover(now, Failure{Kind: LostProcess, Message: message})
}

// onSlotsGranted launches an executor on every TaskManager that has slots of ours.
func (c *Coordinator) onSlotsGranted(now time.Time, e SlotsGranted) {
	n := c.graph.LargestParallelism()
	if c.phase != phaseSlots {
		c.dropped.OutOfPlace++
		return
	}
	invariant.Check(len(e.Slots) == n, "I7", "attempt %s asked for %d slots and got %d", e.Attempt, n, len(e.Slots))
	c.timers.clear(timerSlots)
	c.place(schedule.Place(e.Slots, c.ranOn))
	c.phase = phaseLaunch
	c.timers.set(timerLaunch, now.Add(c.cfg.LaunchTimeout))
	for _, x := range c.attempt.executors {
		c.emit(LaunchExecutor{Executor: x.id, Slots: x.slots})
	}
	c.describeLaunch()
}

// place puts subtask i of every vertex into slot i (I7: every slot and every
// subtask once).
func (c *Coordinator) place(leased []Slot) {
	a := &c.attempt
	total := c.layout.total()
	a.placement = make([]int, total)
	a.status = make([]TaskStatus, total)
	a.committed = make([]ids.CheckpointID, total)
	c.attemptChanged()
	position := make(map[ids.TaskManagerID]int)
	seen := make(map[Slot]bool, len(leased))
	for i, slot := range leased {
		invariant.Check(!seen[slot], "I7", "slot %v is granted twice to attempt %s", slot, a.id)
		seen[slot] = true
		at, known := position[slot.TaskManager]
		if !known {
			at = len(a.executors)
			position[slot.TaskManager] = at
			a.executors = append(a.executors, &executor{
				id: ids.ExecutorID{Job: c.cfg.Job, Attempt: a.id, TaskManager: slot.TaskManager},
			})
		}
		x := a.executors[at]
		x.slots++
		a.slotOwners = append(a.slotOwners, slot.TaskManager)
		for v := range c.graph.Vertices {
			if i >= c.graph.Vertices[v].Parallelism {
				continue
			}
			a.placement[c.layout.first[v]+i] = at
			s := ids.SubtaskID{Vertex: ids.VertexID(v), Index: int32(i)}
			x.subtasks = append(x.subtasks, s)
			if c.graph.IsSource(s.Vertex) {
				x.sources = append(x.sources, s)
			}
		}
	}
}

func (c *Coordinator) describeLaunch() {
	ready := 0
	for _, x := range c.attempt.executors {
		if x.ready {
			ready++
		}
	}
	c.detail = fmt.Sprintf("waiting for %d executors, %d ready", len(c.attempt.executors), ready)
}

func (c *Coordinator) onExecutorReady(now time.Time, e ExecutorReady) {
	x := c.attempt.find(e.Executor.TaskManager)
	if c.phase != phaseLaunch || x == nil || x.ready {
		c.dropped.OutOfPlace++
		return
	}
	x.ready, x.address = true, e.DataAddress
	c.attemptChanged()
	for _, other := range c.attempt.executors {
		if !other.ready {
			c.describeLaunch()
			return
		}
	}
	c.timers.clear(timerLaunch)
	c.deploy(now)
}

func (c *Coordinator) onLaunchTimeout(now time.Time) {
	for _, x := range c.attempt.executors {
		if !x.ready {
			c.failover(now, Failure{Kind: LostProcess, Message: fmt.Sprintf(
				"the executor on TaskManager %s did not register within %s", x.id.TaskManager, c.cfg.LaunchTimeout)})
			return
		}
	}
}

// deploy tells every executor what it runs and from what state.
func (c *Coordinator) deploy(now time.Time) {
	a := &c.attempt
	plan := &Deployment{
		Attempt:            a.id,
		RestoredCheckpoint: c.restored.ref.ID,
		RestoreBase:        c.restored.base,
		Savepoints:         append([]ids.CheckpointID(nil), c.record.desired.Savepoints...),
		Suspended:          c.record.desired.StopSavepoint,
	}
	for _, x := range a.executors {
		plan.Peers = append(plan.Peers, Peer{TaskManager: x.id.TaskManager, DataAddress: x.address})
	}
	c.ranOn = a.slotOwners
	for i, s := range c.layout.subtasks {
		plan.Placements = append(plan.Placements, Placement{Subtask: s, Peer: a.placement[i]})
		a.status[i] = Deploying
	}
	a.counts[Deploying] = c.layout.total()
	stateOf := make(map[ids.OperatorUID]*snapshot.OperatorState, len(c.restored.states))
	for i := range c.restored.states {
		stateOf[c.restored.states[i].UID] = &c.restored.states[i]
	}
	for _, x := range a.executors {
		tasks := make([]TaskDeployment, len(x.subtasks))
		for i, s := range x.subtasks {
			tasks[i] = c.taskDeployment(s, stateOf)
		}
		c.emit(DeployTasks{Executor: x.id, Plan: plan, Tasks: tasks})
	}
	a.deployed = true
	c.attemptChanged()
	c.restored.states, c.restored.ended, c.restored.inFlight = nil, nil, nil
	c.phase = phaseDeploy
	c.detail = "restoring state"
	if c.restored.ref.ID == 0 {
		c.detail = "starting tasks"
	}
	c.note(now, fmt.Sprintf("attempt %s: %d tasks deployed on %d TaskManagers", a.id, c.layout.total(), len(a.executors)))
}

func (c *Coordinator) taskDeployment(s ids.SubtaskID, stateOf map[ids.OperatorUID]*snapshot.OperatorState) TaskDeployment {
	v := &c.graph.Vertices[s.Vertex]
	t := TaskDeployment{Subtask: s}
	for _, uid := range v.Chain {
		op := stateOf[uid]
		if op == nil {
			continue
		}
		invariant.Check(len(op.Subtasks) == v.Parallelism, "I7", "state of %q is for %d subtasks, not %d", uid, len(op.Subtasks), v.Parallelism)
		if st := op.Subtasks[s.Index]; len(st.Keyed) > 0 || len(st.Lists) > 0 {
			t.Restore = append(t.Restore, st)
		}
	}
	if f := c.restored.inFlight[s]; f != nil {
		t.InFlight, t.Watermarks = f.inFlight, f.watermarks
	}
	t.EndOfData = c.restored.isEnded(v.Chain[0], s.Index, c.restored.oldParallelism[v.Chain[0]], v.Parallelism)
	for _, src := range c.sources {
		if src.vertex == s.Vertex {
			assignment := src.assignment(s.Index, 0)
			assignment.List = s.Index == 0 && src.wantsListing()
			t.Splits = append(t.Splits, assignment)
		}
	}
	return t
}

// enterRunning: all tasks run.
func (c *Coordinator) enterRunning(now time.Time) {
	c.phase = phaseRun
	c.attempt.runningSince = now
	c.nextTrigger = now.Add(c.cfg.Checkpointing.Interval)
	c.lastEnd = time.Time{}
	c.finalFailures = 0
	c.timers.clear(timerFinal)
	c.detail = ""
	c.setStatus(now, RunningStatus)
	c.discardLeftovers()
	desired := &c.record.desired
	if desired.StartedAt.IsZero() {
		desired.StartedAt = now
	}
	desired.Status = RunningStatus
	c.record.update()
}

// advanceRunning starts what a running job is due: savepoints, its end,
// periodic checkpoints and those that look into loops.
func (c *Coordinator) advanceRunning(now time.Time) {
	a := &c.attempt
	switch {
	case a.finishing:
		if a.counts[Finished] == c.layout.total() {
			c.endJob(now, FinishedStatus)
		}
		return
	case c.record.desired.StopSavepoint && a.awaited == 0:
		// Deployed suspended: running means that all is committed.
		c.finishTasks()
		return
	case a.awaited != 0:
		// A savepoint that a user asked for before may still be under way.
		if a.commitsAwaited == 0 && len(c.pending) == 0 {
			c.finishTasks()
		}
		return
	}
	c.startSavepoints(now)
	if c.wantsFinal() {
		c.trigger(now, snapshot.FinalCheckpoint, savepointRequest{})
		return
	}
	c.startCheckpoint(now)
	c.checkLoops(now)
}

func (c *Coordinator) finishTasks() {
	c.attempt.finishing = true
	c.detail = "finishing"
	for _, x := range c.attempt.executors {
		c.emit(FinishTasks{Executor: x.id})
	}
}

func (c *Coordinator) onTaskStatusChanged(now time.Time, e TaskStatusChanged) {
	a := &c.attempt
	i, ok := c.layout.index(e.Subtask)
	if !ok || !a.deployed || e.Status > Failed || e.Status <= a.status[i] || a.status[i].hasEnded() ||
		!c.phase.hasAttempt() && c.phase != phaseCancel {
		c.dropped.OutOfPlace++
		return
	}
	a.counts[a.status[i]]--
	a.status[i] = e.Status
	a.counts[e.Status]++
	c.attemptChanged()
	if c.phase == phaseCancel {
		return
	}
	switch e.Status {
	case Failed:
		f := e.Failure
		if f.Kind == 0 {
			f.Kind = UserFailure
		}
		f.Message = c.describe(e.Subtask) + ": " + f.Message
		if f.Kind == CorruptCheckpoint {
			f = c.onStateCorrupt(e.Subtask, f)
		}
		c.failover(now, f)
	case Finished, Canceled:
		if e.Status == Finished && a.finishing {
			return
		}
		// A task ends when it is told to. One that ends by itself has lost
		// its way, and with it records.
		c.failover(now, Failure{Kind: LostProcess, Message: fmt.Sprintf("%s ended as %s without being told to", c.describe(e.Subtask), e.Status)})
	case Deploying, Initializing, Running, RunningInputEnded, RunningEndOfData:
	}
}

// onExecutorLost fails the attempt over, unless the executor was done.
func (c *Coordinator) onExecutorLost(now time.Time, tm ids.TaskManagerID, f Failure) {
	x := c.attempt.find(tm)
	if x == nil || x.lost || !c.phase.hasAttempt() && c.phase != phaseCancel {
		c.dropped.OutOfPlace++
		return
	}
	x.lost = true
	if c.phase == phaseCancel || c.attempt.finishing && c.isDone(x) {
		return
	}
	if f.Kind == 0 {
		f.Kind = LostProcess
	}
	if f.Kind == LostProcess {
		f.Message = fmt.Sprintf("executor on TaskManager %s: %s", tm, f.Message)
	}
	c.failover(now, f)
}

// isDone reports whether all tasks of the executor have finished.
func (c *Coordinator) isDone(x *executor) bool {
	for _, s := range x.subtasks {
		if i, _ := c.layout.index(s); c.attempt.status[i] != Finished {
			return false
		}
	}
	return true
}

func (c *Coordinator) onTaskManagerLost(now time.Time, e TaskManagerLost) {
	c.distrusted = slices.DeleteFunc(c.distrusted, func(tm ids.TaskManagerID) bool { return tm == e.TaskManager })
	if c.attempt.find(e.TaskManager) == nil {
		return // it runs nothing of ours: most losses are not this job's
	}
	c.onExecutorLost(now, e.TaskManager, Failure{Kind: LostProcess, Message: "TaskManager lost: " + e.Reason})
}
