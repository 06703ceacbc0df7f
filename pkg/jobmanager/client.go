package jobmanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	goruntime "runtime"
	"slices"

	"github.com/weirstream/weir/internal/version"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/coordinator/driver"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/transport"
)

// ClusterInfo says what the cluster is.
func (s *Server) ClusterInfo(context.Context, *pb.ClusterInfoRequest) (*pb.ClusterInfoResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	total, free := s.mu.slots.Count()
	response := &pb.ClusterInfoResponse{
		Version:            version.String(),
		WireVersion:        transport.WireVersion,
		ClusterId:          s.clusterID,
		DefaultPlatform:    goruntime.GOOS + "/" + goruntime.GOARCH,
		TaskManagers:       int32(len(s.mu.taskManagers)),
		Slots:              int32(total),
		SlotsFree:          int32(free),
		DefaultParallelism: int32(config.DefaultParallelism.Get(s.options.Config)),
	}
	for _, tm := range s.mu.taskManagers {
		if !slices.Contains(response.Platforms, tm.hello.GetPlatform()) {
			response.Platforms = append(response.Platforms, tm.hello.GetPlatform())
		}
	}
	slices.Sort(response.Platforms)
	return response, nil
}

// HasArtifact says whether the artifact need not be uploaded.
func (s *Server) HasArtifact(ctx context.Context, r *pb.HasArtifactRequest) (*pb.HasArtifactResponse, error) {
	_, exists, err := s.store.StatArtifact(ctx, r.GetSha256())
	if err != nil {
		return nil, storeError(err)
	}
	return &pb.HasArtifactResponse{Exists: exists}, nil
}

// UploadArtifact stores an artifact, if it is what it is said to be and not
// larger than blob.max-size.
func (s *Server) UploadArtifact(ctx context.Context, sha256 string, size int64, content io.Reader) error {
	most := int64(config.BlobMaxSize.Get(s.options.Config))
	if size > most {
		return transport.Errorf(transport.ErrInvalid, "the artifact has %d bytes, blob.max-size allows %d", size, most)
	}
	counted := &countingReader{source: io.LimitReader(content, size+1)}
	err := s.store.PutArtifact(ctx, sha256, counted)
	switch {
	case errors.Is(err, checkpointstore.ErrCorrupt):
		return transport.Errorf(transport.ErrInvalid, "%v (%d bytes of %d came)", err, counted.count, size)
	case err != nil:
		return storeError(err)
	}
	return nil
}

type countingReader struct {
	source io.Reader
	count  int64
}

// Read implements io.Reader.
func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.source.Read(p)
	r.count += int64(n)
	return n, err
}

// GetArtifact opens an artifact for a TaskManager.
func (s *Server) GetArtifact(ctx context.Context, sha256 string) (io.ReadCloser, int64, error) {
	size, exists, err := s.store.StatArtifact(ctx, sha256)
	if err != nil {
		return nil, 0, storeError(err)
	}
	if !exists {
		return nil, 0, transport.Errorf(transport.ErrNotFound, "no artifact %s", sha256)
	}
	content, err := s.store.OpenArtifact(ctx, sha256)
	if errors.Is(err, objectstore.ErrNotExist) {
		return nil, 0, transport.Errorf(transport.ErrNotFound, "no artifact %s", sha256)
	}
	if err != nil {
		return nil, 0, storeError(err)
	}
	return content, size, nil
}

// found is one moment's look at a job: it has a driver, or a final view.
type found struct {
	*job
	driver      *driver.Driver
	final       *pb.JobStatusResponse
	checkpoints *pb.ListCheckpointsResponse
}

func (s *Server) findJob(id string) (found, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.mu.jobs[ids.JobID(id)]
	if j == nil {
		return found{}, transport.Errorf(transport.ErrNotFound, "no job with id %s", id)
	}
	return found{job: j, driver: j.driver, final: j.final, checkpoints: j.checkpoints}, nil
}

// ListJobs lists the jobs, newest first; without All those that have not ended.
func (s *Server) ListJobs(_ context.Context, r *pb.ListJobsRequest) (*pb.ListJobsResponse, error) {
	s.mu.Lock()
	jobs := make([]found, 0, len(s.mu.jobs))
	for _, j := range s.mu.jobs {
		jobs = append(jobs, found{job: j, driver: j.driver, final: j.final})
	}
	s.mu.Unlock()
	response := &pb.ListJobsResponse{}
	for _, f := range jobs {
		summary := &pb.JobSummary{Id: string(f.id), Name: f.spec.GetName(), SubmittedUnixMs: f.spec.GetSubmittedUnixMs()}
		ended := true
		if f.driver != nil {
			status := f.driver.Status()
			ended = status.Status.IsTerminal()
			summary.Status, summary.Restarts = status.Status.String(), int32(status.Restarts)
			summary.EndedUnixMs = snapshot.TimeToProto(status.EndedAt)
		} else {
			summary.Status, summary.Restarts, summary.EndedUnixMs = f.final.GetStatus(), f.final.GetRestarts(), f.final.GetEndedUnixMs()
		}
		if r.GetAll() || !ended {
			response.Jobs = append(response.Jobs, summary)
		}
	}
	slices.SortFunc(response.Jobs, func(a, b *pb.JobSummary) int {
		return cmp.Or(cmp.Compare(b.GetSubmittedUnixMs(), a.GetSubmittedUnixMs()), cmp.Compare(a.GetId(), b.GetId()))
	})
	return response, nil
}

// JobStatus shows one job.
func (s *Server) JobStatus(_ context.Context, r *pb.JobStatusRequest) (*pb.JobStatusResponse, error) {
	f, err := s.findJob(r.GetJobId())
	if err != nil {
		return nil, err
	}
	if f.driver == nil {
		return f.final, nil
	}
	view := f.driver.View(s.hostOf)
	s.mu.Lock()
	defer s.mu.Unlock()
	ofJob := func(e *executor) bool { return e.id.Job == f.id }
	for _, use := range s.mu.slots.TaskManagers() {
		if tm := s.mu.taskManagers[use.TaskManager]; tm != nil {
			if status := s.taskManagerStatusLocked(tm, ofJob); len(status.Executors) > 0 {
				status.SlotsFree = int32(use.Free)
				view.Executors = append(view.Executors, status)
			}
		}
	}
	return view, nil
}

// endedView shows a job that had ended before this server started.
func endedView(j *job, record coordinator.Record) *pb.JobStatusResponse {
	view := &pb.JobStatusResponse{
		Id: string(j.id), Name: j.spec.GetName(), Status: record.Status.String(), Restarts: int32(record.Restarts),
		LastCheckpoint: uint64(record.Latest.ID), LastCheckpointPath: record.Latest.URI,
		Cause:           driver.FailureToProto(record.Cause),
		SubmittedUnixMs: j.spec.GetSubmittedUnixMs(),
		StartedUnixMs:   snapshot.TimeToProto(record.StartedAt),
		EndedUnixMs:     snapshot.TimeToProto(record.EndedAt),
	}
	for i := range j.graph.Vertices {
		v := &j.graph.Vertices[i]
		view.Vertices = append(view.Vertices, &pb.VertexStatus{Id: int32(v.ID), Name: v.Name, Parallelism: int32(v.Parallelism)})
	}
	return view
}

// CancelJob cancels a job and returns when it has ended. A job that had ended
// before is ErrRefused, and stays as it is.
func (s *Server) CancelJob(ctx context.Context, r *pb.CancelJobRequest) (*pb.CancelJobResponse, error) {
	f, err := s.findJob(r.GetJobId())
	if err != nil {
		return nil, err
	}
	if f.driver == nil {
		return nil, alreadyEnded(f.final.GetStatus())
	}
	answer, err := f.driver.Cancel(ctx)
	if err != nil {
		return nil, s.requestError(f, err)
	}
	return &pb.CancelJobResponse{Status: answer.Status.String()}, nil
}

func alreadyEnded(status string) error {
	return transport.Errorf(transport.ErrRefused, "already %s", status)
}

// requestError puts the error of a driver's request into words for users.
func (s *Server) requestError(f found, err error) error {
	switch {
	case errors.Is(err, driver.ErrJobEnded):
		return alreadyEnded(f.driver.Status().Status.String())
	case errors.Is(err, driver.ErrSteppedDown):
		return transport.Errorf(transport.ErrUnavailable, "job %s: %v", f.id, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return transport.Errorf(transport.ErrRefused, "%v", err)
}

// Savepoint takes a savepoint, and with Stop ends the job with it. It waits
// until that is done, however long it takes.
func (s *Server) Savepoint(ctx context.Context, r *pb.SavepointRequest) (*pb.SavepointResponse, error) {
	f, err := s.findJob(r.GetJobId())
	if err != nil {
		return nil, err
	}
	if f.driver == nil {
		return nil, alreadyEnded(f.final.GetStatus())
	}
	if r.GetDrain() && !r.GetStop() {
		return nil, transport.Errorf(transport.ErrInvalid, "drain ends event time: it goes with stop only")
	}
	dir, err := s.savepointDir(ctx, f, r.GetDir())
	if err != nil {
		return nil, err
	}
	answer, err := f.driver.Savepoint(ctx, coordinator.SavepointRequested{Dir: dir, Stop: r.GetStop(), Drain: r.GetDrain()})
	if err != nil {
		err = s.requestError(f, err)
		if answer.Path != "" {
			// The savepoint is good even though the job did not end as asked.
			err = fmt.Errorf("%w (savepoint %s is complete)", err, answer.Path)
		}
		return nil, err
	}
	return &pb.SavepointResponse{Path: answer.Path, Checkpoint: uint64(answer.Checkpoint)}, nil
}

// CheckpointJob takes a checkpoint now and waits until it is published.
func (s *Server) CheckpointJob(ctx context.Context, r *pb.CheckpointJobRequest) (*pb.CheckpointJobResponse, error) {
	f, err := s.findJob(r.GetJobId())
	if err != nil {
		return nil, err
	}
	if f.driver == nil {
		return nil, alreadyEnded(f.final.GetStatus())
	}
	answer, err := f.driver.Checkpoint(ctx)
	if err != nil {
		return nil, s.requestError(f, err)
	}
	return &pb.CheckpointJobResponse{Path: answer.Path, Checkpoint: uint64(answer.Checkpoint)}, nil
}

// savepointDir finds out where the savepoint goes and that this can be
// written, before the job is bothered.
func (s *Server) savepointDir(ctx context.Context, f found, given string) (string, error) {
	jobConfig := f.config
	if given != "" {
		var err error
		if jobConfig, err = f.config.WithJob([]string{config.SavepointDir.Key() + "=" + given}); err != nil {
			return "", transport.Errorf(transport.ErrInvalid, "savepoint directory %q: give an absolute path, file:///PATH or s3://BUCKET/PREFIX", given)
		}
	}
	dir := config.SavepointDir.Get(jobConfig)
	if dir == "" {
		return "", transport.Errorf(transport.ErrInvalid, "no savepoint directory: name one, or set %s", config.SavepointDir.Key())
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	store, err := s.options.OpenStore(jobConfig)(dir)
	if err == nil {
		err = store.Check(ctx)
	}
	if err != nil {
		return "", transport.Errorf(transport.ErrRefused, "no savepoint was taken, the job is %s: %v", f.driver.Status().Status, err)
	}
	return dir, nil
}

// ListCheckpoints lists the latest checkpoints of a job, newest first. Of a
// job that had ended before this server started they are read when asked for.
func (s *Server) ListCheckpoints(ctx context.Context, r *pb.ListCheckpointsRequest) (*pb.ListCheckpointsResponse, error) {
	f, err := s.findJob(r.GetJobId())
	switch {
	case err != nil:
		return nil, err
	case f.driver != nil:
		return f.driver.CheckpointsView(), nil
	case f.checkpoints != nil:
		return f.checkpoints, nil
	}
	if err := f.history.Load(ctx); err != nil {
		return nil, storeError(err)
	}
	response := &pb.ListCheckpointsResponse{}
	for _, view := range f.history.Views() {
		response.Checkpoints = append(response.Checkpoints, driver.InfoOf(view))
	}
	return response, nil
}

// ShowCheckpoint tells what is remembered of one checkpoint of a job.
func (s *Server) ShowCheckpoint(ctx context.Context, r *pb.ShowCheckpointRequest) (*pb.ShowCheckpointResponse, error) {
	listed, err := s.ListCheckpoints(ctx, &pb.ListCheckpointsRequest{JobId: r.GetJobId()})
	if err != nil {
		return nil, err
	}
	f, err := s.findJob(r.GetJobId())
	if err != nil {
		return nil, err
	}
	response := &pb.ShowCheckpointResponse{}
	for _, info := range listed.GetCheckpoints() {
		if info.GetId() == r.GetId() {
			response.Info = info
		}
	}
	if response.Info == nil {
		return nil, noCheckpoint(f.id, r.GetId(), listed.GetCheckpoints())
	}
	report, err := f.history.Report(ids.CheckpointID(r.GetId()))
	if err != nil {
		return nil, err
	}
	if report != nil {
		response.Report = report.ToProto()
	}
	for i := range f.graph.Vertices {
		response.Vertices = append(response.Vertices, f.graph.Vertices[i].Name)
	}
	return response, nil
}

// noCheckpoint says which checkpoints there are instead.
func noCheckpoint(job ids.JobID, id uint64, listed []*pb.CheckpointInfo) error {
	if len(listed) == 0 {
		return transport.Errorf(transport.ErrNotFound, "job %s has no checkpoint %d: it has none that is remembered", job, id)
	}
	return transport.Errorf(transport.ErrNotFound, "job %s has no checkpoint %d that is remembered: there are %d, from %d to %d",
		job, id, len(listed), listed[len(listed)-1].GetId(), listed[0].GetId())
}

// Logs sends the output of a job's executors, see jobLog.
func (s *Server) Logs(ctx context.Context, r *pb.LogsRequest, send func(*pb.LogLines) error) error {
	f, err := s.findJob(r.GetJobId())
	if err != nil {
		return err
	}
	return f.log.read(ctx, r.GetFollow(), send)
}
