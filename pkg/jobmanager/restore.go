package jobmanager

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weirstream/weir/pkg/codec/avro"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/transport"
)

// checkRestore looks at what the job is to start from: a wrong path, damaged
// metadata and state that the graph cannot take are the submitter's matter.
func (s *Server) checkRestore(ctx context.Context, j *job) error {
	checkpoint, err := s.loadRestore(ctx, j)
	if err != nil || checkpoint == nil {
		return err
	}
	if err := s.checkClaim(j, checkpoint); err != nil {
		return err
	}
	return j.fitRestore(checkpoint)
}

// checkClaim refuses to claim what a job of this cluster that has not ended
// deletes by itself: two owners would delete it under each other.
func (s *Server) checkClaim(j *job, checkpoint *snapshot.CompletedCheckpoint) error {
	if !j.spec.GetClaimRestored() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// A job that is being stopped needs its savepoint until all is committed.
	needed := checkpoint.Kind != snapshot.Savepoint
	for _, other := range s.mu.jobs {
		if other.driver == nil || other.driver.Status().Status.IsTerminal() {
			continue
		}
		owns := needed && other.id == checkpoint.Job
		claimed := other.spec.GetClaimRestored() && other.spec.GetRestoreFrom() == j.spec.GetRestoreFrom()
		if owns || claimed {
			return j.refuseRestore(fmt.Errorf("it belongs to job %s, which is %s: it cannot be claimed", other.id, other.driver.Status().Status))
		}
	}
	return nil
}

// loadRestore reads the metadata of what the job is to start from; nil for a
// start from nothing.
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
	err = s.checkClaim(j, checkpoint)
	if err == nil {
		err = j.fitRestore(checkpoint)
	}
	if err != nil {
		response.Problem = err.Error()
	}
	return response, nil
}
