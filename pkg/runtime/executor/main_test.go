package executor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/runtime/executor"
	"github.com/weirstream/weir/pkg/transport"
)

// asExecutor makes this test binary run as an executor's process.
const asExecutor = "WEIR_TEST_AS_EXECUTOR"

func TestMain(m *testing.M) {
	if os.Getenv(asExecutor) == "" {
		goleak.VerifyTestMain(m)
	}
	p, err := build(numbers{splits: 1, each: 1, hold: make(chan struct{})}, &total{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(executor.Main(p))
}

// process is an executor in a process of its own.
type process struct {
	cmd    *exec.Cmd
	keep   *os.File // the lifeline's write end
	stderr bytes.Buffer
}

func startProcess(t *testing.T, jobManager string) *process {
	t.Helper()
	p, err := build(numbers{splits: 1, each: 1}, &total{})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "spec")
	if err := executor.WriteSpec(name, executor.Spec{
		Executor:   ids.ExecutorID{Job: job, Attempt: attempt, TaskManager: taskManager(0)},
		JobManager: jobManager, BindHost: "127.0.0.1", Host: "127.0.0.1", HasLifeline: true, Graph: graph.ToProto(p.Graph),
	}); err != nil {
		t.Fatal(err)
	}
	read, keep, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	e := &process{cmd: exec.CommandContext(ctx, os.Args[0]), keep: keep}
	e.cmd.Env = []string{asExecutor + "=1", executor.SpecVariable + "=" + name}
	e.cmd.ExtraFiles = []*os.File{read}
	e.cmd.Stderr = &e.stderr
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keep.Close() }) // it may have been closed
	return e
}

// exitCode waits for its end.
func (p *process) exitCode(t *testing.T) int {
	t.Helper()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// serveTCP is a JobManager on this host's network.
func serveTCP(t *testing.T) (*jobManager, <-chan struct{}) {
	t.Helper()
	registered := make(chan struct{}, 8)
	j := &jobManager{metrics: map[ids.SubtaskID]*pb.SubtaskMetrics{}, sessions: map[ids.TaskManagerID]transport.ExecutorSession{}, address: map[ids.TaskManagerID]string{}, changed: registered}
	l, err := transport.TCP{}.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	j.server = transport.Serve(l, transport.Handlers{Coordination: j})
	t.Cleanup(func() { j.close(t) })
	return j, registered
}

func TestProcessEndsWithItsLifeline(t *testing.T) {
	j, changed := serveTCP(t)
	e := startProcess(t, j.server.Address())
	<-changed // its hello
	p, err := build(numbers{splits: 1, each: 1}, &total{})
	if err != nil {
		t.Fatal(err)
	}
	j.deploy(t, p, 1)
	for j.count(status(pb.TaskStatus_TASK_STATUS_RUNNING)) < 2 {
		<-changed
	}
	if err := e.keep.Close(); err != nil {
		t.Fatal(err)
	}
	if code := e.exitCode(t); code != executor.ExitLifeline {
		t.Errorf("exit code %d, want %d: %s", code, executor.ExitLifeline, e.stderr.String())
	}
}

func TestProcessWhoseTasksHaveEndedLeavesInOrder(t *testing.T) {
	j, changed := serveTCP(t)
	e := startProcess(t, j.server.Address())
	<-changed
	p, err := build(numbers{splits: 1, each: 1}, &total{})
	if err != nil {
		t.Fatal(err)
	}
	j.deploy(t, p, 1)
	j.send(t, &pb.ExecutorCommand{Kind: &pb.ExecutorCommand_Cancel{Cancel: &pb.CancelTasks{}}})
	for j.count(status(pb.TaskStatus_TASK_STATUS_CANCELED)) < 2 {
		<-changed
	}
	if err := e.keep.Close(); err != nil {
		t.Fatal(err)
	}
	if code := e.exitCode(t); code != executor.ExitOK {
		t.Errorf("exit code %d: %s", code, e.stderr.String())
	}
}

func TestProcessWithoutSpecIsUnusable(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = []string{asExecutor + "=1"}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != executor.ExitUnusable || !strings.Contains(string(out), executor.SpecVariable) {
		t.Errorf("error %v, output %q", err, out)
	}
}
