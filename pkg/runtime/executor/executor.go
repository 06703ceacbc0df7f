package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/logfield"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore/open"
	"github.com/weirstream/weir/pkg/objectstore/s3"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/runtime/exchange"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/runtime/task"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/transport"
)

// Why Run ended otherwise than in order.
var (
	// ErrStale: the JobManager refused the executor; its attempt is over (I8).
	ErrStale = errors.New("the JobManager refused this executor")
	// ErrCutOff: the JobManager acknowledged no heartbeat for too long.
	ErrCutOff = errors.New("cut off from the JobManager")
	// ErrUnusable: this program cannot run the job, whatever is tried.
	ErrUnusable = errors.New("this program cannot run the job")
	// ErrStuck: a cancelled task did not return in time; its goroutines still run.
	ErrStuck = errors.New("a cancelled task does not return")
)

// cutOffShare is the share of heartbeat.timeout after which an executor that
// is cut off ends: early enough that it has ended when the JobManager, which
// counts from later, starts the next attempt.
const cutOffShare = 0.6

// Options are what an Executor is made from.
type Options struct {
	Spec    Spec
	Program *operator.Program
	// Network is TCP when nil.
	Network transport.Network
	// Store holds the checkpoints; nil makes one from the configuration.
	Store *checkpointstore.Store
	// Log is where the executor logs; nil for nowhere.
	Log *zap.Logger
	// Output takes what operators print; nil for nowhere. Writes do not overlap.
	Output io.Writer
	// Backend is the state backend of all subtasks, which the caller closes; nil
	// makes the one that the configuration names.
	Backend statebackend.Backend
}

// Executor runs the subtasks of one attempt on one TaskManager.
type Executor struct {
	options Options
	spec    Spec
	config  *config.Config
	log     *zap.Logger
	network transport.Network
	output  io.Writer
	backend statebackend.Backend // of all subtasks

	opener *open.Opener // of the store that deploy made
	// transfers are those of all tasks.
	transfers *task.Transfers
	// restored is the checkpoint that the tasks started from; tidied says that
	// tidyLocal has run.
	restored ids.CheckpointID
	tidied   bool
	exchange *exchange.Exchange
	address  string // of the exchange, as others reach it
	reports  reports
	graph    *graph.ExecutionGraph
	tasks    map[ids.SubtaskID]*task.Task // set once by deploy, before tasksDone means anything
	ordered  []*task.Task                 // tasks by ID
	// tasksDone is closed when all tasks have ended; it is nil before deploy.
	tasksDone chan struct{}
	waiters   sync.WaitGroup
	// stuck fires when cancelled tasks have not ended in time.
	stuck <-chan time.Time

	mu struct {
		sync.Mutex
		deployed, ended int // tasks
	}
}

// New checks the spec and makes an executor.
func New(o Options) (*Executor, error) {
	c, err := config.FromMap(o.Spec.Config)
	if err != nil {
		return nil, fmt.Errorf("executor %s: configuration: %w", o.Spec.Executor, err)
	}
	e := &Executor{options: o, spec: o.Spec, config: c, log: o.Log, network: o.Network, output: &sharedWriter{w: io.Discard}, transfers: task.NewTransfers(), backend: o.Backend}
	if e.backend == nil {
		e.backend = newBackend(c)
	}
	if e.network == nil {
		e.network = transport.TCP{}
	}
	if e.log == nil {
		e.log = zap.NewNop()
	}
	if o.Output != nil {
		e.output = &sharedWriter{w: o.Output}
	}
	e.log = e.log.With(logfield.Executor(o.Spec.Executor))
	return e, nil
}

// Run runs the executor until it is told to go, or cannot go on: see the
// package comment. It is called once. When ctx ends, tasks that run are
// cancelled and waited for. After ErrStuck some of them still run.
func (e *Executor) Run(ctx context.Context) error {
	l, err := e.listen()
	if err != nil {
		return fmt.Errorf("executor %s: %w", e.spec.Executor, err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return errors.Join(fmt.Errorf("executor %s: own address: %w", e.spec.Executor, err), l.Close())
	}
	e.address = net.JoinHostPort(e.spec.Host, port)
	e.exchange = exchange.New(e.spec.Executor.Job, e.spec.Executor.Attempt, e.network)
	e.exchange.Serve(l)
	jobManager, err := transport.DialJobManager(e.spec.JobManager, transport.DialOptions{Network: e.network})
	if err == nil {
		err = e.converse(ctx, jobManager)
		if !errors.Is(err, ErrStuck) {
			err = errors.Join(err, e.endTasks())
		}
		err = errors.Join(err, jobManager.Close())
	}
	// Tasks that are stuck may go on sending: what they send is dropped.
	err = errors.Join(err, e.exchange.Close())
	if e.opener != nil {
		e.opener.Close()
	}
	if !errors.Is(err, ErrStuck) && e.options.Backend == nil {
		err = errors.Join(err, closeBackend(e.backend))
	}
	if err != nil {
		return fmt.Errorf("executor %s: %w", e.spec.Executor, err)
	}
	return nil
}

// listen opens a port of taskmanager.data.port.
func (e *Executor) listen() (net.Listener, error) {
	ports := config.TaskManagerDataPort.Get(e.config)
	var last error
	for port := ports.First; port <= ports.Last; port++ {
		l, err := e.network.Listen(net.JoinHostPort(e.spec.BindHost, strconv.Itoa(port)))
		if err == nil {
			return l, nil
		}
		last = err
	}
	return nil, last
}

// HasEnded reports whether the executor had tasks and all of them have
// reported their end. It may be called by any goroutine.
func (e *Executor) HasEnded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.deployed > 0 && e.mu.ended == e.mu.deployed
}

// checkProgram says what hinders this program from running the submitted job.
func (e *Executor) checkProgram() error {
	if v := e.spec.Graph.GetWireVersion(); v != 0 && v != transport.WireVersion {
		return fmt.Errorf("the job was submitted by a program of wire version %d, this one has %d: submit it again", v, transport.WireVersion)
	}
	submitted, err := graph.FromProto(e.spec.Graph)
	if err != nil {
		return fmt.Errorf("submitted graph: %w", err)
	}
	if diff := graph.Diff(submitted, e.builtGraph()); diff != "" {
		return fmt.Errorf("the program builds another graph here than when it was submitted; "+
			"it must not depend on the clock, the host or the input:\n%s", diff)
	}
	return nil
}

// builtGraph is the graph that the program builds here. Its number of key
// groups, where the program leaves that open, is the one that was fixed at
// submit from pipeline.max-parallelism.
func (e *Executor) builtGraph() graph.JobGraph {
	built := e.options.Program.Graph
	if built.MaxParallelism == 0 {
		built.MaxParallelism = int(e.spec.Graph.GetMaxParallelism())
	}
	return built
}

// deploy starts the tasks.
func (e *Executor) deploy(m *pb.DeployTasks) error {
	x, err := graph.Expand(e.builtGraph(), int(m.GetDefaultParallelism()))
	if err != nil {
		return fmt.Errorf("deploy: %w", err)
	}
	e.graph = &x
	e.restored = ids.CheckpointID(m.GetRestoredCheckpoint())
	if err := e.exchange.Deploy(e.plan(m)); err != nil {
		return err
	}
	store := e.options.Store
	if store == nil {
		e.opener = open.New(open.Options{S3: e.s3Options()})
		store = checkpointstore.New(e.opener.Open)
	}
	e.tasks = map[ids.SubtaskID]*task.Task{}
	inboxes := map[ids.SubtaskID]exchange.Inbox{}
	for _, deployed := range m.GetTasks() {
		d, err := deploymentFromProto(deployed)
		if err != nil {
			return fmt.Errorf("deploy: %w", err)
		}
		endpoint := e.exchange.Endpoint(d.Subtask)
		if endpoint == nil || e.tasks[d.Subtask] != nil {
			return fmt.Errorf("deploy: subtask %s is not to run here, or twice", d.Subtask)
		}
		t := e.newTask(m, d, endpoint, store)
		e.tasks[d.Subtask], inboxes[d.Subtask] = t, t
		e.ordered = append(e.ordered, t)
	}
	if err := e.exchange.Start(inboxes); err != nil {
		return err
	}
	done := make(chan struct{})
	e.tasksDone = done
	e.mu.Lock()
	e.mu.deployed = len(e.ordered)
	e.mu.Unlock()
	for _, t := range e.ordered {
		t.Start()
	}
	e.waiters.Go(func() {
		for _, t := range e.ordered {
			<-t.Done()
			if err := t.Err(); err != nil {
				e.log.Warn("operators did not close cleanly", logfield.Subtask(t.ID()), zap.Error(err))
			}
		}
		close(done)
	})
	e.log.Info("tasks started", logfield.Count(len(e.ordered)))
	return nil
}

func (e *Executor) plan(m *pb.DeployTasks) exchange.Plan {
	plan := exchange.Plan{Graph: e.graph, Self: -1, CreditBytes: int64(config.ChannelCredit.Get(e.config))}
	for i, p := range m.GetPeers() {
		peer := coordinator.Peer{TaskManager: ids.TaskManagerID(p.GetTaskManagerId()), DataAddress: p.GetDataAddress()}
		if peer.TaskManager == e.spec.Executor.TaskManager {
			plan.Self = i
		}
		plan.Peers = append(plan.Peers, peer)
	}
	for _, p := range m.GetPlacements() {
		plan.Placements = append(plan.Placements, coordinator.Placement{Subtask: subtaskFromProto(p.GetSubtask()), Peer: int(p.GetPeer())})
	}
	return plan
}

func (e *Executor) newTask(m *pb.DeployTasks, d coordinator.TaskDeployment, endpoint *exchange.Endpoint, store *checkpointstore.Store) *task.Task {
	cfg := subtask.Config{
		Job: e.spec.Executor.Job, Attempt: e.spec.Executor.Attempt,
		Program: e.options.Program, Graph: e.graph, Deployment: d,
		RestoredCheckpoint: ids.CheckpointID(m.GetRestoredCheckpoint()), RestoreBase: m.GetRestoreBase(),
		Suspended: m.GetSuspended(), Store: store, CheckpointDir: m.GetCheckpointDir(),
		InlineBytesMax: int(config.CheckpointInlineThreshold.Get(e.config)),
		CreditBytes:    endpoint.CreditBytes(), Backend: e.backend, Now: time.Now, Clock: time.Now, Output: e.output, NewBuffer: exchange.NewBuffer,
		InFlightBytesMax: int64(config.CheckpointChannelStateMax.Get(e.config)),
		Incremental:      config.CheckpointIncremental.Get(e.config), Each: e.transfers.Each, FileReaders: fileReaders(),
	}
	if e.spec.Dir != "" {
		cfg.Dir = filepath.Join(e.spec.Dir, stateDir, subtask.LocalName(d.Subtask))
	}
	if config.LocalRecovery.Get(e.config) {
		cfg.LocalDir = e.spec.LocalDir
	}
	for _, id := range m.GetSavepoints() {
		cfg.Savepoints = append(cfg.Savepoints, ids.CheckpointID(id))
	}
	return task.New(task.Config{
		ID: d.Subtask, Wire: endpoint, BufferTimeout: config.BufferTimeout.Get(e.config),
		CleanupTimeout: config.TaskCancellationTimeout.Get(e.config) / cleanupShare,
		New:            func(h subtask.Host) (task.Subtask, error) { return subtask.New(cfg, h) },
		Report:         e.report,
	})
}

// tidyLocal follows the publication of a checkpoint. The first of the attempt
// makes useless what subtasks that run elsewhere now have kept here: it is
// removed, while tasks go on.
func (e *Executor) tidyLocal(published ids.CheckpointID) {
	if e.tidied || e.spec.LocalDir == "" || e.tasksDone == nil || published <= e.restored {
		return
	}
	e.tidied = true
	own := map[string]bool{}
	for _, t := range e.ordered {
		own[subtask.LocalName(t.ID())] = true
	}
	e.waiters.Go(func() {
		entries, err := os.ReadDir(e.spec.LocalDir)
		if errors.Is(err, os.ErrNotExist) {
			return
		}
		for _, entry := range entries {
			if !own[entry.Name()] {
				err = errors.Join(err, os.RemoveAll(filepath.Join(e.spec.LocalDir, entry.Name())))
			}
		}
		if err != nil {
			e.log.Warn("local copies of other subtasks were not removed", logfield.File(e.spec.LocalDir), zap.Error(err))
		}
	})
}

// stateDir is the directory of the subtasks' state below Spec.Dir.
const stateDir = "state"

// report passes on what a subtask reports. That a task has ended is noted
// first: whoever hears of it may let go of this executor at once.
func (e *Executor) report(id ids.SubtaskID, r subtask.Report) {
	switch r := r.(type) {
	case subtask.RestoredReport:
		e.log.Info("state was read to restore", logfield.Subtask(id), logfield.Checkpoint(r.Checkpoint),
			logfield.FilesFetched(r.FilesFetched), logfield.BytesFetched(r.BytesFetched), logfield.FilesLocal(r.FilesLocal), logfield.BytesLocal(r.BytesLocal))
		return
	case subtask.LocalCopyReport:
		e.log.Warn("local copies are not as they should be: a restore may have to fetch files", logfield.Subtask(id),
			logfield.Checkpoint(r.Checkpoint), zap.Error(r.Err))
		return
	case subtask.StatusReport:
		switch r.Status {
		case coordinator.Finished, coordinator.Canceled, coordinator.Failed:
			e.mu.Lock()
			e.mu.ended++
			e.mu.Unlock()
		case coordinator.Deploying, coordinator.Initializing, coordinator.Running, coordinator.RunningInputEnded, coordinator.RunningEndOfData:
		}
	}
	e.reports.send(fitting(id, r, transport.SessionMessageBytesMax))
}

func (e *Executor) s3Options() s3.Options {
	return s3.Options{
		Endpoint: config.S3Endpoint.Get(e.config), Region: config.S3Region.Get(e.config),
		AccessKey: config.S3AccessKey.Get(e.config), SecretKey: config.S3SecretKey.Get(e.config),
		PathStyle: config.S3PathStyleAccess.Get(e.config),
	}
}

// cleanupShare is the share of task.cancellation.timeout that cancelled tasks
// have for aborting what they prepared: one half, so that a system that does
// not answer costs no executor its life.
const cleanupShare = 2

// cancelTasks cancels all tasks and begins to count the time that they have.
func (e *Executor) cancelTasks(keepUpTo ids.CheckpointID) {
	for _, t := range e.ordered {
		t.Cancel(keepUpTo)
	}
	if e.stuck == nil {
		e.stuck = time.After(config.TaskCancellationTimeout.Get(e.config))
	}
}

// endTasks cancels what still runs and waits for it, as long as it may take.
func (e *Executor) endTasks() error {
	if e.tasksDone == nil {
		return nil
	}
	// The attempt ends, not the job: the next one knows what is needed.
	e.cancelTasks(subtask.KeepAll)
	select {
	case <-e.tasksDone:
	case <-e.stuck:
	}
	if err := e.stuckError(); err != nil {
		return err
	}
	e.waiters.Wait() // they ended at the last moment
	return nil
}

func (e *Executor) stuckError() error {
	for _, t := range e.ordered {
		select {
		case <-t.Done():
		default:
			return fmt.Errorf("subtask %s: %w within %s (task.cancellation.timeout)", t.ID(), ErrStuck,
				config.FormatDuration(config.TaskCancellationTimeout.Get(e.config)))
		}
	}
	return nil
}

// sharedWriter lets many subtasks write to one writer, a call at a time.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (s *sharedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// pid is our process.
func pid() int32 { return int32(os.Getpid()) }
