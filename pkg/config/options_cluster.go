package config

import "time"

// loopback is where servers listen unless told otherwise: a cluster that
// nobody configured is not open to the network.
const loopback = "127.0.0.1"

// longest bounds time-outs: longer ones are a mistake in the unit.
const longest = 30 * 24 * time.Hour

// The JobManager.
var (
	JobManagerRPCAddress = hostOption(settings{key: "jobmanager.rpc.address",
		doc: "Host at which TaskManagers, executors and flinkctl reach the JobManager."}, loopback)
	JobManagerRPCPort = intOption(settings{key: "jobmanager.rpc.port",
		doc: "Port of the JobManager's gRPC server; 0 lets the system choose."}, "6123", 0, portMax)
	JobManagerBindHost = hostOption(settings{key: "jobmanager.bind-host",
		doc: "Address on which the JobManager's gRPC server listens; 0.0.0.0 for all interfaces."}, loopback)
	JobStoreMaxCapacity = intOption(settings{key: "jobstore.max-capacity",
		doc: "Finished, failed and cancelled jobs that the JobManager remembers; the oldest go first."}, "1000", 1, 100_000)
)

// High availability.
var (
	HighAvailabilityStorageDir = storageOption(settings{key: "high-availability.storageDir",
		doc: "Where the JobManager keeps the leader record, the jobs' records and their artifacts. " +
			"Empty means its own working directory."})
	HighAvailabilityClusterID = register(settings{key: "high-availability.cluster-id",
		doc: "Names this cluster below high-availability.storageDir, so that several may share it."},
		"string", "default", "letters, digits, '-', '_' and '.', at most 100", parseClusterID)
)

// What is remembered for people.
var (
	CheckpointHistory = intOption(settings{key: "web.checkpoints.history",
		doc: "Ended checkpoints and savepoints of a job that are remembered, with the times and sizes of each subtask. They outlive the JobManager."},
		"32", 1, 1000)
)

// The TaskManager.
var (
	TaskManagerHost = hostOption(settings{key: "taskmanager.host",
		doc: "Host at which other TaskManagers' executors reach those of this one. Where it is not set and " +
			"taskmanager.bind-host stands for all interfaces, it is the host's name."}, loopback)
	TaskManagerBindHost = hostOption(settings{key: "taskmanager.bind-host",
		doc: "Address on which the TaskManager and its executors listen; 0.0.0.0 for all interfaces."}, loopback)
	TaskManagerRPCPort = portRangeOption(settings{key: "taskmanager.rpc.port",
		doc: "Port of the TaskManager's own server, which answers health checks."}, "0")
	TaskManagerDataPort = portRangeOption(settings{key: "taskmanager.data.port",
		doc: "Ports of the executors' gRPC servers; a range has to hold one for each executor on the host."}, "0")
	TaskManagerSlots = intOption(settings{key: "taskmanager.numberOfTaskSlots",
		doc: "Slots of a TaskManager. A slot holds one subtask of each vertex of a job."}, "1", 1, 1024)
	TaskManagerResourceID = stringOption(settings{key: "taskmanager.resource-id",
		doc: "Name of the TaskManager, unique in its cluster. Empty makes one of host and process ID."}, "")
	TaskManagerProcessMemory = memoryOption(settings{key: "taskmanager.memory.process.size",
		doc: "Memory of a TaskManager with its executors. Each executor's soft limit (GOMEMLIMIT) is the share " +
			"of its job's slots. 0 sets no limit."}, "0 b", 0, 64*TiB)
	TaskManagerRegistrationTimeout = durationOption(settings{key: "taskmanager.registration.timeout",
		doc: "How long a TaskManager that has never been registered tries before it exits."}, "5 min", time.Second, longest)
)

// Failure detection.
var (
	HeartbeatInterval = durationOption(settings{key: "heartbeat.interval",
		doc: "Time between two heartbeats of a TaskManager or executor."}, "1 s", 10*time.Millisecond, time.Hour)
	HeartbeatTimeout = durationOption(settings{key: "heartbeat.timeout",
		doc: "Silence after which a TaskManager or executor counts as lost. A TaskManager that is cut off " +
			"stops its executors after 0.6 of it."}, "5 s", 50*time.Millisecond, longest)
)

// Artifacts: the jobs' binaries.
var (
	BlobStorageDirectory = stringOption(settings{key: "blob.storage.directory",
		doc: "Local directory for the artifacts that a TaskManager fetched. It has to allow execution. " +
			"Empty means below its working directory."}, "")
	BlobMaxSize = memoryOption(settings{key: "blob.max-size",
		doc: "Largest artifact that a submission may bring."}, "512 mb", MiB, TiB)
	BlobStorageMaxSize = memoryOption(settings{key: "blob.storage.max-size",
		doc: "Artifacts that a TaskManager keeps for their next use; the least recently used go first. " +
			"Those of running jobs always stay."}, "4 gb", MiB, 64*TiB)
	BlobFetchRetries = intOption(settings{key: "blob.fetch.retries",
		doc: "Attempts to fetch an artifact before the executor counts as not startable."}, "5", 0, 100)
)

// Directories and logs of a process.
var (
	WorkingDirectory = stringOption(settings{key: "process.working-dir",
		doc: "Directory of a process for files that it may lose. Empty makes one below io.tmp.dirs."}, "")
	TemporaryDirectory = stringOption(settings{key: "io.tmp.dirs",
		doc: "Directory for temporary files. Empty means the system's."}, "")
	LogDirectory = stringOption(settings{key: "env.log.dir",
		doc: "Directory of the log files. Empty logs to standard error."}, "")
	LogLevel = enumOption(settings{key: "env.log.level",
		doc: "The least severe level that is logged."}, LogInfo, LogDebug, LogInfo, LogWarn, LogError)
)

// Level is a log level.
type Level string

// The log levels.
const (
	LogDebug Level = "DEBUG"
	LogInfo  Level = "INFO"
	LogWarn  Level = "WARN"
	LogError Level = "ERROR"
)

// clusterIDLengthMax bounds cluster IDs because they become part of object names.
const clusterIDLengthMax = 100

func parseClusterID(text string) (string, error) {
	const form = "is not allowed: use letters, digits, '-', '_' and '.', at most 100 and no dot in front"
	if text == "" || len(text) > clusterIDLengthMax || text[0] == '.' {
		return "", problem(form)
	}
	for _, c := range text {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
		if !ok {
			return "", problem(form)
		}
	}
	return text, nil
}
