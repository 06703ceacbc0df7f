package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport/rpc"
)

// CoordinationHandler is what a JobManager does for TaskManagers and
// executors. Its methods are called concurrently. The context of a session
// ends with its stream.
type CoordinationHandler interface {
	// TaskManagerSession serves a session until it returns: then what was sent
	// goes out, and the session ends. An error is what the peer's Recv returns.
	TaskManagerSession(ctx context.Context, s TaskManagerSession) error
	// ExecutorSession is the same for an executor.
	ExecutorSession(ctx context.Context, s ExecutorSession) error
	// GetArtifact gives an artifact's content and its size. The caller closes it.
	GetArtifact(ctx context.Context, sha256 string) (content io.ReadCloser, size int64, err error)
}

// ClientHandler is what a JobManager does for flinkctl. Its methods are called
// concurrently.
type ClientHandler interface {
	ClusterInfo(ctx context.Context, r *pb.ClusterInfoRequest) (*pb.ClusterInfoResponse, error)
	HasArtifact(ctx context.Context, r *pb.HasArtifactRequest) (*pb.HasArtifactResponse, error)
	// UploadArtifact stores content, which is said to have that SHA-256 and
	// size in bytes: the handler checks both.
	UploadArtifact(ctx context.Context, sha256 string, size int64, content io.Reader) error
	SubmitJob(ctx context.Context, r *pb.SubmitJobRequest) (*pb.SubmitJobResponse, error)
	// PlanRestore says what SubmitJob of the same would restore, and why it
	// would be refused.
	PlanRestore(ctx context.Context, r *pb.PlanRestoreRequest) (*pb.PlanRestoreResponse, error)
	ListJobs(ctx context.Context, r *pb.ListJobsRequest) (*pb.ListJobsResponse, error)
	JobStatus(ctx context.Context, r *pb.JobStatusRequest) (*pb.JobStatusResponse, error)
	CancelJob(ctx context.Context, r *pb.CancelJobRequest) (*pb.CancelJobResponse, error)
	Savepoint(ctx context.Context, r *pb.SavepointRequest) (*pb.SavepointResponse, error)
	// CheckpointJob takes a checkpoint now and waits until it is published.
	CheckpointJob(ctx context.Context, r *pb.CheckpointJobRequest) (*pb.CheckpointJobResponse, error)
	ListCheckpoints(ctx context.Context, r *pb.ListCheckpointsRequest) (*pb.ListCheckpointsResponse, error)
	// ShowCheckpoint tells what is remembered of one checkpoint.
	ShowCheckpoint(ctx context.Context, r *pb.ShowCheckpointRequest) (*pb.ShowCheckpointResponse, error)
	ListTaskManagers(ctx context.Context, r *pb.ListTaskManagersRequest) (*pb.ListTaskManagersResponse, error)
	// Logs sends lines until there are none, or with Follow until ctx ends.
	Logs(ctx context.Context, r *pb.LogsRequest, send func(*pb.LogLines) error) error
}

// ExchangeHandler is what an executor does for those that consume from it.
type ExchangeHandler interface {
	// Subscribe serves a stream until it returns. An error refuses or breaks
	// it; without one the consumer sees the end of the stream.
	Subscribe(ctx context.Context, subscription *pb.Subscription, s ExchangeServerStream) error
}

// ExchangeServerStream is the producer's end of an exchange stream. Send and
// Recv may be called by two goroutines at the same time.
type ExchangeServerStream interface {
	// Send writes a frame, and waits while the stream's window is full. It
	// takes f over: the records are freed once they are on their way, or now
	// if there is an error.
	Send(f *Frame) error
	// Recv waits for credits. io.EOF: the consumer needs nothing more.
	Recv() ([]*pb.Credit, error)
}

// Handlers are the services of one server; those that are nil are not served.
type Handlers struct {
	Coordination CoordinationHandler
	Client       ClientHandler
	Exchange     ExchangeHandler
}

// Server is a running gRPC server.
type Server struct {
	grpc     *grpc.Server
	listener net.Listener
	// sessions counts the handlers' goroutines, which the gRPC server does not know.
	sessions sync.WaitGroup
	served   chan struct{}
	serveErr error // written before served is closed
}

// Serve starts to serve on the listener, which it takes over. Close ends it.
func Serve(l net.Listener, h Handlers) *Server {
	s := &Server{listener: l, served: make(chan struct{})}
	s.grpc = grpc.NewServer(
		grpc.MaxRecvMsgSize(MessageBytesMax), grpc.MaxSendMsgSize(MessageBytesMax),
		grpc.StaticStreamWindowSize(streamWindowBytes), grpc.StaticConnWindowSize(connectionWindowBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveTimeMin, PermitWithoutStream: true}),
		grpc.ForceServerCodecV2(frameCodec{}),
		grpc.WriteBufferSize(ioBufferBytes), grpc.ReadBufferSize(ioBufferBytes),
		grpc.WaitForHandlers(true),
	)
	if h.Coordination != nil {
		rpc.RegisterCoordinationServer(s.grpc, &coordinationServer{server: s, handler: h.Coordination})
	}
	if h.Client != nil {
		rpc.RegisterJobManagerClientServer(s.grpc, &clientServer{handler: h.Client})
	}
	if h.Exchange != nil {
		rpc.RegisterExchangeServer(s.grpc, &exchangeServer{handler: h.Exchange})
	}
	go func() {
		defer close(s.served)
		if err := s.grpc.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.serveErr = fmt.Errorf("serve on %s: %w", l.Addr(), err)
		}
	}()
	return s
}

// Address is where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Done is closed when the server accepts nothing more: after Close, or when
// its listener failed, which Close then returns.
func (s *Server) Done() <-chan struct{} { return s.served }

// Close breaks all connections and waits for all handlers to return. It may
// be called more than once, by one goroutine.
func (s *Server) Close() error {
	s.grpc.Stop()
	<-s.served
	s.sessions.Wait()
	return s.serveErr
}

// Shutdown lets calls and streams come to their end, of which it tells the
// peers, and then closes. It breaks what has not ended after timeout. It may
// be called once, instead of Close or before it.
func (s *Server) Shutdown(timeout time.Duration) error {
	graceful := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(graceful)
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-graceful:
	case <-timer.C:
	}
	err := s.Close() // which lets GracefulStop return as well
	<-graceful
	return err
}

// coordinationServer adapts a CoordinationHandler.
type coordinationServer struct {
	rpc.UnimplementedCoordinationServer
	server  *Server
	handler CoordinationHandler
}

// TaskManagerSession implements rpc.CoordinationServer.
func (c *coordinationServer) TaskManagerSession(stream grpc.BidiStreamingServer[pb.TaskManagerReport, pb.TaskManagerCommand]) error {
	ctx := stream.Context()
	return serveSession(stream, &c.server.sessions, func(s TaskManagerSession) error {
		return c.handler.TaskManagerSession(ctx, s)
	})
}

// ExecutorSession implements rpc.CoordinationServer.
func (c *coordinationServer) ExecutorSession(stream grpc.BidiStreamingServer[pb.ExecutorReport, pb.ExecutorCommand]) error {
	ctx := stream.Context()
	return serveSession(stream, &c.server.sessions, func(s ExecutorSession) error {
		return c.handler.ExecutorSession(ctx, s)
	})
}

// GetArtifact implements rpc.CoordinationServer.
func (c *coordinationServer) GetArtifact(r *pb.GetArtifactRequest, stream grpc.ServerStreamingServer[pb.ArtifactChunk]) error {
	content, size, err := c.handler.GetArtifact(stream.Context(), r.GetSha256())
	if err != nil {
		return toStatus(err)
	}
	err = sendChunks(content, func(i int, chunk []byte) error {
		m := &pb.ArtifactChunk{Chunk: chunk}
		if i == 0 {
			m.Size = size
		}
		return stream.Send(m)
	})
	return toStatus(errors.Join(err, content.Close()))
}

// sendChunks reads content to its end and hands it on in pieces; an empty
// content in one empty piece.
func sendChunks(content io.Reader, send func(i int, chunk []byte) error) error {
	for i := 0; ; i++ {
		// gRPC may hold on to a message after Send has returned: each has its own buffer.
		chunk := make([]byte, artifactChunkBytes)
		n, err := io.ReadFull(content, chunk)
		if n > 0 || i == 0 {
			if err := send(i, chunk[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		default:
			return fmt.Errorf("read content: %w", err)
		}
	}
}
