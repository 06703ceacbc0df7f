package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport/rpc"
)

// DialOptions say how a client reaches its server.
type DialOptions struct {
	// Network is TCP when nil.
	Network Network
}

// dial makes a connection, which is set up with the first call and again
// after it broke.
func dial(address string, opts DialOptions, with ...grpc.DialOption) (*grpc.ClientConn, error) {
	network := opts.Network
	if network == nil {
		network = TCP{}
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, Errorf(ErrInvalid, "address %q: want host:port", address)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, append([]grpc.DialOption{
		// Processes trust their network, see docs: there is no encryption.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return network.Dial(ctx, address) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MessageBytesMax), grpc.MaxCallSendMsgSize(MessageBytesMax)),
		grpc.WithStaticStreamWindowSize(streamWindowBytes), grpc.WithStaticConnWindowSize(connectionWindowBytes),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: connectBackoffMax},
			MinConnectTimeout: connectTimeout,
		}),
		// Sessions and exchanges are never retried by gRPC, which would keep
		// what was sent in memory for it.
		grpc.WithDisableRetry(),
		grpc.WithReadBufferSize(ioBufferBytes), grpc.WithWriteBufferSize(ioBufferBytes),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
	}, with...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return conn, nil
}

// JobManager is a client of a JobManager. Its methods may be called
// concurrently; all but the sessions return when their context ends.
type JobManager struct {
	conn         *grpc.ClientConn
	peer         peerName
	client       rpc.JobManagerClientClient
	coordination rpc.CoordinationClient
}

// DialJobManager makes a client of the JobManager at host:port. It connects
// with the first call: an address where nobody listens is an error of that
// call, which matches ErrUnavailable.
func DialJobManager(address string, opts DialOptions) (*JobManager, error) {
	conn, err := dial(address, opts)
	if err != nil {
		return nil, err
	}
	return &JobManager{
		conn:         conn,
		peer:         peerName{role: "JobManager", address: address},
		client:       rpc.NewJobManagerClientClient(conn),
		coordination: rpc.NewCoordinationClient(conn),
	}, nil
}

// Address is the JobManager's.
func (j *JobManager) Address() string { return j.peer.address }

// Close breaks the connection and with it every session.
func (j *JobManager) Close() error { return j.conn.Close() }

// TaskManagerSession opens the session of a TaskManager. It ends with ctx.
func (j *JobManager) TaskManagerSession(ctx context.Context) (TaskManagerUplink, error) {
	return openSession(ctx, j.peer, func(ctx context.Context) (clientStream[pb.TaskManagerReport, pb.TaskManagerCommand], error) {
		return j.coordination.TaskManagerSession(ctx)
	})
}

// ExecutorSession opens the session of an executor. It ends with ctx.
func (j *JobManager) ExecutorSession(ctx context.Context) (ExecutorUplink, error) {
	return openSession(ctx, j.peer, func(ctx context.Context) (clientStream[pb.ExecutorReport, pb.ExecutorCommand], error) {
		return j.coordination.ExecutorSession(ctx)
	})
}

type clientStream[Out, In any] interface {
	messageStream[Out, In]
	CloseSend() error
}

func openSession[Out, In any](ctx context.Context, peer peerName, open func(context.Context) (clientStream[Out, In], error)) (Session[Out, In], error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := open(ctx)
	if err != nil {
		cancel()
		return nil, fromStatus(err, peer)
	}
	mapErr := func(err error) error { return fromStatus(err, peer) }
	return &clientSession[Out, In]{session: newSession(stream, mapErr, cancel), closeSend: stream.CloseSend}, nil
}

// GetArtifact opens an artifact. The reader ends with an error when the
// connection breaks; the caller checks the SHA-256, and closes it.
func (j *JobManager) GetArtifact(ctx context.Context, sha256 string) (content io.ReadCloser, size int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := j.coordination.GetArtifact(ctx, &pb.GetArtifactRequest{Sha256: sha256})
	if err != nil {
		cancel()
		return nil, 0, fromStatus(err, j.peer)
	}
	first, err := stream.Recv()
	if err != nil {
		cancel()
		return nil, 0, fromStatus(err, j.peer)
	}
	return &artifactReader{cancel: cancel, chunkReader: chunkReader{chunk: first.GetChunk(), next: func() ([]byte, error) {
		m, err := stream.Recv()
		return m.GetChunk(), fromStatus(err, j.peer)
	}}}, first.GetSize(), nil
}

type artifactReader struct {
	chunkReader
	cancel func()
}

// Close implements io.Closer.
func (r *artifactReader) Close() error {
	r.cancel()
	return nil
}

// UploadArtifact sends content, whose SHA-256 and size in bytes are given.
func (j *JobManager) UploadArtifact(ctx context.Context, sha256 string, size int64, content io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := j.client.UploadArtifact(ctx)
	if err != nil {
		return fromStatus(err, j.peer)
	}
	err = sendChunks(content, func(i int, chunk []byte) error {
		m := &pb.UploadArtifactRequest{Chunk: chunk}
		if i == 0 {
			m.Sha256, m.Size = sha256, size
		}
		return stream.Send(m)
	})
	// io.EOF from Send says that the server has answered already: why, says CloseAndRecv.
	if err != nil && !errors.Is(err, io.EOF) {
		return fromStatus(err, j.peer)
	}
	_, err = stream.CloseAndRecv()
	return fromStatus(err, j.peer)
}

// Logs calls each for the lines that the JobManager has, or with Follow until
// ctx ends or each returns an error, which Logs then returns.
func (j *JobManager) Logs(ctx context.Context, r *pb.LogsRequest, each func(*pb.LogLines) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := j.client.Logs(ctx, r)
	if err != nil {
		return fromStatus(err, j.peer)
	}
	for {
		lines, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fromStatus(err, j.peer)
		}
		if err := each(lines); err != nil {
			return err
		}
	}
}

// call maps the error of a call.
func call[Request, Response any](ctx context.Context, j *JobManager, request *Request,
	do func(context.Context, *Request, ...grpc.CallOption) (*Response, error)) (*Response, error) {
	response, err := do(ctx, request)
	if err != nil {
		return nil, fromStatus(err, j.peer)
	}
	return response, nil
}

// ClusterInfo asks what the cluster is.
func (j *JobManager) ClusterInfo(ctx context.Context, r *pb.ClusterInfoRequest) (*pb.ClusterInfoResponse, error) {
	return call(ctx, j, r, j.client.ClusterInfo)
}

// HasArtifact asks whether an artifact need not be uploaded.
func (j *JobManager) HasArtifact(ctx context.Context, r *pb.HasArtifactRequest) (*pb.HasArtifactResponse, error) {
	return call(ctx, j, r, j.client.HasArtifact)
}

// SubmitJob submits a job whose artifact is there.
func (j *JobManager) SubmitJob(ctx context.Context, r *pb.SubmitJobRequest) (*pb.SubmitJobResponse, error) {
	return call(ctx, j, r, j.client.SubmitJob)
}

// PlanRestore asks what a submission would restore. Nothing is started.
func (j *JobManager) PlanRestore(ctx context.Context, r *pb.PlanRestoreRequest) (*pb.PlanRestoreResponse, error) {
	return call(ctx, j, r, j.client.PlanRestore)
}

// ListJobs lists the jobs.
func (j *JobManager) ListJobs(ctx context.Context, r *pb.ListJobsRequest) (*pb.ListJobsResponse, error) {
	return call(ctx, j, r, j.client.ListJobs)
}

// JobStatus asks for the status of a job.
func (j *JobManager) JobStatus(ctx context.Context, r *pb.JobStatusRequest) (*pb.JobStatusResponse, error) {
	return call(ctx, j, r, j.client.JobStatus)
}

// CancelJob cancels a job and returns when it has ended.
func (j *JobManager) CancelJob(ctx context.Context, r *pb.CancelJobRequest) (*pb.CancelJobResponse, error) {
	return call(ctx, j, r, j.client.CancelJob)
}

// Savepoint takes a savepoint, with Stop the last thing the job does, and
// returns when it is complete.
func (j *JobManager) Savepoint(ctx context.Context, r *pb.SavepointRequest) (*pb.SavepointResponse, error) {
	return call(ctx, j, r, j.client.Savepoint)
}

// CheckpointJob takes a checkpoint and returns when it is published.
func (j *JobManager) CheckpointJob(ctx context.Context, r *pb.CheckpointJobRequest) (*pb.CheckpointJobResponse, error) {
	return call(ctx, j, r, j.client.CheckpointJob)
}

// ListCheckpoints lists the latest checkpoints of a job.
func (j *JobManager) ListCheckpoints(ctx context.Context, r *pb.ListCheckpointsRequest) (*pb.ListCheckpointsResponse, error) {
	return call(ctx, j, r, j.client.ListCheckpoints)
}

// ShowCheckpoint tells what is remembered of one checkpoint.
func (j *JobManager) ShowCheckpoint(ctx context.Context, r *pb.ShowCheckpointRequest) (*pb.ShowCheckpointResponse, error) {
	return call(ctx, j, r, j.client.ShowCheckpoint)
}

// ListTaskManagers lists the registered TaskManagers.
func (j *JobManager) ListTaskManagers(ctx context.Context, r *pb.ListTaskManagersRequest) (*pb.ListTaskManagersResponse, error) {
	return call(ctx, j, r, j.client.ListTaskManagers)
}
