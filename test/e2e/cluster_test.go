//go:build e2e

package e2e

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/cliresult"
)

func TestClusterStartIsIdempotent(t *testing.T) {
	t.Parallel()
	c := start(t, "--taskmanagers", "2")
	before := c.pids()
	if err := c.Restart(c.ctx); err != nil {
		t.Fatal(err)
	}
	if again := c.pids(); !slices.Equal(before, again) {
		t.Errorf("processes were %v and are %v", before, again)
	}
	c.kill(before[2])
	if shown := c.pids(); shown[2] != 0 {
		t.Errorf("the killed process is shown with PID %d", shown[2])
	}
	// Two at once start what is missing once.
	results := make(chan error, 2)
	for range 2 {
		go func() { results <- c.Restart(c.ctx) }()
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if again := c.pids(); !slices.Equal(before[:2], again[:2]) || again[2] == 0 || again[2] == before[2] {
		t.Errorf("processes were %v and are %v", before, again)
	}
	listed, err := c.TaskManagers(c.ctx)
	if len(must(c, listed, err)) != 2 {
		t.Errorf("TaskManagers are %+v, want two", listed)
	}
	contains(t, c.refusal(5, "cluster", "start", "--dir", c.Dir, "--slots", "7"), "--slots 2", "cluster stop")
}

// TestHealthSaysWhetherAProcessServes: containers are watched by this subcommand.
func TestHealthSaysWhetherAProcessServes(t *testing.T) {
	t.Parallel()
	c := start(t)
	portKeys := map[string]string{cliresult.JobManagerRole: "jobmanager.rpc.port", cliresult.TaskManagerRole: "taskmanager.rpc.port"}
	processes, err := c.Processes(c.ctx)
	// The TaskManager first: without a JobManager it is not healthy either.
	for _, process := range slices.Backward(must(c, processes, err)) {
		_, port, err := net.SplitHostPort(process.Address)
		if err != nil {
			t.Fatal(err)
		}
		health := func() ([]byte, error) {
			binary := filepath.Join(root(t), "bin", process.Role)
			return exec.CommandContext(c.ctx, binary, "health", "-D", portKeys[process.Role]+"="+port).CombinedOutput()
		}
		if printed, err := health(); err != nil {
			t.Errorf("%s serves, health says %v: %s", process.Name, err, printed)
		}
		c.kill(process.PID)
		if printed, err := health(); err == nil || !strings.Contains(string(printed), process.Address) {
			t.Errorf("%s was killed, health says %v: %s", process.Name, err, printed)
		}
	}
}

func TestClusterStopEndsEverything(t *testing.T) {
	t.Parallel()
	c := start(t, "--taskmanagers", "2", "--s3")
	f := newFlights(t, 20000)
	job := c.submit(append([]string{"--parallelism", "3"}, f.args(t, 500)...)...)
	status := c.awaitCheckpoint(job, 1)
	processes, err := c.Processes(c.ctx)
	var pids []int
	for _, process := range must(c, processes, err) {
		pids = append(pids, process.PID)
	}
	for _, executor := range status.Executors {
		pids = append(pids, int(executor.PID))
	}
	if len(pids) < 6 {
		t.Errorf("processes are %v, want the four of the cluster and two executors", pids)
	}
	if err := c.Stop(c.ctx); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if isAlive(t, pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
	for _, process := range processes {
		listener, err := net.Listen("tcp", process.Address)
		if err != nil {
			t.Errorf("%s: %v", process.Name, err)
			continue
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	}
	if again := c.pids(); slices.Max(again) != 0 {
		t.Errorf("status shows PIDs %v", again)
	}
}

// TestJobOfAnotherModule builds a job in a module of its own, outside the
// repository, as users do: it imports pkg/… and nothing else of Weir.
func TestJobOfAnotherModule(t *testing.T) {
	t.Parallel()
	c := start(t, "--slots", "2")
	dir := t.TempDir()
	source, err := os.ReadFile(filepath.Join("testdata", "othermodule", "main.go.txt"))
	if err != nil {
		t.Fatal(err)
	}
	repository := root(t)
	module, err := os.ReadFile(filepath.Join(repository, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(repository, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	goMod := strings.Replace(string(module), "module github.com/weirstream/weir", "module example.com/othermodule", 1) +
		"\nrequire github.com/weirstream/weir v0.0.0\n\nreplace github.com/weirstream/weir => " + repository + "\n"
	for name, content := range map[string]string{"main.go": string(source), "go.mod": goMod, "go.sum": string(sums)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	output := filepath.Join(t.TempDir(), "output")
	printed, err := c.Run(c.ctx, "submit", "--parallelism", "2", dir, "--", "--output", output)
	if !strings.HasPrefix(must(c, printed, err), "job-id: ") {
		t.Errorf("submit printed %q", printed)
	}
	f := flights{output: output}
	var lines []string
	for _, content := range f.committed(t) {
		lines = append(lines, strings.Fields(string(content))...)
	}
	slices.Sort(lines)
	want := []string{`{"parity":"even","sum":2450}`, `{"parity":"odd","sum":2500}`}
	for _, line := range want {
		if !slices.Contains(lines, line) {
			t.Errorf("the output has no %s: %v", line, lines)
		}
	}
	if len(lines) != 100 {
		t.Errorf("the output has %d lines, want one for each of 100 numbers", len(lines))
	}
}

// TestSubmitOfAPackagePath builds with the package's path, twice: the second
// time the cluster has the binary.
func TestSubmitOfAPackagePath(t *testing.T) {
	t.Parallel()
	c := start(t)
	f := newFlights(t, 200)
	args := append([]string{"submit", "./examples/flights"}, f.args(t, 0)[1:]...)
	if _, err := c.Run(c.ctx, args...); err != nil {
		t.Fatal(err)
	}
	f.check(t)
	var jobs []cliresult.Job
	if err := c.Read(c.ctx, &jobs, "list"); err != nil || len(jobs) != 0 {
		t.Errorf("running jobs are %+v, %v", jobs, err)
	}
}
