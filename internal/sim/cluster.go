package sim

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/ids"
)

// cluster is everything that lives in one run.
type cluster struct {
	loop
	options Options
	plant   Plant
	result  Result

	storage *storage
	apps    []*app
	jobs    []*job // of all apps, by number
	users   users
	// corrupts is how often files were damaged.
	corrupts int
	// healed: the second phase, in which nothing fails any more.
	healed bool

	jobManagers []*jobManager // every one that ever started
	// leader is the JobManager that everybody looks for; nil while there is none.
	leader       *jobManager
	taskManagers []*taskManager // by host, the present life
	everyManager map[ids.TaskManagerID]*taskManager
	links        map[linkKey]*link
	linkOrder    []*link // those that are not broken
	// stepped is the subtask whose step is under way.
	stepped *host

	// clocks is by how much the clock of each host is off.
	clocks []time.Duration
	// disks has a directory for each life of a TaskManager, and one for the
	// files of checkpoints that checkers read.
	disks string

	checks checks
}

// Failure is a broken rule.
type Failure struct {
	// Invariant is the number in docs/ARCHITECTURE.md, or a word.
	Invariant string
	Message   string
	// Trace is its last lines.
	Trace []string
}

// Error prints the rule and how it was broken.
func (f *Failure) Error() string { return f.Invariant + ": " + f.Message }

// Result is what a run was.
type Result struct {
	Seed    uint64
	Options Options
	// Hash is that of the trace: equal for equal seeds.
	Hash uint64
	// Failure is the broken rule, nil when all held.
	Failure *Failure

	Events                        int
	Elapsed                       time.Duration // virtual
	Attempts, Restores, Completed int
	Savepoints, Cancels           int
	// Stops are jobs without end that were stopped; Beside are runs of two jobs.
	Stops, Beside int
	// Modes counts the apps by their mode; Duplicates are output records that are
	// there a second time, in at-least-once mode.
	Modes      [simjob.Modes]int
	Duplicates int
	// TimedOut counts alignments that went on unaligned; InFlight records that
	// checkpoints hold, RestoredInFlight those that were taken from them, and
	// Rekeyed parts of them that were given away by key.
	TimedOut, InFlight, RestoredInFlight, Rekeyed int
	// LoopLogged are records in flight on their way round a loop, LoopsEnded heads
	// of loops that were told to end.
	LoopLogged, LoopsEnded int
	// LoopSpilled are bytes that heads of loops have put on disk.
	LoopSpilled int64
	// Drains are stops that drained.
	Drains int
	// Rescales counts jobs that went on elsewhere, by how they were ended;
	// Claims those that claimed what they started from, Refused submissions
	// with another max parallelism.
	Rescales        [rescaleKinds]int
	Claims, Refused int
	// EventTimers and ProcessingTimers that fired, values that had Expired or
	// were Alive when they were read, and times that sources were Idle.
	EventTimers, ProcessingTimers, Expired, Alive, Idle int
	Leftovers, Fenced                                   int
	// SharedUploaded are shared files that were stored, SharedReused how often
	// an acknowledgement named an older one, SharedDeleted those deleted again.
	SharedUploaded, SharedReused, SharedDeleted int
	// FromFiles are restores of keyed state in files, LocalFiles the files that
	// were there already; OtherBackend are jobs that go on with another backend.
	FromFiles, LocalFiles, OtherBackend int
	// Fallbacks to older checkpoints, transactions Revoked by them, and jobs
	// that could not fall back: FailedCorrupt.
	Fallbacks, Revoked, FailedCorrupt int
	Faults                            [faultKinds]int
	Transactions                      int
	TransactionsAborted               int
}

// Config is how a seed is run.
type Config struct {
	Seed  uint64
	Plant Plant
	// Options, if not nil, stand in for those that are drawn.
	Options *Options
	// Trace takes every line, if not nil.
	Trace io.Writer
}

// healBudget is how long the healed cluster may take to finish its jobs: the
// input needs a few seconds, and a restart that was backed off two more.
const healBudget = 90 * time.Second

// settleBudget is how long deletions may take after the last job has ended.
const settleBudget = 60 * time.Second

// Run runs one seed to its end, or to the first broken rule.
func Run(config Config) Result {
	options := config.Options
	if options == nil {
		drawn := Draw(config.Seed)
		options = &drawn
	}
	c := &cluster{
		options: *options, plant: config.Plant,
		links: map[linkKey]*link{}, everyManager: map[ids.TaskManagerID]*taskManager{},
	}
	c.random = rand.New(rand.NewPCG(config.Seed, runStream))
	c.trace = newTrace(&c.now, config.Trace)
	c.result = Result{Seed: config.Seed, Options: c.options}
	c.storage = newStorage(c)
	c.checks = newChecks()
	c.users.c = c
	if c.options.InFiles || c.options.LoopBytesMax > 0 {
		disks, err := os.MkdirTemp("", "weir-sim-")
		if err != nil {
			panic(err)
		}
		defer func() {
			if err := os.RemoveAll(disks); err != nil {
				panic(err)
			}
		}()
		c.disks = disks
	}
	c.result.Failure = c.protect(c.run)
	c.result.Hash = c.trace.hash
	c.result.Events = c.events
	c.result.Elapsed = c.now
	return c.result
}

// protect runs f until its end or until a rule is broken.
func (c *cluster) protect(f func()) (failure *Failure) {
	defer func() {
		switch r := recover().(type) {
		case nil:
			return
		case *Failure:
			failure = r
		case invariant.Violation:
			failure = &Failure{Invariant: r.Invariant, Message: r.Message}
		default:
			failure = &Failure{Invariant: "panic", Message: fmt.Sprintf("%v\n%s", r, debug.Stack())}
		}
		failure.Trace = c.trace.last()
	}()
	f()
	return nil
}

// fail ends the run because a rule is broken.
func (c *cluster) fail(rule, format string, args ...any) {
	panic(&Failure{Invariant: rule, Message: fmt.Sprintf(format, args...)})
}

func (c *cluster) run() {
	for host := range c.options.TaskManagers {
		c.taskManagers = append(c.taskManagers, nil)
		c.clocks = append(c.clocks, c.between(-500*time.Millisecond, 500*time.Millisecond))
		c.startTaskManager(host, 0)
	}
	c.submit(c.newApp(c.options.Rescales), submission{options: c.options.Job, inFiles: c.options.InFiles})
	if second := c.options.Second; second != nil {
		c.submit(c.newApp(nil), submission{options: *second, inFiles: c.options.InFiles})
		c.result.Beside++
	}
	for _, a := range c.apps {
		c.result.Modes[a.last().options.Mode]++
	}
	c.startJobManager()
	c.users.begin()
	c.scheduleFault()

	for !c.isDone() && c.next(c.options.Safety) {
	}
	if !c.isDone() {
		c.now = max(c.now, c.options.Safety)
	}
	c.healed = true
	c.trace.add("healed")
	for _, jm := range c.jobManagers {
		if jm != c.leader {
			jm.crash() // nobody looks for it any more
		}
	}
	limit := c.now + healBudget
	for !c.isDone() && c.next(limit) {
	}
	c.checkProgress()
	limit = c.now + settleBudget
	for c.next(limit) {
	}
	c.checkFinally()
}

// job is one job as it was submitted.
type job struct {
	id   ids.JobID
	name string
	app  *app
	submission
	jobCode
	ended  bool
	status coordinator.JobStatus
	// corrupt: files of its checkpoints are damaged before the next leader reads them.
	corrupt bool
	// plan is the rescale that users have begun, resumes says that it is
	// cancelled to go on, from the savepoint unless that is empty.
	plan      *Rescale
	resumes   bool
	savepoint string
}

func (c *cluster) jobOf(id ids.JobID) *job {
	return c.jobs[slices.IndexFunc(c.jobs, func(j *job) bool { return j.id == id })]
}

func (c *cluster) taskManagerOf(id ids.TaskManagerID) *taskManager { return c.everyManager[id] }

// executorOf finds a living executor.
func (c *cluster) executorOf(id ids.ExecutorID) *executor {
	for _, x := range c.taskManagerOf(id.TaskManager).executors {
		if x.id == id {
			return x
		}
	}
	return nil
}

// coordinatorConfig is what production makes of the configuration.
func (c *cluster) coordinatorConfig(j *job) coordinator.Config {
	o := c.options
	mode := coordinator.ExactlyOnce
	if j.options.Mode == simjob.AtLeastOnce {
		mode = coordinator.AtLeastOnce
	}
	concurrent, timeout := o.MaxConcurrent, time.Duration(0)
	unaligned := j.options.Mode == simjob.Unaligned || j.options.Mode == simjob.AlignedTimeout
	if unaligned {
		concurrent = 1
	}
	if j.options.Mode == simjob.AlignedTimeout {
		timeout = o.AlignedTimeout
	}
	return coordinator.Config{
		Job: j.id, JobName: j.name, RestoreFrom: j.restoreFrom(), ClaimRestored: j.claim,
		Checkpointing: coordinator.CheckpointConfig{
			Mode: mode, Unaligned: unaligned, AlignedTimeout: timeout,
			Interval: o.Interval, Timeout: o.Timeout, MinPause: o.MinPause, MaxConcurrent: concurrent,
			TolerableFailures: o.TolerableFailures, Incremental: o.Incremental, Retained: o.Retained, Retention: o.Retention,
		},
		Restart: coordinator.RestartConfig{
			Strategy: coordinator.ExponentialDelay,
			Backoff:  coordinator.Backoff{Initial: 100 * time.Millisecond, Max: 2 * time.Second, Multiplier: 1.5, Jitter: 0.1},
			// Failed reads of the store during a restore count; a run has many.
			Attempts: 1 << 20, StableAfter: 2 * time.Second,
		},
		SlotRequestTimeout: time.Hour, CancellationTimeout: time.Second, LaunchTimeout: 2 * time.Second,
		Seed: c.random.Uint64(),
	}
}
