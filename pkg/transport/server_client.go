package transport

import (
	"context"
	"io"

	"google.golang.org/grpc"

	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport/rpc"
)

// clientServer adapts a ClientHandler.
type clientServer struct {
	rpc.UnimplementedJobManagerClientServer
	handler ClientHandler
}

// answer maps the error of a call.
func answer[T any](response *T, err error) (*T, error) {
	if err != nil {
		return nil, toStatus(err)
	}
	return response, nil
}

// ClusterInfo implements rpc.JobManagerClientServer.
func (c *clientServer) ClusterInfo(ctx context.Context, r *pb.ClusterInfoRequest) (*pb.ClusterInfoResponse, error) {
	return answer(c.handler.ClusterInfo(ctx, r))
}

// HasArtifact implements rpc.JobManagerClientServer.
func (c *clientServer) HasArtifact(ctx context.Context, r *pb.HasArtifactRequest) (*pb.HasArtifactResponse, error) {
	return answer(c.handler.HasArtifact(ctx, r))
}

// UploadArtifact implements rpc.JobManagerClientServer.
func (c *clientServer) UploadArtifact(stream grpc.ClientStreamingServer[pb.UploadArtifactRequest, pb.UploadArtifactResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	content := &chunkReader{chunk: first.GetChunk(), next: func() ([]byte, error) {
		m, err := stream.Recv()
		return m.GetChunk(), err
	}}
	if err := c.handler.UploadArtifact(stream.Context(), first.GetSha256(), first.GetSize(), content); err != nil {
		return toStatus(err)
	}
	return stream.SendAndClose(&pb.UploadArtifactResponse{})
}

// SubmitJob implements rpc.JobManagerClientServer.
func (c *clientServer) SubmitJob(ctx context.Context, r *pb.SubmitJobRequest) (*pb.SubmitJobResponse, error) {
	return answer(c.handler.SubmitJob(ctx, r))
}

// PlanRestore implements rpc.JobManagerClientServer.
func (c *clientServer) PlanRestore(ctx context.Context, r *pb.PlanRestoreRequest) (*pb.PlanRestoreResponse, error) {
	return answer(c.handler.PlanRestore(ctx, r))
}

// ListJobs implements rpc.JobManagerClientServer.
func (c *clientServer) ListJobs(ctx context.Context, r *pb.ListJobsRequest) (*pb.ListJobsResponse, error) {
	return answer(c.handler.ListJobs(ctx, r))
}

// JobStatus implements rpc.JobManagerClientServer.
func (c *clientServer) JobStatus(ctx context.Context, r *pb.JobStatusRequest) (*pb.JobStatusResponse, error) {
	return answer(c.handler.JobStatus(ctx, r))
}

// CancelJob implements rpc.JobManagerClientServer.
func (c *clientServer) CancelJob(ctx context.Context, r *pb.CancelJobRequest) (*pb.CancelJobResponse, error) {
	return answer(c.handler.CancelJob(ctx, r))
}

// Savepoint implements rpc.JobManagerClientServer.
func (c *clientServer) Savepoint(ctx context.Context, r *pb.SavepointRequest) (*pb.SavepointResponse, error) {
	return answer(c.handler.Savepoint(ctx, r))
}

// CheckpointJob implements rpc.JobManagerClientServer.
func (c *clientServer) CheckpointJob(ctx context.Context, r *pb.CheckpointJobRequest) (*pb.CheckpointJobResponse, error) {
	return answer(c.handler.CheckpointJob(ctx, r))
}

// ListCheckpoints implements rpc.JobManagerClientServer.
func (c *clientServer) ListCheckpoints(ctx context.Context, r *pb.ListCheckpointsRequest) (*pb.ListCheckpointsResponse, error) {
	return answer(c.handler.ListCheckpoints(ctx, r))
}

// ShowCheckpoint implements rpc.JobManagerClientServer.
func (c *clientServer) ShowCheckpoint(ctx context.Context, r *pb.ShowCheckpointRequest) (*pb.ShowCheckpointResponse, error) {
	return answer(c.handler.ShowCheckpoint(ctx, r))
}

// ListTaskManagers implements rpc.JobManagerClientServer.
func (c *clientServer) ListTaskManagers(ctx context.Context, r *pb.ListTaskManagersRequest) (*pb.ListTaskManagersResponse, error) {
	return answer(c.handler.ListTaskManagers(ctx, r))
}

// Logs implements rpc.JobManagerClientServer.
func (c *clientServer) Logs(r *pb.LogsRequest, stream grpc.ServerStreamingServer[pb.LogLines]) error {
	return toStatus(c.handler.Logs(stream.Context(), r, stream.Send))
}

// chunkReader makes a reader of the pieces of a stream.
type chunkReader struct {
	chunk []byte
	next  func() ([]byte, error)
	err   error
}

// Read implements io.Reader.
func (r *chunkReader) Read(p []byte) (int, error) {
	for len(r.chunk) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.chunk, r.err = r.next()
	}
	n := copy(p, r.chunk)
	r.chunk = r.chunk[n:]
	return n, nil
}

var _ io.Reader = (*chunkReader)(nil)
