//go:build e2e

package e2e

import (
	"path/filepath"
	"testing"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/flightstruth"
)

func TestKilledJobManagerResumesItsJobs(t *testing.T) {
	onEachStorage(t, func(t *testing.T, flags []string) {
		c := start(t, append([]string{"--taskmanagers", "2", "--slots", "2"}, flags...)...)
		finished := newFlights(t, 500)
		done := c.submit(finished.args(t, 0)...)
		c.awaitStatus(done, cliresult.Finished)
		before := finished.committed(t)

		f := newFlights(t, 8000)
		job := c.submit(append([]string{"--parallelism", "2", "--name", "resumed"}, f.args(t, 1000)...)...)
		last := c.awaitCheckpoint(job, 3).LastCheckpoint
		process, err := c.Process(c.ctx, "jobmanager")
		c.kill(must(c, process, err).PID)
		if err := c.Restart(c.ctx); err != nil {
			t.Fatal(err)
		}
		if again, err := c.Process(c.ctx, "jobmanager"); must(c, again, err).Address != process.Address || again.PID == process.PID {
			t.Errorf("the JobManager was %+v and is %+v", process, again)
		}

		status := c.awaitStatus(job, cliresult.Finished)
		if status.Name != "resumed" || status.RestoredCheckpoint < last {
			t.Errorf("job %q was restored from checkpoint %d, %d was complete", status.Name, status.RestoredCheckpoint, last)
		}
		f.check(t)

		// What had finished is still known, and did not run again.
		status, err = c.Status(c.ctx, done)
		if must(c, status, err).Status != cliresult.Finished {
			t.Errorf("the finished job is %s", status.Status)
		}
		after := finished.committed(t)
		if err := before.Unchanged(after); err != nil || len(after) != len(before) {
			t.Errorf("the finished job's output changed from %d files to %d: %v", len(before), len(after), err)
		}
	})
}

// TestKilledEverything loses every process but the S3 server, in the middle of a job.
func TestKilledEverything(t *testing.T) {
	t.Parallel()
	c := start(t, "--taskmanagers", "2", "--slots", "2", "--s3")
	f := newFlights(t, 6000)
	job := c.submit(append([]string{"--parallelism", "4"}, f.args(t, 1000)...)...)
	c.awaitCheckpoint(job, 3)
	processes, err := c.Processes(c.ctx)
	for _, process := range must(c, processes, err) {
		if process.Role != cliresult.S3Role {
			c.kill(process.PID)
		}
	}
	if err := c.Restart(c.ctx); err != nil {
		t.Fatal(err)
	}
	c.awaitStatus(job, cliresult.Finished)
	f.check(t)
}

// TestStoppedClusterGoesOn stops the whole cluster in order and starts it again.
func TestStoppedClusterGoesOn(t *testing.T) {
	t.Parallel()
	c := start(t, "--taskmanagers", "2", "--slots", "2")
	f := newFlights(t, 6000)
	job := c.submit(append([]string{"--parallelism", "4"}, f.args(t, 1000)...)...)
	c.awaitCheckpoint(job, 3)
	if err := c.Stop(c.ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(c.ctx); err != nil {
		t.Fatal(err)
	}
	c.awaitStatus(job, cliresult.Finished)
	f.check(t)
}

// TestNoLeftoversOfAFinishedJob: nothing hidden in the output, no checkpoints in storage.
func TestNoLeftoversOfAFinishedJob(t *testing.T) {
	t.Parallel()
	c := start(t, "--slots", "2")
	f := newFlights(t, 3000)
	job := c.submit(append([]string{"--parallelism", "2"}, f.args(t, 1000)...)...)
	c.awaitStatus(job, cliresult.Finished)
	f.check(t)
	hidden, err := filepath.Glob(filepath.Join(f.output, ".*"))
	if len(must(c, hidden, err)) > 0 {
		t.Errorf("the output has leftovers: %v", hidden)
	}
	stored, err := flightstruth.Committed(filepath.Join(c.Dir, "checkpoints", job))
	if len(must(c, stored, err)) > 0 {
		t.Errorf("%d files of the job's checkpoints are left", len(stored))
	}
}
