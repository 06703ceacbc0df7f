package jobmanager

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/hex"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/logfield"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/coordinator/driver"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/transport"
)

// job is one job that the server knows. The server's mutex guards driver,
// final and checkpoints; the rest never changes.
type job struct {
	id     ids.JobID
	spec   *pb.JobSpec
	graph  graph.ExecutionGraph
	config *config.Config
	log    *jobLog
	origin origin
	// history is what is told of its checkpoints, also after its end.
	history *driver.History

	// driver runs the job; nil when it has ended. Then final and checkpoints
	// are what can still be said of it.
	driver      *driver.Driver
	final       *pb.JobStatusResponse
	checkpoints *pb.ListCheckpointsResponse
	// quiet is closed when the last executor of a job that has ended is gone;
	// nil before the job has ended, or when nobody waits for it.
	quiet chan struct{}
}

// makeJob checks what was submitted, now or before a restart, and prepares it.
// Errors are ErrInvalid.
func (s *Server) makeJob(spec *pb.JobSpec) (*job, error) {
	jobConfig, err := s.options.Config.WithJob(overridesOf(spec.GetConfig()))
	if err != nil {
		return nil, transport.Errorf(transport.ErrInvalid, "%v", err)
	}
	logical, err := graph.FromProto(spec.GetGraph())
	if err != nil {
		return nil, transport.Errorf(transport.ErrInvalid, "%v", err)
	}
	parallelism := int(spec.GetParallelism())
	if parallelism == 0 {
		parallelism = config.DefaultParallelism.Get(jobConfig)
	}
	expanded, err := graph.Expand(logical, parallelism)
	if err != nil {
		return nil, transport.Errorf(transport.ErrInvalid, "%v", err)
	}
	id := ids.JobID(spec.GetJobId())
	history := driver.NewHistory(id, s.store, config.CheckpointHistory.Get(s.options.Config), s.log.With(logfield.Job(id)))
	return &job{id: id, spec: spec, graph: expanded, config: jobConfig, history: history, origin: originOf(spec)}, nil
}

func overridesOf(entries map[string]string) []string {
	var overrides []string
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		overrides = append(overrides, key+"="+entries[key])
	}
	return overrides
}

// startLocked gives the job its driver. The caller holds the mutex, so that the
// driver's first call finds the job in the registry.
func (s *Server) startLocked(j *job) {
	j.driver = driver.Start(driver.Options{
		Job:                j.id,
		Name:               j.spec.GetName(),
		Graph:              &j.graph,
		Machine:            coordinator.New(coordinatorConfig(j), j.graph),
		Records:            s.store,
		Checkpoints:        s.checkpointStore(j.config),
		Cluster:            dispatcher{s},
		History:            j.history,
		CheckpointDir:      s.checkpointDir(j.config),
		DefaultParallelism: j.defaultParallelism(),
		SubmittedAt:        snapshot.TimeFromProto(j.spec.GetSubmittedUnixMs()),
		Nonce:              nonce,
		Log:                s.log,
	})
	s.mu.jobs[j.id] = j
	d := j.driver
	s.background.Go(func() {
		<-d.Done()
		s.driverEnded(j, d)
	})
}

func (s *Server) checkpointStore(c *config.Config) *checkpointstore.Store {
	return checkpointstore.New(s.options.OpenStore(c))
}

func (j *job) defaultParallelism() int {
	if p := int(j.spec.GetParallelism()); p != 0 {
		return p
	}
	return config.DefaultParallelism.Get(j.config)
}

// liveDriver is the job's driver, nil when it has ended.
func (j *job) liveDriver(s *Server) *driver.Driver {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.driver
}

// lingerMax bounds how long the executors of a job that has ended may take to
// leave. They have been told to, and bring the last of their output.
const lingerMax = 10 * time.Second

// driverEnded gives back what the job holds and keeps what is still shown of it.
func (s *Server) driverEnded(j *job, d *driver.Driver) {
	if d.End() == driver.Stopped {
		return // the server closes
	}
	view, checkpoints := d.View(s.hostOf), d.CheckpointsView()
	quiet := make(chan struct{})
	s.mu.Lock()
	s.deliverLocked(s.mu.slots.Forget(j.id))
	j.driver, j.final, j.checkpoints, j.quiet = nil, view, checkpoints, quiet
	s.noticeQuietLocked(j)
	steppedDown := d.End() == driver.SteppedDown
	if steppedDown {
		// It is another JobManager's: whatever we said of it would be wrong soon.
		delete(s.mu.jobs, j.id)
		s.dropExecutorsLocked(j.id)
	}
	s.mu.Unlock()
	if !steppedDown {
		timer := time.NewTimer(lingerMax)
		select {
		case <-quiet:
		case <-timer.C:
		case <-s.ctx.Done():
		}
		timer.Stop()
		s.mu.Lock()
		s.dropExecutorsLocked(j.id)
		for _, tm := range s.mu.taskManagers {
			// One that is not there has nothing of the job, or drops it in time.
			_ = tm.session.Send(&pb.TaskManagerCommand{Kind: &pb.TaskManagerCommand_ForgetJob{ForgetJob: &pb.ForgetJob{JobId: string(j.id)}}})
		}
		s.mu.Unlock()
	}
	if err := j.log.end(); err != nil {
		s.log.Warn("log of the job was not closed", logfield.Job(j.id), zap.Error(err))
	}
	if !steppedDown {
		s.forgetOldJobs()
	}
}

// noticeQuietLocked tells whoever waits that an ended job has no executors.
func (s *Server) noticeQuietLocked(j *job) {
	if j.quiet == nil {
		return
	}
	for id := range s.mu.executors {
		if id.Job == j.id {
			return
		}
	}
	close(j.quiet)
	j.quiet = nil
}

// forgetOldJobs drops the jobs that ended longest ago beyond jobstore.max-capacity.
func (s *Server) forgetOldJobs() {
	s.mu.Lock()
	var ended []*job
	for _, j := range s.mu.jobs {
		if j.final != nil {
			ended = append(ended, j)
		}
	}
	excess := len(ended) - config.JobStoreMaxCapacity.Get(s.options.Config)
	if excess <= 0 {
		s.mu.Unlock()
		return
	}
	slices.SortFunc(ended, func(a, b *job) int { return int(a.final.GetEndedUnixMs() - b.final.GetEndedUnixMs()) })
	ended = ended[:excess]
	for _, j := range ended {
		delete(s.mu.jobs, j.id)
	}
	s.mu.Unlock()
	for _, j := range ended {
		if err := s.store.DeleteJob(s.ctx, j.id); err != nil {
			s.log.Warn("old job was not forgotten: the next start lists it again", logfield.Job(j.id), zap.Error(err))
		}
		if err := j.log.remove(); err != nil {
			s.log.Warn("log of an old job was not removed", logfield.Job(j.id), zap.Error(err))
		}
	}
}

// coordinatorConfig is the part of the configuration that the job's
// coordinator decides by.
func coordinatorConfig(j *job) coordinator.Config {
	c := j.config
	return coordinator.Config{
		Job:         j.id,
		JobName:     j.spec.GetName(),
		RestoreFrom: j.spec.GetRestoreFrom(),

		AllowNonRestoredState: j.spec.GetAllowNonRestoredState(),
		ClaimRestored:         j.spec.GetClaimRestored(),
		AllowDuplicates:       config.FallbackAllowDuplicates.Get(c),
		Checkpointing: coordinator.CheckpointConfig{
			Mode:              modeOf(config.CheckpointMode.Get(c)),
			Unaligned:         config.CheckpointUnaligned.Get(c),
			AlignedTimeout:    config.CheckpointAlignedTimeout.Get(c),
			Interval:          config.CheckpointInterval.Get(c),
			Timeout:           config.CheckpointTimeout.Get(c),
			MinPause:          config.CheckpointMinPause.Get(c),
			MaxConcurrent:     config.CheckpointMaxConcurrent.Get(c),
			TolerableFailures: config.CheckpointTolerableFailed.Get(c),
			Incremental:       config.CheckpointIncremental.Get(c),
			Retained:          config.CheckpointRetained.Get(c),
			Retention:         retentionOf(config.CheckpointRetention.Get(c)),
		},
		Restart: coordinator.RestartConfig{
			Strategy: restartOf(config.RestartStrategy.Get(c)),
			Backoff: coordinator.Backoff{
				Initial:    config.ExponentialDelayInitialBackoff.Get(c),
				Max:        config.ExponentialDelayMaxBackoff.Get(c),
				Multiplier: config.ExponentialDelayMultiplier.Get(c),
				Jitter:     config.ExponentialDelayJitter.Get(c),
			},
			Attempts:      config.ExponentialDelayAttempts.Get(c),
			FixedDelay:    config.FixedDelayDelay.Get(c),
			FixedAttempts: config.FixedDelayAttempts.Get(c),
		},
		SlotRequestTimeout:  config.SlotRequestTimeout.Get(c),
		CancellationTimeout: config.TaskCancellationTimeout.Get(c),
		Seed:                rand.Uint64(),
	}
}

func modeOf(m config.Mode) coordinator.CheckpointMode {
	switch m {
	case config.ExactlyOnce:
		return coordinator.ExactlyOnce
	case config.AtLeastOnce:
		return coordinator.AtLeastOnce
	}
	return coordinator.ExactlyOnce
}

func retentionOf(r config.Retention) coordinator.Retention {
	switch r {
	case config.DeleteOnCancellation:
		return coordinator.DeleteOnCancellation
	case config.RetainOnCancellation:
		return coordinator.RetainOnCancellation
	case config.NoExternalizedCheckpoints:
		return coordinator.NoExternalizedCheckpoints
	}
	return coordinator.DeleteOnCancellation
}

func restartOf(r config.Restart) coordinator.RestartStrategy {
	switch r {
	case config.ExponentialDelayRestart:
		return coordinator.ExponentialDelay
	case config.FixedDelayRestart:
		return coordinator.FixedDelay
	case config.NoRestart:
		return coordinator.NoRestart
	}
	return coordinator.ExponentialDelay
}

// nonce is unique in the world: 128 random bits.
func nonce() string {
	b := make([]byte, 16)
	_, _ = cryptorand.Read(b) // never fails, see crypto/rand
	return hex.EncodeToString(b)
}

// WaitJob waits until the job has ended and returns what is then shown of it.
func (s *Server) WaitJob(ctx context.Context, id ids.JobID) (*pb.JobStatusResponse, error) {
	f, err := s.findJob(string(id))
	if err != nil {
		return nil, err
	}
	if f.driver != nil {
		select {
		case <-f.driver.Done():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if f.driver.End() != driver.Ended {
			return nil, transport.Errorf(transport.ErrUnavailable, "job %s: %v", id, driver.ErrSteppedDown)
		}
		return f.driver.View(s.hostOf), nil
	}
	return f.final, nil
}
