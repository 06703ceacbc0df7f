package jobmanager

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/faulty"
	"github.com/weirstream/weir/pkg/objectstore/memory"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wire is both ends of a session: what the server sends goes to out, what the
// peer sends to in.
type wire[Out, In any] struct {
	out    chan *Out
	in     chan *In
	once   sync.Once
	closed chan struct{}
	// refuse, if set, says what is wrong with a message.
	refuse func(*Out) error
}

// wireQueueMax is more than any test sends.
const wireQueueMax = 1000

func newWire[Out, In any]() *wire[Out, In] {
	return &wire[Out, In]{out: make(chan *Out, wireQueueMax), in: make(chan *In, wireQueueMax), closed: make(chan struct{})}
}

func (w *wire[Out, In]) Send(m *Out) error {
	if w.refuse != nil {
		if err := w.refuse(m); err != nil {
			return err
		}
	}
	select {
	case <-w.closed:
		return errors.New("closed")
	case w.out <- m:
		return nil
	}
}

// SendAhead overtakes nothing here: what is sent is there at once.
func (w *wire[Out, In]) SendAhead(m *Out) error { return w.Send(m) }

func (w *wire[Out, In]) Recv() (*In, error) {
	select {
	case m := <-w.in:
		return m, nil
	case <-w.closed:
		return nil, io.EOF
	}
}

func (w *wire[Out, In]) Close() { w.once.Do(func() { close(w.closed) }) }

type (
	taskManagerWire = wire[pb.TaskManagerCommand, pb.TaskManagerReport]
	executorWire    = wire[pb.ExecutorCommand, pb.ExecutorReport]
)

// rig is a server with a store in memory.
type rig struct {
	*Server
	t       *testing.T
	options Options
	mu      sync.Mutex
	decide  func(faulty.Call) faulty.Fault
	serving sync.WaitGroup
	// refuse says what is wrong with a command to a TaskManager that connects.
	refuse func(*pb.TaskManagerCommand) error
}

func newRig(t *testing.T, overrides ...string) *rig {
	t.Helper()
	c, err := config.Load("", append([]string{"heartbeat.interval=1 s", "heartbeat.timeout=5 s"}, overrides...))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t}
	stores := map[string]objectstore.Store{}
	var mu sync.Mutex
	r.options = Options{
		Config: c, WorkDir: t.TempDir(), InProcess: true, Log: zaptest.NewLogger(t),
		OpenStore: func(*config.Config) checkpointstore.Opener {
			return func(uri string) (objectstore.Store, error) {
				mu.Lock()
				defer mu.Unlock()
				if stores[uri] == nil {
					stores[uri] = faulty.New(memory.New(uri), r.fault, nil)
				}
				return stores[uri], nil
			}
		},
	}
	r.open()
	return r
}

func (r *rig) fault(call faulty.Call) faulty.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.decide == nil {
		return faulty.Fault{}
	}
	return r.decide(call)
}

func (r *rig) fail(decide func(faulty.Call) faulty.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decide = decide
}

func (r *rig) open() {
	r.t.Helper()
	server, err := Open(r.t.Context(), r.options)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Server = server
}

func (r *rig) close() {
	r.t.Helper()
	if err := r.Close(); err != nil {
		r.t.Error(err)
	}
	r.serving.Wait()
}

// taskManager connects a TaskManager and returns its end after the hello.
func (r *rig) taskManager(hello *pb.TaskManagerHello) *taskManagerWire {
	w := newWire[pb.TaskManagerCommand, pb.TaskManagerReport]()
	w.refuse = r.refuse
	r.serving.Go(func() {
		defer w.Close()
		_ = r.TaskManagerSession(context.Background(), w)
	})
	w.in <- &pb.TaskManagerReport{Kind: &pb.TaskManagerReport_Hello{Hello: hello}}
	return w
}

func helloOf(id string, slotCount int32) *pb.TaskManagerHello {
	return &pb.TaskManagerHello{
		TaskManagerId: id, Host: "host", Pid: 1, Slots: slotCount, Platform: "linux/amd64", WireVersion: transport.WireVersion,
	}
}

// executor connects an executor.
func (r *rig) executor(hello *pb.ExecutorHello) *executorWire {
	w := newWire[pb.ExecutorCommand, pb.ExecutorReport]()
	r.serving.Go(func() {
		defer w.Close()
		_ = r.ExecutorSession(context.Background(), w)
	})
	w.in <- &pb.ExecutorReport{Kind: &pb.ExecutorReport_Hello{Hello: hello}}
	return w
}

// beat sends heartbeats for a while.
func (w *wire[Out, In]) beat(heartbeat *In, every, during time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	end := time.After(during)
	for {
		select {
		case <-ticker.C:
			w.in <- heartbeat
		case <-end:
			return
		}
	}
}

// drain takes everything that was sent.
func (w *wire[Out, In]) drain() []*Out {
	var all []*Out
	for {
		select {
		case m := <-w.out:
			all = append(all, m)
		default:
			return all
		}
	}
}

// spec is a job of one source and one sink at the given parallelism.
func spec(name string, parallelism int32) *pb.JobSpec {
	return &pb.JobSpec{Name: name, Parallelism: parallelism, Graph: &pb.JobGraph{
		Name: "graph", WireVersion: transport.WireVersion,
		Operators: []*pb.Operator{
			{Uid: "source", Kind: "source", OutputType: "t", Bounded: true},
			{Uid: "sink", Kind: "sink"},
		},
		Edges: []*pb.Edge{{From: "source", To: "sink", Partitioner: "rebalance", Type: "t"}},
	}}
}

func (r *rig) submit(s *pb.JobSpec) (string, error) {
	response, err := r.SubmitJob(r.t.Context(), &pb.SubmitJobRequest{Spec: s})
	return response.GetJobId(), err
}

func (r *rig) status(id string) *pb.JobStatusResponse {
	r.t.Helper()
	status, err := r.JobStatus(r.t.Context(), &pb.JobStatusRequest{JobId: id})
	if err != nil {
		r.t.Fatal(err)
	}
	return status
}
