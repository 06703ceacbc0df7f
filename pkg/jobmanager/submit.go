package jobmanager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/internal/logfield"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/coordinator/driver"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

const (
	// liveJobsMax bounds the jobs that run or wait at once: each has its
	// goroutines, and a script that submits for ever must end in an error.
	liveJobsMax = 1000
	// checkTimeout bounds each look at a store while a user waits.
	checkTimeout = 30 * time.Second
	// recordTriesMax bounds how often the first record of a job is written
	// while the outcome is unknown.
	recordTriesMax = 5
)

// SubmitJob accepts a job: it checks everything that can be checked here,
// stores what was submitted and then the job's record, and starts the job.
// Before the record exists nothing of the job does; when it exists, the job
// runs, be it under the next JobManager.
func (s *Server) SubmitJob(ctx context.Context, r *pb.SubmitJobRequest) (*pb.SubmitJobResponse, error) {
	j, err := s.prepareJob(r.GetSpec())
	if err != nil {
		return nil, err
	}
	spec := j.spec
	if err := s.checkArtifact(ctx, spec.GetArtifactSha256()); err != nil {
		return nil, err
	}
	if err := s.checkStorage(ctx, j); err != nil {
		return nil, err
	}
	// When the job is started it is in the registry, and nothing is reserved any more.
	defer s.releaseOrigin(j)
	if err := s.checkRestore(ctx, j); err != nil {
		return nil, err
	}
	warnings, err := s.checkOthers(spec.GetName())
	if err != nil {
		return nil, err
	}
	if err := s.persistJob(ctx, j); err != nil {
		return nil, err
	}
	if j.log, err = openJobLog(s.logDir, j.id); err != nil {
		return nil, errors.Join(err, s.withdrawJob(ctx, j.id))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closing {
		return nil, transport.Errorf(transport.ErrUnavailable,
			"the JobManager is shutting down: job %s was accepted and starts with the next one", j.id)
	}
	s.startLocked(j)
	s.log.Info("job submitted", logfield.Job(j.id), logfield.JobName(spec.GetName()), logfield.Slots(j.graph.LargestParallelism()))
	return &pb.SubmitJobResponse{JobId: string(j.id), Warnings: warnings}, nil
}

// prepareJob checks what was submitted by itself and gives it an ID.
func (s *Server) prepareJob(submitted *pb.JobSpec) (*job, error) {
	if submitted.GetGraph() == nil {
		return nil, transport.Errorf(transport.ErrInvalid, "the submission has no job graph")
	}
	spec := proto.CloneOf(submitted)
	if version := spec.GetGraph().GetWireVersion(); version != transport.WireVersion {
		return nil, transport.Errorf(transport.ErrInvalid,
			"the job was built for wire version %d, the cluster speaks version %d: build it with the cluster's release", version, transport.WireVersion)
	}
	spec.JobId = nonce() // a job's ID is 128 random bits, like a nonce
	spec.SubmittedUnixMs = time.Now().UnixMilli()
	if spec.Name == "" {
		spec.Name = spec.GetGraph().GetName()
	}
	j, err := s.makeJob(spec)
	if err != nil {
		return nil, err
	}
	if spec.GetGraph().GetMaxParallelism() == 0 {
		// Fixed for the job's life: whatever the configuration says later.
		spec.Graph.MaxParallelism = int32(config.MaxParallelism.Get(j.config))
		if j, err = s.makeJob(spec); err != nil {
			return nil, err
		}
	}
	return j, nil
}

func (s *Server) checkArtifact(ctx context.Context, sha256 string) error {
	if s.options.InProcess && sha256 == "" {
		return nil
	}
	_, exists, err := s.store.StatArtifact(ctx, sha256)
	switch {
	case err != nil:
		return storeError(err)
	case !exists:
		return transport.Errorf(transport.ErrInvalid, "artifact %s is not in the cluster: upload it first", sha256)
	}
	return nil
}

// checkStorage refuses a job whose checkpoints could not be stored, in the
// words of the store, which name the bucket and the endpoint.
func (s *Server) checkStorage(ctx context.Context, j *job) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	dir := s.checkpointDir(j.config)
	store, err := s.options.OpenStore(j.config)(dir)
	if err == nil {
		err = store.Check(ctx)
	}
	if err != nil {
		return transport.Errorf(transport.ErrRefused, "checkpoint storage cannot be used: %v", err)
	}
	return nil
}

// checkOthers looks at the other jobs: too many are refused, and a running one
// of the same name is often a mistake.
func (s *Server) checkOthers(name string) (warnings []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := 0
	for _, j := range s.mu.jobs {
		if j.driver == nil || j.driver.Status().Status.IsTerminal() {
			continue
		}
		live++
		if j.spec.GetName() == name {
			warnings = append(warnings, fmt.Sprintf("job %s, which is %s, has the name %q too", j.id, j.driver.Status().Status, name))
		}
	}
	if live >= liveJobsMax {
		return nil, transport.Errorf(transport.ErrRefused, "%d jobs are running or waiting, more are not allowed: cancel some", live)
	}
	return warnings, nil
}

// persistJob stores what was submitted and, last, the job's record.
func (s *Server) persistJob(ctx context.Context, j *job) error {
	content, err := proto.Marshal(j.spec)
	if err != nil {
		return transport.Errorf(transport.ErrInvalid, "job cannot be stored: %v", err)
	}
	if err := s.store.PutJob(ctx, j.id, content); err != nil {
		return storeError(errors.Join(err, s.withdrawJob(ctx, j.id)))
	}
	first := driver.FirstRecord(j.id, nonce())
	unknown := false
	for try := 1; ; try++ {
		result := s.store.CreateRecord(ctx, first)
		switch result.Outcome {
		case checkpointstore.Swapped:
			return nil
		case checkpointstore.Unknown:
			unknown = true
			if try < recordTriesMax && ctx.Err() == nil {
				continue
			}
		case checkpointstore.NotWritten:
			if !unknown {
				return storeError(errors.Join(result.Err, s.withdrawJob(ctx, j.id)))
			}
			if try < recordTriesMax && ctx.Err() == nil {
				continue
			}
		case checkpointstore.Lost:
			invariant.Check(false, "job ID", "job ID %s was made twice", j.id)
		}
		// Deleting it now is a try to be sure; if the late write comes after
		// that, the next JobManager that starts runs the job.
		withdrawn := s.withdrawJob(ctx, j.id)
		return transport.Errorf(transport.ErrUnavailable,
			"the cluster's store does not tell whether job %s was accepted: look for it with flinkctl list before you submit again: %v", j.id, errors.Join(result.Err, withdrawn))
	}
}

// withdrawJob removes what was stored of a job that is refused after all. It
// has to work even when the caller has gone.
func (s *Server) withdrawJob(ctx context.Context, id ids.JobID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	return s.store.DeleteJob(ctx, id)
}

// storeError tells flinkctl that the cluster's own store is at fault.
func storeError(err error) error {
	return transport.Errorf(transport.ErrUnavailable, "the cluster's store failed: %v", err)
}

// recoverJobs finds the jobs of earlier JobManagers: ended ones are listed,
// the others started again under the same ID.
func (s *Server) recoverJobs(ctx context.Context) error {
	var known []ids.JobID
	if err := s.untilAnswered(ctx, "list the jobs", func() (err error) {
		known, err = s.store.Jobs(ctx)
		return err
	}); err != nil {
		return err
	}
	for _, id := range known {
		if err := s.recoverJob(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// recoverJob brings one job back. What cannot be understood is left as it is
// for a human: the others must not wait for it.
func (s *Server) recoverJob(ctx context.Context, id ids.JobID) error {
	var content []byte
	var stored checkpointstore.VersionedRecord
	isLost := func(err error) bool {
		return errors.Is(err, objectstore.ErrNotExist) || errors.Is(err, checkpointstore.ErrCorrupt) || errors.Is(err, checkpointstore.ErrUnsupported)
	}
	var lost error
	err := s.untilAnswered(ctx, "read job "+string(id), func() (err error) {
		if content, err = s.store.ReadJob(ctx, id); err == nil {
			stored, err = s.store.ReadRecord(ctx, id)
		}
		if isLost(err) {
			lost, err = err, nil
		}
		return err
	})
	if err != nil {
		return err
	}
	spec := &pb.JobSpec{}
	var j *job
	if lost == nil {
		if lost = proto.Unmarshal(content, spec); lost == nil {
			j, lost = s.makeJob(spec)
		}
	}
	record, recordErr := driver.FromStored(stored.JobRecord)
	if lost = errors.Join(lost, recordErr); lost != nil {
		s.log.Error("job cannot be recovered and is left as it is", logfield.Job(id), zap.Error(lost))
		return nil
	}
	if record.Status.IsTerminal() {
		j.log = endedJobLog(s.logDir, id)
		j.final = endedView(j, record)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.jobs[id] = j
		return nil
	}
	if j.log, err = openJobLog(s.logDir, id); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startLocked(j)
	s.log.Info("job taken over", logfield.Job(id), logfield.JobName(spec.GetName()), logfield.Checkpoint(record.Latest.ID))
	return nil
}

// untilAnswered repeats a read of the store until that answers.
func (s *Server) untilAnswered(ctx context.Context, what string, read func() error) error {
	const pauseFirst, pauseMax = 200 * time.Millisecond, 10 * time.Second
	for pause := pauseFirst; ; pause = min(2*pause, pauseMax) {
		err := read()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, errors.Join(ctx.Err(), err))
		}
		s.log.Warn("the cluster's store does not answer: waiting for it", logfield.Reason(what), logfield.RetryIn(pause), zap.Error(err))
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}
