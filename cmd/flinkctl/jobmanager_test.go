package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/jobbuild"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/transport"
)

// Two jobs whose IDs share their first digits.
const (
	runningJob  = "4f2a5100000000000000000000000001"
	finishedJob = "4f2b0000000000000000000000000002"
)

// scriptedJobManager answers what its test wrote down and remembers what it was asked.
type scriptedJobManager struct {
	mu        sync.Mutex
	statuses  []*pb.JobStatusResponse // of the running job, one for each call; the last one stays
	artifacts map[string]int
	submitted *pb.JobSpec
	savepoint *pb.SavepointRequest
	refusal   error // of a submission, savepoint or checkpoint
	planned   *pb.JobSpec
	plan      *pb.PlanRestoreResponse
}

func (s *scriptedJobManager) PlanRestore(_ context.Context, r *pb.PlanRestoreRequest) (*pb.PlanRestoreResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planned = r.GetSpec()
	return s.plan, nil
}

func (s *scriptedJobManager) ClusterInfo(context.Context, *pb.ClusterInfoRequest) (*pb.ClusterInfoResponse, error) {
	return &pb.ClusterInfoResponse{Version: "v1", WireVersion: transport.WireVersion, ClusterId: "default",
		DefaultPlatform: jobbuild.Host().String(), Platforms: []string{jobbuild.Host().String(), jobbuild.Host().String()}}, nil
}

func (s *scriptedJobManager) HasArtifact(_ context.Context, r *pb.HasArtifactRequest) (*pb.HasArtifactResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &pb.HasArtifactResponse{Exists: s.artifacts[r.GetSha256()] > 0}, nil
}

func (s *scriptedJobManager) UploadArtifact(_ context.Context, sum string, size int64, content io.Reader) error {
	hash := sha256.New()
	n, err := io.Copy(hash, content)
	if err != nil {
		return err
	}
	if n != size || hex.EncodeToString(hash.Sum(nil)) != sum {
		return errors.New("the content is not what was announced")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.artifacts[sum]++
	return nil
}

func (s *scriptedJobManager) SubmitJob(_ context.Context, r *pb.SubmitJobRequest) (*pb.SubmitJobResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusal != nil {
		return nil, s.refusal
	}
	s.submitted = r.GetSpec()
	return &pb.SubmitJobResponse{JobId: runningJob, Warnings: []string{"another job has this name"}}, nil
}

func (s *scriptedJobManager) ListJobs(_ context.Context, r *pb.ListJobsRequest) (*pb.ListJobsResponse, error) {
	jobs := []*pb.JobSummary{{Id: runningJob, Name: "flights", Status: "RUNNING", SubmittedUnixMs: 1_000_000_000_000}}
	if r.GetAll() {
		jobs = append(jobs, &pb.JobSummary{Id: finishedJob, Name: "words", Status: "FINISHED", Restarts: 2,
			SubmittedUnixMs: 1_000_000_000_000, EndedUnixMs: 1_000_000_060_000})
	}
	return &pb.ListJobsResponse{Jobs: jobs}, nil
}

func (s *scriptedJobManager) JobStatus(_ context.Context, r *pb.JobStatusRequest) (*pb.JobStatusResponse, error) {
	if r.GetJobId() != runningJob {
		return nil, transport.Errorf(transport.ErrNotFound, "there is no job %s", r.GetJobId())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.statuses[0]
	if len(s.statuses) > 1 {
		s.statuses = s.statuses[1:]
	}
	return status, nil
}

func (s *scriptedJobManager) CancelJob(_ context.Context, r *pb.CancelJobRequest) (*pb.CancelJobResponse, error) {
	if r.GetJobId() == finishedJob {
		return nil, transport.Errorf(transport.ErrRefused, "job %s is already FINISHED", finishedJob)
	}
	return &pb.CancelJobResponse{Status: "CANCELED"}, nil
}

func (s *scriptedJobManager) Savepoint(_ context.Context, r *pb.SavepointRequest) (*pb.SavepointResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.savepoint = r
	if s.refusal != nil {
		return nil, s.refusal
	}
	return &pb.SavepointResponse{Path: "/sp/savepoint-4f2a5100000000000000000000000001-17", Checkpoint: 17}, nil
}

func (s *scriptedJobManager) CheckpointJob(context.Context, *pb.CheckpointJobRequest) (*pb.CheckpointJobResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusal != nil {
		return nil, s.refusal
	}
	return &pb.CheckpointJobResponse{Path: "/cp/" + runningJob + "/chk-18", Checkpoint: 18}, nil
}

func (s *scriptedJobManager) ListCheckpoints(context.Context, *pb.ListCheckpointsRequest) (*pb.ListCheckpointsResponse, error) {
	return &pb.ListCheckpointsResponse{Completed: 16, Failed: 1, Checkpoints: []*pb.CheckpointInfo{
		{Id: 18, Kind: "checkpoint", Status: "IN_PROGRESS", TriggeredUnixMs: 1_000_000_001_000, Acked: 1, Subtasks: 4},
		{Id: 17, Kind: "savepoint", Status: "COMPLETED", TriggeredUnixMs: 1_000_000_000_000, DurationMs: 12, Size: 2048, Uploaded: 512, AlignmentUs: 28_000, ChannelBytes: 300, Unaligned: true, Acked: 4, Subtasks: 4, Path: "/sp/savepoint-4f2a5100000000000000000000000001-17"},
		{Id: 16, Kind: "checkpoint", Status: "FAILED", Reason: "declined: count -> out (3/3): disk full", TriggeredUnixMs: 999_999_999_000, DurationMs: 600_000, AlignmentUs: 14_000, Size: 3072, Uploaded: 1024, Acked: 2, Subtasks: 4},
	}}, nil
}

func (s *scriptedJobManager) ShowCheckpoint(ctx context.Context, r *pb.ShowCheckpointRequest) (*pb.ShowCheckpointResponse, error) {
	listed, err := s.ListCheckpoints(ctx, nil)
	if err != nil || r.GetId() < 16 || r.GetId() > 18 {
		return nil, transport.Errorf(transport.ErrNotFound, "job %s has no checkpoint %d that is remembered: there are 3, from 16 to 18", r.GetJobId(), r.GetId())
	}
	response := &pb.ShowCheckpointResponse{Info: listed.GetCheckpoints()[18-r.GetId()], Vertices: []string{"flights", "count -> out"}}
	report := &snapshot.CheckpointReport{ID: ids.CheckpointID(r.GetId()), Kind: snapshot.Checkpoint, Parallelism: []int32{1, 3}, Subtasks: make([]snapshot.SubtaskReport, 4)}
	for i := range report.Subtasks {
		n := time.Duration(i + 1)
		report.Subtasks[i] = snapshot.SubtaskReport{Acked: true, End: 100 * n * time.Millisecond, StateBytes: 1024 << i, UploadedBytes: 512, Stats: snapshot.SubtaskStats{
			Alignment: 7 * n * time.Millisecond, Sync: n * time.Millisecond, Async: 1500 * n * time.Microsecond, ProcessedBytes: 100 << i,
		}}
	}
	switch r.GetId() {
	case 18:
		return response, nil // in progress
	case 17:
		report.Completed = true
		report.Subtasks[3].ChannelBytes, report.Subtasks[3].Stats.PersistedBytes, report.Subtasks[3].Stats.Unaligned = 300, 300, true
	case 16:
		report.Failure, report.Culprit = "declined", &ids.SubtaskID{Vertex: 1, Index: 2}
		report.Subtasks[2], report.Subtasks[3] = snapshot.SubtaskReport{}, snapshot.SubtaskReport{}
	}
	response.Report = report.ToProto()
	return response, nil
}

func (s *scriptedJobManager) ListTaskManagers(context.Context, *pb.ListTaskManagersRequest) (*pb.ListTaskManagersResponse, error) {
	return &pb.ListTaskManagersResponse{TaskManagers: []*pb.TaskManagerStatus{{Id: "taskmanager-1", Host: "127.0.0.1", Pid: 77, Slots: 2, SlotsFree: 1,
		Platform: "linux/amd64", Version: "v1", RegisteredUnixMs: 1_000_000_000_000,
		Executors: []*pb.ExecutorStatus{{JobId: runningJob, Attempt: "1.1", Pid: 78, DataAddress: "127.0.0.1:40000"}}}}}, nil
}

func (s *scriptedJobManager) Logs(_ context.Context, _ *pb.LogsRequest, send func(*pb.LogLines) error) error {
	return send(&pb.LogLines{Dropped: 3, Lines: []*pb.LogLine{{Source: "print[0]", Text: "hello", UnixMs: 1_000_000_000_000}}})
}

// serve starts a scripted JobManager and returns it with its address.
func serve(t *testing.T) (*scriptedJobManager, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scriptedJobManager{artifacts: map[string]int{}, statuses: []*pb.JobStatusResponse{runningStatus()}, plan: &pb.PlanRestoreResponse{}}
	server := transport.Serve(listener, transport.Handlers{Client: s})
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, server.Address()
}

func runningStatus() *pb.JobStatusResponse {
	return &pb.JobStatusResponse{
		Id: runningJob, Name: "flights", Status: "RUNNING", Restarts: 1, Attempt: 2, RestoredCheckpoint: 3, LastCheckpoint: 7,
		LastCheckpointPath: "/cp/chk-7", SubmittedUnixMs: 1_000_000_000_000, StartedUnixMs: 1_000_000_001_000,
		Cause: &pb.Failure{Kind: pb.FailureKind_FAILURE_KIND_USER, Operator: "delays", Message: "panic: boom", Stack: "goroutine 7 [running]:\nmain.f()"},
		Vertices: []*pb.VertexStatus{{Id: 0, Name: "flights", Parallelism: 2, RecordsOut: 100, RecordsOutRate: 12.5, Tasks: map[string]int32{"RUNNING": 2},
			Subtasks: []*pb.SubtaskStatus{
				{Index: 1, Status: "RUNNING", TaskManagerId: "taskmanager-2", Host: "127.0.0.1", RecordsOut: 60},
				{Index: 0, Status: "RUNNING", TaskManagerId: "taskmanager-1", Host: "127.0.0.1", RecordsOut: 40},
			}}},
		Executors: []*pb.TaskManagerStatus{{Id: "taskmanager-1", Executors: []*pb.ExecutorStatus{{JobId: runningJob, Attempt: "1.2", Pid: 78, DataAddress: "127.0.0.1:40000"}}}},
		Events:    []*pb.JobEvent{{UnixMs: 1_000_000_002_000, Text: "taskmanager-3 was lost"}},
	}
}

// flinkctl runs the command line and returns what it printed and its exit code.
func flinkctl(t *testing.T, args ...string) (stdout, stderr string, code exitCode) {
	t.Helper()
	var out, errOut bytes.Buffer
	c := &cli{stdout: &out, stderr: &errOut}
	code = exitCode(c.run(t.Context(), args))
	if code != codeOK && !strings.Contains(errOut.String(), "error: ") {
		t.Errorf("exit code %d without an error line: %s", code, errOut.String())
	}
	return out.String(), errOut.String(), code
}
