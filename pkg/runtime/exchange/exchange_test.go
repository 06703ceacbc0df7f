package exchange

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/transport"
)

const job = ids.JobID("0123456789abcdef0123456789abcdef")

var attempt = ids.AttemptID{Token: 3, Number: 1}

// recorder is an inbox that remembers what came.
type recorder struct {
	mu       sync.Mutex
	frames   map[int][]string
	bytes    int64
	credits  map[subtask.Output]int64
	failures []coordinator.Failure
}

func newRecorder() *recorder {
	return &recorder{frames: map[int][]string{}, credits: map[subtask.Output]int64{}}
}

// Receive implements Inbox.
func (r *recorder) Receive(in int, f element.Frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := f.String()
	if f.Kind == element.Records && len(f.Data) < 100 {
		text = string(f.Data)
	}
	r.frames[in] = append(r.frames[in], text)
	r.bytes += int64(len(f.Data))
	f.Free()
}

// AddCredit implements Inbox.
func (r *recorder) AddCredit(out subtask.Output, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.credits[out] += bytes
}

// Fail implements Inbox.
func (r *recorder) Fail(f coordinator.Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, f)
}

func (r *recorder) received(in int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.frames[in], " ")
}

func (r *recorder) failure() (coordinator.Failure, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failures) == 0 {
		return coordinator.Failure{}, false
	}
	return r.failures[0], true
}

func (r *recorder) credit(out subtask.Output) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.credits[out]
}

// hashGraph is a source that feeds a sink over an all-to-all edge.
func hashGraph(t *testing.T, sources, sinks int) *graph.ExecutionGraph {
	t.Helper()
	g, err := graph.Expand(graph.JobGraph{
		Name: "test",
		Operators: []graph.Operator{
			{UID: "source", Kind: graph.SourceOperator, Parallelism: sources, OutputType: "string"},
			{UID: "sink", Kind: graph.SinkOperator, Parallelism: sinks},
		},
		Edges: []graph.Edge{{From: "source", To: "sink", Partitioner: graph.Rebalance, Type: "string"}},
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return &g
}

// cluster is a set of executors with recorders for tasks.
type cluster struct {
	graph     *graph.ExecutionGraph
	exchanges []*Exchange
	inboxes   map[ids.SubtaskID]*recorder
	place     map[ids.SubtaskID]int
}

// start places the subtasks on as many executors as place names.
func start(t *testing.T, network transport.Network, g *graph.ExecutionGraph, place map[ids.SubtaskID]int) *cluster {
	t.Helper()
	c := &cluster{graph: g, inboxes: map[ids.SubtaskID]*recorder{}, place: place}
	plan := Plan{Graph: g, CreditBytes: 1 << 20}
	executors := 0
	for _, id := range g.Subtasks() {
		executors = max(executors, place[id]+1)
		plan.Placements = append(plan.Placements, coordinator.Placement{Subtask: id, Peer: place[id]})
		c.inboxes[id] = newRecorder()
	}
	for i := range executors {
		x := New(job, attempt, network)
		l, err := network.Listen(fmt.Sprintf("executor%d:0", i))
		if err != nil {
			t.Fatal(err)
		}
		x.Serve(l)
		plan.Peers = append(plan.Peers, coordinator.Peer{
			TaskManager: ids.TaskManagerID(fmt.Sprintf("tm%d", i)), DataAddress: l.Addr().String(),
		})
		c.exchanges = append(c.exchanges, x)
	}
	for i, x := range c.exchanges {
		plan.Self = i
		if err := x.Deploy(plan); err != nil {
			t.Fatal(err)
		}
		inboxes := map[ids.SubtaskID]Inbox{}
		for id, peer := range place {
			if peer == i {
				inboxes[id] = c.inboxes[id]
			}
		}
		if err := x.Start(inboxes); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// close ends all executors at once, as the end of a job does.
func (c *cluster) close(t *testing.T) {
	t.Helper()
	var group sync.WaitGroup
	for _, x := range c.exchanges {
		group.Go(func() {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func (c *cluster) endpoint(id ids.SubtaskID) *Endpoint { return c.exchanges[c.place[id]].Endpoint(id) }

func source(i int) ids.SubtaskID { return ids.SubtaskID{Vertex: 0, Index: int32(i)} }
func sink(i int) ids.SubtaskID   { return ids.SubtaskID{Vertex: 1, Index: int32(i)} }

func records(text string) element.Frame {
	return element.Frame{Kind: element.Records, Count: 1, Data: []byte(text)}
}

func TestFramesAndCreditsFindTheirChannels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := hashGraph(t, 2, 2)
		// Source 0 shares an executor with sink 0, source 1 with sink 1.
		c := start(t, &transport.InProcess{}, g, map[ids.SubtaskID]int{source(0): 0, sink(0): 0, source(1): 1, sink(1): 1})
		defer c.close(t)
		for from := range 2 {
			for to := range 2 {
				out := subtask.Output{Channel: to}
				for n := range 3 {
					c.endpoint(source(from)).Send(out, records(fmt.Sprintf("%d-%d.%d", from, to, n)))
				}
				c.endpoint(source(from)).Send(out, element.BarrierFrame(element.Barrier{Checkpoint: 7}))
				c.endpoint(sink(to)).Grant(from, int64(100+10*from+to))
			}
		}
		synctest.Wait()
		for from := range 2 {
			for to := range 2 {
				want := fmt.Sprintf("%[1]d-%[2]d.0 %[1]d-%[2]d.1 %[1]d-%[2]d.2 barrier(7)", from, to)
				if have := c.inboxes[sink(to)].received(from); have != want {
					t.Errorf("channel %d of sink %d received %q, want %q", from, to, have, want)
				}
				if have, want := c.inboxes[source(from)].credit(subtask.Output{Channel: to}), int64(100+10*from+to); have != want {
					t.Errorf("source %d has credit %d for sink %d, want %d", from, have, to, want)
				}
			}
		}
	})
}

// TestBlockedChannelStarvesNoOther: one channel of a stream has used up a
// large credit that nobody consumes; records and barriers of the others pass,
// and so does a barrier on the full channel itself.
func TestBlockedChannelStarvesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := hashGraph(t, 2, 1)
		c := start(t, &transport.InProcess{}, g, map[ids.SubtaskID]int{source(0): 0, source(1): 0, sink(0): 1})
		defer c.close(t)
		credit := c.endpoint(sink(0)).CreditBytes()
		block := make([]byte, 32<<10)
		for sent := int64(0); sent < credit; sent += int64(len(block)) {
			c.endpoint(source(0)).Send(subtask.Output{}, element.Frame{Kind: element.Records, Count: 1, Data: block})
		}
		// The sink grants nothing for channel 0 from now on, as when it is
		// blocked by alignment; source 0 has no credit left.
		c.endpoint(source(0)).Send(subtask.Output{}, element.BarrierFrame(element.Barrier{Checkpoint: 1}))
		for n := range 50 {
			c.endpoint(source(1)).Send(subtask.Output{}, records(fmt.Sprint(n)))
			synctest.Wait()
			if have := c.inboxes[sink(0)].received(1); !strings.HasSuffix(have, fmt.Sprint(n)) {
				t.Fatalf("record %d of the free channel did not pass: %q", n, have)
			}
		}
		if have := c.inboxes[sink(0)].received(0); !strings.HasSuffix(have, "barrier(1)") {
			t.Errorf("the barrier did not pass the channel without credit: %.200q", have)
		}
	})
}

func TestOldAttemptIsRefused(t *testing.T) {
	// I8: a holder of an old attempt changes nothing.
	synctest.Test(t, func(t *testing.T) {
		network := &transport.InProcess{}
		g := hashGraph(t, 1, 1)
		c := start(t, network, g, map[ids.SubtaskID]int{source(0): 0, sink(0): 1})
		defer c.close(t)
		synctest.Wait()
		address := c.exchanges[0].server.Address()
		for _, test := range []struct {
			name         string
			subscription *pb.Subscription
			kind         error
			text         string
		}{
			{"older attempt", subscription(job, ids.AttemptID{Token: 3, Number: 0}, sink(0)), transport.ErrStale, "attempt 3.1"},
			{"other leader", subscription(job, ids.AttemptID{Token: 2, Number: 9}, sink(0)), transport.ErrStale, "attempt 2.9"},
			{"other job", subscription("ffffffffffffffffffffffffffffffff", attempt, sink(0)), transport.ErrStale, "ffffffff"},
			{"second time", subscription(job, attempt, sink(0)), transport.ErrRefused, "subscribed before"},
			{"no such consumer", subscription(job, attempt, sink(5)), transport.ErrInvalid, "1/5"},
		} {
			err := subscribe(t, network, address, test.subscription)
			if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%s: error is %v", test.name, err)
			}
		}
	})
}

func subscription(job ids.JobID, attempt ids.AttemptID, consumer ids.SubtaskID) *pb.Subscription {
	return &pb.Subscription{JobId: string(job), Attempt: snapshot.AttemptToProto(attempt),
		Consumer: &pb.SubtaskRef{Vertex: int32(consumer.Vertex), Index: consumer.Index}}
}

// subscribe returns the error that a subscription ends with.
func subscribe(t *testing.T, network transport.Network, address string, m *pb.Subscription) error {
	t.Helper()
	client, err := transport.DialExecutor(address, transport.DialOptions{Network: network})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}()
	stream, err := client.Subscribe(t.Context(), m)
	if err != nil {
		return err
	}
	var f transport.Frame
	return stream.Recv(&f)
}

func TestSubscriptionsWaitForTheDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &transport.InProcess{}
		x := New(job, attempt, network)
		l, err := network.Listen("executor:0")
		if err != nil {
			t.Fatal(err)
		}
		x.Serve(l)
		ended := make(chan error, 1)
		go func() { ended <- subscribe(t, network, l.Addr().String(), subscription(job, attempt, sink(0))) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("ended before there was a deployment: %v", err)
		default:
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil {
			t.Error("the subscription goes on without its server")
		}
	})
}

func TestEndInOrderFailsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := hashGraph(t, 1, 1)
		c := start(t, &transport.InProcess{}, g, map[ids.SubtaskID]int{source(0): 0, sink(0): 1})
		synctest.Wait()
		c.endpoint(source(0)).Send(subtask.Output{}, records("last"))
		if err := c.exchanges[0].Close(); err != nil { // the producer goes first
			t.Fatal(err)
		}
		synctest.Wait()
		if have := c.inboxes[sink(0)].received(0); have != "last" {
			t.Errorf("received %q, want what was queued before the end", have)
		}
		if err := c.exchanges[1].Close(); err != nil {
			t.Fatal(err)
		}
		for id, inbox := range c.inboxes {
			if f, ok := inbox.failure(); ok {
				t.Errorf("subtask %s failed: %s", id, f.Message)
			}
		}
	})
}

// breakable is a network whose connections can be cut or frozen.
type breakable struct {
	transport.InProcess
	mu     sync.Mutex
	conns  []*breakableConn
	frozen chan struct{}
}

func (b *breakable) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := b.InProcess.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &breakableConn{Conn: conn, frozen: b.frozen, closed: make(chan struct{})}
	b.conns = append(b.conns, c)
	return c, nil
}

// breakableConn carries nothing either way once frozen is closed, and says
// nothing about it: the other host has lost its power.
type breakableConn struct {
	net.Conn
	frozen chan struct{}
	once   sync.Once
	closed chan struct{}
}

func (c *breakableConn) isFrozen() bool {
	select {
	case <-c.frozen:
		return true
	default:
		return false
	}
}

func (c *breakableConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.isFrozen() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *breakableConn) Write(p []byte) (int, error) {
	if c.isFrozen() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *breakableConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	if c.isFrozen() {
		return nil // the peer does not hear of it
	}
	return c.Conn.Close()
}

func TestBrokenConnectionFailsBothEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &breakable{frozen: make(chan struct{})}
		g := hashGraph(t, 1, 1)
		c := start(t, network, g, map[ids.SubtaskID]int{source(0): 0, sink(0): 1})
		defer c.close(t)
		synctest.Wait()
		for _, conn := range network.conns {
			if err := conn.Conn.Close(); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		checkLost(t, c.inboxes[sink(0)], "tm0")
		checkLost(t, c.inboxes[source(0)], "tm1")
	})
}

func TestSilentPeerIsNoticedByKeepalive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &breakable{frozen: make(chan struct{})}
		g := hashGraph(t, 1, 1)
		c := start(t, network, g, map[ids.SubtaskID]int{source(0): 0, sink(0): 1})
		time.Sleep(time.Minute) // quiet, but alive: keepalive must not be taken for flooding
		for id, inbox := range c.inboxes {
			if f, ok := inbox.failure(); ok {
				t.Fatalf("subtask %s failed while all was well: %s", id, f.Message)
			}
		}
		close(network.frozen)
		began := time.Now()
		for time.Since(began) < 30*time.Second {
			time.Sleep(100 * time.Millisecond)
			_, sinkFailed := c.inboxes[sink(0)].failure()
			_, sourceFailed := c.inboxes[source(0)].failure()
			if sinkFailed && sourceFailed {
				break
			}
		}
		checkLost(t, c.inboxes[sink(0)], "tm0")
		checkLost(t, c.inboxes[source(0)], "tm1")
		c.close(t)
		for _, conn := range network.conns {
			if err := conn.Conn.Close(); err != nil {
				t.Log(err) // the server's side has closed it
			}
		}
	})
}

func checkLost(t *testing.T, inbox *recorder, peer string) {
	t.Helper()
	f, ok := inbox.failure()
	switch {
	case !ok:
		t.Errorf("the loss of %s was not noticed", peer)
	case f.Kind != coordinator.LostProcess, !strings.Contains(f.Message, peer):
		t.Errorf("the loss of %s is reported as %v", peer, f)
	}
}

func TestRecordThatCannotBeSentIsPermanent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := hashGraph(t, 1, 1)
		c := start(t, &transport.InProcess{}, g, map[ids.SubtaskID]int{source(0): 0, sink(0): 1})
		defer c.close(t)
		c.endpoint(source(0)).Send(subtask.Output{}, element.Frame{Kind: element.Records, Count: 1, Data: make([]byte, transport.FrameBytesMax+1)})
		f, ok := c.inboxes[source(0)].failure()
		if !ok || f.Kind != coordinator.PermanentFailure || !strings.Contains(f.Message, "smaller") {
			t.Errorf("failure is %v", f)
		}
		// The largest that can.
		c.endpoint(source(0)).Send(subtask.Output{}, element.Frame{Kind: element.Records, Count: 1, Data: make([]byte, transport.FrameBytesMax)})
		synctest.Wait()
		if f, ok := c.inboxes[sink(0)].failure(); ok || c.inboxes[sink(0)].bytes != transport.FrameBytesMax {
			t.Errorf("sink has %d bytes, failure %v", c.inboxes[sink(0)].bytes, f)
		}
	})
}

func TestPooledBuffersComeBack(t *testing.T) {
	data, owner := NewBuffer()
	if len(data) != 0 || cap(data) < bufferBytes {
		t.Errorf("buffer has length %d and capacity %d", len(data), cap(data))
	}
	owner.Free()
}

// TestCreditOfManyChannelsIsBounded: a few channels get what is configured,
// many share a budget, and each has room for two batches.
func TestCreditOfManyChannelsIsBounded(t *testing.T) {
	for _, x := range []struct {
		configured int64
		channels   int
		want       int64
	}{
		{1 << 20, 0, 1 << 20},
		{1 << 20, 4, 1 << 20},
		{1 << 20, 16, 256 << 10},
		{1 << 20, 1000, channelCreditBytesMin},
		{64 << 10, 4, 64 << 10},
		{0, 4, 1},
	} {
		if got := subtaskCredit(x.configured, x.channels); got != x.want {
			t.Errorf("configured %d, %d channels: credit %d, want %d", x.configured, x.channels, got, x.want)
		}
	}
}
