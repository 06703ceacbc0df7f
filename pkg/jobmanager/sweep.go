package jobmanager

import (
	"context"
	"errors"
	"fmt"
	"math"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/logfield"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/coordinator/driver"
	"github.com/weirstream/weir/pkg/ids"
)

// sweep deletes what no job needs of what was uploaded and put: artifacts, and
// jobs that were never accepted (I4). Open calls it when it has recovered the
// jobs: nobody can submit yet. While there is a job that could not be
// recovered nobody knows what it needs, and all stays. It is no condition of a
// start: the next one tries again.
func (s *Server) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	known, err := s.store.Jobs(ctx)
	if err == nil {
		s.mu.Lock()
		var keep []string
		for _, j := range s.mu.jobs {
			if j.final == nil {
				keep = append(keep, j.spec.GetArtifactSha256())
			}
		}
		understood := len(s.mu.jobs) == len(known)
		s.mu.Unlock()
		if !understood {
			return
		}
		var deleted int
		if deleted, err = s.store.Sweep(ctx, keep); deleted > 0 {
			s.log.Info("deleted artifacts and jobs that nobody needs", logfield.Count(deleted))
		}
	}
	if err != nil {
		s.log.Warn("artifacts that no job needs were not deleted", zap.Error(err))
	}
}

// endedJobs are the jobs that are over.
func (s *Server) endedJobs() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ended []*job
	for _, j := range s.mu.jobs {
		if j.final != nil {
			ended = append(ended, j)
		}
	}
	return ended
}

// sweepEnded deletes the checkpoints that jobs left which had ended before
// this server started: the end of a job is recorded before they are deleted,
// and the JobManager may have gone away in between (I4). It goes on to the next
// job after an error, and ends with the server.
func (s *Server) sweepEnded(ended []*job) {
	for _, j := range ended {
		err := s.sweepCheckpoints(s.ctx, j)
		if s.ctx.Err() != nil {
			return
		}
		if err != nil {
			s.log.Warn("what an ended job left was not deleted: the next start tries again", logfield.Job(j.id), zap.Error(err))
		}
	}
}

func (s *Server) sweepCheckpoints(ctx context.Context, j *job) error {
	stored, err := s.store.ReadRecord(ctx, j.id)
	if err != nil {
		return err
	}
	record, err := driver.FromStored(stored.JobRecord)
	if err != nil {
		return err
	}
	if !record.Status.IsTerminal() {
		return fmt.Errorf("the job is %s again", record.Status)
	}
	request := checkpointstore.SweepRequest{
		Base: checkpointstore.JobBase(s.checkpointDir(j.config), j.id),
		// Nothing of a job that is over is still being written.
		Below: ids.AttemptID{Token: math.MaxUint64, Number: math.MaxUint32}, Over: true,
	}
	keeps := retentionOf(config.CheckpointRetention.Get(j.config)).Keeps(record.Status)
	for _, ref := range record.Retained {
		// A claimed one lies elsewhere.
		if keeps && !j.isClaimed(ref) {
			request.Keep = append(request.Keep, ref.ID)
		}
	}
	err = s.sweepClaimed(ctx, j, record, keeps)
	for {
		result, sweepErr := s.checkpointStore(j.config).Sweep(ctx, request)
		if result.Left > 0 && !result.More {
			s.log.Warn("files of an ended job stay: a retained checkpoint, which may refer to them, cannot be read", logfield.Job(j.id), logfield.Count(result.Left))
		}
		if result.Deleted > 0 {
			s.log.Info("deleted what an ended job left", logfield.Job(j.id), logfield.Count(result.Deleted))
		}
		if sweepErr != nil || !result.More {
			return errors.Join(err, sweepErr)
		}
	}
}

// isClaimed reports whether a retained checkpoint is what the job claimed.
func (j *job) isClaimed(ref coordinator.CheckpointRef) bool {
	return j.spec.GetClaimRestored() && ref.URI == j.spec.GetRestoreFrom()
}

// sweepClaimed deletes what the job that is over had claimed and taken over with
// its first publication, if it was pushed out or if the end of the job deletes
// its checkpoints: the sweep of the job's own directory does not find it. Once it
// is deleted, whatever is newer than the start of the job may be in its place.
func (s *Server) sweepClaimed(ctx context.Context, j *job, record coordinator.Record, keeps bool) error {
	if j.origin.place == "" || !j.spec.GetClaimRestored() || record.Latest.ID == 0 {
		return nil
	}
	expected := checkpointstore.Expected{CompletedBy: record.StartedAt}
	for _, ref := range record.Retained {
		if j.isClaimed(ref) {
			if keeps {
				return nil
			}
			expected.ID = ref.ID
		}
	}
	uri := j.spec.GetRestoreFrom()
	// While the job's end left it, another may have started from it.
	if user := s.reserveOrigin(j); user != "" {
		s.log.Info("what an ended job had claimed stays: another job was started from it", logfield.Job(j.id), logfield.URI(uri), logfield.Reason("job "+string(user)))
		return nil
	}
	defer s.releaseOrigin(j)
	left, err := s.checkpointStore(j.config).DiscardRetained(ctx, uri, expected)
	if errors.Is(err, checkpointstore.ErrUnexpected) {
		s.log.Info("where a claimed checkpoint was is something else: it stays", logfield.Job(j.id), logfield.URI(uri), zap.Error(err))
		return nil
	}
	if left > 0 {
		s.log.Warn("files of a claimed checkpoint stay: one beside it, which may refer to them, cannot be read",
			logfield.Job(j.id), logfield.URI(uri), logfield.Count(left))
	}
	return err
}
