package transport

import (
	"context"
	"fmt"
	"io"

	"google.golang.org/grpc"

	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport/rpc"
)

// exchangeServer adapts an ExchangeHandler.
type exchangeServer struct {
	rpc.UnimplementedExchangeServer
	handler ExchangeHandler
}

// Subscribe implements rpc.ExchangeServer.
func (e *exchangeServer) Subscribe(stream grpc.BidiStreamingServer[pb.SubscribeMessage, pb.Frame]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	subscription := first.GetSubscription()
	if subscription == nil {
		return toStatus(Errorf(ErrInvalid, "the first message of an exchange is not a subscription"))
	}
	if v := subscription.GetWireVersion(); v != WireVersion {
		return toStatus(Errorf(ErrStale, "the consumer speaks wire version %d, this executor %d", v, WireVersion))
	}
	return toStatus(e.handler.Subscribe(stream.Context(), subscription, &exchangeServerStream{stream: stream}))
}

type exchangeServerStream struct {
	stream grpc.BidiStreamingServer[pb.SubscribeMessage, pb.Frame]
}

// Send implements ExchangeServerStream.
func (s *exchangeServerStream) Send(f *Frame) error {
	// Not stream.Send: the codec writes our own type in the same format.
	return fromStatus(s.stream.SendMsg(f), peerName{role: "consumer"})
}

// Recv implements ExchangeServerStream.
func (s *exchangeServerStream) Recv() ([]*pb.Credit, error) {
	m, err := s.stream.Recv()
	if err != nil {
		return nil, fromStatus(err, peerName{role: "consumer"})
	}
	return m.GetCredits(), nil
}

// Executor is a client of the exchange of an executor. All subscriptions
// share its connection. Its methods may be called concurrently.
type Executor struct {
	conn   *grpc.ClientConn
	client rpc.ExchangeClient
	peer   peerName
}

// DialExecutor makes a client of the executor at host:port. It connects with
// the first subscription.
func DialExecutor(address string, opts DialOptions) (*Executor, error) {
	conn, err := dial(address, opts)
	if err != nil {
		return nil, err
	}
	return &Executor{conn: conn, client: rpc.NewExchangeClient(conn), peer: peerName{role: "executor", address: address}}, nil
}

// Close breaks the connection and all its streams.
func (e *Executor) Close() error { return e.conn.Close() }

// ExchangeStream is the consumer's end of an exchange stream. Recv may be
// called by another goroutine than Grant and CloseSend.
type ExchangeStream struct {
	stream grpc.BidiStreamingClient[pb.SubscribeMessage, pb.Frame]
	peer   peerName
}

// Subscribe opens the stream of all channels to one subtask. It ends with ctx.
// The wire version is filled in. That the producer refuses, which matches
// ErrStale, is an error of the first Recv.
func (e *Executor) Subscribe(ctx context.Context, subscription *pb.Subscription) (*ExchangeStream, error) {
	subscription.WireVersion = WireVersion
	stream, err := e.client.Subscribe(ctx, grpc.ForceCodecV2(frameCodec{}))
	if err != nil {
		return nil, fromStatus(err, e.peer)
	}
	if err := stream.Send(&pb.SubscribeMessage{Subscription: subscription}); err != nil {
		return nil, fmt.Errorf("subscribe at %s: %w", e.peer.address, fromStatus(err, e.peer))
	}
	return &ExchangeStream{stream: stream, peer: e.peer}, nil
}

// Recv waits for a frame and puts it into f, whose earlier content is
// overwritten. The receiver frees it. io.EOF: the producer has nothing more.
func (s *ExchangeStream) Recv(f *Frame) error {
	return fromStatus(s.stream.RecvMsg(f), s.peer)
}

// Grant sends credits. io.EOF says that the stream is over; Recv has the reason.
func (s *ExchangeStream) Grant(credits []*pb.Credit) error {
	err := s.stream.Send(&pb.SubscribeMessage{Credits: credits})
	if err != nil {
		return io.EOF
	}
	return nil
}

// CloseSend tells the producer that the consumer needs nothing more.
func (s *ExchangeStream) CloseSend() error { return fromStatus(s.stream.CloseSend(), s.peer) }
