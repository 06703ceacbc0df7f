package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/logfield"
	"github.com/weirstream/weir/internal/version"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/transport"
)

// cutOffShare of the heartbeat time-out after which a TaskManager that hears
// nothing stops its executors: earlier than the JobManager, who counts from a
// later moment, gives their slots away.
const cutOffShare = 0.6

// endGrace is how long the executors have to end by themselves when the
// TaskManager is shut down.
const endGrace = 2 * time.Second

// Options are what a TaskManager is made of.
type Options struct {
	Config *config.Config
	// ID names this life of the process.
	ID ids.TaskManagerID
	// Host is where other hosts reach this one.
	Host string
	// WorkDir is an existing directory that no other TaskManager uses. What
	// executors of an earlier life left there is removed.
	WorkDir string
	// Connect opens a session with the JobManager. It ends with the context.
	Connect func(context.Context) (transport.TaskManagerUplink, error)
	// Artifacts is nil when jobs come without.
	Artifacts ArtifactSource
	// JobManager is the address that executors are told.
	JobManager string
	Launcher   Launcher
	// Registered, if set, is called each time the JobManager has accepted us.
	Registered func()
	Log        *zap.Logger
}

// TaskManager supervises the executors of one host.
type TaskManager struct {
	options   Options
	log       *zap.Logger
	output    *jobOutput
	artifacts *artifactCache // nil without Artifacts
	executors string         // directory of the executors' directories
	kept      *keptFiles

	supervisors sync.WaitGroup

	mu struct {
		sync.Mutex
		running map[ids.ExecutorID]*supervised
		uplink  transport.TaskManagerUplink // nil while there is no session
		// stopping: no executor is started any more.
		stopping bool
		cutOff   *time.Timer // nil before the first session
	}
}

// New makes a TaskManager, and removes what executors of an earlier life left
// in its directory.
func New(options Options) (*TaskManager, error) {
	t := &TaskManager{
		options:   options,
		log:       options.Log.With(logfield.TaskManager(options.ID)),
		output:    newJobOutput(),
		executors: filepath.Join(options.WorkDir, "executors"),
	}
	t.mu.running = map[ids.ExecutorID]*supervised{}
	var err error
	if t.kept, err = openKeptFiles(filepath.Join(options.WorkDir, "local"), t.log); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(t.executors); err != nil {
		return nil, fmt.Errorf("remove directories of dead executors: %w", err)
	}
	if err := os.MkdirAll(t.executors, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of executors: %w", err)
	}
	if options.Artifacts != nil {
		dir := config.BlobStorageDirectory.Get(options.Config)
		if dir == "" {
			dir = filepath.Join(options.WorkDir, "artifacts")
		}
		dir, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("make artifact directory: %w", err)
		}
		t.artifacts, err = openArtifactCache(dir, int64(config.BlobStorageMaxSize.Get(options.Config)),
			config.BlobFetchRetries.Get(options.Config), options.Artifacts, t.log)
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// IsRegistered reports whether there is a session with the JobManager.
func (t *TaskManager) IsRegistered() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.uplink != nil
}

// errRefused: the JobManager wants nothing to do with this TaskManager.
var errRefused = errors.New("refused by the JobManager")

// Run serves until ctx ends, which is no error, or the JobManager refuses the
// TaskManager for good, or has never been reached for
// taskmanager.registration.timeout. All executors have ended when it returns.
func (t *TaskManager) Run(ctx context.Context) error {
	var kept sync.WaitGroup
	expiring, stopExpiring := context.WithCancel(ctx)
	kept.Go(func() { t.kept.run(expiring) })
	err := t.keepSession(ctx)
	stopExpiring()
	kept.Wait()
	t.shutDown()
	return err
}

// keepSession opens sessions one after the other.
func (t *TaskManager) keepSession(ctx context.Context) error {
	const pauseFirst, pauseMax = 50 * time.Millisecond, time.Second
	limit := config.TaskManagerRegistrationTimeout.Get(t.options.Config)
	giveUp := time.Now().Add(limit)
	registered := false
	pause := pauseFirst
	for {
		accepted, err := t.serveSession(ctx)
		registered = registered || accepted
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errRefused):
			return err
		case !registered && time.Now().After(giveUp):
			return fmt.Errorf("not registered within %s: %w", config.FormatDuration(limit), err)
		}
		if accepted {
			pause = pauseFirst
		}
		t.log.Warn("no session with the JobManager: trying again", logfield.RetryIn(pause), zap.Error(err))
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, pauseMax)
	}
}

// hello says who we are, and what still runs from before the session broke.
func (t *TaskManager) hello() *pb.TaskManagerHello {
	hello := &pb.TaskManagerHello{
		TaskManagerId: string(t.options.ID),
		Host:          t.options.Host,
		Pid:           int32(os.Getpid()),
		Slots:         int32(config.TaskManagerSlots.Get(t.options.Config)),
		Platform:      goruntime.GOOS + "/" + goruntime.GOARCH,
		Version:       version.String(),
		WireVersion:   transport.WireVersion,
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.mu.running {
		hello.Running = append(hello.Running, refOfExecutor(id))
	}
	return hello
}

func refOfExecutor(id ids.ExecutorID) *pb.ExecutorRef {
	return &pb.ExecutorRef{JobId: string(id.Job), Attempt: snapshot.AttemptToProto(id.Attempt)}
}

func (t *TaskManager) executorOfRef(ref *pb.ExecutorRef) ids.ExecutorID {
	return ids.ExecutorID{Job: ids.JobID(ref.GetJobId()), Attempt: snapshot.AttemptFromProto(ref.GetAttempt()), TaskManager: t.options.ID}
}

// report sends to the JobManager. Without a session nobody misses it: the
// JobManager took the end of the last one for the loss of all executors.
func (t *TaskManager) report(report *pb.TaskManagerReport) {
	t.mu.Lock()
	uplink := t.mu.uplink
	t.mu.Unlock()
	if uplink != nil {
		// An error is the session's end, which its reader notices.
		_ = uplink.Send(report)
	}
}

// killAll kills every executor, for a reason that is logged.
func (t *TaskManager) killAll(reason string) {
	t.mu.Lock()
	running := make([]*supervised, 0, len(t.mu.running))
	for _, s := range t.mu.running {
		running = append(running, s)
	}
	t.mu.Unlock()
	if len(running) > 0 {
		t.log.Warn("killing all executors", logfield.Count(len(running)), logfield.Reason(reason))
	}
	for _, s := range running {
		s.kill()
	}
}

// shutDown ends the executors: asked first, then killed.
func (t *TaskManager) shutDown() {
	t.mu.Lock()
	t.mu.stopping = true
	if t.mu.cutOff != nil {
		t.mu.cutOff.Stop()
	}
	for _, s := range t.mu.running {
		s.end()
	}
	t.mu.Unlock()
	killer := time.AfterFunc(endGrace, func() { t.killAll("the TaskManager shuts down") })
	t.supervisors.Wait()
	killer.Stop()
}

// configOf is the configuration of a job on this host: the job's, except for
// what only this TaskManager can know.
func (t *TaskManager) configOf(job map[string]string) map[string]string {
	merged := maps.Clone(job)
	if merged == nil {
		merged = map[string]string{}
	}
	own := t.options.Config.Map()
	for _, key := range []string{
		config.TaskManagerHost.Key(), config.TaskManagerBindHost.Key(),
		config.TaskManagerDataPort.Key(), config.TemporaryDirectory.Key(),
	} {
		delete(merged, key)
		if value, ok := own[key]; ok {
			merged[key] = value
		}
	}
	return merged
}

// memoryLimit is the share of taskmanager.memory.process.size of an executor
// with that many slots.
func (t *TaskManager) memoryLimit(slots int) int64 {
	total := int64(config.TaskManagerProcessMemory.Get(t.options.Config))
	return total / int64(config.TaskManagerSlots.Get(t.options.Config)) * int64(slots)
}
