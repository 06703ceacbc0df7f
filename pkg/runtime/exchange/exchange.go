package exchange

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/transport"
)

// Inbox is the receiving side of a task. Its methods may be called by any
// goroutine, and never block.
type Inbox interface {
	// Receive takes a frame of an input channel.
	Receive(in int, f element.Frame)
	// AddCredit takes credit for an output channel.
	AddCredit(out subtask.Output, bytes int64)
	// Fail ends the task with a failure from outside its code.
	Fail(f coordinator.Failure)
}

// Plan says which subtask runs where.
type Plan struct {
	Graph *graph.ExecutionGraph
	// Self is this executor's place in Peers.
	Self       int
	Peers      []coordinator.Peer
	Placements []coordinator.Placement
	// CreditBytes is the configured credit of a channel.
	CreditBytes int64
}

// Exchange is the data plane of one executor. The life of it: New, Serve,
// Deploy, Start, Close, called by one goroutine.
type Exchange struct {
	job     ids.JobID
	attempt ids.AttemptID
	network transport.Network

	server *transport.Server
	// ctx ends the streams of the consuming side when closing takes too long.
	ctx    context.Context
	cancel context.CancelFunc
	// started is closed by Start, from when on what follows is immutable;
	// closing by Close.
	started, closing chan struct{}
	// goroutines counts those of both ends, handlers of subscriptions included.
	goroutines sync.WaitGroup
	mu         struct {
		sync.Mutex
		closed bool // no handler may enter any more
	}

	ports   map[ids.SubtaskID]*Endpoint
	out     map[ids.SubtaskID]*outStream // by consumer
	in      []*inStream
	clients map[string]*transport.Executor // by address
}

// New makes the exchange of one attempt.
func New(job ids.JobID, attempt ids.AttemptID, network transport.Network) *Exchange {
	ctx, cancel := context.WithCancel(context.Background())
	return &Exchange{
		job: job, attempt: attempt, network: network, ctx: ctx, cancel: cancel,
		started: make(chan struct{}), closing: make(chan struct{}),
		ports: map[ids.SubtaskID]*Endpoint{}, out: map[ids.SubtaskID]*outStream{}, clients: map[string]*transport.Executor{},
	}
}

// Serve begins to serve subscriptions on the listener, which it takes over.
// Those of our attempt wait for Start.
func (x *Exchange) Serve(l net.Listener) {
	x.server = transport.Serve(l, transport.Handlers{Exchange: x})
}

// Deploy makes the endpoints of the subtasks that the plan places here.
func (x *Exchange) Deploy(p Plan) error {
	peerOf := map[ids.SubtaskID]int{}
	for _, placement := range p.Placements {
		if placement.Peer < 0 || placement.Peer >= len(p.Peers) {
			return fmt.Errorf("deploy: subtask %s is placed on peer %d of %d", placement.Subtask, placement.Peer, len(p.Peers))
		}
		peerOf[placement.Subtask] = placement.Peer
	}
	var here []ids.SubtaskID
	for _, id := range p.Graph.Subtasks() {
		peer, ok := peerOf[id]
		if !ok {
			return fmt.Errorf("deploy: subtask %s is placed nowhere", id)
		}
		if peer == p.Self {
			here = append(here, id)
			x.ports[id] = &Endpoint{id: id}
		}
	}
	for _, id := range here {
		x.connectInputs(&p, peerOf, x.ports[id])
		x.connectOutputs(&p, peerOf, x.ports[id])
	}
	return nil
}

// connectInputs makes the consuming side of a subtask: one stream for each
// peer that has a producer.
func (x *Exchange) connectInputs(p *Plan, peerOf map[ids.SubtaskID]int, e *Endpoint) {
	channels := p.Graph.InputChannels(e.id.Vertex, e.id.Index)
	e.in = make([]inChannel, len(channels))
	streams := map[int]*inStream{}
	most := 0
	for n, c := range channels {
		peer := peerOf[c.From]
		if peer == p.Self {
			e.in[n] = inChannel{producer: x.ports[c.From], out: producerOutput(p.Graph, c)}
			continue
		}
		s := streams[peer]
		if s == nil {
			s = newInStream(x, e, p.Peers[peer], len(channels))
			streams[peer] = s
			x.in = append(x.in, s)
		}
		s.isOurs[n] = true
		s.channels++
		most = max(most, s.channels)
		e.in[n] = inChannel{stream: s}
	}
	e.creditBytes = subtaskCredit(p.CreditBytes, len(channels))
	if most > 0 {
		e.creditBytes = transport.ChannelCredit(e.creditBytes, most, operator.CutBytes)
	}
}

// Bounds of what all channels into a subtask may hold together. A few channels
// get as much credit as is configured, which keeps a fast producer and
// consumer from waiting for each other; hundreds get what two batches need,
// and together no more memory than that.
const (
	subtaskCreditBytes    = 4 << 20
	channelCreditBytesMin = 2 * operator.CutBytes
)

// subtaskCredit is the credit of each of a subtask's channels.
func subtaskCredit(configured int64, channels int) int64 {
	share := int64(subtaskCreditBytes / max(1, channels))
	return max(1, min(configured, max(share, channelCreditBytesMin)))
}

// producerOutput names an input channel as its producer does.
func producerOutput(g *graph.ExecutionGraph, c graph.InputChannel) subtask.Output {
	for n, edge := range g.Vertices[c.From.Vertex].Outputs {
		if edge == c.Edge {
			return subtask.Output{Edge: n, Channel: c.FromOutput}
		}
	}
	return subtask.Output{}
}

// connectOutputs makes the producing side of a subtask.
func (x *Exchange) connectOutputs(p *Plan, peerOf map[ids.SubtaskID]int, e *Endpoint) {
	edges := p.Graph.OutputChannels(e.id.Vertex, e.id.Index)
	e.out = make([][]outChannel, len(edges))
	for edge, channels := range edges {
		e.out[edge] = make([]outChannel, len(channels))
		for n, c := range channels {
			peer := peerOf[c.To]
			target := outChannel{channel: c.ToChannel}
			if peer == p.Self {
				target.consumer = x.ports[c.To]
			} else {
				s := x.out[c.To]
				if s == nil {
					s = newOutStream(c.To, p.Peers[peer], len(p.Graph.InputChannels(c.To.Vertex, c.To.Index)))
					x.out[c.To] = s
				}
				s.routes[c.ToChannel] = route{producer: e, out: subtask.Output{Edge: edge, Channel: n}}
				target.stream = s
			}
			e.out[edge][n] = target
		}
	}
}

// Endpoint is the subtask's end of its channels; nil if it does not run here.
func (x *Exchange) Endpoint(id ids.SubtaskID) *Endpoint { return x.ports[id] }

// Start connects the endpoints with the inboxes of their tasks, opens the
// streams to this executor's subtasks and lets the others' subscriptions in.
func (x *Exchange) Start(inboxes map[ids.SubtaskID]Inbox) error {
	for id, e := range x.ports {
		if inboxes[id] == nil {
			return fmt.Errorf("start exchange: subtask %s has no inbox", id)
		}
		e.inbox = inboxes[id]
	}
	for _, s := range x.in {
		client := x.clients[s.peer.DataAddress]
		if client == nil {
			var err error
			if client, err = transport.DialExecutor(s.peer.DataAddress, transport.DialOptions{Network: x.network}); err != nil {
				return fmt.Errorf("start exchange: %w", err)
			}
			x.clients[s.peer.DataAddress] = client
		}
		s.client = client
	}
	close(x.started)
	for _, s := range x.in {
		x.goroutines.Go(s.run)
	}
	return nil
}

// closeTimeout is how long Close waits for peers to take what is queued for
// them. They take it at once unless they hang.
const closeTimeout = 2 * time.Second

// Close sends what is queued, ends all streams in order, and stops serving.
// From its beginning, nothing that happens to a stream fails a task. It is
// called once.
func (x *Exchange) Close() error {
	x.mu.Lock()
	x.mu.closed = true
	x.mu.Unlock()
	close(x.closing)
	ended := make(chan struct{})
	go func() {
		x.goroutines.Wait()
		close(ended)
	}()
	var all []error
	if x.server != nil {
		// The consumers must see the end of their streams before the connection's.
		all = append(all, x.server.Shutdown(closeTimeout))
	}
	timeout := time.NewTimer(closeTimeout)
	defer timeout.Stop()
	select {
	case <-ended:
	case <-timeout.C:
	}
	x.cancel()
	<-ended
	for _, client := range x.clients {
		all = append(all, client.Close())
	}
	for _, s := range x.out {
		s.end()
	}
	if err := errors.Join(all...); err != nil {
		return fmt.Errorf("close exchange: %w", err)
	}
	return nil
}

// enter counts the handler of a subscription, unless Close has begun.
func (x *Exchange) enter() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.closed {
		return false
	}
	x.goroutines.Add(1)
	return true
}

// isClosing reports whether Close has begun.
func (x *Exchange) isClosing() bool {
	select {
	case <-x.closing:
		return true
	default:
		return false
	}
}
