package archtest

// level orders the packages of docs/ARCHITECTURE.md: imports point to the same
// level or a lower one.
type level int

const (
	words     level = iota // identities, elements, messages
	values                 // graphs, snapshots, configuration
	protocols              // state machines
	parts                  // ports, state, operators, connectors
	shells                 // goroutines, time, sockets, logging
	top                    // the SDK and the simulator, which wire all of the above
	mains                  // programs and tests of processes
)

// layer is one row of the table of packages.
type layer struct {
	// path is below the module; a path that ends in "/..." stands for all packages below it.
	path  string
	level level
	// pure packages have no goroutine, channel, lock, clock, global randomness,
	// context, logger, network or file access.
	pure bool
}

// layers is the table of packages. The longest path that fits a package counts.
var layers = []layer{
	{path: "pkg/ids", level: words, pure: true},
	{path: "pkg/keygroup", level: words, pure: true},
	{path: "pkg/element", level: words, pure: true},
	{path: "pkg/pb", level: words}, // generated code locks
	{path: "internal/invariant", level: words, pure: true},
	{path: "internal/racedetector", level: values, pure: true},
	{path: "internal/version", level: words},
	{path: "internal/archtest", level: words},
	{path: "internal/prototest", level: words},

	{path: "pkg/graph", level: values, pure: true},
	{path: "pkg/snapshot", level: values, pure: true},
	{path: "pkg/config", level: values, pure: true},

	{path: "pkg/coordinator", level: protocols, pure: true},
	{path: "pkg/coordinator/slots", level: protocols, pure: true},
	{path: "pkg/coordinator/schedule", level: protocols, pure: true},
	{path: "pkg/runtime/align", level: protocols, pure: true},
	{path: "pkg/runtime/watermark", level: protocols, pure: true},

	{path: "pkg/codec/...", level: parts},
	{path: "pkg/state", level: parts},
	{path: "pkg/timer", level: parts, pure: true},
	{path: "pkg/operator", level: parts},
	{path: "pkg/statebackend/...", level: parts},
	{path: "pkg/objectstore/...", level: parts},
	{path: "pkg/checkpointstore/...", level: parts},
	{path: "pkg/connector/...", level: parts},
	{path: "pkg/runtime/subtask", level: parts},

	{path: "pkg/coordinator/driver", level: shells},
	{path: "pkg/runtime", level: shells},
	{path: "pkg/runtime/exchange", level: shells},
	{path: "pkg/runtime/task", level: shells},
	{path: "pkg/runtime/executor", level: shells},
	{path: "pkg/transport/...", level: shells},
	{path: "pkg/jobmanager/...", level: shells},
	{path: "pkg/minicluster", level: shells},
	{path: "internal/logfield", level: shells},

	{path: "pkg/stream", level: top},
	{path: "internal/sim/...", level: top},

	// Parts of the mains that the demo and the tests of processes share.
	{path: "internal/cliresult", level: mains},
	{path: "internal/demo/...", level: mains},
	{path: "internal/flightstruth", level: mains},
	{path: "internal/inspect", level: mains},
	{path: "internal/jobbuild", level: mains},
	{path: "internal/localcluster", level: mains},
	{path: "cmd/...", level: mains},
	{path: "internal/clidriver", level: mains},
	{path: "examples/...", level: mains},
	{path: "test/...", level: mains},
	{path: "internal/bench/...", level: mains},
	{path: "deploy/...", level: mains},
}

// upwardReason explains a refused import from a higher level.
const upwardReason = "imports point down: move what is needed to the lower level, or declare an interface where it is used"

// refusal keeps an import out of all packages but some.
type refusal struct {
	// imports is an import path; below it everything is refused too, except what exempt names.
	imports string
	exempt  []string
	// from is the lowest level that may import it; noLevel leaves it to the packages of only.
	from level
	// only are packages that may import it whatever their level; "/..." as in layers.
	only []string
	// inTests lets test files import it everywhere.
	inTests bool
	reason  string
}

// noLevel is above all packages.
const noLevel = mains + 1

// module is the path of Weir's module.
const module = "github.com/weirstream/weir"

var refusals = []refusal{
	{
		imports: "google.golang.org/grpc", from: noLevel, only: []string{"pkg/transport/...", "cmd/..."}, inTests: true,
		exempt: []string{
			"google.golang.org/grpc/mem",      // buffers of the exchange: reference counting without a copy
			"google.golang.org/grpc/encoding", // the codec that writes frames without a copy
		},
		reason: "gRPC servers and clients live in pkg/transport and the mains; others declare an interface for what they call",
	},
	{
		imports: "google.golang.org/grpc/mem", from: noLevel,
		only:   []string{"pkg/transport/...", "pkg/runtime/exchange"},
		reason: "only the exchange handles the buffers of gRPC",
	},
	{
		imports: "google.golang.org/grpc/encoding", from: noLevel,
		only:   []string{"pkg/transport/...", "pkg/runtime/exchange"},
		reason: "only the exchange writes its own wire format",
	},
	{
		imports: module + "/pkg/transport/rpc", from: noLevel, only: []string{"pkg/transport/...", "cmd/..."}, inTests: true,
		reason: "the service stubs are gRPC clients and servers",
	},
	{
		imports: module + "/pkg/pb", from: shells,
		only: []string{"pkg/graph", "pkg/snapshot", "pkg/checkpointstore/..."}, inTests: true,
		reason: "messages are a form for storing and sending, which the values convert to and from: protocols and operators never see one",
	},
	{
		imports: "google.golang.org/protobuf", from: shells, inTests: true,
		only:   []string{"pkg/pb", "pkg/graph", "pkg/snapshot", "pkg/codec/...", "pkg/checkpointstore/..."},
		reason: "protobuf is the form of messages, stored metadata and one codec for users",
	},
	{
		imports: "go.uber.org/zap", from: shells,
		reason: "only shells log; everything below returns errors and counts",
	},
	{
		imports: "github.com/minio/minio-go", from: noLevel, only: []string{"pkg/objectstore/s3"},
		reason: "one package knows the S3 client, its retries and its errors; all others see pkg/objectstore",
	},
	{
		imports: "github.com/twmb/avro", from: noLevel, only: []string{"pkg/codec/avro"}, inTests: true,
		reason: "one package knows Avro's library: all others see schemas as text",
	},
	{
		imports: "github.com/spf13/cobra", from: mains,
		reason: "command lines are the mains' matter",
	},
	{
		imports: "go.yaml.in/yaml", from: noLevel, only: []string{"pkg/config"}, inTests: true,
		reason: "YAML is the configuration's form and nothing else's",
	},
	{
		imports: "encoding/gob", from: noLevel,
		reason: "gob is neither stable nor fast: state and records go through pkg/codec",
	},
	{
		imports: "encoding/json", from: shells, only: []string{"pkg/connector/..."}, inTests: true,
		reason: "JSON is for users' files and for flinkctl: state and records go through pkg/codec",
	},
	{
		imports: "log", from: noLevel,
		reason: "shells log with zap and the fields of internal/logfield",
	},
	{
		imports: "math/rand", exempt: []string{"math/rand/v2"}, from: noLevel,
		reason: "math/rand/v2 has generators that are values, which replays need",
	},
	{
		imports: module + "/internal/logfield", from: shells,
		reason: "only shells log",
	},
	{
		imports: "testing", from: noLevel, inTests: true,
		only:   []string{"pkg/objectstore/storetest", "pkg/statebackend/backendtest"},
		reason: "tests stay in test files, except for the conformance suites of the two ports",
	},
	{
		imports: "github.com/cockroachdb/datadriven", from: noLevel, inTests: true,
		reason: "a tool of tests",
	},
	{
		imports: "pgregory.net/rapid", from: noLevel, inTests: true,
		only:   []string{"pkg/objectstore/storetest", "pkg/statebackend/backendtest"},
		reason: "a tool of tests",
	},
	{
		imports: "go.uber.org/goleak", from: noLevel, inTests: true,
		reason: "a tool of tests",
	},
}

// refusedModules may not be required by go.mod.
var refusedModules = map[string]string{
	"github.com/versity/versitygw":                  "the S3 server runs as a process: its dependencies stay out of ours",
	"honnef.co/go/tools":                            "linters are pinned in tools/go.mod",
	"github.com/mgechev/revive":                     "linters are pinned in tools/go.mod",
	"github.com/nishanths/exhaustive":               "linters are pinned in tools/go.mod",
	"github.com/bufbuild/protocompile":              "the protobuf compiler is pinned in tools/go.mod",
	"google.golang.org/grpc/cmd/protoc-gen-go-grpc": "the protobuf plugins are pinned in tools/go.mod",
}

// simulatorImports are what internal/sim has to run: production's code and no copy of it.
var simulatorImports = []string{
	"pkg/coordinator", "pkg/coordinator/slots", "pkg/runtime/subtask", "pkg/runtime/align", "pkg/statebackend/memory",
}

// alignerUser steps the aligner for production and simulator alike.
const alignerUser, aligner = "pkg/runtime/subtask", "pkg/runtime/align"

// impureImports may not be imported by pure packages; what lies below them neither.
var impureImports = map[string]string{
	"context":     "a protocol is not cancelled: it is told of it by an event",
	"crypto/rand": "randomness is an argument",
	"log":         "only shells log",
	"net":         "only shells talk to others; results come back as events",
	"os":          "only shells touch files; results come back as events",
	"runtime":     "nothing depends on how Go schedules",
	"sync":        "one goroutine owns each machine: there is nothing to lock",
	"syscall":     "only shells talk to the system",
	"testing":     "tests stay in test files",
}

// pureBelow lie below impure imports and are pure all the same: they parse.
var pureBelow = []string{"net/netip", "net/url"}

// allowance lifts a rule for one file, with the reason.
type allowance struct{ file, what, reason string }

// impureAllowed are the exceptions from impureImports.
var impureAllowed = []allowance{
	{"pkg/config/load.go", "os", "Load reads the one file; all else in the package is pure"},
}

// clockCalls are the functions of package time that read or wait for a clock.
var clockCalls = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true, "AfterFunc": true,
	"Tick": true, "NewTimer": true, "NewTicker": true,
}

// seededRandom are the names of math/rand/v2 that do not touch its global generator.
var seededRandom = map[string]bool{
	"New": true, "NewPCG": true, "NewChaCha8": true, "NewZipf": true,
	"Rand": true, "Source": true, "PCG": true, "ChaCha8": true, "Zipf": true,
}

// clockAllowed are the packages below the shells that may read a clock.
var clockAllowed = map[string]string{
	"pkg/objectstore/s3":      "retries of requests wait on real time",
	"pkg/objectstore/faulty":  "injected delays are its purpose",
	"pkg/objectstore/local":   "waits for a file lock",
	"pkg/connector/throttle":  "records are due by the clock",
	"pkg/statebackend/memory": "the writer of a snapshot rests now and then; no content depends on when",
	"pkg/statebackend/pebble": "the goroutine that writes back polls while compactions catch up; no content depends on when",
}

// threadless packages below the shells start nothing and lock nothing although they are not pure.
var threadless = map[string]string{
	"pkg/runtime/subtask": "the simulator steps it: one subtask without threads",
	"pkg/state":           "user code runs on its subtask's goroutine only",
	"pkg/codec":           "encodes on the caller's goroutine",
	"pkg/codec/avro":      "as pkg/codec",
}

// goroutinesAllowed are the packages and files that may start goroutines,
// with who waits for them. "/..." as in layers.
var goroutinesAllowed = map[string]string{
	"pkg/runtime/subtask":          "its Host.Go is a port: the host runs the work and waits; go statements are refused by threadless",
	"pkg/coordinator/driver":       "the driver of a job waits for the effects it runs",
	"pkg/runtime":                  "the TaskManager waits for its sessions and executors",
	"pkg/runtime/exchange":         "a stream's handler waits for its two directions",
	"pkg/runtime/task":             "a task waits for its mailbox loop and for source readers",
	"pkg/runtime/executor":         "the executor waits for its tasks and uploads",
	"pkg/transport/...":            "servers wait for their handlers",
	"pkg/jobmanager/...":           "the JobManager waits for its jobs and sessions",
	"pkg/minicluster":              "the cluster waits for its parts",
	"internal/demo/...":            "the demo waits for the cluster and its watchers",
	"internal/localcluster":        "the cluster's start waits for all processes",
	"cmd/...":                      "the mains wait for what they run",
	"examples/...":                 "example programs wait for what they run",
	"internal/bench/...":           "benchmarks wait for what they run",
	"pkg/objectstore/storetest":    "the suite waits for the writers that it races",
	"pkg/checkpointstore":          "a deletion of many files waits for those under way",
	"pkg/statebackend/pebble":      "a store waits for the goroutine that writes back, which ends with what there is to write",
	"pkg/statebackend/backendtest": "the suite waits for the snapshots that it races",
}

// refusedNames say nothing about what a package is for.
var refusedNames = map[string]bool{
	"common": true, "helper": true, "helpers": true, "misc": true, "shared": true,
	"types": true, "util": true, "utils": true,
}

// unfinished marks work that was left for later.
var unfinished = []string{"TODO", "FIXME", "XXX", "HACK"}

// invariants are those of docs/ARCHITECTURE.md. Each appears in an
// invariant.Check and in a test.
var invariants = []string{"I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12"}

// unreadOptions are the variables of pkg/config that no other code reads, and why: an
// option that changes nothing would be a lie to whoever sets it.
var unreadOptions = map[string]string{}
