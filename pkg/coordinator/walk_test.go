package coordinator

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/coordinator/slots"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// world is a cluster and a store for one job, that answers effects in any
// order, late, twice, or with failures. It checks from outside what must hold
// whatever happens.
type world struct {
	t     *testing.T
	seed  uint64
	r     *rand.Rand
	now   time.Time
	c     *Coordinator
	trace strings.Builder

	table    slots.Table
	managers int
	mail     []Event // what will be said to the coordinator
	said     []Event // what was: to be repeated
	calm     bool    // no more faults

	token     ids.FencingToken
	durable   Record
	inFlight  *Record // the write of the record under way
	metadata  map[ids.CheckpointID]*snapshot.CompletedCheckpoint
	persisted map[ids.CheckpointID]bool
	triggered ids.CheckpointID
	files     int
	open      map[RequestID]bool
	requests  RequestID
	ended     bool
	completed int
	shared    sharedStore
	drained   ids.AttemptID // its event time has been brought to its end
	reported  map[ids.CheckpointID]bool
	quiescent int // how often all was quiet, and no shared file too many
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 1)), now: epoch, durable: Record{Status: Created},
		metadata: map[ids.CheckpointID]*snapshot.CompletedCheckpoint{}, persisted: map[ids.CheckpointID]bool{},
		open: map[RequestID]bool{}, shared: sharedStore{files: map[string]sharedFile{}},
		reported: map[ids.CheckpointID]bool{},
	}
	for range 3 {
		w.register()
	}
	w.takeOver()
	return w
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	lines := strings.Split(w.trace.String(), "\n")
	w.t.Fatalf("seed %d: %s\nthe last steps:\n%s\nreplay: go test ./pkg/coordinator -run 'TestRandomWalk/%d$'",
		w.seed, fmt.Sprintf(format, args...), strings.Join(lines[max(0, len(lines)-60):], "\n"), w.seed)
}

func (w *world) register() {
	w.managers++
	w.notices(w.table.Register(ids.TaskManagerID(fmt.Sprint("tm-", w.managers)), 1))
}

// takeOver starts a new coordinator, as a JobManager does. A write that was
// under way may or may not have happened.
func (w *world) takeOver() {
	if w.inFlight != nil && w.r.IntN(2) == 0 {
		w.durable = *w.inFlight
	}
	w.inFlight = nil
	w.shared.deletions = nil
	w.token++
	w.open = map[RequestID]bool{}
	cfg := testConfig()
	cfg.Seed = w.seed
	cfg.Checkpointing.TolerableFailures = int(w.seed%3) - 1
	cfg.Restart.Attempts = 1000
	cfg.Checkpointing.Incremental = w.seed%7 != 0
	cfg.Checkpointing.MaxConcurrent = int(w.seed%4) + 1
	switch {
	case w.seed%5 == 0:
		cfg.Checkpointing.Mode = AtLeastOnce
	case cfg.Checkpointing.MaxConcurrent == 1:
		cfg.Checkpointing.Unaligned = true
		cfg.Checkpointing.AlignedTimeout = time.Duration(w.seed%3) * time.Second
	}
	cfg.Checkpointing.Retained = int(w.seed%3) + 1
	cfg.Checkpointing.Retention = []Retention{DeleteOnCancellation, RetainOnCancellation, NoExternalizedCheckpoints}[w.seed/2%3]
	w.c = New(cfg, testGraph(w.t, 3))
	w.mail = nil
	w.deliver(DeadlinePassed{})
}

func (w *world) notices(list []slots.Notice) {
	for _, n := range list {
		switch n := n.(type) {
		case slots.Grant:
			w.mail = append(w.mail, SlotsGranted{Attempt: n.Attempt, Slots: n.Slots})
		case slots.Shortage:
			w.mail = append(w.mail, SlotsShort{Attempt: n.Attempt, Want: n.Want, Free: n.Free})
		}
	}
	w.table.Check()
}

// chance is true once in n times while there are faults.
func (w *world) chance(n int) bool { return w.r.IntN(n) == 0 && !w.calm }

// deliver steps the coordinator and checks and answers the effects.
func (w *world) deliver(ev Event) {
	switch e := ev.(type) {
	case RecordUpdated:
		if w.inFlight != nil && e.Token == w.token && e.Revision == w.c.record.revision && w.c.record.updating {
			w.durable, w.inFlight = *w.inFlight, nil
		}
	case CheckpointPublished:
		if w.inFlight != nil && e.Token == w.token && w.inFlight.Latest.ID == e.Checkpoint {
			w.durable, w.inFlight = *w.inFlight, nil
		}
	case PublishFailed:
		if w.inFlight != nil && e.Token == w.token && w.inFlight.Latest.ID == e.Checkpoint {
			w.inFlight = nil
		}
	case MetadataPersisted:
		w.persisted[e.Checkpoint] = true
	}
	fmt.Fprintf(&w.trace, "%s > %T %+v\n", w.now.Sub(epoch), ev, brief(ev))
	switch ev.(type) {
	case SavepointRequested, CheckpointRequested, CancelRequested:
		// The shell numbers requests; none comes twice.
	default:
		w.said = append(w.said, ev)
	}
	effects := w.c.Step(w.now, ev)
	for _, e := range effects {
		fmt.Fprintf(&w.trace, "    %s\n", e)
		w.check(ev, e)
		w.delete(e)
		w.answer(e)
	}
	for w.ended && len(w.shared.deletions) > 0 {
		w.runDeletion()
	}
	if len(effects) > 0 || w.shared.changed { // otherwise nothing is needed that was not, nor gone that was there
		w.checkShared()
	}
	at, ok := w.c.NextDeadline()
	if ok && w.c.Status().Status.IsTerminal() {
		w.fail("a job that has ended waits for %s", at)
	}
	if _, fired := ev.(DeadlinePassed); fired && ok && !at.After(w.now) {
		w.fail("the deadline %s has passed and fires for ever", at)
	}
}

// brief leaves out what would fill the trace.
func brief(ev Event) any {
	switch e := ev.(type) {
	case CheckpointAcked:
		return fmt.Sprintf("%d of %s by %s", e.Checkpoint, e.State.Subtask, e.Attempt)
	case CheckpointLoaded:
		return e.Ref
	}
	return ev
}

// live reports whether a published checkpoint has a file of that name.
func (w *world) live(name string) bool {
	for _, ref := range append([]CheckpointRef{w.durable.Latest}, w.durable.Retained...) {
		found := false
		if cc := w.metadata[ref.ID]; cc != nil {
			cc.EachHandle(func(h snapshot.StateHandle) { found = found || h.Name == name })
		}
		if found {
			return true
		}
	}
	return false
}

// check holds one effect against the invariants.
func (w *world) check(cause Event, e Effect) {
	if w.ended {
		if _, ok := e.(Answer); !ok {
			w.fail("the job has ended, yet: %s", e)
		}
	}
	switch e := e.(type) {
	case NotifyComplete:
		p, ok := cause.(CheckpointPublished)
		if !ok || p.Checkpoint != e.Checkpoint || w.durable.Latest.ID != e.Checkpoint {
			w.fail("I3: %s while handling %T, the record's latest is %s", e, cause, w.durable.Latest)
		}
	case TriggerCheckpoint:
		id := e.Barrier.Checkpoint
		if w.drained == e.Executor.Attempt && !(id == w.triggered && e.Barrier.Drain) {
			w.fail("%s of an attempt that has no more data", e)
		}
		if e.Barrier.Drain {
			w.drained = e.Executor.Attempt
		}
		w.checkAlignment(e)
		if id < w.triggered || id >= w.durable.NextCheckpointBlock {
			w.fail("I6: %s after %d, reserved below %d", e, w.triggered, w.durable.NextCheckpointBlock)
		}
	case PublishCheckpoint:
		if !w.persisted[e.Checkpoint] {
			w.fail("I3: %s before its metadata is durable", e)
		}
		if e.Checkpoint <= w.durable.Latest.ID {
			w.fail("I6: %s after %s", e, w.durable.Latest)
		}
		w.write(e.Record)
	case UpdateRecord:
		if e.Record.Latest != w.durable.Latest {
			w.fail("I10: %s changes the latest checkpoint %s", e, w.durable.Latest)
		}
		if w.durable.Status.IsTerminal() {
			w.fail("%s after %s", e, w.durable.Status)
		}
		w.write(e.Record)
	case LoadCheckpoint:
		if e.Ref != w.durable.Latest || w.inFlight != nil && w.inFlight.Latest != w.durable.Latest {
			w.fail("I10: %s, the record's latest is %s", e, w.durable.Latest)
		}
	case DiscardHandles:
		for _, h := range e.Handles {
			if e.Dir == "" && w.live(h.Name) || w.inFlight != nil && w.inFlight.Latest.ID == e.Checkpoint {
				w.fail("I4: %s is needed", h.Name)
			}
		}
	case DiscardCheckpoint:
		if !w.durable.Status.IsTerminal() {
			for _, ref := range append([]CheckpointRef{w.durable.Latest}, w.durable.Retained...) {
				if ref == e.Ref {
					w.fail("I4: %s is retained", e)
				}
			}
		}
	case Answer:
		if !w.open[e.Request] {
			w.fail("%s: nobody waits", e)
		}
		delete(w.open, e.Request)
	case RecordHistory:
		w.checkReport(e.Report)
	case JobEnded:
		if !w.durable.Status.IsTerminal() || w.durable.Status != e.Status {
			w.fail("%s, the record says %s", e, w.durable.Status)
		}
		if len(w.open) > 0 {
			w.fail("%s without an answer to %v", e, w.open)
		}
		if total, free := w.table.Count(); free != total {
			w.fail("I7: %s with %d of %d slots free", e, free, total)
		}
		w.ended = true
	}
}

// checkReport: each checkpoint is reported once, and in a list it looks as the
// coordinator itself says.
func (w *world) checkReport(r *snapshot.CheckpointReport) {
	if w.reported[r.ID] {
		w.fail("checkpoint %d is reported twice", r.ID)
	}
	w.reported[r.ID] = true
	if view := ViewOf(r); !slices.Contains(w.c.history.all(), view) {
		w.fail("checkpoint %d is reported as %+v", r.ID, view)
	}
}

// checkAlignment: savepoints keep their place, and nobody overtakes them.
func (w *world) checkAlignment(e TriggerCheckpoint) {
	b, k := e.Barrier, w.c.cfg.Checkpointing
	mayOvertake := b.Alignment == element.Unaligned || b.AlignedTimeout > 0
	switch {
	case (b.Alignment == element.AtLeastOnce) != (k.Mode == AtLeastOnce):
		w.fail("%s in mode %d", e, k.Mode)
	case mayOvertake && (b.Savepoint || !k.Unaligned):
		w.fail("%s may overtake", e)
	case mayOvertake && w.c.hasSavepointBarriers():
		w.fail("%s may overtake a savepoint", e)
	}
}

func (w *world) write(r Record) {
	if w.inFlight != nil {
		w.fail("I10: a second write of the record is under way")
	}
	if r.NextCheckpointBlock < w.durable.NextCheckpointBlock {
		w.fail("I6: the reserved IDs shrink from %d to %d", w.durable.NextCheckpointBlock, r.NextCheckpointBlock)
	}
	w.inFlight = &r
}

// answer puts what an effect leads to into the mail.
func (w *world) answer(e Effect) {
	post := func(ev Event) { w.mail = append(w.mail, ev) }
	task := func(x ids.ExecutorID, status TaskStatus) {
		for i, s := range w.c.layout.subtasks {
			if w.c.attempt.isPlaced() && w.c.attempt.executorOf(i).id == x {
				post(TaskStatusChanged{Attempt: x.Attempt, Subtask: s, Status: status})
			}
		}
	}
	switch e := e.(type) {
	case ClaimJob:
		if w.chance(3) {
			post(JobClaimFailed{Reason: "503"})
			return
		}
		post(JobClaimed{Token: w.token, Record: w.durable.clone()})
	case LoadCheckpoint:
		if w.chance(3) {
			post(CheckpointLoadFailed{Token: e.Token, Ref: e.Ref, Reason: "503", Kind: LostProcess})
			return
		}
		post(CheckpointLoaded{Token: e.Token, Ref: e.Ref, Checkpoint: w.metadata[e.Ref.ID]})
	case VerifyState:
		if w.chance(3) {
			post(StateVerifyFailed{Token: e.Token, Ref: e.Ref, Reason: "503", Kind: LostProcess})
			return
		}
		post(StateVerified{Token: e.Token, Ref: e.Ref})
	case UpdateRecord:
		post(RecordUpdated{Token: e.Token, Revision: e.Revision})
	case PersistMetadata:
		w.metadata[e.Checkpoint.ID] = e.Checkpoint
		if w.chance(6) {
			post(MetadataPersistFailed{Token: e.Token, Checkpoint: e.Checkpoint.ID, Reason: "503"})
			return
		}
		post(MetadataPersisted{Token: e.Token, Checkpoint: e.Checkpoint.ID, URI: fmt.Sprint("chk-", e.Checkpoint.ID)})
	case PublishCheckpoint:
		if w.chance(6) {
			post(PublishFailed{Token: e.Token, Checkpoint: e.Checkpoint, Reason: "503"})
			return
		}
		w.completed++
		post(CheckpointPublished{Token: e.Token, Checkpoint: e.Checkpoint})
	case RequestSlots:
		w.notices(w.table.Request(testJob, e.Attempt, e.Count, e.Avoid...))
	case ReleaseSlots:
		w.notices(w.table.Release(testJob, e.Attempt))
	case LaunchExecutor:
		post(ExecutorReady{Executor: e.Executor, DataAddress: "host:1"})
	case DeployTasks:
		for _, t := range e.Tasks {
			post(TaskStatusChanged{Attempt: e.Plan.Attempt, Subtask: t.Subtask, Status: Initializing})
			post(TaskStatusChanged{Attempt: e.Plan.Attempt, Subtask: t.Subtask, Status: Running})
			for _, s := range t.Splits {
				if s.List {
					post(SplitsDiscovered{Attempt: e.Plan.Attempt, Operator: s.Operator, Splits: make([]snapshot.Split, 5), Complete: true})
				}
			}
		}
	case TriggerCheckpoint:
		id := e.Barrier.Checkpoint
		if id == w.triggered {
			return // the other executor's part of it
		}
		w.triggered = id
		for _, s := range w.c.layout.subtasks {
			if w.chance(40) {
				post(CheckpointDeclined{Attempt: e.Executor.Attempt, Checkpoint: id, Subtask: s, Reason: "disk full"})
				continue
			}
			var shared []snapshot.OperatorStateHandle
			if !e.Barrier.Savepoint {
				shared = w.upload(e.Executor.Attempt, id, e.Barrier.Base)
			}
			w.files++
			post(CheckpointAcked{Attempt: e.Executor.Attempt, Checkpoint: id, State: snapshot.SubtaskState{
				Subtask: s,
				Operators: []snapshot.OperatorSubtaskState{{UID: w.c.graph.Vertices[s.Vertex].Chain[0], Lists: append(shared, snapshot.OperatorStateHandle{
					Name: "l", Redistribution: snapshot.SplitEvenly, Elements: []int64{1},
					Handle: snapshot.StateHandle{Name: fmt.Sprint("file-", w.files), Size: 1},
				})}},
			}})
		}
	case NotifyComplete:
		for _, s := range w.c.layout.subtasks {
			post(CommitAcked{Attempt: e.Executor.Attempt, Checkpoint: e.Checkpoint, Subtask: s})
		}
	case FinishTasks:
		task(e.Executor, Finished)
	case CancelTasks:
		task(e.Executor, Canceled)
	case StopExecutor, AssignSplits, NotifyAborted, DiscardHandles, DiscardCheckpoint, RecordHistory, SweepAttempts, Answer, JobEnded, StepDown:
	}
}

// step does one random thing.
func (w *world) step() {
	if w.r.IntN(3) == 0 {
		w.runDeletion()
	}
	switch n := w.r.IntN(100); {
	case len(w.mail) > 0 && (n < 80 || w.calm):
		i := w.r.IntN(len(w.mail))
		ev := w.mail[i]
		w.mail = append(w.mail[:i], w.mail[i+1:]...)
		w.deliver(ev)
	case n < 88 || w.calm:
		if at, ok := w.c.NextDeadline(); ok && at.After(w.now) {
			w.now = at
		}
		w.deliver(DeadlinePassed{})
	case n < 92: // a repetition of anything, also of what an old leader was told
		ev := w.said[w.r.IntN(len(w.said))]
		if claimed, ok := ev.(JobClaimed); ok && claimed.Token != w.token {
			return // it comes from the driver that made the claim, and that is gone
		}
		w.deliver(ev)
	case n < 93 && w.r.IntN(4) == 0:
		w.loseTaskManager()
	case n < 94 && w.r.IntN(4) == 0:
		subtask := w.c.layout.subtasks[w.r.IntN(w.c.layout.total())]
		w.deliver(TaskStatusChanged{Attempt: w.c.attempt.id, Subtask: subtask, Status: Failed, Failure: Failure{Kind: UserFailure, Message: "boom"}})
	case n < 95 && w.c.phase == phaseDeploy && w.r.IntN(4) == 0: // a host that reads badly: what it says of a checkpoint is not believed
		subtask := w.c.layout.subtasks[w.r.IntN(w.c.layout.total())]
		w.deliver(TaskStatusChanged{Attempt: w.c.attempt.id, Subtask: subtask, Status: Failed, Failure: Failure{Kind: CorruptCheckpoint, Message: "checksum"}})
	case n < 96:
		w.request(func(id RequestID) Event { return SavepointRequested{Request: id, Dir: "sp"} })
	case n < 97 && w.r.IntN(2) == 0:
		w.request(func(id RequestID) Event { return CheckpointRequested{Request: id} })
	case n < 97 && w.r.IntN(4) == 0:
		w.request(func(id RequestID) Event {
			return SavepointRequested{Request: id, Dir: "sp", Stop: true, Drain: id%2 == 0}
		})
	case n < 98 && w.r.IntN(20) == 0:
		w.request(func(id RequestID) Event { return CancelRequested{Request: id} })
	case n < 99 && w.r.IntN(4) == 0 && !w.ended:
		w.takeOver()
	}
}

func (w *world) request(ev func(RequestID) Event) {
	w.requests++
	w.open[w.requests] = true
	w.deliver(ev(w.requests))
}

func (w *world) loseTaskManager() {
	all := w.table.TaskManagers()
	tm := all[w.r.IntN(len(all))].TaskManager
	w.notices(w.table.Lose(tm))
	w.deliver(TaskManagerLost{TaskManager: tm, Reason: "stream broke"})
	w.register()
}

// walk runs a world with faults, and then without until the job has ended.
func walk(t *testing.T, seed uint64) *world {
	w := newWorld(t, seed)
	for range 600 {
		w.step()
		if len(w.said) > 200 {
			w.said = w.said[100:]
		}
	}
	w.calm = true
	before := w.completed
	for range 3000 {
		if w.ended || w.completed > before+1 {
			break
		}
		w.step()
	}
	if !w.ended && w.completed <= before+1 {
		w.fail("without faults the job completes no checkpoint: %s, %s", w.c.Status().Status, w.c.Status().Detail)
	}
	if !w.ended && seed%2 == 0 {
		w.request(func(id RequestID) Event { return CancelRequested{Request: id} })
	}
	for range 4000 {
		if w.ended {
			break
		}
		if w.c.phase == phaseRun && seed%2 == 1 && len(w.mail) == 0 && w.c.attempt.counts[Running] > 0 {
			for _, s := range w.c.layout.subtasks {
				w.mail = append(w.mail, TaskStatusChanged{Attempt: w.c.attempt.id, Subtask: s, Status: RunningEndOfData})
			}
		}
		w.step()
	}
	if !w.ended {
		w.fail("the job does not end: %s, %s", w.c.Status().Status, w.c.Status().Detail)
	}
	return w
}

var walkSeeds = flag.Int("walk.seeds", 300, "how many seeds TestRandomWalk plays")

// Whatever comes in whatever order: no panic, I3, I4, I6, I7, I10 hold, every
// request is answered once, and once the faults stop the job makes progress and ends.
// Equal seeds give equal traces.
func TestRandomWalk(t *testing.T) {
	completed, restarts, quiescent := 0, 0, 0
	for seed := range uint64(*walkSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := walk(t, seed)
			completed += w.completed
			restarts += w.durable.Restarts
			quiescent += w.quiescent
			if seed%10 == 0 && walk(t, seed).trace.String() != w.trace.String() {
				t.Fatalf("seed %d gave two traces", seed)
			}
		})
	}
	if completed == 0 || restarts == 0 || quiescent == 0 {
		t.Fatalf("the walks tell nothing: %d checkpoints, %d restarts, quiet %d times", completed, restarts, quiescent)
	}
	t.Logf("%d checkpoints published, %d restarts, quiet %d times", completed, restarts, quiescent)
}
