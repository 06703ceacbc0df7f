package coordinator

import (
	"time"

	"github.com/weirstream/weir/internal/invariant"
	"github.com/weirstream/weir/pkg/ids"
)

// Retention says what becomes of a job's checkpoints when it ends. Savepoints
// always stay.
type Retention uint8

// The retentions of execution.checkpointing.externalized-checkpoint-retention.
const (
	// DeleteOnCancellation removes them when the job finished or was cancelled,
	// and keeps them when it failed: what failed can be looked at and resumed.
	DeleteOnCancellation Retention = iota + 1
	// RetainOnCancellation keeps them also when the job was cancelled.
	RetainOnCancellation
	// NoExternalizedCheckpoints removes them however the job ended.
	NoExternalizedCheckpoints
)

// Keeps reports whether checkpoints stay after a job ended with the status.
func (r Retention) Keeps(s JobStatus) bool {
	switch r {
	case DeleteOnCancellation:
		return s == FailedStatus
	case RetainOnCancellation:
		return s == FailedStatus || s == CanceledStatus
	case NoExternalizedCheckpoints:
	}
	return false
}

// RestartStrategy says what follows an error or panic of user code.
type RestartStrategy uint8

// The restart strategies of restart-strategy.type.
const (
	// ExponentialDelay waits longer before each restart, and gives up after
	// Attempts restarts without a new completed checkpoint.
	ExponentialDelay RestartStrategy = iota + 1
	// FixedDelay waits equally long before each restart, and gives up after
	// FixedAttempts restarts, counted as in Flink over the job's whole life
	// under one JobManager.
	FixedDelay
	// NoRestart fails the job at its first error.
	NoRestart
)

// Backoff is a growing delay: Initial, multiplied by Multiplier each time, at
// most Max, varied at random by the share Jitter in both directions.
type Backoff struct {
	Initial, Max       time.Duration
	Multiplier, Jitter float64
}

// RestartConfig is how the job is restarted.
type RestartConfig struct {
	Strategy RestartStrategy
	// Backoff is the delay of ExponentialDelay and, after one immediate
	// restart, that of lost processes.
	Backoff Backoff
	// Attempts of ExponentialDelay before the job fails.
	Attempts int
	// FixedDelay and FixedAttempts belong to the strategy of that name.
	FixedDelay    time.Duration
	FixedAttempts int
	// StableAfter is how long an attempt must have run, and it must have
	// completed a checkpoint, for its failure to count as the first again.
	StableAfter time.Duration
}

// CheckpointMode says what a failure may do to the state.
type CheckpointMode uint8

// The modes of execution.checkpointing.mode.
const (
	// ExactlyOnce counts every record once.
	ExactlyOnce CheckpointMode = iota + 1
	// AtLeastOnce loses none, and may count one twice: barriers hold nothing back.
	AtLeastOnce
)

// CheckpointConfig is execution.checkpointing.
type CheckpointConfig struct {
	Mode CheckpointMode
	// Unaligned lets the barriers of checkpoints overtake records. Only with
	// ExactlyOnce and MaxConcurrent 1; savepoints always align.
	Unaligned bool
	// AlignedTimeout is how long such barriers keep their place first. The
	// wire has milliseconds: a part of one counts as one.
	AlignedTimeout time.Duration
	// Interval from one periodic trigger to the next; 0 takes none.
	Interval time.Duration
	// Timeout is the age at which a checkpoint or savepoint expires.
	Timeout time.Duration
	// MinPause is the least time from the end of one to the next periodic trigger.
	MinPause time.Duration
	// MaxConcurrent periodic checkpoints; savepoints may run beside them. With
	// MinPause it is 1.
	MaxConcurrent int
	// TolerableFailures is how many checkpoints in a row may fail (declined,
	// expired, not stored) before the job fails over. Negative: any number.
	// Savepoints do not count: their user is told.
	TolerableFailures int
	// Incremental lets a checkpoint refer to shared files of the latest
	// published one (element.Barrier.Base). Without it each holds all state.
	Incremental bool
	// Retained is how many completed checkpoints are kept, 1 or more.
	Retained  int
	Retention Retention
}

// Config is what a coordinator is told once. Zero values take the defaults
// named in defaults, but for Job, which must be given, and for numbers in
// which zero has a meaning.
type Config struct {
	Job     ids.JobID
	JobName string
	// RestoreFrom is the savepoint or checkpoint of the submission, empty for none.
	RestoreFrom string
	// AllowNonRestoredState drops what RestoreFrom has of operators that the
	// graph does not have, instead of failing the job.
	AllowNonRestoredState bool
	// ClaimRestored makes RestoreFrom the job's own, see claim.go.
	ClaimRestored bool
	// AllowDuplicates lets the job fall back to an older checkpoint although a
	// sink cannot take back what was committed since: that comes out twice.
	AllowDuplicates bool

	Checkpointing CheckpointConfig
	Restart       RestartConfig

	// SlotRequestTimeout fails a job that never ran when its slots are not
	// there by then (slot.request.timeout). For a job that has run, one such
	// wait counts as a lost process, and it goes on waiting after a backoff:
	// TaskManagers that were lost may take longer to replace.
	SlotRequestTimeout time.Duration
	// CancellationTimeout is the grace of a cancel (task.cancellation.timeout).
	CancellationTimeout time.Duration
	// LaunchTimeout bounds the time from LaunchExecutor to ExecutorReady. It
	// includes fetching the artifact.
	LaunchTimeout time.Duration
	// Seed feeds the jitter of delays.
	Seed uint64
}

// Defaults of what no configuration key sets.
const (
	defaultLaunchTimeout = 2 * time.Minute
	defaultStableAfter   = time.Minute
	// retryInitial and retryMax bound how often a store that does not answer
	// is asked again: soon, because a job waits, and never so often that it
	// keeps an ailing store down.
	retryInitial = 500 * time.Millisecond
	retryMax     = 30 * time.Second
)

// defaults fills in what was left out.
func (c Config) defaults() Config {
	invariant.Check(c.Job != "", "config", "the coordinator's job has no ID")
	setDefault(&c.SlotRequestTimeout, 5*time.Minute)
	setDefault(&c.CancellationTimeout, 30*time.Second)
	setDefault(&c.LaunchTimeout, defaultLaunchTimeout)
	setDefault(&c.Checkpointing.Mode, ExactlyOnce)
	setDefault(&c.Checkpointing.Timeout, 10*time.Minute)
	setDefault(&c.Checkpointing.MaxConcurrent, 1)
	setDefault(&c.Checkpointing.Retained, 2)
	setDefault(&c.Checkpointing.Retention, DeleteOnCancellation)
	k := &c.Checkpointing
	if k.MinPause > 0 {
		k.MaxConcurrent = 1 // as in Flink: there is no pause between two that overlap
	}
	invariant.Check(!k.Unaligned || k.Mode == ExactlyOnce && k.MaxConcurrent == 1, "config",
		"unaligned checkpoints in mode %d, %d at once", k.Mode, k.MaxConcurrent)
	r := &c.Restart
	setDefault(&r.Strategy, ExponentialDelay)
	if r.Backoff == (Backoff{}) {
		r.Backoff = Backoff{Initial: time.Second, Max: time.Minute, Multiplier: 1.5, Jitter: 0.1}
		setDefault(&r.Attempts, 10)
	}
	setDefault(&r.StableAfter, defaultStableAfter)
	return c
}

func setDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}
