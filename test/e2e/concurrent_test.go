//go:build e2e

package e2e

import (
	"net/http"
	"regexp"
	"slices"
	"testing"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/cliresult"
)

// checkpoints are those that flinkctl lists, newest first.
func (c *cluster) checkpoints(job string) cliresult.Checkpoints {
	c.t.Helper()
	var taken cliresult.Checkpoints
	err := c.Read(c.ctx, &taken, "checkpoints", job)
	return must(c, taken, err)
}

// awaitListed waits for a condition on the list of checkpoints.
func (c *cluster) awaitListed(job, what string, done func([]cliresult.Checkpoint) bool) []cliresult.Checkpoint {
	c.t.Helper()
	var taken cliresult.Checkpoints
	if err := clidriver.Poll(c.ctx, what, func() (bool, error) {
		err := c.Read(c.ctx, &taken, "checkpoints", job)
		return err == nil && done(taken.Checkpoints), err
	}); err != nil {
		c.t.Fatalf("%v: there are %+v", err, taken.Checkpoints)
	}
	return taken.Checkpoints
}

// inProgress are the IDs of checkpoints that are under way.
func inProgress(listed []cliresult.Checkpoint) (ids []uint64) {
	for _, one := range listed {
		if one.Status == cliresult.CheckpointInProgress {
			ids = append(ids, one.ID)
		}
	}
	return ids
}

// TestKilledWithThreeCheckpointsPending kills a process when three checkpoints
// are in the stream at once, each with uploads that are not complete.
func TestKilledWithThreeCheckpointsPending(t *testing.T) {
	t.Parallel()
	for _, one := range []struct{ victim, backend string }{{"executor", "memory"}, {"taskmanager", "pebble"}, {"jobmanager", "memory"}} {
		t.Run(one.victim, func(t *testing.T) {
			t.Parallel()
			k := newKinds(t, 120)
			c, proxy := startBehindProxy(t, append([]string{"--taskmanagers", "3", "--slots", "1",
				"-D", "execution.checkpointing.max-concurrent-checkpoints=3"}, soon...)...)
			job := c.submit(slices.Concat([]string{"--parallelism", "2"}, onBackend(one.backend), k.args(600, "--ballast", "5000"))...)
			before := c.awaitCheckpoint(job, 2)
			upload := proxy.hold(insideBody, isStateOf(http.MethodPut, regexp.MustCompile(`/checkpoints/`+job+`/`)))
			file := upload.await(c, "an upload")
			pending := inProgress(c.awaitListed(job, "three checkpoints under way", func(listed []cliresult.Checkpoint) bool {
				return len(inProgress(listed)) == 3
			}))
			taskManager, executor := c.ownerOf(c.statusOf(job), file)
			switch one.victim {
			case "executor":
				c.kill(executor)
			case "taskmanager":
				c.kill(int(taskManager.PID))
			case "jobmanager":
				process, err := c.Process(c.ctx, cliresult.JobManagerRole)
				c.kill(must(c, process, err).PID)
			}
			upload.release()
			if err := c.Restart(c.ctx); err != nil {
				t.Fatal(err)
			}
			status := c.awaitStatus(job, cliresult.Finished)
			if status.RestoredCheckpoint < before.LastCheckpoint || slices.Contains(pending, status.RestoredCheckpoint) {
				t.Errorf("restored from %d when %d was complete and %v were not", status.RestoredCheckpoint, before.LastCheckpoint, pending)
			}
			k.check(t, 2, 2)
			c.noFilesLeft(job)
		})
	}
}
