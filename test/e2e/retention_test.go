//go:build e2e

package e2e

import (
	"errors"
	"testing"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/cliresult"
)

// retained says what stays of a job's checkpoints, by retention and the job's end.
var retained = map[string]map[string]bool{
	"DELETE_ON_CANCELLATION":      {cliresult.Failed: true},
	"RETAIN_ON_CANCELLATION":      {cliresult.Failed: true, cliresult.Canceled: true},
	"NO_EXTERNALIZED_CHECKPOINTS": {},
}

// endedJob is a job of the retention test that has ended.
type endedJob struct {
	id, retention, end, checkpoint string
	number                         uint64
}

// TestRetentionOfCheckpoints ends jobs in every way under every retention,
// restarts the JobManager, and starts jobs from all that has to be there. What
// is stored are exactly the files of what is retained, shared ones among them.
func TestRetentionOfCheckpoints(t *testing.T) {
	t.Parallel()
	for retention := range retained {
		t.Run(retention, func(t *testing.T) {
			t.Parallel()
			checkRetention(t, retention)
		})
	}
}

func checkRetention(t *testing.T, retention string) {
	t.Helper()
	binary := program(t, "test/programs/fails") // before the cluster starts, whose time is limited
	c := start(t, "--taskmanagers", "1", "--slots", "3", "-D", "execution.checkpointing.interval=200ms", "-D", "execution.checkpointing.num-retained=1")
	// The record at which a job fails, of 1500 at a thousand in a second.
	failsAt := map[string]string{cliresult.Failed: "1200", cliresult.Canceled: "1000000000", cliresult.Finished: "1000000000"}
	records := map[string]string{cliresult.Failed: "1500", cliresult.Canceled: "100000", cliresult.Finished: "1500"}
	var jobs []endedJob
	for end, at := range failsAt {
		jobs = append(jobs, endedJob{retention: retention, end: end, id: c.submit(
			"-D", "state.backend.type=pebble", "-D", "execution.checkpointing.externalized-checkpoint-retention="+retention, "-D", "restart-strategy.type=none",
			binary, "--", "--rate", "1000", "--records", records[end], "--at", at, "--permanent", "--keys", "50")})
	}
	for i := range jobs {
		j := &jobs[i]
		if j.end == cliresult.Canceled {
			c.awaitCheckpoint(j.id, 2)
			if _, err := c.Run(c.ctx, "cancel", j.id); err != nil {
				t.Fatal(err)
			}
		}
		status := c.awaitStatus(j.id, j.end)
		j.checkpoint, j.number = status.LastCheckpointPath, status.LastCheckpoint
		if j.checkpoint == "" || j.number == 0 {
			t.Fatalf("the job that is %s had no checkpoint", j.end)
		}
	}
	for _, j := range jobs {
		if retained[j.retention][j.end] {
			continue
		}
		if err := clidriver.Poll(c.ctx, "the checkpoint of a job that is "+j.end+" to be deleted", func() (bool, error) {
			_, err := c.Run(c.ctx, "inspect", j.checkpoint)
			var exit *clidriver.ExitError
			return errors.As(err, &exit) && exit.Code == 4, nil
		}); err != nil {
			t.Errorf("%s, %s: %v", j.retention, j.end, err)
		}
		c.awaitExactly(j.id)
		stderr := c.refusal(7, "submit", "--from-savepoint", j.checkpoint, binary)
		contains(t, stderr, "there is no savepoint or checkpoint")
	}
	jobManager, err := c.Process(c.ctx, "jobmanager")
	c.kill(must(c, jobManager, err).PID)
	if err := c.Restart(c.ctx); err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if !retained[j.retention][j.end] {
			continue
		}
		checkpoint := c.loaded(j.checkpoint)
		if checkpoint.shared == 0 {
			t.Errorf("%s, %s: no files are shared: %+v", j.retention, j.end, checkpoint.names)
		}
		c.awaitExactly(j.id, checkpoint)
		next := c.submit("--from-savepoint", j.checkpoint, "-D", "state.backend.type=pebble", binary, "--", "--records", records[j.end], "--at", "1000000000", "--keys", "50")
		if status := c.awaitStatus(next, cliresult.Finished); status.RestoredCheckpoint != j.number {
			t.Errorf("%s, %s: restored %d, not %d", j.retention, j.end, status.RestoredCheckpoint, j.number)
		}
		// Its own end deletes its own checkpoints and not those it came from.
		c.awaitExactly(j.id, c.loaded(j.checkpoint))
	}
}
