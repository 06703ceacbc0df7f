package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
)

// SpecVariable is the environment variable that names the file which WriteSpec
// wrote for this process.
const SpecVariable = "WEIR_EXECUTOR_SPEC"

// LifelineFD is the descriptor of the lifeline in an executor's process: the
// read end of a pipe whose write end its TaskManager holds. Nothing is written
// to it; when it is closed, the executor ends.
const LifelineFD = 3

// Spec is what an executor is started with.
type Spec struct {
	Executor ids.ExecutorID
	JobName  string
	// JobManager is its address, host:port.
	JobManager string
	// BindHost is where the executor listens, Host how others reach it.
	BindHost, Host string
	// Config is the resolved configuration, secrets included.
	Config map[string]string
	// Graph is the graph that was submitted.
	Graph *pb.JobGraph
	// Dir is a directory of the executor's own; it is empty at the start.
	Dir string
	// LocalDir is where the executors of the job on this host, one after the
	// other, keep files that a restore may need; empty for nowhere. It need not
	// exist.
	LocalDir string
	// HasLifeline says that LifelineFD is open.
	HasLifeline bool
}

// specFile is the file's content.
type specFile struct {
	Job         ids.JobID         `json:"job"`
	Attempt     string            `json:"attempt"`
	TaskManager ids.TaskManagerID `json:"task_manager"`
	JobName     string            `json:"job_name"`
	JobManager  string            `json:"jobmanager"`
	BindHost    string            `json:"bind_host"`
	Host        string            `json:"host"`
	Config      map[string]string `json:"config"`
	Graph       []byte            `json:"graph"` // weir.v1.JobGraph
	Dir         string            `json:"dir"`
	LocalDir    string            `json:"local_dir"`
	HasLifeline bool              `json:"has_lifeline"`
}

// specBytesMax bounds the file that ReadSpec reads: graph and configuration
// arrived in a message, which is no larger.
const specBytesMax = 128 << 20

// WriteSpec writes the spec to a new file that only this user can read.
func WriteSpec(name string, s Spec) (err error) {
	graph, err := proto.MarshalOptions{Deterministic: true}.Marshal(s.Graph)
	if err != nil {
		return fmt.Errorf("write spec of executor %s: %w", s.Executor, err)
	}
	content, err := json.MarshalIndent(specFile{
		Job: s.Executor.Job, Attempt: s.Executor.Attempt.String(), TaskManager: s.Executor.TaskManager,
		JobName: s.JobName, JobManager: s.JobManager, BindHost: s.BindHost, Host: s.Host,
		Config: s.Config, Graph: graph, Dir: s.Dir, LocalDir: s.LocalDir, HasLifeline: s.HasLifeline,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("write spec of executor %s: %w", s.Executor, err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write spec of executor %s: %w", s.Executor, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(content); err != nil {
		return fmt.Errorf("write spec of executor %s: %w", s.Executor, err)
	}
	return nil
}

// ReadSpec reads what WriteSpec wrote.
func ReadSpec(name string) (Spec, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Spec{}, fmt.Errorf("read executor spec: %w", err)
	}
	if info.Size() > specBytesMax {
		return Spec{}, fmt.Errorf("read executor spec: %s has %d bytes, more than %d", name, info.Size(), specBytesMax)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return Spec{}, fmt.Errorf("read executor spec: %w", err)
	}
	var file specFile
	if err := json.Unmarshal(content, &file); err != nil {
		return Spec{}, fmt.Errorf("read executor spec %s: %w", name, err)
	}
	attempt, err := ids.ParseAttemptID(file.Attempt)
	if err != nil {
		return Spec{}, fmt.Errorf("read executor spec %s: %w", name, err)
	}
	graph := &pb.JobGraph{}
	if err := proto.Unmarshal(file.Graph, graph); err != nil {
		return Spec{}, fmt.Errorf("read executor spec %s: graph: %w", name, err)
	}
	return Spec{
		Executor: ids.ExecutorID{Job: file.Job, Attempt: attempt, TaskManager: file.TaskManager},
		JobName:  file.JobName, JobManager: file.JobManager, BindHost: file.BindHost, Host: file.Host,
		Config: file.Config, Graph: graph, Dir: file.Dir, LocalDir: file.LocalDir, HasLifeline: file.HasLifeline,
	}, nil
}
