//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/cliresult"
)

// promptly is how long a refusal may take, building included.
const promptly = 20 * time.Second

// TestRefusedSubmissions: one clear error, the exit code of its kind, and no job.
func TestRefusedSubmissions(t *testing.T) {
	t.Parallel()
	c := start(t, "--s3")
	f := newFlights(t, 100)
	directory := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Dir(path)
	}
	write("broken/go.mod", "module example.com/broken\n\ngo 1.26\n")
	broken := write("broken/main.go", "package main\n\nfunc main() { return 1 }\n")
	write("nograph/go.mod", "module example.com/nograph\n\ngo 1.26\n")
	noGraph := write("nograph/main.go", "package main\n\nfunc main() {}\n")
	dynamic := filepath.Join(directory, "dynamic")
	build(t, noGraph, dynamic, ".", "-buildmode=pie")

	endpoint := ""
	processes, err := c.Processes(c.ctx)
	for _, process := range must(c, processes, err) {
		if process.Role == cliresult.S3Role {
			endpoint = process.Address
		}
	}
	for _, test := range []struct {
		name string
		code int
		args []string
		want []string
	}{
		{"unknown key", 2, append([]string{"-D", "execution.checkpointing.intervall=1s"}, f.args(t, 0)...),
			[]string{"execution.checkpointing.intervall", "nearest is execution.checkpointing.interval"}},
		{"missing bucket", 7, append([]string{"-D", "execution.checkpointing.dir=s3://nothere/x"}, f.args(t, 0)...), []string{"nothere", endpoint}},
		{"wrong credentials", 7, append([]string{"-D", "s3.secret-key=wrong"}, f.args(t, 0)...), []string{"weir", endpoint}},
		{"endpoint down", 7, append([]string{"-D", "s3.endpoint=http://127.0.0.1:1"}, f.args(t, 0)...), []string{"weir", "127.0.0.1:1"}},
		{"missing savepoint", 7, append([]string{"--from-savepoint", filepath.Join(directory, "none")}, f.args(t, 0)...), []string{filepath.Join(directory, "none")}},
		{"does not compile", 6, []string{broken}, []string{"./main.go:3:22: too many return values", "does not compile"}},
		{"builds no graph", 6, []string{noGraph}, []string{"ended without building a graph"}},
		{"no UID", 6, []string{"./test/programs/nouid"}, []string{"has no UID"}},
		{"two operators of one UID", 6, []string{"./test/programs/dupuid"}, []string{`two operators have the UID "numbers"`}},
		{"dynamically linked", 6, []string{dynamic}, []string{"dynamically linked"}},
		{"unknown flag of the program", 6, append(f.args(t, 0), "--fast"), []string{"flag provided but not defined: -fast"}},
		{"no such program", 6, []string{"./no/such/program"}, []string{"there is no program"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			began := time.Now()
			stderr := (&cluster{Cluster: c.Cluster, t: t, ctx: c.ctx}).refusal(test.code, append([]string{"submit"}, test.args...)...)
			if took := time.Since(began); took > promptly {
				t.Errorf("refused after %v", took)
			}
			contains(t, stderr, append(test.want, "error: ")...)
			if n := strings.Count(stderr, "error: "); n != 1 {
				t.Errorf("%d error lines:\n%s", n, stderr)
			}
		})
	}
	var jobs []cliresult.Job
	if err := c.Read(c.ctx, &jobs, "list", "--all"); err != nil || len(jobs) != 0 {
		t.Errorf("refused submissions left %+v, %v", jobs, err)
	}
	if files := f.committed(t); len(files) != 0 {
		t.Errorf("refused submissions left output: %d files", len(files))
	}
}

func TestMissingInput(t *testing.T) {
	t.Parallel()
	c := start(t)
	missing := filepath.Join(t.TempDir(), "nothere.jsonl")
	stderr := c.refusal(1, "submit", program(t, "examples/flights"), "--", "--input", missing, "--output", t.TempDir())
	contains(t, stderr, missing)
	c.failedAtOnce()
}

// failedAtOnce checks that the latest job failed without a restart.
func (c *cluster) failedAtOnce() *cliresult.JobStatus {
	c.t.Helper()
	var jobs []cliresult.Job
	err := c.Read(c.ctx, &jobs, "list", "--all")
	status, err2 := c.Status(c.ctx, must(c, jobs, err)[0].ID)
	if must(c, status, err2).Status != cliresult.Failed || status.Restarts != 0 {
		c.t.Errorf("the job is %s after %d restarts, want FAILED at once", status.Status, status.Restarts)
	}
	return status
}

func TestMalformedRecord(t *testing.T) {
	t.Parallel()
	c := start(t)
	f := newFlights(t, 100)
	content, err := os.ReadFile(f.input)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.input, append(content, "{\"origin\":oops\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	stderr := c.refusal(1, append([]string{"submit"}, f.args(t, 0)...)...)
	contains(t, stderr, f.input, itoa(len(content)), "oops")
	c.failedAtOnce()
}

func TestMoreParallelismThanSlots(t *testing.T) {
	t.Parallel()
	c := start(t, "--taskmanagers", "2", "--slots", "2")
	f := newFlights(t, 100)
	job := c.submit(append([]string{"--parallelism", "6", "-D", "slot.request.timeout=3s"}, f.args(t, 0)...)...)
	c.await(job, "the job waits for slots", func(s *cliresult.JobStatus) bool {
		return strings.Contains(s.Detail, "waiting for 6 slots, 4 free")
	})
	status := c.awaitStatus(job, cliresult.Failed)
	contains(t, status.Cause, "within 3s", "waiting for 6 slots, 4 free")
	// The slots that it waited for are free again.
	g := newFlights(t, 100)
	c.awaitStatus(c.submit(append([]string{"--parallelism", "4"}, g.args(t, 0)...)...), cliresult.Finished)
}

func TestJobsThatAreNotThere(t *testing.T) {
	t.Parallel()
	c := start(t)
	f := newFlights(t, 100)
	finished := c.submit(f.args(t, 0)...)
	c.awaitStatus(finished, cliresult.Finished)
	const unknown = "00000000000000000000000000000000"
	for _, verb := range []string{"status", "cancel", "savepoint", "stop", "checkpoints", "logs"} {
		contains(t, c.refusal(4, verb, unknown), unknown)
	}
	for _, verb := range []string{"cancel", "savepoint", "stop"} {
		contains(t, c.refusal(5, verb, finished), "already FINISHED")
	}
	// The first digits are enough.
	status, err := c.Status(c.ctx, finished[:8])
	if must(c, status, err).ID != finished {
		t.Errorf("the prefix gave %s", status.ID)
	}
	f.check(t)
}

func TestSavepointToAPlaceThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	c := start(t, "--s3")
	f := newFlights(t, 5000)
	job := c.submit(f.args(t, 1000)...)
	last := c.awaitCheckpoint(job, 1).LastCheckpoint
	contains(t, c.refusal(5, "stop", job, "--savepoint-dir", "s3://nothere/sp"), "nothere", "RUNNING")
	c.awaitCheckpoint(job, last+2)
	c.awaitStatus(job, cliresult.Finished)
	f.check(t)
}

func TestJobManagerNotReachable(t *testing.T) {
	t.Parallel()
	c := &cluster{t: t}
	driver := flinkctl(t)
	driver.JobManager = "127.0.0.1:1"
	_, err := driver.Run(t.Context(), "list")
	if err == nil || !strings.Contains(err.Error(), "exit code 3") {
		t.Fatalf("error is %v", err)
	}
	contains(c.t, err.Error(), "127.0.0.1:1", "--jobmanager", "WEIR_JOBMANAGER")
}
