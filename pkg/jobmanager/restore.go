package jobmanager

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"path"
	"strings"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/codec/avro"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/transport"
)

// origin is what a job was submitted to start from. It never changes once the
// server knows the job.
type origin struct {
	// place is the directory in the one form of it that is compared; empty for
	// a start from nothing.
	place string
	// job and checkpoint are what its metadata says. The JobManager that
	// accepted the job has read them, the ones after it have not.
	job        ids.JobID
	checkpoint ids.CheckpointID
}

// originOf is what is known from the spec.
func originOf(spec *pb.JobSpec) origin {
	from := spec.GetRestoreFrom()
	if from == "" {
		return origin{}
	}
	place := checkpointstore.LocationOf(from).URI()
	if local, ok := strings.CutPrefix(place, "file://"); ok {
		if unescaped, err := url.PathUnescape(local); err == nil {
			local = unescaped
		}
		place = local
	}
	if strings.HasPrefix(place, "/") {
		place = path.Clean(place)
	}
	return origin{place: place}
}

// is reports whether both are the same checkpoint, whose directory may have two
// names. A copy cannot be told from it.
func (o origin) is(other origin) bool {
	if o.place == "" || other.place == "" {
		return false
	}
	return o.place == other.place || o.job != "" && o.job == other.job && o.checkpoint == other.checkpoint
}

// checkRestore looks at what the job is to start from: a wrong path, damaged
// metadata and state that the graph cannot take are the submitter's matter.
// A claim is reserved for the job until releaseOrigin.
func (s *Server) checkRestore(ctx context.Context, j *job) error {
	checkpoint, err := s.loadRestore(ctx, j)
	if err != nil || checkpoint == nil {
		return err
	}
	if err := s.checkClaim(j, checkpoint, true); err != nil {
		return err
	}
	return j.fitRestore(checkpoint)
}

// checkClaim refuses to claim what a job of this cluster that has not ended, or
// one that is being submitted, deletes by itself: two owners would delete it
// under each other. With reserve, it is j's from now on.
func (s *Server) checkClaim(j *job, checkpoint *snapshot.CompletedCheckpoint, reserve bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.spec.GetClaimRestored() {
		// A job that is being stopped needs its savepoint until all is committed.
		needed := checkpoint.Kind != snapshot.Savepoint
		for other, status := range s.startedLocked() {
			owns := needed && other.id == checkpoint.Job
			claimed := other.spec.GetClaimRestored() && other.origin.is(j.origin)
			if owns || claimed {
				return j.refuseRestore(fmt.Errorf("it belongs to job %s, which is %s: it cannot be claimed", other.id, status))
			}
		}
	}
	if reserve {
		s.mu.starting[j] = true
	}
	return nil
}

// startedLocked are the jobs that have not ended, and what they are: also those
// whose submission is under way, and the ended ones whose claimed checkpoint is
// being deleted.
func (s *Server) startedLocked() iter.Seq2[*job, string] {
	return func(yield func(*job, string) bool) {
		for j := range s.mu.starting {
			status := "being submitted"
			if j.final != nil {
				status = j.final.GetStatus()
			}
			if !yield(j, status) {
				return
			}
		}
		for _, j := range s.mu.jobs {
			if j.driver == nil {
				continue
			}
			if status := j.driver.Status().Status; !status.IsTerminal() && !yield(j, status.String()) {
				return
			}
		}
	}
}

// reserveOrigin keeps all others from claiming what j was started from, until
// releaseOrigin; unless another job was started from it that has not ended, or
// that claimed it later and so is the one that keeps or deletes it. That is
// returned then.
func (s *Server) reserveOrigin(j *job) (user ids.JobID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.startedLocked() {
		if other.origin.is(j.origin) {
			return other.id
		}
	}
	for _, other := range s.mu.jobs {
		later := other.spec.GetSubmittedUnixMs() > j.spec.GetSubmittedUnixMs()
		if later && other.spec.GetClaimRestored() && other.origin.is(j.origin) {
			return other.id
		}
	}
	s.mu.starting[j] = true
	return ""
}

func (s *Server) releaseOrigin(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.starting, j)
}

// loadRestore reads the metadata of what the job, which the server does not
// know yet, is to start from; nil for a start from nothing.
func (s *Server) loadRestore(ctx context.Context, j *job) (*snapshot.CompletedCheckpoint, error) {
	from := j.spec.GetRestoreFrom()
	if from == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if !strings.HasPrefix(from, "/") && !strings.Contains(from, "://") {
		return nil, j.refuseRestore(errors.New("give an absolute path or a URI"))
	}
	checkpoint, _, err := s.checkpointStore(j.config).LoadMetadata(ctx, from)
	switch {
	case errors.Is(err, objectstore.ErrNotExist):
		return nil, j.refuseRestore(errors.New("there is no savepoint or checkpoint (no _metadata)"))
	case err != nil:
		return nil, j.refuseRestore(err)
	}
	j.origin.job, j.origin.checkpoint = checkpoint.Job, checkpoint.ID
	return checkpoint, nil
}

func (j *job) refuseRestore(err error) error {
	return transport.Errorf(transport.ErrInvalid, "cannot restore from %s: %v", j.spec.GetRestoreFrom(), err)
}

// fitRestore says whether the graph can take the state: what the job's
// coordinator will see, and what its subtasks would only find out at their start.
func (j *job) fitRestore(checkpoint *snapshot.CompletedCheckpoint) error {
	targets := j.restoreTargets()
	if j.spec.GetAllowNonRestoredState() {
		checkpoint = snapshot.WithoutLostState(checkpoint, targets)
	}
	_, err := snapshot.Reassign(checkpoint, targets, j.graph.MaxParallelism)
	if err == nil {
		err = snapshot.CheckKeys(checkpoint, j.keySchema)
	}
	if err == nil {
		err = coordinator.CheckInFlight(checkpoint, &j.graph, j.spec.GetAllowNonRestoredState())
	}
	if err == nil {
		err = snapshot.CheckStates(checkpoint, targets, compareSchemas)
	}
	if err != nil {
		return j.refuseRestore(err)
	}
	return nil
}

// compareSchemas knows the codec that state is stored with; bytes of others
// are read by the codec of the same name and schema.
func compareSchemas(oldCodec, oldSchema, newCodec, newSchema string) ([]string, error) {
	changes, err := avro.Compare(oldCodec, oldSchema, newCodec, newSchema)
	if err != nil {
		return nil, err
	}
	var words []string
	for _, c := range changes {
		words = append(words, c.String())
	}
	return words, nil
}

func (j *job) keySchema(uid ids.OperatorUID) string {
	for _, op := range j.graph.Job.Operators {
		if op.UID == uid {
			return op.KeyType
		}
	}
	return ""
}

func (j *job) restoreTargets() []snapshot.OperatorTarget {
	return coordinator.RestoreTargets(j.graph.Job.Operators)
}

// PlanRestore says what the submission would restore, and why it would be
// refused. It starts and stores nothing, and needs no artifact.
func (s *Server) PlanRestore(ctx context.Context, r *pb.PlanRestoreRequest) (*pb.PlanRestoreResponse, error) {
	j, err := s.prepareJob(r.GetSpec())
	if err != nil {
		return nil, err
	}
	checkpoint, err := s.loadRestore(ctx, j)
	if err != nil {
		return nil, err
	}
	response := &pb.PlanRestoreResponse{}
	for _, m := range snapshot.Compare(checkpoint, j.restoreTargets(), compareSchemas) {
		response.States = append(response.States, &pb.RestoredState{
			Operator: string(m.UID), State: m.State, Kind: m.Kind, Match: m.Match.String(),
			OldParallelism: int32(m.OldParallelism), NewParallelism: int32(m.NewParallelism), Changes: m.Changes,
		})
	}
	if checkpoint == nil {
		return response, nil
	}
	response.Kind, response.Checkpoint, response.JobId = checkpoint.Kind.String(), uint64(checkpoint.ID), string(checkpoint.Job)
	err = s.checkClaim(j, checkpoint, false)
	if err == nil {
		err = j.fitRestore(checkpoint)
	}
	if err != nil {
		response.Problem = err.Error()
	}
	return response, nil
}
