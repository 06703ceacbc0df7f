package exchange

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/transport"
)

// outStream is the producing end of the stream to one subtask on another
// executor. Frames may be queued before the consumer has subscribed: control
// elements only, since nobody has given credit yet.
type outStream struct {
	consumer ids.SubtaskID
	peer     coordinator.Peer
	// routes has, for each input channel of the consumer that is fed from
	// here, where its credit goes.
	routes []route
	wake   chan struct{} // capacity 1: something was queued, or closing has begun
	mu     struct {
		sync.Mutex
		// queue is bounded by credit, see the package comment.
		queue      []transport.Frame
		subscribed bool
		over       bool // nothing will be sent any more
	}
}

type route struct {
	producer *Endpoint // nil: the channel is not fed from here
	out      subtask.Output
}

func newOutStream(consumer ids.SubtaskID, peer coordinator.Peer, channels int) *outStream {
	return &outStream{consumer: consumer, peer: peer, routes: make([]route, channels), wake: make(chan struct{}, 1)}
}

func (s *outStream) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// push queues a frame.
func (s *outStream) push(f transport.Frame) {
	s.mu.Lock()
	if s.mu.over {
		s.mu.Unlock()
		f.Free()
		return
	}
	s.mu.queue = append(s.mu.queue, f)
	first := len(s.mu.queue) == 1
	s.mu.Unlock()
	if first {
		s.wakeUp()
	}
}

// take swaps the queue for an empty one.
func (s *outStream) take(empty []transport.Frame) []transport.Frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := s.mu.queue
	s.mu.queue = empty
	return batch
}

// end drops what is queued and will be queued.
func (s *outStream) end() {
	s.mu.Lock()
	batch := s.mu.queue
	s.mu.queue, s.mu.over = nil, true
	s.mu.Unlock()
	free(batch)
}

func free(frames []transport.Frame) {
	for i := range frames {
		frames[i].Free()
	}
}

// Subscribe implements transport.ExchangeHandler.
func (x *Exchange) Subscribe(ctx context.Context, m *pb.Subscription, peer transport.ExchangeServerStream) error {
	job, attempt := ids.JobID(m.GetJobId()), snapshot.AttemptFromProto(m.GetAttempt())
	if job != x.job || attempt != x.attempt {
		return transport.Errorf(transport.ErrStale, "subscription of attempt %s of job %s: this executor runs attempt %s of job %s",
			attempt, job, x.attempt, x.job)
	}
	select {
	case <-x.started:
	case <-x.closing:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	if !x.enter() {
		return nil
	}
	defer x.goroutines.Done()
	consumer := ids.SubtaskID{Vertex: ids.VertexID(m.GetConsumer().GetVertex()), Index: m.GetConsumer().GetIndex()}
	s := x.out[consumer]
	if s == nil {
		return transport.Errorf(transport.ErrInvalid, "nothing here feeds subtask %s", consumer)
	}
	s.mu.Lock()
	again := s.mu.subscribed
	s.mu.subscribed = true
	s.mu.Unlock()
	if again {
		// Frames of the first subscription are gone: the attempt is lost.
		return transport.Errorf(transport.ErrRefused, "subtask %s has subscribed before", consumer)
	}
	return s.serve(x, peer)
}

// serve sends what is queued until the exchange closes, the consumer needs no
// more, or the stream breaks, in which case the producers fail.
func (s *outStream) serve(x *Exchange, peer transport.ExchangeServerStream) error {
	defer s.end()
	received := make(chan error, 1)
	// Its Recv returns once this method has, at the latest.
	x.goroutines.Go(func() { received <- s.receive(peer) })
	err := s.send(x, peer, received)
	if err == nil || x.isClosing() {
		return nil
	}
	failure := coordinator.Failure{
		Kind: coordinator.LostProcess,
		Message: fmt.Sprintf("lost the connection to subtask %s on TaskManager %s (%s): %v",
			s.consumer, s.peer.TaskManager, s.peer.DataAddress, err),
	}
	failed := map[*Endpoint]bool{}
	for _, r := range s.routes {
		if r.producer != nil && !failed[r.producer] {
			failed[r.producer] = true
			r.producer.inbox.Fail(failure)
		}
	}
	return err
}

func (s *outStream) send(x *Exchange, peer transport.ExchangeServerStream, received <-chan error) error {
	var spare []transport.Frame
	for {
		batch := s.take(spare)
		for i := range batch {
			if err := peer.Send(&batch[i]); err != nil {
				free(batch[i:])
				return s.reason(err, received)
			}
		}
		clear(batch)
		spare = batch[:0]
		if len(batch) > 0 {
			continue
		}
		if x.isClosing() {
			return nil
		}
		select {
		case <-s.wake:
		case err := <-received:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-x.closing:
		}
	}
}

// reason prefers what receiving said about a broken stream, if it has ended.
func (s *outStream) reason(err error, received <-chan error) error {
	select {
	case cause := <-received:
		if !errors.Is(cause, io.EOF) {
			return cause
		}
	default:
	}
	return err
}

// receive hands credits to the producing tasks until the stream ends.
func (s *outStream) receive(peer transport.ExchangeServerStream) error {
	for {
		credits, err := peer.Recv()
		if err != nil {
			return err
		}
		for _, c := range credits {
			if int64(c.GetChannel()) >= int64(len(s.routes)) || s.routes[c.GetChannel()].producer == nil || c.GetBytes() <= 0 {
				return transport.Errorf(transport.ErrInvalid, "credit of %d bytes for channel %d, which is not fed from here", c.GetBytes(), c.GetChannel())
			}
			r := s.routes[c.GetChannel()]
			r.producer.inbox.AddCredit(r.out, c.GetBytes())
		}
	}
}
