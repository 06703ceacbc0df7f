package minicluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"

	"go.uber.org/zap"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/jobmanager"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/runtime"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/transport"
)

// jobManagerAddress is where the JobManager listens in the cluster's network.
const jobManagerAddress = "jobmanager:6123"

// Options are what a Cluster is made of.
type Options struct {
	// TaskManagers is their number; 0 means 1.
	TaskManagers int
	// Slots of each TaskManager; 0 means as many as the configuration says.
	Slots int
	// Config is the cluster's configuration, "key=value" each.
	Config []string
	// Dir is an existing directory for everything that the cluster keeps.
	Dir string
	// OpenStore replaces the object stores of the configuration, for tests.
	OpenStore func(*config.Config) checkpointstore.Opener
	// Executor replaces the executors, for tests.
	Executor ExecutorFunc
	// Backend replaces the state backend of all jobs, for tests.
	Backend statebackend.Backend
	// Log takes the log of all parts; nil for none.
	Log *zap.Logger
}

// Cluster is a running cluster. Its methods may be called concurrently.
type Cluster struct {
	options Options
	config  *config.Config
	network *transport.InProcess
	stores  runtime.Stores

	mu struct {
		sync.Mutex
		jobManager   *jobmanager.Server
		server       *transport.Server
		taskManagers []*taskManager
		programs     map[string]*operator.Program
	}
}

// taskManager is one TaskManager's life.
type taskManager struct {
	cancel   context.CancelFunc
	client   *transport.JobManager
	launcher *launcher
	killed   bool // the cluster's mutex guards it
	done     chan struct{}
	err      error // of Run; set before done is closed
}

// Start starts a cluster. Close ends it.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	if options.Log == nil {
		options.Log = zap.NewNop()
	}
	overrides := options.Config
	if options.Slots > 0 {
		overrides = append([]string{config.TaskManagerSlots.Key() + "=" + strconv.Itoa(options.Slots)}, overrides...)
	}
	c, err := config.Load("", overrides)
	if err != nil {
		return nil, err
	}
	cluster := &Cluster{options: options, config: c, network: &transport.InProcess{}}
	if options.OpenStore == nil {
		cluster.options.OpenStore = cluster.stores.Opener
	}
	if options.Executor == nil {
		cluster.options.Executor = executors(cluster.options.OpenStore, options.Backend, options.Log)
	}
	cluster.mu.programs = map[string]*operator.Program{}
	if err := cluster.StartJobManager(ctx); err != nil {
		return nil, err
	}
	for range max(1, options.TaskManagers) {
		if _, err := cluster.StartTaskManager(); err != nil {
			return nil, errors.Join(err, cluster.Close())
		}
	}
	return cluster, nil
}

// StartJobManager starts the JobManager, again after StopJobManager. It takes
// over the jobs that have not ended.
func (c *Cluster) StartJobManager(ctx context.Context) error {
	listener, err := c.network.Listen(jobManagerAddress)
	if err != nil {
		return err
	}
	server, err := jobmanager.Open(ctx, jobmanager.Options{
		Config: c.config, WorkDir: c.options.Dir, OpenStore: c.options.OpenStore, InProcess: true,
		Log: c.options.Log.Named("jobmanager"),
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.jobManager = server
	c.mu.server = transport.Serve(listener, transport.Handlers{Coordination: server, Client: server})
	return nil
}

// StopJobManager ends the JobManager. Its jobs stay unfinished.
func (c *Cluster) StopJobManager() error {
	c.mu.Lock()
	jobManager, server := c.mu.jobManager, c.mu.server
	c.mu.jobManager, c.mu.server = nil, nil
	c.mu.Unlock()
	if jobManager == nil {
		return nil
	}
	return errors.Join(jobManager.Close(), server.Close())
}

// StartTaskManager starts one more TaskManager and returns its number.
func (c *Cluster) StartTaskManager() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	number := len(c.mu.taskManagers)
	name := "tm-" + strconv.Itoa(number)
	// In this network an address is no more than a name: one to listen on and to reach.
	own, err := c.config.With([]string{config.TaskManagerHost.Key() + "=" + name, config.TaskManagerBindHost.Key() + "=" + name})
	if err != nil {
		return 0, err
	}
	client, err := transport.DialJobManager(jobManagerAddress, transport.DialOptions{Network: c.network})
	if err != nil {
		return 0, err
	}
	tm := &taskManager{client: client, done: make(chan struct{})}
	tm.launcher = &launcher{run: c.options.Executor, network: c.network, program: c.findProgram}
	instance, err := runtime.New(runtime.Options{
		Config:     own,
		ID:         ids.TaskManagerID(name),
		Host:       name,
		WorkDir:    filepath.Join(c.options.Dir, name),
		Connect:    client.TaskManagerSession,
		JobManager: jobManagerAddress,
		Launcher:   tm.launcher,
		Log:        c.options.Log.Named(name),
	})
	if err != nil {
		return 0, errors.Join(err, client.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	tm.cancel = cancel
	go func() {
		defer close(tm.done)
		tm.err = errors.Join(instance.Run(ctx), tm.launcher.Close())
	}()
	c.mu.taskManagers = append(c.mu.taskManagers, tm)
	return number, nil
}

func (c *Cluster) findProgram(name string) *operator.Program {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.programs[name]
}

// KillTaskManager ends a TaskManager with its executors at once: their
// connections break without a word. It returns when they are gone; killing one
// again does nothing.
func (c *Cluster) KillTaskManager(number int) error {
	c.mu.Lock()
	if number < 0 || number >= len(c.mu.taskManagers) {
		c.mu.Unlock()
		return fmt.Errorf("there is no TaskManager %d", number)
	}
	tm := c.mu.taskManagers[number]
	killed := tm.killed
	tm.killed = true
	c.mu.Unlock()
	if killed {
		return nil
	}
	err := tm.client.Close()
	tm.launcher.killAll()
	tm.cancel()
	<-tm.done
	return errors.Join(err, tm.err)
}

// stop ends a TaskManager in order.
func (tm *taskManager) stop() error {
	tm.cancel()
	<-tm.done
	return errors.Join(tm.err, tm.client.Close())
}

// Close ends the cluster. Jobs that have not ended stay in its directory.
func (c *Cluster) Close() error {
	err := c.StopJobManager()
	c.mu.Lock()
	taskManagers := c.mu.taskManagers
	c.mu.taskManagers = nil
	c.mu.Unlock()
	for _, tm := range taskManagers {
		if !tm.killed {
			err = errors.Join(err, tm.stop())
		}
	}
	c.stores.Close()
	return err
}

// errNoJobManager is what calls say between StopJobManager and StartJobManager.
var errNoJobManager = errors.New("there is no JobManager")

func (c *Cluster) server() (*jobmanager.Server, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.jobManager == nil {
		return nil, errNoJobManager
	}
	return c.mu.jobManager, nil
}

// JobOptions are what a job is submitted with.
type JobOptions struct {
	// Name is the graph's when empty.
	Name string
	// Parallelism of operators that set none; 0 means the configuration's.
	Parallelism int
	// RestoreFrom is a savepoint's path or URI.
	RestoreFrom string
	// AllowNonRestoredState lets state go that the program does not have.
	AllowNonRestoredState bool
	// Config is the job's, by key.
	Config map[string]string
}

// Submit starts a job.
func (c *Cluster) Submit(ctx context.Context, program *operator.Program, options JobOptions) (ids.JobID, error) {
	server, err := c.server()
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	name := strconv.Itoa(len(c.mu.programs))
	c.mu.programs[name] = program
	c.mu.Unlock()
	description := graph.ToProto(program.Graph)
	description.WireVersion = transport.WireVersion
	response, err := server.SubmitJob(ctx, &pb.SubmitJobRequest{Spec: &pb.JobSpec{
		Name: options.Name, Graph: description, Parallelism: int32(options.Parallelism), RestoreFrom: options.RestoreFrom,
		AllowNonRestoredState: options.AllowNonRestoredState,
		Config:                options.Config, Environment: map[string]string{programVariable: name},
	}})
	if err != nil {
		return "", err
	}
	return ids.JobID(response.GetJobId()), nil
}

// Status shows a job.
func (c *Cluster) Status(ctx context.Context, job ids.JobID) (*pb.JobStatusResponse, error) {
	server, err := c.server()
	if err != nil {
		return nil, err
	}
	return server.JobStatus(ctx, &pb.JobStatusRequest{JobId: string(job)})
}

// Checkpoints lists the latest checkpoints of a job.
func (c *Cluster) Checkpoints(ctx context.Context, job ids.JobID) (*pb.ListCheckpointsResponse, error) {
	server, err := c.server()
	if err != nil {
		return nil, err
	}
	return server.ListCheckpoints(ctx, &pb.ListCheckpointsRequest{JobId: string(job)})
}

// Savepoint takes a savepoint below dir and returns its path or URI.
func (c *Cluster) Savepoint(ctx context.Context, job ids.JobID, dir string) (string, error) {
	return c.savepoint(ctx, &pb.SavepointRequest{JobId: string(job), Dir: dir})
}

// Stop ends a job with a savepoint below dir, whose path or URI it returns
// when all is committed.
func (c *Cluster) Stop(ctx context.Context, job ids.JobID, dir string) (string, error) {
	return c.savepoint(ctx, &pb.SavepointRequest{JobId: string(job), Dir: dir, Stop: true})
}

// Drain is Stop with event time brought to its end first.
func (c *Cluster) Drain(ctx context.Context, job ids.JobID, dir string) (string, error) {
	return c.savepoint(ctx, &pb.SavepointRequest{JobId: string(job), Dir: dir, Stop: true, Drain: true})
}

func (c *Cluster) savepoint(ctx context.Context, request *pb.SavepointRequest) (string, error) {
	server, err := c.server()
	if err != nil {
		return "", err
	}
	response, err := server.Savepoint(ctx, request)
	return response.GetPath(), err
}

// Checkpoint takes a checkpoint of a job now, and returns its ID when it is published.
func (c *Cluster) Checkpoint(ctx context.Context, job ids.JobID) (ids.CheckpointID, error) {
	server, err := c.server()
	if err != nil {
		return 0, err
	}
	response, err := server.CheckpointJob(ctx, &pb.CheckpointJobRequest{JobId: string(job)})
	return ids.CheckpointID(response.GetCheckpoint()), err
}

// Cancel cancels a job and returns when it has ended.
func (c *Cluster) Cancel(ctx context.Context, job ids.JobID) error {
	server, err := c.server()
	if err != nil {
		return err
	}
	_, err = server.CancelJob(ctx, &pb.CancelJobRequest{JobId: string(job)})
	return err
}

// Wait waits until a job has ended, under this JobManager, and shows it.
func (c *Cluster) Wait(ctx context.Context, job ids.JobID) (*pb.JobStatusResponse, error) {
	server, err := c.server()
	if err != nil {
		return nil, err
	}
	return server.WaitJob(ctx, job)
}

// Logs calls each for the lines of the job's output.
func (c *Cluster) Logs(ctx context.Context, job ids.JobID, follow bool, each func(*pb.LogLines) error) error {
	server, err := c.server()
	if err != nil {
		return err
	}
	return server.Logs(ctx, &pb.LogsRequest{JobId: string(job), Follow: follow}, each)
}
