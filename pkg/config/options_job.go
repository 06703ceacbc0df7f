package config

import (
	"strconv"
	"time"
)

// The shape of a job.
var (
	DefaultParallelism = intOption(settings{key: "parallelism.default", scope: JobScope,
		doc: "Parallelism of operators that do not set their own."}, "1", 1, parallelismMax)
	MaxParallelism = intOption(settings{key: "pipeline.max-parallelism", scope: JobScope,
		doc: "Number of key groups, and so the largest parallelism a job can ever be restored at. Fixed for the job's life."},
		"128", 1, parallelismMax)
)

// parallelismMax is the largest number of key groups, as in Flink: a group's number has 15 bits.
const parallelismMax = 1 << 15

// Scheduling and cancellation.
var (
	SlotRequestTimeout = durationOption(settings{key: "slot.request.timeout", scope: JobScope,
		doc: "How long a job waits for enough free slots before it fails."}, "5 min", 0, longest)
	TaskCancellationTimeout = durationOption(settings{key: "task.cancellation.timeout", scope: JobScope,
		doc: "How long a cancelled subtask may take to return before its executor is killed."}, "30 s", 10*time.Millisecond, longest)
)

// State and checkpoints.
var (
	StateBackend = enumOption(settings{key: "state.backend.type", scope: JobScope,
		aliases: []string{"state.backend"},
		doc:     "Where keyed state lives while a job runs: on the heap, or on local disk with what is hot on the heap."},
		MemoryBackend, MemoryBackend, PebbleBackend)
	PebbleMemory = memoryOption(settings{key: "state.backend.pebble.memory", scope: JobScope,
		doc: "Memory that the backend pebble takes in an executor, for all keyed state in it together."}, "256 mb", 16*MiB, TiB)
	StateValueMax = memoryOption(settings{key: "state.value.bytes-max", scope: JobScope,
		doc: "Largest stored value of keyed state, in bytes, that a snapshot takes. A larger one declines checkpoints and leaves the job running."}, "64 mb", KiB, 2*GiB-1)
	CheckpointInterval = durationOption(settings{key: "execution.checkpointing.interval", scope: JobScope,
		doc: "Time from one periodic checkpoint to the next. 0 takes none."}, "1 s", 0, longest)
	CheckpointMode = enumOption(settings{key: "execution.checkpointing.mode", scope: JobScope,
		doc: "What a failure may do to the state: nothing, or count records that were read since the last checkpoint twice, for which no channel ever waits in a checkpoint."},
		ExactlyOnce, ExactlyOnce, AtLeastOnce)
	CheckpointTimeout = durationOption(settings{key: "execution.checkpointing.timeout", scope: JobScope,
		doc: "Age at which an unfinished checkpoint is aborted."}, "10 min", 10*time.Millisecond, longest)
	CheckpointMinPause = durationOption(settings{key: "execution.checkpointing.min-pause", scope: JobScope,
		doc: "Least time from the end of one checkpoint to the start of the next periodic one, or of one that looks whether a loop is empty. If it is not 0 there is one checkpoint at a time."}, "0 s", 0, longest)
	CheckpointMaxConcurrent = intOption(settings{key: "execution.checkpointing.max-concurrent-checkpoints", scope: JobScope,
		doc: "Checkpoints that may be under way at once. Savepoints run beside them."}, "1", 1, 16)
	CheckpointTolerableFailed = intOption(settings{key: "execution.checkpointing.tolerable-failed-checkpoints", scope: JobScope,
		doc: "Checkpoints in a row that may fail before the job does; -1 for any number. The failed ones are in the job's history."}, "-1", -1, 1_000_000)
	CheckpointRetained = intOption(settings{key: "execution.checkpointing.num-retained", scope: JobScope,
		aliases: []string{"state.checkpoints.num-retained"},
		doc:     "Completed checkpoints that are kept."}, "2", 1, 1000)
	FallbackAllowDuplicates = boolOption(settings{key: "execution.checkpointing.fallback.allow-duplicates", scope: JobScope,
		doc: "Whether a job whose newest checkpoint is corrupt goes on from an older one although a two-phase sink cannot take back " +
			"what it has committed since, which then comes out twice. Otherwise such a job fails."}, "false")
	CheckpointDir = storageOption(settings{key: "execution.checkpointing.dir", scope: JobScope,
		aliases: []string{"state.checkpoints.dir"},
		doc:     "Where checkpoints are stored; every process has to reach it. Empty means below high-availability.storageDir."})
	SavepointDir = storageOption(settings{key: "execution.checkpointing.savepoint-dir", scope: JobScope,
		aliases: []string{"state.savepoints.dir"},
		doc:     "Where savepoints go that name no directory. Empty makes them name one."})
	CheckpointRetention = enumOption(settings{key: "execution.checkpointing.externalized-checkpoint-retention", scope: JobScope,
		doc: "What happens to a job's checkpoints when it ends: removed unless it failed, kept also when it was cancelled, or always removed."},
		DeleteOnCancellation, DeleteOnCancellation, RetainOnCancellation, NoExternalizedCheckpoints)
	CheckpointInlineThreshold = memoryOption(settings{key: "execution.checkpointing.data-inline-threshold", scope: JobScope,
		aliases: []string{"execution.checkpointing.memory-threshold", "state.storage.fs.memory-threshold"},
		doc:     "State smaller than this travels in the acknowledgement and is stored in the metadata, without a file of its own."},
		"20 kb", 0, MiB)
	CheckpointUnaligned = boolOption(settings{key: "execution.checkpointing.unaligned.enabled", scope: JobScope,
		aliases: []string{"execution.checkpointing.unaligned"},
		doc: "Whether barriers overtake records, which are then part of the checkpoint, so that it does not wait for them under back-pressure. " +
			"Savepoints always align. Needs EXACTLY_ONCE and one checkpoint at a time."}, "false")
	CheckpointAlignedTimeout = durationOption(settings{key: "execution.checkpointing.aligned-checkpoint-timeout", scope: JobScope,
		doc: "Where unaligned checkpoints are enabled: how long a barrier keeps its place, in or in front of a subtask, before it overtakes. 0 starts unaligned."},
		"0 s", 0, longest)
	CheckpointChannelStateMax = memoryOption(settings{key: "execution.checkpointing.unaligned.max-channel-state", scope: JobScope,
		doc: "Most records, in bytes, that one subtask stores in an unaligned checkpoint. More of them decline the checkpoint and leave the job running."},
		"256 mb", MiB, 2*GiB-1)
	CheckpointIncremental = boolOption(settings{key: "execution.checkpointing.incremental", scope: JobScope,
		aliases: []string{"state.backend.incremental"},
		doc:     "Whether a checkpoint refers to files of the one before instead of uploading them again. Matters only with a state backend that keeps its state in files."},
		"true")
	LocalRecovery = boolOption(settings{key: "execution.state-recovery.from-local", scope: JobScope,
		aliases: []string{"state.backend.local-recovery"},
		doc: "Whether TaskManagers keep the files of the last checkpoints below their working directory, so that a subtask that is restarted " +
			"on the same host need not fetch them. State on the heap is not kept: that would write all of it twice."}, "true")
)

// Backend is the name of a state backend.
type Backend string

const (
	// MemoryBackend keeps state on the heap.
	MemoryBackend Backend = "memory"
	// PebbleBackend keeps state on local disk.
	PebbleBackend Backend = "pebble"
)

// Mode says what a failure may do to the state.
type Mode string

const (
	// ExactlyOnce counts every record once whatever fails.
	ExactlyOnce Mode = "EXACTLY_ONCE"
	// AtLeastOnce loses no record, but may count one twice after a failure.
	AtLeastOnce Mode = "AT_LEAST_ONCE"
)

// Retention says what happens to a job's checkpoints when it ends.
type Retention string

// The retentions, as in Flink. Savepoints always stay.
const (
	// DeleteOnCancellation removes them when the job finishes or is cancelled and keeps them when it fails.
	DeleteOnCancellation Retention = "DELETE_ON_CANCELLATION"
	// RetainOnCancellation keeps them also when the job is cancelled.
	RetainOnCancellation Retention = "RETAIN_ON_CANCELLATION"
	// NoExternalizedCheckpoints removes them however the job ends.
	NoExternalizedCheckpoints Retention = "NO_EXTERNALIZED_CHECKPOINTS"
)

// What happens after a failure of user code.
var (
	RestartStrategy = enumOption(settings{key: "restart-strategy.type", scope: JobScope,
		aliases: []string{"restart-strategy"},
		doc:     "What follows an error or panic of user code. Lost processes always restart the job."},
		ExponentialDelayRestart, ExponentialDelayRestart, FixedDelayRestart, NoRestart)
	FixedDelayAttempts = intOption(settings{key: "restart-strategy.fixed-delay.attempts", scope: JobScope,
		doc: "Restarts before the job fails."}, "1", 0, 1<<30)
	FixedDelayDelay = durationOption(settings{key: "restart-strategy.fixed-delay.delay", scope: JobScope,
		doc: "Time before each restart."}, "1 s", 0, longest)
	ExponentialDelayInitialBackoff = durationOption(settings{key: "restart-strategy.exponential-delay.initial-backoff", scope: JobScope,
		doc: "Time before the first restart; of lost processes, before the second."}, "1 s", time.Millisecond, longest)
	ExponentialDelayMaxBackoff = durationOption(settings{key: "restart-strategy.exponential-delay.max-backoff", scope: JobScope,
		doc: "Longest time before a restart."}, "1 min", time.Millisecond, longest)
	ExponentialDelayMultiplier = floatOption(settings{key: "restart-strategy.exponential-delay.backoff-multiplier", scope: JobScope,
		doc: "Growth of the time before a restart, from one to the next."}, "1.5", 1, 100)
	ExponentialDelayJitter = floatOption(settings{key: "restart-strategy.exponential-delay.jitter-factor", scope: JobScope,
		doc: "Share of the time before a restart by which it varies at random."}, "0.1", 0, 1)
	ExponentialDelayAttempts = intOption(settings{key: "restart-strategy.exponential-delay.attempts-before-reset-backoff", scope: JobScope,
		doc: "Restarts without a newly completed checkpoint before the job fails."}, "10", 0, 1<<30)
)

// Restart is the name of a restart strategy.
type Restart string

// The restart strategies.
const (
	// ExponentialDelayRestart waits longer before each restart.
	ExponentialDelayRestart Restart = "exponential-delay"
	// FixedDelayRestart waits equally long before each restart.
	FixedDelayRestart Restart = "fixed-delay"
	// NoRestart fails the job at once.
	NoRestart Restart = "none"
)

// The exchange of records.
var (
	ChannelCredit = memoryOption(settings{key: "taskmanager.network.memory.channel-credit", scope: JobScope,
		doc: "Most bytes that may be on their way in one channel without having been processed. " +
			"It adapts to what the subtask processes in 100 ms; a subtask with many channels gives each less, 4 mb together."}, "4 mb", 64*KiB, 64*MiB)
	BufferTimeout = durationOption(settings{key: "execution.buffer-timeout.interval", scope: JobScope,
		aliases: []string{"execution.buffer-timeout"},
		doc: "Longest time that a record waits for its batch to fill. A subtask without input sends at once, " +
			"so that it matters under load only."}, "100 ms", time.Millisecond, time.Minute)
)

// S3-compatible object storage. The keys may be given with a job, whose
// checkpoints then go elsewhere than the cluster's own files.
var (
	S3Endpoint = stringOption(settings{key: "s3.endpoint", scope: JobScope,
		doc: "Endpoint, as in http://127.0.0.1:9000. Empty means Amazon's."}, "")
	S3Region = stringOption(settings{key: "s3.endpoint.region", scope: JobScope,
		aliases: []string{"s3.region"},
		doc:     "Region. Empty asks the server."}, "")
	S3AccessKey = stringOption(settings{key: "s3.access-key", scope: JobScope,
		aliases: []string{"s3.access.key"},
		doc:     "Access key. Empty takes it from AWS_ACCESS_KEY_ID."}, "")
	S3SecretKey = stringOption(settings{key: "s3.secret-key", scope: JobScope, secret: true,
		aliases: []string{"s3.secret.key"},
		doc:     "Secret key. Empty takes it from AWS_SECRET_ACCESS_KEY."}, "")
	S3PathStyleAccess = boolOption(settings{key: "s3.path-style-access", scope: JobScope,
		aliases: []string{"s3.path.style.access"},
		doc:     "Whether the bucket goes into the path instead of the host name, as most servers other than Amazon's want it."}, "false")
)

// rules are the conditions between options.
var rules = []rule{
	{
		keys: []string{CheckpointUnaligned.Key(), CheckpointMode.Key()},
		check: func(c *Config) string {
			if !CheckpointUnaligned.Get(c) || CheckpointMode.Get(c) == ExactlyOnce {
				return ""
			}
			return CheckpointUnaligned.Key() + " is true and " + CheckpointMode.Key() + " is " + string(CheckpointMode.Get(c)) +
				", which never waits for an alignment: set the first to false, or the second to " + string(ExactlyOnce)
		},
	},
	{
		keys: []string{CheckpointUnaligned.Key(), CheckpointMaxConcurrent.Key()},
		check: func(c *Config) string {
			if !CheckpointUnaligned.Get(c) || CheckpointMaxConcurrent.Get(c) == 1 {
				return ""
			}
			return CheckpointUnaligned.Key() + " is true and " + CheckpointMaxConcurrent.Key() + " is " + strconv.Itoa(CheckpointMaxConcurrent.Get(c)) +
				": unaligned checkpoints are taken one at a time; set the first to false, or the second to 1"
		},
	},
	{
		keys: []string{HeartbeatTimeout.Key(), HeartbeatInterval.Key()},
		check: func(c *Config) string {
			interval, timeout := HeartbeatInterval.Get(c), HeartbeatTimeout.Get(c)
			// A heartbeat and its answer have to fit into the 0.6 of the time-out after which a
			// cut-off TaskManager stops its executors, or a healthy one would.
			if timeout >= 2*interval {
				return ""
			}
			return "heartbeat.timeout is " + FormatDuration(timeout) + " and heartbeat.interval " + FormatDuration(interval) +
				": the time-out has to be at least 2 intervals"
		},
	},
	{
		keys: []string{ExponentialDelayMaxBackoff.Key(), ExponentialDelayInitialBackoff.Key()},
		check: func(c *Config) string {
			first, most := ExponentialDelayInitialBackoff.Get(c), ExponentialDelayMaxBackoff.Get(c)
			if first <= most {
				return ""
			}
			return "the initial backoff is " + FormatDuration(first) + ", longer than the largest, " + FormatDuration(most)
		},
	},
	{
		keys: []string{DefaultParallelism.Key(), MaxParallelism.Key()},
		check: func(c *Config) string {
			parallelism, most := DefaultParallelism.Get(c), MaxParallelism.Get(c)
			if parallelism <= most {
				return ""
			}
			return "parallelism.default is larger than pipeline.max-parallelism"
		},
	},
}
