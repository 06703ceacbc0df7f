package executor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/memory"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/runtime/executor"
	"github.com/weirstream/weir/pkg/transport"
)

const job = ids.JobID("0123456789abcdef0123456789abcdef")

var attempt = ids.AttemptID{Token: 2, Number: 1}

// jobManager is a JobManager whose decisions the test makes.
type jobManager struct {
	network *transport.InProcess
	server  *transport.Server

	mu       sync.Mutex
	sessions map[ids.TaskManagerID]transport.ExecutorSession
	address  map[ids.TaskManagerID]string
	reports  []*pb.ExecutorReport
	metrics  map[ids.SubtaskID]*pb.SubtaskMetrics // the latest of each
	hellos   int
	refuse   string // the reason for refusing further hellos
	mute     bool   // do not answer heartbeats
	dir      string // of the executor, if it needs one
	// amend, if not nil, changes what is deployed to an executor.
	amend func(*pb.DeployTasks)
	// changed, if not nil, gets a token for each hello and report, or is full.
	changed chan<- struct{}
}

// notify tells whoever waits for a change. The caller has the lock.
func (j *jobManager) notify() {
	select {
	case j.changed <- struct{}{}:
	default:
	}
}

func newJobManager(t *testing.T) *jobManager {
	t.Helper()
	j := &jobManager{network: &transport.InProcess{}, metrics: map[ids.SubtaskID]*pb.SubtaskMetrics{},
		sessions: map[ids.TaskManagerID]transport.ExecutorSession{}, address: map[ids.TaskManagerID]string{}}
	l, err := j.network.Listen("jobmanager:6123")
	if err != nil {
		t.Fatal(err)
	}
	j.server = transport.Serve(l, transport.Handlers{Coordination: j})
	return j
}

func (j *jobManager) close(t *testing.T) {
	t.Helper()
	if err := j.server.Close(); err != nil {
		t.Error(err)
	}
}

// ExecutorSession implements transport.CoordinationHandler.
func (j *jobManager) ExecutorSession(_ context.Context, s transport.ExecutorSession) error {
	first, err := s.Recv()
	if err != nil {
		return nil
	}
	hello := first.GetHello()
	id := ids.TaskManagerID(hello.GetTaskManagerId())
	j.mu.Lock()
	j.hellos++
	refuse := j.refuse
	j.sessions[id], j.address[id] = s, hello.GetDataAddress()
	j.notify()
	j.mu.Unlock()
	if refuse != "" {
		return s.Send(&pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Refused{Refused: &pb.HelloRefused{Reason: refuse, Final: true}}})
	}
	err = s.Send(&pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Accepted{Accepted: &pb.HelloAccepted{
		HeartbeatIntervalMs: 1000, HeartbeatTimeoutMs: 5000,
	}}})
	var reports uint64
	for err == nil {
		var m *pb.ExecutorReport
		if m, err = s.Recv(); err == nil {
			reports = j.take(s, m, reports)
		}
	}
	return nil
}

// take takes a report of a session that has brought so many, and returns how
// many it has brought with it.
func (j *jobManager) take(s transport.ExecutorSession, m *pb.ExecutorReport, reports uint64) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	heartbeat := m.GetHeartbeat()
	if heartbeat == nil {
		j.reports = append(j.reports, m)
		j.notify()
		return reports + 1
	}
	for _, m := range heartbeat.GetMetrics() {
		j.metrics[ids.SubtaskID{Vertex: ids.VertexID(m.GetSubtask().GetVertex()), Index: m.GetSubtask().GetIndex()}] = m
	}
	if !j.mute {
		_ = s.SendAhead(&pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Heartbeat{Heartbeat: &pb.Heartbeat{Sequence: heartbeat.GetSequence(), Reports: reports}}})
	}
	return reports
}

// TaskManagerSession implements transport.CoordinationHandler.
func (j *jobManager) TaskManagerSession(context.Context, transport.TaskManagerSession) error {
	return transport.Errorf(transport.ErrRefused, "no TaskManagers here")
}

// GetArtifact implements transport.CoordinationHandler.
func (j *jobManager) GetArtifact(context.Context, string) (io.ReadCloser, int64, error) {
	return nil, 0, transport.Errorf(transport.ErrNotFound, "no artifacts here")
}

// send sends a command to all executors.
func (j *jobManager) send(t *testing.T, m *pb.ExecutorCommand) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.sessions {
		if err := s.Send(m); err != nil {
			t.Error(err)
		}
	}
}

// set changes how the JobManager behaves.
func (j *jobManager) set(change func(j *jobManager)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(j)
}

// count counts the reports that are like the ones wanted.
func (j *jobManager) count(wanted func(*pb.ExecutorReport) bool) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, m := range j.reports {
		if wanted(m) {
			n++
		}
	}
	return n
}

// counted adds up the latest counters of all subtasks.
func (j *jobManager) counted() (in, out int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range j.metrics {
		in += m.GetRecordsIn()
		out += m.GetRecordsOut()
	}
	return in, out
}

func status(s pb.TaskStatus) func(*pb.ExecutorReport) bool {
	return func(m *pb.ExecutorReport) bool { return m.GetTaskStatus().GetStatus() == s }
}

func failed(m *pb.ExecutorReport) bool { return status(pb.TaskStatus_TASK_STATUS_FAILED)(m) }

// deploy places subtask i of each vertex on executor i modulo their number.
func (j *jobManager) deploy(t *testing.T, p *operator.Program, parallelism int) {
	t.Helper()
	g, err := graph.Expand(p.Graph, parallelism)
	if err != nil {
		t.Fatal(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	plan := &pb.DeployTasks{DefaultParallelism: int32(parallelism), CheckpointDir: "memory://checkpoints"}
	for i := range len(j.sessions) {
		id := taskManager(i)
		plan.Peers = append(plan.Peers, &pb.Peer{TaskManagerId: string(id), DataAddress: j.address[id]})
	}
	for _, id := range g.Subtasks() {
		plan.Placements = append(plan.Placements, &pb.SubtaskPlacement{
			Subtask: &pb.SubtaskRef{Vertex: int32(id.Vertex), Index: id.Index}, Peer: id.Index % int32(len(j.sessions)),
		})
	}
	for i := range len(j.sessions) {
		mine := proto.Clone(plan).(*pb.DeployTasks)
		for _, placement := range plan.Placements {
			if int(placement.Peer) != i {
				continue
			}
			deployment := &pb.TaskDeployment{Subtask: placement.Subtask}
			if g.IsSource(ids.VertexID(placement.Subtask.Vertex)) {
				deployment.Splits = []*pb.AssignSplits{{
					Subtask: placement.Subtask, Operator: "numbers", List: placement.Subtask.Index == 0,
				}}
			}
			mine.Tasks = append(mine.Tasks, deployment)
		}
		if j.amend != nil {
			j.amend(mine)
		}
		if err := j.sessions[taskManager(i)].Send(&pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Deploy{Deploy: mine}}); err != nil {
			t.Error(err)
		}
	}
}

// assign gives each source subtask its splits once they are listed.
func (j *jobManager) assign(t *testing.T, parallelism int) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range j.reports {
		discovered := m.GetSplits()
		if discovered == nil {
			continue
		}
		for subtask := range parallelism {
			a := &pb.AssignSplits{Subtask: &pb.SubtaskRef{Index: int32(subtask)}, Operator: discovered.Operator, Complete: discovered.Complete}
			for i, split := range discovered.Splits {
				if i%parallelism == subtask {
					a.Indexes = append(a.Indexes, int64(i))
					a.Splits = append(a.Splits, split)
				}
			}
			s := j.sessions[taskManager(subtask%len(j.sessions))]
			if err := s.Send(&pb.ExecutorCommand{Kind: &pb.ExecutorCommand_AssignSplits{AssignSplits: a}}); err != nil {
				t.Error(err)
			}
		}
		return
	}
	t.Error("no splits were discovered")
}

func taskManager(i int) ids.TaskManagerID { return ids.TaskManagerID(fmt.Sprintf("tm%d", i)) }

// running is an executor that runs.
type running struct {
	cancel context.CancelFunc
	result chan error
}

// end tells it to go and returns what Run returned.
func (r *running) end() error {
	r.cancel()
	return <-r.result
}

func (j *jobManager) start(t *testing.T, i int, p, submitted *operator.Program, store *memory.Store) *running {
	t.Helper()
	e, err := executor.New(executor.Options{
		Spec: executor.Spec{
			Executor: ids.ExecutorID{Job: job, Attempt: attempt, TaskManager: taskManager(i)}, JobName: "numbers",
			JobManager: "jobmanager:6123", BindHost: "host", Host: "host", Graph: graph.ToProto(submitted.Graph), Dir: j.dir,
			Config: map[string]string{"execution.checkpointing.data-inline-threshold": "0"},
		},
		Program: p, Network: j.network,
		Store: checkpointstore.New(func(uri string) (objectstore.Store, error) { return objectstore.SubURI(store, uri) }),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{cancel: cancel, result: make(chan error, 1)}
	go func() { r.result <- e.Run(ctx) }()
	return r
}

func TestBoundedJobOnTwoExecutors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const parallelism, splits, each = 4, 7, 10_000
		j := newJobManager(t)
		defer j.close(t)
		sink, store := &total{}, memory.New("memory://checkpoints")
		p := program(t, numbers{splits: splits, each: each}, sink)
		executors := []*running{j.start(t, 0, p, p, store), j.start(t, 1, p, p, store)}
		synctest.Wait()
		j.deploy(t, p, parallelism)
		synctest.Wait()
		const subtasks = 2 * parallelism
		if n := j.count(status(pb.TaskStatus_TASK_STATUS_RUNNING)); n != subtasks {
			t.Fatalf("%d tasks run, want %d: %v", n, subtasks, j.reports)
		}
		j.assign(t, parallelism)
		synctest.Wait()
		if n := j.count(status(pb.TaskStatus_TASK_STATUS_END_OF_DATA)); n != subtasks {
			t.Fatalf("%d tasks reached the end of data, want %d: %v", n, subtasks, j.reports)
		}
		const n = splits * each
		if count, sum := sink.have(); count != n || sum != n*(n-1)/2 {
			t.Errorf("the sink has %d records of sum %d, want %d of %d", count, sum, n, n*(n-1)/2)
		}

		// The final checkpoint passes the barriers through both kinds of channel.
		trigger := &pb.TriggerCheckpoint{Checkpoint: 1}
		for i := range parallelism {
			trigger.Subtasks = append(trigger.Subtasks, &pb.SubtaskRef{Index: int32(i)})
		}
		for i := range executors { // each only its own
			mine := proto.Clone(trigger).(*pb.TriggerCheckpoint)
			mine.Subtasks = nil
			for _, ref := range trigger.Subtasks {
				if int(ref.Index)%len(executors) == i {
					mine.Subtasks = append(mine.Subtasks, ref)
				}
			}
			if err := j.sessions[taskManager(i)].Send(&pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Trigger{Trigger: mine}}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		acked := func(m *pb.ExecutorReport) bool { return m.GetAcked().GetCheckpoint() == 1 }
		if n := j.count(acked); n != subtasks {
			t.Fatalf("%d acknowledgements, want %d: %v", n, subtasks, j.reports)
		}
		j.send(t, &pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Notify{Notify: &pb.NotifyCheckpoint{Checkpoint: 1}}})
		synctest.Wait()
		committed := func(m *pb.ExecutorReport) bool { return m.GetCommitAcked().GetCheckpoint() == 1 }
		if n := j.count(committed); n != subtasks {
			t.Fatalf("%d commits, want %d", n, subtasks)
		}
		j.send(t, &pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Finish{Finish: &pb.FinishTasks{}}})
		synctest.Wait()
		if n := j.count(status(pb.TaskStatus_TASK_STATUS_FINISHED)); n != subtasks {
			t.Fatalf("%d tasks finished, want %d", n, subtasks)
		}
		// Fake time stands still while tasks work: no heartbeat was due since the first record.
		// Sources count what they read as in, sinks have no out.
		if in, out := j.counted(); in != 2*n || out != n {
			t.Errorf("the job ended with %d records in and %d out, want %d and %d", in, out, 2*n, n)
		}
		for i, e := range executors {
			if err := e.end(); err != nil {
				t.Errorf("executor %d: %v", i, err)
			}
		}
		if n := j.count(failed); n > 0 {
			t.Errorf("%d tasks failed: %v", n, j.reports)
		}
	})
}

func TestExecutorLeavesWhenTheJobManagerEndsTheSessionOfEndedTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJobManager(t)
		defer j.close(t)
		p := program(t, numbers{}, &total{})
		e := j.start(t, 0, p, p, memory.New("memory://checkpoints"))
		synctest.Wait()
		j.deploy(t, p, 1)
		synctest.Wait()
		j.send(t, &pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Cancel{Cancel: &pb.CancelTasks{}}})
		time.Sleep(time.Minute) // it stays until it is told to go
		if n := j.count(status(pb.TaskStatus_TASK_STATUS_CANCELED)); n != 2 {
			t.Errorf("%d tasks are cancelled, want 2", n)
		}
		j.sessions[taskManager(0)].Close()
		if err := <-e.result; err != nil {
			t.Error(err)
		}
	})
}

func TestProgramThatBuildsAnotherGraphIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJobManager(t)
		defer j.close(t)
		submitted := program(t, numbers{}, &total{})
		built := program(t, numbers{}, &total{})
		built.Graph.Operators[0].Parallelism = 3
		e := j.start(t, 0, built, submitted, memory.New("memory://checkpoints"))
		err := <-e.result
		if !errors.Is(err, executor.ErrUnusable) {
			t.Errorf("error is %v", err)
		}
		if len(j.reports) != 1 {
			t.Fatalf("reports are %v", j.reports)
		}
		f := j.reports[0].GetFailure()
		if f.GetKind() != pb.FailureKind_FAILURE_KIND_PERMANENT || !strings.Contains(f.GetMessage(), `operator "numbers": parallelism: submitted 0, built 3`) {
			t.Errorf("failure is %v", f)
		}
	})
}

func TestI8RefusedExecutorEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJobManager(t)
		defer j.close(t)
		j.refuse = "attempt 2.1 is over"
		p := program(t, numbers{}, &total{})
		e := j.start(t, 0, p, p, memory.New("memory://checkpoints"))
		if err := <-e.result; !errors.Is(err, executor.ErrStale) || !strings.Contains(err.Error(), j.refuse) {
			t.Errorf("error is %v", err)
		}
	})
}

// TestCutOffExecutorEnds: after 0.6 of the heartbeat timeout of 5 s without
// an answer, whether its connection looks well or not.
func TestCutOffExecutorEnds(t *testing.T) {
	for name, cut := range map[string]func(*testing.T, *jobManager){
		"no answers":         func(_ *testing.T, j *jobManager) { j.set(func(j *jobManager) { j.mute = true }) },
		"JobManager is gone": func(t *testing.T, j *jobManager) { j.close(t) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJobManager(t)
				hold := make(chan struct{}) // the source never gets anything
				p := program(t, numbers{splits: 1, each: 1, hold: hold}, &total{})
				e := j.start(t, 0, p, p, memory.New("memory://checkpoints"))
				synctest.Wait()
				j.deploy(t, p, 1)
				synctest.Wait()
				j.assign(t, 1)
				time.Sleep(time.Minute)
				select {
				case err := <-e.result:
					t.Fatalf("ended while all was well: %v", err)
				default:
				}
				began := time.Now()
				cut(t, j)
				err := <-e.result
				if !errors.Is(err, executor.ErrCutOff) {
					t.Errorf("error is %v", err)
				}
				if took := time.Since(began); took < 1900*time.Millisecond || took > 3100*time.Millisecond {
					t.Errorf("ended after %s, want 2 to 3 s: an answer may be a second old", took)
				}
				if name == "no answers" {
					j.close(t)
				}
			})
		})
	}
}

func TestReportsOfABrokenSessionAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJobManager(t)
		p := program(t, numbers{}, &total{})
		e := j.start(t, 0, p, p, memory.New("memory://checkpoints"))
		time.Sleep(2500 * time.Millisecond)
		j.deploy(t, p, 1)
		synctest.Wait()
		// Reported after the last heartbeat: not acknowledged.
		if n := j.count(status(pb.TaskStatus_TASK_STATUS_RUNNING)); n != 2 {
			t.Fatalf("%d tasks run, want 2", n)
		}
		j.close(t)
		l, err := j.network.Listen("jobmanager:6123")
		if err != nil {
			t.Fatal(err)
		}
		j.set(func(j *jobManager) { j.reports = nil })
		j.server = transport.Serve(l, transport.Handlers{Coordination: j})
		defer j.close(t)
		time.Sleep(2 * time.Second)
		if n := j.count(status(pb.TaskStatus_TASK_STATUS_RUNNING)); n != 2 {
			t.Errorf("%d tasks were reported again, want 2: %v", n, j.reports)
		}
		if j.hellos != 2 {
			t.Errorf("%d hellos, want 2", j.hellos)
		}
		if err := e.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestPanicOfUserCodeIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJobManager(t)
		defer j.close(t)
		p := program(t, numbers{splits: 1, each: 10}, &total{on: func(v uint64) {
			if v == 5 {
				panic("five")
			}
		}})
		e := j.start(t, 0, p, p, memory.New("memory://checkpoints"))
		synctest.Wait()
		j.deploy(t, p, 1)
		synctest.Wait()
		j.assign(t, 1)
		synctest.Wait()
		var failure *pb.Failure
		for _, m := range j.reports {
			if failed(m) {
				failure = m.GetTaskStatus().GetFailure()
			}
		}
		if failure.GetKind() != pb.FailureKind_FAILURE_KIND_USER || failure.GetMessage() != "panic: five" ||
			!strings.Contains(failure.GetStack(), "program_test.go") {
			t.Errorf("failure is %v", failure)
		}
		if err := e.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestTaskThatDoesNotReturnIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJobManager(t)
		defer j.close(t)
		release := make(chan struct{})
		p := program(t, numbers{splits: 1, each: 1}, &total{on: func(uint64) { <-release }})
		e := j.start(t, 0, p, p, memory.New("memory://checkpoints"))
		synctest.Wait()
		j.deploy(t, p, 1)
		synctest.Wait()
		j.assign(t, 1)
		synctest.Wait()
		began := time.Now()
		j.send(t, &pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Cancel{Cancel: &pb.CancelTasks{}}})
		err := <-e.result
		if !errors.Is(err, executor.ErrStuck) || !strings.Contains(err.Error(), "subtask 1/0") {
			t.Errorf("error is %v", err)
		}
		if took := time.Since(began); took < 30*time.Second || took > 35*time.Second {
			t.Errorf("ended after %s, want the time-out of 30 s", took)
		}
		close(release)
	})
}

func TestSpecIsReadAsWritten(t *testing.T) {
	name := filepath.Join(t.TempDir(), "spec")
	want := executor.Spec{
		Executor: ids.ExecutorID{Job: job, Attempt: attempt, TaskManager: "tm"}, JobName: "flights",
		JobManager: "10.0.0.1:6123", BindHost: "0.0.0.0", Host: "10.0.0.2", Dir: "/tmp/x", HasLifeline: true,
		Config: map[string]string{"s3.secret-key": "hush"},
		Graph:  &pb.JobGraph{Name: "flights", WireVersion: transport.WireVersion},
	}
	if err := executor.WriteSpec(name, want); err != nil {
		t.Fatal(err)
	}
	have, err := executor.ReadSpec(name)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(have.Graph, want.Graph) {
		t.Errorf("graph is %v", have.Graph)
	}
	have.Graph, want.Graph = nil, nil
	if !reflect.DeepEqual(have, want) {
		t.Errorf("read %+v, want %+v", have, want)
	}
	if err := executor.WriteSpec(name, want); err == nil {
		t.Error("a spec was overwritten")
	}
}
