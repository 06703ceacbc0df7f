package jobmanager

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/internal/racedetector"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/objectstore/open"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

// largeWait bounds each wait of the test of large messages.
const largeWait = 2 * time.Minute

// peer is a TaskManager or an executor that speaks to a server over gRPC and
// TCP, as one in another process does.
type peer[Out, In any] struct {
	t        *testing.T
	session  transport.Session[Out, In]
	received chan *In // without answers to heartbeats
	running  sync.WaitGroup
	done     chan struct{}

	mu      sync.Mutex
	sent    map[uint64]time.Time // heartbeats by sequence
	longest time.Duration        // from a heartbeat to its answer
	reports uint64               // that the last answer told of
}

// connectPeer says hello and sends heartbeats from the answer on.
func connectPeer[Out, In any](t *testing.T, session transport.Session[Out, In], hello *Out, heartbeat func(uint64) *Out, answer func(*In) *pb.Heartbeat) *peer[Out, In] {
	t.Helper()
	p := &peer[Out, In]{t: t, session: session, received: make(chan *In, 100), done: make(chan struct{}), sent: map[uint64]time.Time{}}
	if err := session.Send(hello); err != nil {
		t.Fatal(err)
	}
	accepted := make(chan struct{})
	p.running.Go(func() {
		defer close(p.done)
		for isFirst := true; ; isFirst = false {
			m, err := session.Recv()
			if err != nil {
				return
			}
			if isFirst {
				close(accepted)
			}
			if a := answer(m); a == nil {
				p.received <- m
			} else {
				p.mu.Lock()
				p.longest = max(p.longest, time.Since(p.sent[a.GetSequence()]))
				p.reports = a.GetReports()
				p.mu.Unlock()
			}
		}
	})
	p.running.Go(func() {
		select {
		case <-accepted:
		case <-p.done:
			return
		}
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for sequence := uint64(1); ; sequence++ {
			p.mu.Lock()
			p.sent[sequence] = time.Now()
			p.mu.Unlock()
			if session.SendAhead(heartbeat(sequence)) != nil {
				return
			}
			select {
			case <-ticker.C:
			case <-p.done:
				return
			}
		}
	})
	return p
}

// await returns the first message that is wanted.
func (p *peer[Out, In]) await(what string, wanted func(*In) bool) *In {
	p.t.Helper()
	timeout := time.After(largeWait)
	for {
		select {
		case m := <-p.received:
			if wanted(m) {
				return m
			}
		case <-timeout:
			p.t.Fatalf("waited %s for %s", largeWait, what)
		case <-p.done:
			p.t.Fatalf("the session ended before %s came", what)
		}
	}
}

// close ends the session.
func (p *peer[Out, In]) close() {
	p.session.Close()
	p.running.Wait()
}

func (p *peer[Out, In]) longestAnswer() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.longest
}

// largeCluster is a server on TCP with a store on disk, and a client of it.
type largeCluster struct {
	t      *testing.T
	server *Server
	grpc   *transport.Server
	client *transport.JobManager
	opener *open.Opener
}

func startLarge(t *testing.T, dir string) *largeCluster {
	t.Helper()
	c, err := config.Load("", []string{
		"high-availability.storageDir=file://" + filepath.Join(dir, "ha"), "execution.checkpointing.dir=file://" + filepath.Join(dir, "checkpoints"),
		"execution.checkpointing.interval=500 ms", "restart-strategy.exponential-delay.initial-backoff=10 ms",
	})
	if err != nil {
		t.Fatal(err)
	}
	l := &largeCluster{t: t, opener: open.New(open.Options{})}
	l.server, err = Open(t.Context(), Options{
		Config: c, WorkDir: filepath.Join(dir, "work"), InProcess: true, Log: zap.NewNop(),
		OpenStore: func(*config.Config) checkpointstore.Opener { return l.opener.Open },
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := transport.TCP{}.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.grpc = transport.Serve(listener, transport.Handlers{Coordination: l.server})
	l.client, err = transport.DialJobManager(l.grpc.Address(), transport.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *largeCluster) close() {
	l.t.Helper()
	if err := errors.Join(l.server.Close(), l.client.Close(), l.grpc.Close()); err != nil {
		l.t.Error(err)
	}
	l.opener.Close()
}

type (
	taskManagerPeer = peer[pb.TaskManagerReport, pb.TaskManagerCommand]
	executorPeer    = peer[pb.ExecutorReport, pb.ExecutorCommand]
)

func (l *largeCluster) taskManager() *taskManagerPeer {
	l.t.Helper()
	s, err := l.client.TaskManagerSession(context.WithoutCancel(l.t.Context()))
	if err != nil {
		l.t.Fatal(err)
	}
	return connectPeer(l.t, s, &pb.TaskManagerReport{Kind: &pb.TaskManagerReport_Hello{Hello: helloOf("tm", 1)}},
		func(n uint64) *pb.TaskManagerReport {
			return &pb.TaskManagerReport{Kind: &pb.TaskManagerReport_Heartbeat{Heartbeat: &pb.Heartbeat{Sequence: n}}}
		}, (*pb.TaskManagerCommand).GetHeartbeat)
}

func (l *largeCluster) executor(ref *pb.ExecutorRef) *executorPeer {
	l.t.Helper()
	s, err := l.client.ExecutorSession(context.WithoutCancel(l.t.Context()))
	if err != nil {
		l.t.Fatal(err)
	}
	hello := &pb.ExecutorHello{Executor: ref, TaskManagerId: "tm", DataAddress: "host:1", WireVersion: transport.WireVersion}
	return connectPeer(l.t, s, &pb.ExecutorReport{Kind: &pb.ExecutorReport_Hello{Hello: hello}},
		func(n uint64) *pb.ExecutorReport {
			return &pb.ExecutorReport{Kind: &pb.ExecutorReport_Heartbeat{Heartbeat: &pb.ExecutorHeartbeat{Sequence: n}}}
		}, (*pb.ExecutorCommand).GetHeartbeat)
}

// deployed launches what the TaskManager is told to, and returns it with its tasks.
func (l *largeCluster) deployed(tm *taskManagerPeer) (*executorPeer, *pb.DeployTasks) {
	l.t.Helper()
	launch := tm.await("a launch", func(m *pb.TaskManagerCommand) bool { return m.GetLaunchExecutor() != nil })
	e := l.executor(launch.GetLaunchExecutor().GetExecutor())
	deploy := e.await("a deployment", func(m *pb.ExecutorCommand) bool { return m.GetDeploy() != nil }).GetDeploy()
	for _, task := range deploy.GetTasks() {
		if err := e.session.Send(&pb.ExecutorReport{Kind: &pb.ExecutorReport_TaskStatus{TaskStatus: &pb.TaskStatusChanged{
			Subtask: task.GetSubtask(), Status: pb.TaskStatus_TASK_STATUS_RUNNING,
		}}}); err != nil {
			l.t.Fatal(err)
		}
	}
	return e, deploy
}

// largeState is keyed state in so many files that its handles have at least so
// many bytes.
func largeState(bytes int) *pb.OperatorSubtaskState {
	keyed := &pb.KeyedStateHandle{LastGroup: 127, Backend: "pebble"}
	for size, i := 0, 0; size < bytes; i++ {
		f := &pb.StateFile{Local: fmt.Sprintf("%06d.sst", i), Handle: &pb.StateHandle{
			Name: fmt.Sprintf("shared/1-0/%s-%012d.sst", strings.Repeat("0123456789abcdef", 4), i), Size: 1 << 20, Crc32C: uint32(i), SharedSince: 1,
		}}
		size += proto.Size(f)
		keyed.Files = append(keyed.Files, f)
	}
	return &pb.OperatorSubtaskState{Uid: "sink", Keyed: []*pb.KeyedStateHandle{keyed}}
}

// peakMemory samples the heap until stop is called, which returns the peak in bytes.
func peakMemory() (stop func() uint64) {
	over, result := make(chan struct{}), make(chan uint64)
	go func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		var peak uint64
		for {
			metrics.Read(sample)
			peak = max(peak, sample[0].Value.Uint64())
			select {
			case <-ticker.C:
			case <-over:
				result <- peak
				return
			}
		}
	}()
	return func() uint64 {
		close(over)
		return <-result
	}
}

// TestHandlesOf100MegabytesAreAcknowledgedPersistedAndDeployed: one subtask
// acknowledges a checkpoint with handles that take up 100 MB on the wire. It is
// complete, stored, read again by the next JobManager and deployed, whole, and
// no heartbeat waits for it.
func TestHandlesOf100MegabytesAreAcknowledgedPersistedAndDeployed(t *testing.T) {
	bytes := 100_000_000
	if racedetector.Enabled {
		bytes /= 10 // it takes ten times as long
	}
	dir := t.TempDir()
	l := startLarge(t, dir)
	tm := l.taskManager()
	response, err := l.server.SubmitJob(t.Context(), &pb.SubmitJobRequest{Spec: spec("job", 1)})
	if err != nil {
		t.Fatal(err)
	}
	e, _ := l.deployed(tm)
	state := largeState(bytes)
	trigger := e.await("a checkpoint", func(m *pb.ExecutorCommand) bool { return m.GetTrigger() != nil }).GetTrigger()
	ack := func(vertex int32, states ...*pb.OperatorSubtaskState) {
		if err := e.session.Send(&pb.ExecutorReport{Kind: &pb.ExecutorReport_Acked{Acked: &pb.CheckpointAcked{
			Checkpoint: trigger.GetCheckpoint(), State: &pb.SubtaskState{Subtask: &pb.SubtaskID{Vertex: vertex}, Operators: states},
		}}}); err != nil {
			t.Fatal(err)
		}
	}
	peak := peakMemory()
	started := time.Now()
	ack(0, &pb.OperatorSubtaskState{Uid: "source"})
	ack(1, state)
	e.await("the completed checkpoint", func(m *pb.ExecutorCommand) bool {
		return m.GetNotify().GetCheckpoint() == trigger.GetCheckpoint() && !m.GetNotify().GetAborted()
	})
	completed := time.Since(started)
	l.close()
	tm.close()
	e.close()

	started = time.Now()
	l = startLarge(t, dir)
	defer l.close()
	tm = l.taskManager()
	defer tm.close()
	again, deploy := l.deployed(tm)
	defer again.close()
	restored := time.Since(started)
	if deploy.GetRestoredCheckpoint() != trigger.GetCheckpoint() {
		t.Errorf("restored is checkpoint %d, complete was %d", deploy.GetRestoredCheckpoint(), trigger.GetCheckpoint())
	}
	i := slices.IndexFunc(deploy.GetTasks(), func(d *pb.TaskDeployment) bool { return d.GetSubtask().GetVertex() == 1 })
	if i < 0 || len(deploy.GetTasks()[i].GetRestore()) != 1 || !proto.Equal(deploy.GetTasks()[i].GetRestore()[0], state) {
		t.Error("what is deployed is not what was acknowledged")
	}
	t.Logf("%d handles, %d bytes: complete after %s, deployed by the next JobManager after %s; at most %d MiB on the heap of both ends together; "+
		"heartbeats were answered after at most %s, then %s", len(state.GetKeyed()[0].GetFiles()), proto.Size(state), completed.Round(time.Millisecond),
		restored.Round(time.Millisecond), peak()>>20, e.longestAnswer().Round(time.Millisecond), again.longestAnswer().Round(time.Millisecond))
	status, err := l.server.JobStatus(t.Context(), &pb.JobStatusRequest{JobId: response.GetJobId()})
	if err != nil || status.GetRestoredCheckpoint() != trigger.GetCheckpoint() {
		t.Errorf("status is %v, %v", status, err)
	}
}
