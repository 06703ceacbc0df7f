package exchange

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/transport"
)

// inStream is the consuming end of the stream from one executor to one
// subtask here.
type inStream struct {
	exchange *Exchange
	consumer *Endpoint
	peer     coordinator.Peer
	client   *transport.Executor
	isOurs   []bool // by the consumer's channel number: fed by this stream
	channels int    // how many are
	wake     chan struct{}
	mu       struct {
		sync.Mutex
		// pending is credit that has not been sent, by channel number, and
		// granted the channels that have some: credits of one channel add up
		// while the stream is busy.
		pending []int64
		granted []int
	}
}

func newInStream(x *Exchange, consumer *Endpoint, peer coordinator.Peer, channels int) *inStream {
	s := &inStream{exchange: x, consumer: consumer, peer: peer, isOurs: make([]bool, channels), wake: make(chan struct{}, 1)}
	s.mu.pending = make([]int64, channels)
	return s
}

func (s *inStream) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// grant queues credit.
func (s *inStream) grant(channel int, bytes int64) {
	s.mu.Lock()
	if s.mu.pending[channel] == 0 {
		s.mu.granted = append(s.mu.granted, channel)
	}
	s.mu.pending[channel] += bytes
	s.mu.Unlock()
	s.wakeUp()
}

// takeCredits makes a message of what is pending.
func (s *inStream) takeCredits() []*pb.Credit {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.granted) == 0 {
		return nil
	}
	credits := make([]*pb.Credit, len(s.mu.granted))
	for i, channel := range s.mu.granted {
		credits[i] = &pb.Credit{Channel: uint32(channel), Bytes: s.mu.pending[channel]}
		s.mu.pending[channel] = 0
	}
	s.mu.granted = s.mu.granted[:0]
	return credits
}

// run subscribes and receives until the stream ends. Unless that is in order,
// the consumer fails.
func (s *inStream) run() {
	err := s.stream()
	if err == nil || errors.Is(err, io.EOF) || s.exchange.isClosing() {
		return
	}
	s.consumer.inbox.Fail(coordinator.Failure{
		Kind: coordinator.LostProcess,
		Message: fmt.Sprintf("subtask %s lost the connection to its producers on TaskManager %s (%s): %v",
			s.consumer.id, s.peer.TaskManager, s.peer.DataAddress, err),
	})
}

func (s *inStream) stream() error {
	x := s.exchange
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	stream, err := s.client.Subscribe(ctx, &pb.Subscription{
		JobId: string(x.job), Attempt: snapshot.AttemptToProto(x.attempt),
		Consumer: &pb.SubtaskRef{Vertex: int32(s.consumer.id.Vertex), Index: s.consumer.id.Index},
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	granting := make(chan struct{})
	go func() {
		defer close(granting)
		s.sendCredits(stream, ended)
	}()
	err = s.receive(stream)
	close(ended)
	<-granting
	return err
}

// receive takes every frame off the stream at once.
func (s *inStream) receive(stream *transport.ExchangeStream) error {
	for {
		var f transport.Frame
		if err := stream.Recv(&f); err != nil {
			return err
		}
		if int64(f.Channel) >= int64(len(s.isOurs)) || !s.isOurs[f.Channel] {
			f.Free()
			return fmt.Errorf("received a frame for channel %d, which the peer does not feed", f.Channel)
		}
		s.consumer.inbox.Receive(int(f.Channel), f.Frame)
	}
}

// sendCredits sends what is granted until the stream has ended, and tells the
// producer when nothing more is needed.
func (s *inStream) sendCredits(stream *transport.ExchangeStream, ended <-chan struct{}) {
	for {
		select {
		case <-s.wake:
		case <-ended:
			return
		case <-s.exchange.closing:
			// An error means that the stream is over, which receive sees too.
			_ = stream.CloseSend()
			return
		}
		if credits := s.takeCredits(); credits != nil {
			if err := stream.Grant(credits); err != nil {
				return
			}
		}
	}
}
