//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/flightstruth"
)

// testTimeout is several times what the longest test takes on two busy cores.
const testTimeout = 4 * time.Minute

// root is the repository's root as seen from this package.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// cluster is a local cluster with its test.
type cluster struct {
	*clidriver.Cluster
	t   *testing.T
	ctx context.Context
}

// flinkctl is a driver of the built binary that no cluster belongs to yet.
func flinkctl(t *testing.T) *clidriver.Driver {
	t.Helper()
	return &clidriver.Driver{Binary: filepath.Join(root(t), "bin", "flinkctl"), Dir: root(t)}
}

// small makes every checkpoint upload its state, and come twice a second.
var small = []string{"-D", "execution.checkpointing.data-inline-threshold=0", "-D", "execution.checkpointing.interval=500ms"}

// start starts a cluster that is stopped when the test ends.
func start(t *testing.T, flags ...string) *cluster {
	t.Helper()
	return startIn(t, filepath.Join(t.TempDir(), "cluster"), flags...)
}

// startIn is start with the cluster's directory.
func startIn(t *testing.T, dir string, flags ...string) *cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	c, err := flinkctl(t).StartCluster(ctx, dir, append(append([]string{}, small...), flags...)...)
	t.Cleanup(func() {
		defer cancel()
		if c != nil {
			if err := c.Stop(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			showLogs(t, dir)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{Cluster: c, t: t, ctx: ctx}
}

func showLogs(t *testing.T, dir string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "log", "*.log"))
	if err != nil {
		t.Error(err)
	}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		}
		lines := strings.Split(strings.TrimSpace(string(content)), "\n")
		t.Logf("%s:\n%s", filepath.Base(name), strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

// storages are the kinds of checkpoint storage that recovery is tested on.
var storages = map[string][]string{
	"file": nil,
	"s3":   {"--s3", "-D", "high-availability.storageDir=s3://weir/ha"},
}

// backends are the state backends that state survives in, and moves between.
var backends = []string{"memory", "pebble"}

// onEachBackend runs a test with each backend.
func onEachBackend(t *testing.T, test func(t *testing.T, backend string)) {
	t.Parallel()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			test(t, backend)
		})
	}
}

// onEachStorage runs a test with the cluster flags of each kind of storage.
func onEachStorage(t *testing.T, test func(t *testing.T, flags []string)) {
	t.Parallel()
	for name, flags := range storages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, flags)
		})
	}
}

var programs struct {
	sync.Mutex
	built map[string]string
	dir   string
}

// program builds a program of the repository, once, and returns the binary.
func program(t *testing.T, path string) string {
	t.Helper()
	programs.Lock()
	defer programs.Unlock()
	if binary, ok := programs.built[path]; ok {
		return binary
	}
	binary := filepath.Join(programs.dir, filepath.Base(path))
	build(t, root(t), binary, "./"+path)
	programs.built[path] = binary
	return binary
}

func build(t *testing.T, dir, binary, path string, flags ...string) {
	t.Helper()
	// Without tables for debuggers, as flinkctl builds: they are half of the time that linking takes.
	cmd := exec.Command("go", append(append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", binary}, flags...), path)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", path, err, output)
	}
}

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "weir-e2e-")
	if err != nil {
		panic(err)
	}
	programs.dir, programs.built = dir, map[string]string{}
	code = m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	return code
}

// must passes a value on, or ends the test.
func must[T any](c *cluster, value T, err error) T {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
	return value
}

// submit submits a job detached and returns its ID.
func (c *cluster) submit(args ...string) string {
	c.t.Helper()
	id, err := c.Submit(c.ctx, args...)
	return must(c, id, err)
}

// await waits for a condition on a job.
func (c *cluster) await(job, what string, done func(*cliresult.JobStatus) bool) *cliresult.JobStatus {
	c.t.Helper()
	status, err := c.AwaitJob(c.ctx, job, what, func(s *cliresult.JobStatus) (bool, error) { return done(s), nil })
	return must(c, status, err)
}

func (c *cluster) awaitStatus(job, status string) *cliresult.JobStatus {
	c.t.Helper()
	return c.await(job, "the job is "+status, func(s *cliresult.JobStatus) bool { return s.Status == status })
}

// awaitCheckpoint waits until the job runs and has completed checkpoint n.
func (c *cluster) awaitCheckpoint(job string, n uint64) *cliresult.JobStatus {
	c.t.Helper()
	return c.await(job, "a checkpoint", func(s *cliresult.JobStatus) bool {
		return s.Status == cliresult.Running && s.LastCheckpoint >= n
	})
}

// kill kills a process of the cluster and waits until it is dead.
func (c *cluster) kill(pid int) {
	c.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
	if err := clidriver.Poll(c.ctx, "a killed process to end", func() (bool, error) { return !isAlive(c.t, pid), nil }); err != nil {
		c.t.Fatal(err)
	}
}

// isAlive reports whether there is a process of that PID that is no zombie.
func isAlive(t *testing.T, pid int) bool {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "stat"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	state := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))[0]
	return state != "Z" && state != "X"
}

// refusal runs a command that has to fail with the exit code, and returns what
// it printed to stderr.
func (c *cluster) refusal(code int, args ...string) string {
	c.t.Helper()
	printed, err := c.Run(c.ctx, args...)
	var exit *clidriver.ExitError
	if !errors.As(err, &exit) {
		c.t.Fatalf("flinkctl %s did not fail: %s, %v", strings.Join(args, " "), printed, err)
	}
	if exit.Code != code {
		c.t.Errorf("flinkctl %s: exit code %d, want %d: %s", strings.Join(args, " "), exit.Code, code, exit.Stderr)
	}
	return exit.Stderr
}

// contains checks that a text has all the parts.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("want %q in:\n%s", part, text)
		}
	}
}

// flights is a run of the flights job on the first lines of its input.
type flights struct {
	truth         *flightstruth.Truth
	input, output string
}

// newFlights takes n lines of the input.
func newFlights(t *testing.T, n int) *flights {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root(t), "examples", "flights", "flights.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfterN(string(content), "\n", n+1)
	dir := t.TempDir()
	f := &flights{input: filepath.Join(dir, "flights.jsonl"), output: filepath.Join(dir, "output")}
	if err := os.WriteFile(f.input, []byte(strings.Join(lines[:min(n, len(lines))], "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if f.truth, err = flightstruth.Read(f.input); err != nil {
		t.Fatal(err)
	}
	return f
}

// args are the program and its arguments at a rate of records per second.
func (f *flights) args(t *testing.T, rate int) []string {
	t.Helper()
	return []string{program(t, "examples/flights"), "--", "--input", f.input, "--output", f.output, "--rate", itoa(rate)}
}

func (f *flights) committed(t *testing.T) flightstruth.Files {
	t.Helper()
	files, err := flightstruth.Committed(f.output)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// check compares the output with the truth.
func (f *flights) check(t *testing.T) {
	t.Helper()
	result, err := f.truth.Check(f.committed(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := result.Error(); err != nil {
		t.Error(err)
	}
}
