package coordinator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

const testJob = ids.JobID("00000000000000000000000000000001")

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// testGraph is src =hash=> count -> out, with four subtasks: 0/0 0/1 1/0 1/1.
func testGraph(t testing.TB, parallelism int) graph.ExecutionGraph {
	t.Helper()
	g, err := graph.Expand(graph.JobGraph{
		Name: "test",
		Operators: []graph.Operator{
			{UID: "src", Kind: graph.SourceOperator, Bounded: true},
			{UID: "count", Kind: graph.ProcessOperator, KeyType: "string"},
			{UID: "out", Kind: graph.SinkOperator, TwoPhase: true},
		},
		Edges: []graph.Edge{
			{From: "src", To: "count", Partitioner: graph.Hash},
			{From: "count", To: "out", Partitioner: graph.Forward},
		},
	}, parallelism)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// testLoopGraph has a loop, and live => show beside it. Subtasks and edges are
//
//	in 0/0 =0=> loop 3/0 =1=> step 4/0 =3=> loop
//	                side 1/0 =2=> step
//	live 2/0 =4=> show 5/0
func testLoopGraph(t testing.TB) graph.ExecutionGraph {
	t.Helper()
	g, err := graph.Expand(graph.JobGraph{
		Name: "loop",
		Operators: []graph.Operator{
			{UID: "in", Kind: graph.SourceOperator, Bounded: true},
			{UID: "side", Kind: graph.SourceOperator, Bounded: true},
			{UID: "live", Kind: graph.SourceOperator},
			{UID: "loop", Kind: graph.IterateOperator, KeyType: "string"},
			{UID: "step", Kind: graph.ProcessOperator, KeyType: "string"},
			{UID: "show", Kind: graph.ProcessOperator, KeyType: "string"},
		},
		Edges: []graph.Edge{
			{From: "in", To: "loop", Partitioner: graph.Hash},
			{From: "loop", To: "step", Partitioner: graph.Hash},
			{From: "side", To: "step", Partitioner: graph.Hash},
			{From: "step", To: "loop", Partitioner: graph.Hash, Feedback: true},
			{From: "live", To: "show", Partitioner: graph.Hash},
		},
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// testConfig has round numbers and no jitter.
func testConfig() Config {
	return Config{
		Job: testJob, JobName: "test",
		Checkpointing: CheckpointConfig{Interval: 10 * time.Second, Timeout: time.Minute, TolerableFailures: -1, Retained: 2},
		Restart: RestartConfig{
			Strategy: ExponentialDelay, Attempts: 3, StableAfter: time.Minute,
			Backoff: Backoff{Initial: time.Second, Max: time.Minute, Multiplier: 1.5},
		},
		SlotRequestTimeout: 5 * time.Minute, CancellationTimeout: 30 * time.Second, LaunchTimeout: 2 * time.Minute,
	}
}

// scene plays scripts against a coordinator and remembers what a store would.
type scene struct {
	t     *testing.T
	cfg   Config
	graph graph.ExecutionGraph
	c     *Coordinator
	now   time.Time
	out   strings.Builder
	auto  bool // writes of the record succeed at once
	// history prints RecordHistory too. Every ended checkpoint has one, so that
	// scripts of other things leave it out.
	history bool

	durable   Record // the stored record
	metadata  map[ids.CheckpointID]*snapshot.CompletedCheckpoint
	revision  uint64
	updates   map[uint64]Record
	published map[ids.CheckpointID]Record
	loading   CheckpointRef
	verifying VerifyState
	request   RequestID
}

// TestScripts plays the transcripts in testdata; scene.command has the commands.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scene{
			t: t, now: epoch,
			durable:  Record{Status: Created},
			metadata: map[ids.CheckpointID]*snapshot.CompletedCheckpoint{}, updates: map[uint64]Record{}, published: map[ids.CheckpointID]Record{},
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			s.out.Reset()
			s.command(d)
			if s.out.Len() == 0 {
				return "no effects\n"
			}
			return s.out.String()
		})
	})
}

// step gives the coordinator an event and prints the effects.
func (s *scene) step(ev Event) {
	for _, e := range s.c.Step(s.now, ev) {
		if _, isHistory := e.(RecordHistory); !isHistory || s.history {
			fmt.Fprintln(&s.out, e)
		}
		switch e := e.(type) {
		case UpdateRecord:
			s.revision = e.Revision
			s.updates[e.Revision] = e.Record
			if s.auto {
				defer s.recordUpdated(e.Token, e.Revision)
			}
		case PublishCheckpoint:
			s.published[e.Checkpoint] = e.Record
		case PersistMetadata:
			s.metadata[e.Checkpoint.ID] = e.Checkpoint
		case LoadCheckpoint:
			s.loading = e.Ref
		case VerifyState:
			s.verifying = e
		}
	}
}

func (s *scene) recordUpdated(token ids.FencingToken, revision uint64) {
	if r, ok := s.updates[revision]; ok {
		s.durable = r
	}
	s.step(RecordUpdated{Token: token, Revision: revision})
}

// args reads the arguments of a command.
type args struct {
	s *scene
	d *datadriven.TestData
}

func (a args) text(key, otherwise string) string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key {
			return strings.Join(arg.Vals, ",")
		}
	}
	return otherwise
}

func (a args) flag(key string) bool { return a.d.HasArg(key) }

func (a args) number(key string, otherwise int) int {
	n, err := strconv.Atoi(a.text(key, strconv.Itoa(otherwise)))
	if err != nil {
		a.s.t.Fatal(err)
	}
	return n
}

func (a args) duration(key string, otherwise time.Duration) time.Duration {
	d, err := time.ParseDuration(a.text(key, otherwise.String()))
	if err != nil {
		a.s.t.Fatal(err)
	}
	return d
}

func (a args) attempt() ids.AttemptID {
	id, err := ids.ParseAttemptID(a.text("attempt", a.s.c.attempt.id.String()))
	if err != nil {
		a.s.t.Fatal(err)
	}
	return id
}

func (a args) executor() ids.ExecutorID {
	return ids.ExecutorID{Job: testJob, Attempt: a.attempt(), TaskManager: ids.TaskManagerID(a.text("tm", "tm-1"))}
}

func (a args) token() ids.FencingToken { return ids.FencingToken(a.number("token", int(a.s.c.token))) }

func (a args) checkpoint() ids.CheckpointID { return ids.CheckpointID(a.number("c", 1)) }

// subtasks reads a list as in 0/0,1/1, or all.
func (a args) subtasks() []ids.SubtaskID {
	list := a.text("of", "all")
	if list == "all" {
		return a.s.graph.Subtasks()
	}
	var out []ids.SubtaskID
	for _, name := range strings.Split(list, ",") {
		var id ids.SubtaskID
		if _, err := fmt.Sscanf(name, "%d/%d", &id.Vertex, &id.Index); err != nil {
			a.s.t.Fatal(err)
		}
		out = append(out, id)
	}
	return out
}

func (a args) failure() Failure {
	kinds := map[string]FailureKind{"lost": LostProcess, "user": UserFailure, "corrupt": CorruptCheckpoint, "permanent": PermanentFailure}
	return Failure{Kind: kinds[a.text("kind", "")], Message: a.text("reason", "boom")}
}

// stats reads what a subtask measured: [alignment=] [sync=] [async=] [processed=] [persisted=] [overtook].
func (a args) stats() snapshot.SubtaskStats {
	return snapshot.SubtaskStats{
		Alignment: a.duration("alignment", 0), Sync: a.duration("sync", 0), Async: a.duration("async", 0),
		ProcessedBytes: int64(a.number("processed", 0)), PersistedBytes: int64(a.number("persisted", 0)), Unaligned: a.flag("overtook"),
	}
}

// loadFailure is of a read that failed, unless it is corrupt or permanent.
func (a args) loadFailure() FailureKind {
	switch {
	case a.flag("corrupt"):
		return CorruptCheckpoint
	case a.flag("permanent"):
		return PermanentFailure
	}
	return LostProcess
}

func (s *scene) command(d *datadriven.TestData) {
	a := args{s, d}
	s.now = epoch.Add(a.duration("t", s.now.Sub(epoch)))
	switch d.Cmd {
	case "job": // job [auto] [fresh] [parallelism=] [loop] [interval=] … : a coordinator over the stored record, or over a new one
		s.newJob(a)
	case "boot": // boot [tms=tm-1,tm-2]: everything up to RUNNING, without a transcript
		s.boot(a)
	case "tick": // tick t=: time passes to t; without t to the next deadline
		if !a.flag("t") {
			at, ok := s.c.NextDeadline()
			if !ok {
				s.t.Fatal("no deadline")
			}
			if at.After(s.now) {
				s.now = at
			}
			fmt.Fprintf(&s.out, "at %s\n", s.now.Sub(epoch))
		}
		s.step(DeadlinePassed{})
	case "claimed":
		s.step(JobClaimed{Token: ids.FencingToken(a.number("token", 1)), Record: s.durable})
	case "claim-failed":
		s.step(JobClaimFailed{Reason: a.text("reason", "503")})
	case "loaded":
		s.step(s.loaded(a))
	case "load-failed":
		s.step(CheckpointLoadFailed{Token: a.token(), Ref: s.loading, Reason: a.text("reason", "503"), Kind: a.loadFailure()})
	case "verified":
		s.step(StateVerified{Token: a.token(), Ref: s.verifying.Ref})
	case "verify-failed":
		s.step(StateVerifyFailed{Token: a.token(), Ref: s.verifying.Ref, Reason: a.text("reason", "503"), Kind: a.loadFailure()})
	case "slots": // slots tms=: one slot on each TaskManager named
		s.step(SlotsGranted{Attempt: a.attempt(), Slots: slotsOn(a.text("tms", "tm-1,tm-2"))})
	case "short":
		s.step(SlotsShort{Attempt: a.attempt(), Want: a.number("want", 0), Free: a.number("free", 0)})
	case "ready":
		s.step(ExecutorReady{Executor: a.executor(), DataAddress: "host:1"})
	case "executor-lost":
		s.step(ExecutorLost{Executor: a.executor(), Failure: a.failure()})
	case "taskmanager-lost":
		s.step(TaskManagerLost{TaskManager: a.executor().TaskManager, Reason: a.text("reason", "stream broke")})
	case "task":
		for _, id := range a.subtasks() {
			s.step(TaskStatusChanged{Attempt: a.attempt(), Subtask: id, Status: statusNamed(a.text("is", "")), Failure: a.failure()})
		}
	case "splits": // splits data=a,b [complete]
		var list []snapshot.Split
		for _, x := range strings.Split(a.text("data", ""), ",") {
			list = append(list, snapshot.Split{Data: []byte(x)})
		}
		s.step(SplitsDiscovered{Attempt: a.attempt(), Operator: "src", Splits: list, Complete: a.flag("complete")})
	case "ack": // ack c= [of=] [file=] [shared=] [ended] [loop-empty] [in-flight= [edge=]] [alignment=] …
		for _, id := range a.subtasks() {
			s.step(CheckpointAcked{Attempt: a.attempt(), Checkpoint: a.checkpoint(), State: s.state(a, id), Stats: a.stats()})
		}
	case "decline":
		for _, id := range a.subtasks() {
			s.step(CheckpointDeclined{Attempt: a.attempt(), Checkpoint: a.checkpoint(), Subtask: id, Reason: a.text("reason", "disk full")})
		}
	case "persisted":
		s.step(MetadataPersisted{Token: a.token(), Checkpoint: a.checkpoint(), URI: fmt.Sprintf("chk-%d", a.checkpoint())})
	case "persist-failed":
		s.step(MetadataPersistFailed{Token: a.token(), Checkpoint: a.checkpoint(), Reason: a.text("reason", "503")})
	case "published":
		s.durable = s.published[a.checkpoint()]
		s.step(CheckpointPublished{Token: a.token(), Checkpoint: a.checkpoint()})
	case "publish-failed":
		s.step(PublishFailed{Token: a.token(), Checkpoint: a.checkpoint(), Reason: a.text("reason", "503")})
	case "complete": // complete c=: acknowledged, persisted and published
		for _, id := range s.graph.Subtasks() {
			s.step(CheckpointAcked{Attempt: a.attempt(), Checkpoint: a.checkpoint(), State: s.state(a, id)})
		}
		s.step(MetadataPersisted{Token: a.token(), Checkpoint: a.checkpoint(), URI: fmt.Sprintf("chk-%d", a.checkpoint())})
		s.durable = s.published[a.checkpoint()]
		s.step(CheckpointPublished{Token: a.token(), Checkpoint: a.checkpoint()})
	case "recorded":
		s.recordUpdated(a.token(), uint64(a.number("revision", int(s.revision))))
	case "commit":
		for _, id := range a.subtasks() {
			s.step(CommitAcked{Attempt: a.attempt(), Checkpoint: a.checkpoint(), Subtask: id})
		}
	case "savepoint", "stop":
		s.request++
		s.step(SavepointRequested{Request: s.request, Dir: a.text("dir", "sp"), Stop: d.Cmd == "stop", Drain: a.flag("drain")})
	case "checkpoint":
		s.request++
		s.step(CheckpointRequested{Request: s.request})
	case "cancel":
		s.request++
		s.step(CancelRequested{Request: s.request})
	case "fenced":
		s.step(Fenced{Token: a.token()})
	case "lost-write": // the durable record has the publication although nobody has heard of it
		s.durable = s.published[a.checkpoint()]
	case "status":
		s.printStatus(a)
	default:
		s.t.Fatalf("unknown command %s", d.Cmd)
	}
}

func (s *scene) newJob(a args) {
	s.auto, s.history = a.flag("auto"), a.flag("history")
	if a.flag("fresh") {
		s.durable = Record{Status: Created}
	}
	s.cfg = testConfig()
	k, r := &s.cfg.Checkpointing, &s.cfg.Restart
	k.Interval = a.duration("interval", k.Interval)
	k.Timeout = a.duration("timeout", k.Timeout)
	k.MinPause = a.duration("min-pause", 0)
	k.TolerableFailures = a.number("tolerable", -1)
	k.Retained = a.number("retained", 2)
	k.MaxConcurrent = a.number("max-concurrent", 1)
	if a.flag("at-least-once") {
		k.Mode = AtLeastOnce
	}
	k.Unaligned, k.AlignedTimeout = a.flag("unaligned"), a.duration("aligned-timeout", 0)
	k.Retention = map[string]Retention{"": 0, "retain": RetainOnCancellation, "never": NoExternalizedCheckpoints}[a.text("retention", "")]
	r.Strategy = map[string]RestartStrategy{"": ExponentialDelay, "none": NoRestart, "fixed-delay": FixedDelay}[a.text("strategy", "")]
	r.FixedAttempts, r.FixedDelay = a.number("fixed-attempts", 0), a.duration("fixed-delay", 0)
	s.cfg.RestoreFrom, s.cfg.AllowNonRestoredState = a.text("restore-from", ""), a.flag("allow-non-restored")
	s.cfg.ClaimRestored = a.flag("claim")
	s.cfg.AllowDuplicates = a.flag("allow-duplicates")
	k.Incremental = a.flag("incremental")
	s.graph = testGraph(s.t, a.number("parallelism", 2))
	if a.flag("loop") {
		s.graph = testLoopGraph(s.t)
	}
	for i := range s.graph.Job.Operators {
		s.graph.Job.Operators[i].CommitsRevocable = s.graph.Job.Operators[i].TwoPhase && a.flag("revocable")
	}
	s.c = New(s.cfg, s.graph)
	s.step(DeadlinePassed{})
}

// boot takes the job to RUNNING. What it prints is thrown away: scripts that
// are about the way there walk it themselves.
func (s *scene) boot(a args) {
	auto := s.auto
	s.auto = true
	defer func() {
		s.auto = auto
		s.out.Reset()
		fmt.Fprintf(&s.out, "%s attempt=%s\n", s.c.Status().Status, s.c.attempt.id)
	}()
	if s.c.phase == phaseClaim {
		s.step(JobClaimed{Token: ids.FencingToken(a.number("token", 1)), Record: s.durable})
	}
	if s.c.record.updating {
		s.recordUpdated(s.c.token, s.revision)
	}
	for s.c.phase == phaseLoad {
		s.step(s.loaded(a))
	}
	s.step(SlotsGranted{Attempt: s.c.attempt.id, Slots: slotsOn(a.text("tms", "tm-1,tm-2"))})
	for _, x := range s.c.Status().Executors {
		s.step(ExecutorReady{Executor: ids.ExecutorID{Job: testJob, Attempt: s.c.attempt.id, TaskManager: x.TaskManager}, DataAddress: "host:1"})
	}
	for _, id := range s.graph.Subtasks() {
		s.step(TaskStatusChanged{Attempt: s.c.attempt.id, Subtask: id, Status: Running})
	}
}

func slotsOn(list string) []Slot {
	used := map[ids.TaskManagerID]int32{}
	var out []Slot
	for _, name := range strings.Split(list, ",") {
		tm := ids.TaskManagerID(name)
		out = append(out, Slot{TaskManager: tm, Index: used[tm]})
		used[tm]++
	}
	return out
}

func statusNamed(word string) TaskStatus {
	for s := Deploying; s <= Failed; s++ {
		if strings.EqualFold(s.String(), word) {
			return s
		}
	}
	panic("no task status " + word)
}

// loaded answers the last LoadCheckpoint with what was persisted under its ID
// or that of from=, or with the metadata of a foreign savepoint: loaded id=7.
func (s *scene) loaded(a args) CheckpointLoaded {
	cc, ok := s.metadata[ids.CheckpointID(a.number("from", int(s.loading.ID)))]
	if !ok {
		cc = &snapshot.CompletedCheckpoint{
			Job: "ffffffffffffffffffffffffffffffff", ID: ids.CheckpointID(a.number("id", 7)), Kind: snapshot.Savepoint,
			Operators: []snapshot.OperatorState{{
				UID: ids.OperatorUID(a.text("uid", "count")), Parallelism: 1, MaxParallelism: 128,
				Subtasks: []snapshot.OperatorSubtaskState{{Lists: []snapshot.OperatorStateHandle{
					{Name: "l", Redistribution: snapshot.Union, Handle: snapshot.StateHandle{Name: "old", Size: 1}, Elements: []int64{1}},
				}}},
			}},
		}
	}
	return CheckpointLoaded{Token: a.token(), Ref: s.loading, Base: "base", Checkpoint: cc}
}

// state is what a subtask acknowledges: one file, named f<checkpoint>-<subtask>
// unless file= says otherwise, and for subtask 1/0 those of shared=x,y@3: x was
// uploaded for this checkpoint, y for checkpoint 3.
func (s *scene) state(a args, id ids.SubtaskID) snapshot.SubtaskState {
	uid := s.graph.Vertices[id.Vertex].Chain[0]
	name := a.text("file", fmt.Sprintf("f%d-%s", a.checkpoint(), id))
	state := snapshot.OperatorSubtaskState{
		UID: uid,
		Lists: []snapshot.OperatorStateHandle{{
			Name: "l", Redistribution: snapshot.SplitEvenly, Handle: snapshot.StateHandle{Name: name, Size: 10}, Elements: []int64{10},
		}},
	}
	if shared := a.text("shared", ""); shared != "" && id == (ids.SubtaskID{Vertex: 1}) {
		for _, one := range strings.Split(shared, ",") {
			file, since, isOld := strings.Cut(one, "@")
			h := snapshot.StateHandle{Name: "shared/" + file, Size: 100, SharedSince: a.checkpoint()}
			if isOld {
				n, err := strconv.Atoi(since)
				if err != nil {
					s.t.Fatal(err)
				}
				h.SharedSince = ids.CheckpointID(n)
			}
			state.Lists = append(state.Lists, snapshot.OperatorStateHandle{
				Name: "s-" + file, Redistribution: snapshot.SplitEvenly, Handle: h, Elements: []int64{100},
			})
		}
	}
	out := snapshot.SubtaskState{
		Subtask: id, EndOfData: a.flag("ended"), LoopIsEmpty: a.flag("loop-empty"), Operators: []snapshot.OperatorSubtaskState{state},
	}
	if n := a.number("in-flight", 0); n > 0 {
		in := snapshot.InFlight{Handle: snapshot.StateHandle{Name: name + "-in-flight", Size: int64(n)}}
		if a.flag("edge") {
			in.Parts = []snapshot.ChannelPart{{Edge: a.number("edge", 0), Length: int64(n)}}
		}
		out.InFlight = []snapshot.InFlight{in}
	}
	return out
}

func (s *scene) printStatus(a args) {
	st := s.c.Status()
	fmt.Fprintf(&s.out, "%s restarts=%d restored=%d latest=%d", st.Status, st.Restarts, st.Restored.ID, st.Latest.ID)
	if st.Detail != "" {
		fmt.Fprintf(&s.out, " detail=%q", st.Detail)
	}
	if st.Cause != nil {
		fmt.Fprintf(&s.out, " cause=%q", st.Cause.Message)
	}
	fmt.Fprintln(&s.out)
	if a.flag("counts") {
		fmt.Fprintf(&s.out, "acks %+v dropped %+v completed=%d aborted=%d\n", st.Acks, st.Dropped, st.Completed, st.Aborted)
	}
	if a.flag("checkpoints") {
		for _, k := range st.Checkpoints {
			size := fmt.Sprint(k.Size)
			if k.Uploaded != k.Size {
				size += fmt.Sprintf(" uploaded=%d", k.Uploaded)
			}
			if k.Alignment > 0 || k.ChannelBytes > 0 || k.Unaligned {
				size += fmt.Sprintf(" alignment=%s channels=%d unaligned=%t", k.Alignment, k.ChannelBytes, k.Unaligned)
			}
			fmt.Fprintf(&s.out, "%d %s %s %d/%d size=%s took=%s %s\n", k.ID, k.Kind, k.Status, k.Acked, k.Subtasks, size, k.Duration, k.Reason)
		}
	}
	if a.flag("tasks") {
		for _, k := range st.Subtasks {
			fmt.Fprintf(&s.out, "%s %s on %s\n", k.Subtask, k.Status, k.TaskManager)
		}
	}
	if a.flag("events") {
		for _, e := range st.Events {
			fmt.Fprintf(&s.out, "%s %s\n", e.At.Sub(epoch), e.Text)
		}
	}
	if at, ok := s.c.NextDeadline(); ok && a.flag("deadline") {
		fmt.Fprintf(&s.out, "next deadline %s\n", at.Sub(epoch))
	}
}

// A copy of the status does not change with the coordinator.
func TestStatusIsACopy(t *testing.T) {
	c := New(testConfig(), testGraph(t, 2))
	c.Step(epoch, DeadlinePassed{})
	before := c.Status()
	c.Step(epoch, JobClaimed{Token: 1, Record: Record{Status: Created}})
	c.Step(epoch, SlotsGranted{Attempt: c.attempt.id, Slots: slotsOn("a,b")})
	if slices.ContainsFunc(before.Subtasks, func(s SubtaskView) bool { return s.TaskManager != "" }) {
		t.Fatal("a copy has changed")
	}
}
