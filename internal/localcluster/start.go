package localcluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirstream/weir/pkg/config"
)

const (
	jobManagerName = "jobmanager"
	s3Name         = "s3"

	jobManagerBinary  = "jobmanager"
	taskManagerBinary = "taskmanager"
)

const (
	// startTimeout is many times what a start takes on a slow host: behind it something hangs.
	startTimeout = time.Minute
	// probeInterval is how often a starting server is asked whether it is there.
	probeInterval = 50 * time.Millisecond
)

// Cluster is what Start leaves running.
type Cluster struct {
	// Dir is absolute.
	Dir string
	// JobManager is its address.
	JobManager string
	Processes  []Process
	// Started are the names of those that did not run before.
	Started []string
}

// EndedError says that a process ended while the cluster was starting.
type EndedError struct {
	Name, Log string
	// Tail are the last lines of its log.
	Tail string
}

// Error names the process and its log.
func (e *EndedError) Error() string {
	return fmt.Sprintf("%s ended while it was starting: see %s", e.Name, e.Log)
}

// Start starts the cluster in o.Dir, or what is missing of it, and returns when
// every TaskManager is registered. When that fails it stops what it started.
// Errors that callers may tell apart are *OptionError, *ConflictError,
// *EndedError and *config.KeyError.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("find cluster: %w", err)
	}
	if err := checkNew(dir, o); err != nil {
		return nil, err
	}
	if err := makeDirectories(dir); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the cluster is not up after %v: see %s", startTimeout, filepath.Join(dir, "log")))
	defer cancel()
	unlock, err := lock(ctx, dir, o.Progress)
	if err != nil {
		return nil, err
	}
	s := &starter{dir: dir, options: o}
	err = s.run(ctx)
	if err != nil {
		// Also when the context has ended: nothing half-started stays behind.
		err = errors.Join(err, s.undo(context.WithoutCancel(ctx)))
	}
	if err = errors.Join(err, unlock()); err != nil {
		return nil, err
	}
	listed, err := s.record.list(dir)
	if err != nil {
		return nil, err
	}
	return &Cluster{Dir: dir, JobManager: s.jobManager, Processes: listed, Started: s.started}, nil
}

// checkNew looks for mistakes in the options of a new cluster before its
// directories are made, which the lock needs: a mistake leaves no trace.
func checkNew(dir string, o Options) error {
	if _, err := readRecord(dir); !errors.Is(err, errNoCluster) {
		return nil // There is a cluster: what fits it is looked at under its lock.
	}
	s := &starter{dir: dir, options: o}
	if err := s.load(); err != nil {
		return err
	}
	if err := s.findPrograms(); err != nil {
		return err
	}
	_, err := config.Load("", s.record.Overrides)
	return err
}

// starter starts what is missing of one cluster, under its lock.
type starter struct {
	dir     string
	options Options
	record  *record
	config  *config.Config
	// running is whether any process of the cluster ran before.
	running bool
	// s3Server is the path of versitygw when it has to be started.
	s3Server string
	// jobManager is where clients reach it.
	jobManager string
	// started are the names of the processes that this call started, in order.
	started []string
}

func (s *starter) run(ctx context.Context) error {
	if err := s.load(); err != nil {
		return err
	}
	if err := s.findPrograms(); err != nil {
		return err
	}
	if err := s.plan(); err != nil {
		return err
	}
	// A process that was found running may just have been killed: then there is
	// more missing than it seemed. One that this call started gets no second try.
	for {
		err := s.startAll(ctx)
		var ended *EndedError
		if errors.As(err, &ended) && !slices.Contains(s.started, ended.Name) {
			continue
		}
		if err != nil {
			return err
		}
		allRun, err := s.allRun()
		if err != nil || allRun {
			return err
		}
	}
}

func (s *starter) startAll(ctx context.Context) error {
	if s.record.S3 {
		if err := s.startS3(ctx); err != nil {
			return err
		}
	}
	if err := s.startJobManager(ctx); err != nil {
		return err
	}
	return s.startTaskManagers(ctx)
}

// allRun is false when a process that was found running has ended since. For
// those that this call started it is an *EndedError.
func (s *starter) allRun() (bool, error) {
	for i := range s.record.Processes {
		p := &s.record.Processes[i]
		alive, err := p.Identity.isAlive()
		if err != nil {
			return false, err
		}
		if !alive && slices.Contains(s.started, p.Name) {
			return false, s.ended(p)
		}
		if !alive {
			return false, nil
		}
	}
	return true, nil
}

func (s *starter) ended(p *process) error {
	log := logFile(s.dir, p.Name)
	return &EndedError{Name: p.Name, Log: log, Tail: tail(log)}
}

// load reads the record of what runs, or makes one, and merges the options.
func (s *starter) load() error {
	r, err := readRecord(s.dir)
	if errors.Is(err, errNoCluster) {
		r, err = newRecord()
	}
	if err != nil {
		return err
	}
	for _, p := range r.Processes {
		alive, err := p.Identity.isAlive()
		if err != nil {
			return err
		}
		s.running = s.running || alive
	}
	s.record = r
	return r.merge(s.options, s.running)
}

func newRecord() (*record, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find working directory: %w", err)
	}
	return &record{Version: recordVersion, TaskManagers: defaultTaskManagers, Slots: defaultSlots, WorkingDirectory: here}, nil
}

// findPrograms fails before anything is written down when one is missing, the
// S3 server included.
func (s *starter) findPrograms() error {
	for _, binary := range []string{jobManagerBinary, taskManagerBinary} {
		if _, err := os.Stat(filepath.Join(s.options.Programs, binary)); err != nil {
			return &OptionError{Message: fmt.Sprintf("%s is not beside flinkctl in %s: run make build", binary, s.options.Programs)}
		}
	}
	if !s.record.S3 {
		return nil
	}
	if p := s.record.find(s3Name); p != nil {
		if alive, err := p.Identity.isAlive(); err != nil || alive {
			return err
		}
	}
	var err error
	s.s3Server, err = s.options.S3Server()
	return err
}

// plan chooses addresses and writes down what is going to run before anything does.
func (s *starter) plan() error {
	// What the user overrides is looked at first: a mistake in it leaves no trace.
	wanted, err := config.Load("", s.record.Overrides)
	if err != nil {
		return err
	}
	planned := make([]process, 0, s.record.TaskManagers+2)
	add := func(name string, role Role, preferred int) error {
		// When all were stopped nobody holds on to an address that was taken meanwhile.
		if existing := s.record.find(name); existing != nil && (s.running || isFreeAddress(existing.Address)) {
			planned = append(planned, *existing)
			return nil
		}
		address, err := freeAddress(preferred, func(address string) bool {
			has := func(p process) bool { return p.Address == address }
			return slices.ContainsFunc(planned, has) || slices.ContainsFunc(s.record.Processes, has)
		})
		if err != nil {
			return fmt.Errorf("choose an address for %s: %w", name, err)
		}
		planned = append(planned, process{Name: name, Role: role, Address: address})
		return nil
	}
	if s.record.S3 {
		if s.record.S3Secret == "" {
			s.record.S3Access, s.record.S3Secret = "weir", rand.Text()
		}
		if err := add(s3Name, S3, 0); err != nil {
			return err
		}
	}
	if err := add(jobManagerName, JobManager, preferredPort(wanted, s.record.Overrides)); err != nil {
		return err
	}
	for i := range s.record.TaskManagers {
		if err := add(fmt.Sprintf("taskmanager-%d", i+1), TaskManager, 0); err != nil {
			return err
		}
	}
	s.record.Processes = planned
	if s.config, err = s.record.configuration(s.dir); err != nil {
		return err
	}
	s.jobManager = s.record.find(jobManagerName).Address
	if err := s.record.write(s.dir); err != nil {
		return err
	}
	return writeConfig(s.dir, s.config)
}

// preferredPort is what jobmanager.rpc.port was overridden with, where 0 asks
// for any; without that it is the one that flinkctl looks at by default.
func preferredPort(wanted *config.Config, overrides []string) int {
	for _, override := range overrides {
		if key, _, _ := strings.Cut(override, "="); strings.TrimSpace(key) == config.JobManagerRPCPort.Key() {
			return config.JobManagerRPCPort.Get(wanted)
		}
	}
	return defaultJobManagerPort
}

func (s *starter) startS3(ctx context.Context) error {
	p := s.record.find(s3Name)
	data := filepath.Join(s.dir, "s3")
	if err := s.startMissing(ctx, p, func() (command, error) {
		// To the server's posix backend a directory is a bucket.
		if err := os.MkdirAll(filepath.Join(data, bucket), 0o700); err != nil {
			return command{}, fmt.Errorf("make bucket: %w", err)
		}
		args := []string{"--quiet", "--port", p.Address, "posix"}
		if !hasAttributes(data) {
			metadata := filepath.Join(s.dir, "s3-metadata")
			if err := os.MkdirAll(metadata, 0o700); err != nil {
				return command{}, fmt.Errorf("make bucket: %w", err)
			}
			args = append(args, "--sidecar", metadata)
		}
		return command{path: s.s3Server, args: append(args, data),
			environment: []string{"ROOT_ACCESS_KEY=" + s.record.S3Access, "ROOT_SECRET_KEY=" + s.record.S3Secret}}, nil
	}); err != nil {
		return err
	}
	return s.await(ctx, []*process{p}, func() bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Address, nil)
		if err != nil {
			return false
		}
		response, err := http.DefaultClient.Do(request)
		// Any answer shows that it serves: an anonymous request is refused.
		return err == nil && response.Body.Close() == nil
	})
}

// hasAttributes reports whether files in dir can have the extended attributes
// in which the S3 server keeps metadata.
func hasAttributes(dir string) bool {
	return unix.Setxattr(dir, "user.weir", []byte("1"), 0) == nil
}

func (s *starter) startJobManager(ctx context.Context) error {
	p := s.record.find(jobManagerName)
	if err := s.startMissing(ctx, p, func() (command, error) { return s.program(jobManagerBinary, p) }); err != nil {
		return err
	}
	return s.await(ctx, []*process{p}, func() bool {
		_, err := s.options.Registered(ctx, s.jobManager)
		return err == nil
	})
}

func (s *starter) startTaskManagers(ctx context.Context) error {
	var all []*process
	for i := range s.record.Processes {
		p := &s.record.Processes[i]
		if p.Role != TaskManager {
			continue
		}
		all = append(all, p)
		port := p.Address[strings.LastIndexByte(p.Address, ':')+1:]
		if err := s.startMissing(ctx, p, func() (command, error) {
			return s.program(taskManagerBinary, p,
				"-D", config.TaskManagerResourceID.Key()+"="+p.Name,
				"-D", config.TaskManagerRPCPort.Key()+"="+port)
		}); err != nil {
			return err
		}
	}
	return s.await(ctx, all, func() bool {
		registered, err := s.options.Registered(ctx, s.jobManager)
		if err != nil {
			return false
		}
		for _, p := range all {
			if !slices.Contains(registered, p.Identity.PID) {
				return false
			}
		}
		return true
	})
}

// program is the command of one of Weir's own processes.
func (s *starter) program(binary string, p *process, args ...string) (command, error) {
	work := filepath.Join(s.dir, "work", p.Name)
	if err := os.MkdirAll(work, 0o700); err != nil {
		return command{}, fmt.Errorf("make working directory: %w", err)
	}
	return command{path: filepath.Join(s.options.Programs, binary), args: append([]string{
		"--config", filepath.Join(s.dir, configFile),
		"-D", config.WorkingDirectory.Key() + "=" + work,
	}, args...)}, nil
}

// startMissing starts the process unless it runs, and records it at once.
func (s *starter) startMissing(ctx context.Context, p *process, prepare func() (command, error)) error {
	alive, err := p.Identity.isAlive()
	if err != nil || alive {
		return err
	}
	// Executors end with their TaskManager; the next one must not meet them.
	if err := endSession(ctx, p.Identity); err != nil {
		return err
	}
	c, err := prepare()
	if err != nil {
		return err
	}
	c.name = p.Name
	p.Identity, err = spawn(s.dir, s.record.WorkingDirectory, c)
	if err != nil {
		return err
	}
	s.started = append(s.started, p.Name)
	s.options.Progress(fmt.Sprintf("started %s (PID %d) at %s", p.Name, p.Identity.PID, p.Address))
	return s.record.write(s.dir)
}

// await polls until ready is true, and fails when one of the processes ends before.
func (s *starter) await(ctx context.Context, processes []*process, ready func() bool) error {
	return poll(ctx, probeInterval, func() (bool, error) {
		if ready() {
			return true, nil
		}
		for _, p := range processes {
			alive, err := p.Identity.isAlive()
			if err != nil {
				return false, err
			}
			if !alive {
				return false, s.ended(p)
			}
		}
		return false, nil
	})
}

// undo stops what this call started.
func (s *starter) undo(ctx context.Context) error {
	if len(s.started) == 0 {
		return nil
	}
	var started []*process
	for _, name := range s.started {
		started = append(started, s.record.find(name))
	}
	return s.record.stop(ctx, s.dir, started, s.options.Progress)
}
