package jobmanager

import (
	"context"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/logfield"
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
