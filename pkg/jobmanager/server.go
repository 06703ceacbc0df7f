package jobmanager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/coordinator/slots"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/transport"
)

// Options are what a Server is made of.
type Options struct {
	// Config is the cluster's; the values that it holds for jobs are the
	// defaults of those that set none.
	Config *config.Config
	// WorkDir is an existing directory for the logs of jobs and, without
	// high-availability.storageDir, for all that the server keeps. Absolute.
	WorkDir string
	// OpenStore gives the opener of object stores for a configuration, which
	// may be a job's own.
	OpenStore func(*config.Config) checkpointstore.Opener
	// InProcess: the executors have the code of the jobs, so that jobs come
	// without an artifact.
	InProcess bool
	Log       *zap.Logger
}

// Server is a JobManager. Its methods may be called concurrently.
type Server struct {
	options           Options
	log               *zap.Logger
	haDir             string
	clusterID         string
	store             *checkpointstore.ClusterStore
	logDir            string
	heartbeatInterval time.Duration
	heartbeatTimeout  time.Duration

	// ctx ends with Close; what runs in the background stops with it.
	ctx    context.Context
	cancel context.CancelFunc
	// background counts sessions' handlers and what waits for drivers.
	background sync.WaitGroup

	mu struct {
		sync.Mutex
		closing      bool
		slots        slots.Table
		taskManagers map[ids.TaskManagerID]*taskManager
		executors    map[ids.ExecutorID]*executor
		jobs         map[ids.JobID]*job
		// starting are not in jobs, or ended, and hold what they were started from,
		// see startedLocked.
		starting map[*job]bool
	}
}

var (
	_ transport.CoordinationHandler = (*Server)(nil)
	_ transport.ClientHandler       = (*Server)(nil)
)

// Open makes a server and takes over the jobs that its store says are not
// finished. While the store does not answer it tries again, for as long as
// ctx allows: what cannot be read is never taken for absent (I9).
func Open(ctx context.Context, options Options) (*Server, error) {
	c := options.Config
	s := &Server{
		options:           options,
		log:               options.Log,
		haDir:             config.HighAvailabilityStorageDir.Get(c),
		clusterID:         config.HighAvailabilityClusterID.Get(c),
		logDir:            filepath.Join(options.WorkDir, "job-logs"),
		heartbeatInterval: config.HeartbeatInterval.Get(c),
		heartbeatTimeout:  config.HeartbeatTimeout.Get(c),
	}
	s.mu.taskManagers = map[ids.TaskManagerID]*taskManager{}
	s.mu.executors = map[ids.ExecutorID]*executor{}
	s.mu.jobs = map[ids.JobID]*job{}
	s.mu.starting = map[*job]bool{}
	if s.haDir == "" {
		s.haDir = "file://" + filepath.Join(options.WorkDir, "ha")
	}
	if err := os.MkdirAll(s.logDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of job logs: %w", err)
	}
	root, err := options.OpenStore(c)(checkpointstore.ClusterURI(s.haDir, s.clusterID))
	if err != nil {
		return nil, fmt.Errorf("open high-availability.storageDir: %w", err)
	}
	s.store = checkpointstore.NewClusterStore(root)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.recoverJobs(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.sweep(ctx)
	ended := s.endedJobs()
	s.background.Go(func() { s.sweepEnded(ended) })
	return s, nil
}

// Close stops all jobs' drivers and ends all sessions. The jobs stay as their
// records say: the next server with the same store goes on with them. Close
// the transport's server afterwards, not before: a job would take the loss of
// its sessions for a failure.
func (s *Server) Close() error {
	s.mu.Lock()
	s.mu.closing = true
	var jobs []*job
	for _, j := range s.mu.jobs {
		jobs = append(jobs, j)
	}
	s.mu.Unlock()

	var stopping sync.WaitGroup
	for _, j := range jobs {
		if d := j.liveDriver(s); d != nil {
			stopping.Go(d.Stop)
		}
	}
	stopping.Wait()
	s.cancel()
	s.closeSessions()
	s.background.Wait()
	var errs []error
	for _, j := range jobs {
		errs = append(errs, j.log.end())
	}
	return errors.Join(errs...)
}

// checkpointDir is the resolved execution.checkpointing.dir of a job.
func (s *Server) checkpointDir(jobConfig *config.Config) string {
	if dir := config.CheckpointDir.Get(jobConfig); dir != "" {
		return dir
	}
	return checkpointstore.ClusterURI(s.haDir, s.clusterID) + "/checkpoints"
}
