//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/cliresult"
)

// TestRestoreSaysWhatMatchesBeforeAnythingStarts submits a program in which
// an operator has another UID, and one of another max parallelism.
func TestRestoreSaysWhatMatchesBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	c := start(t, "--taskmanagers", "1", "--slots", "2")
	binary, output := program(t, "test/programs/keyedcount"), t.TempDir()
	job := c.submit("--parallelism", "2", binary, "--", "--output", output, "--rate", "2000", "--records", "100000")
	c.awaitCheckpoint(job, 2)
	printed, err := c.Run(c.ctx, "stop", job)
	path := savepointOf(t, must(c, printed, err))

	plan := func(args ...string) cliresult.RestorePlan {
		t.Helper()
		var p cliresult.RestorePlan
		printed, err := c.Run(c.ctx, append([]string{"submit", "-o", "json", "--dry-run", "--parallelism", "1", "--from-savepoint", path}, args...)...)
		if err := json.Unmarshal([]byte(must(c, printed, err)), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	same := plan(binary, "--", "--output", output)
	if same.Job != job || same.Problem != "" || len(same.States) == 0 {
		t.Errorf("the plan is %+v", same)
	}
	for _, s := range same.States {
		if s.Match != "matches" || s.OldParallelism != 2 || s.NewParallelism != 1 {
			t.Errorf("of the same program there is %+v", s)
		}
	}
	renamed := []string{binary, "--", "--output", output, "--counts-uid", "sums", "--records", "1000"}
	for _, verb := range [][]string{{"submit", "--dry-run"}, {"submit", "--detached"}} {
		stderr := c.refusal(7, append(append(verb, "--from-savepoint", path), renamed...)...)
		contains(t, stderr, `has state of operator "counts"`, "hint: --allow-non-restored-state")
		// The table itself is stdout of a dry run and stderr of a submission.
		if verb[1] == "--detached" {
			contains(t, stderr, "sums ", "new", "counts ", "dropped")
		}
		contains(t, c.refusal(7, append(append(verb, "--from-savepoint", path, "-D", "pipeline.max-parallelism=64"), binary, "--", "--output", output)...),
			"max parallelism 128", "the job has 64")
	}
	matches := map[string]string{}
	for _, s := range plan(append([]string{"--allow-non-restored-state"}, renamed...)...).States {
		matches[s.Operator] = s.Match
	}
	if matches["numbers"] != "matches" || matches["sums"] != "new" || matches["counts"] != "dropped" {
		t.Errorf("operators are %v", matches)
	}
	var jobs []cliresult.Job
	if err := c.Read(c.ctx, &jobs, "list", "--all"); err != nil || len(jobs) != 1 {
		t.Errorf("a dry run or a refused submission left a job: %v, %v", jobs, err)
	}
	resumed := c.submit(append([]string{"--from-savepoint", path, "--allow-non-restored-state"}, renamed...)...)
	c.awaitStatus(resumed, cliresult.Finished)
}

// TestClaimModesAndDispose starts jobs from one savepoint: one that does not
// claim it and leaves it as it was, and one that does and deletes it.
func TestClaimModesAndDispose(t *testing.T) {
	onEachStorage(t, func(t *testing.T, flags []string) {
		c := start(t, append([]string{"--taskmanagers", "1", "--slots", "1"}, flags...)...)
		binary, output := program(t, "test/programs/keyedcount"), t.TempDir()
		args := []string{binary, "--", "--output", output, "--rate", "1000", "--records", "1000000"}
		settings := c.storageSettings()
		stored := func(verb ...string) []string { return append(append([]string{}, verb...), settings...) }
		first := c.submit(args...)
		c.awaitCheckpoint(first, 1)
		printed, err := c.Run(c.ctx, "stop", first)
		path := savepointOf(t, must(c, printed, err))
		from := []string{"-D", "execution.checkpointing.num-retained=1", "--from-savepoint", path}

		// Far beyond its retention and to its end nothing of the savepoint changes.
		job := c.submit(append(from, args...)...)
		restored := c.await(job, "RUNNING", func(s *cliresult.JobStatus) bool { return s.Status == cliresult.Running }).RestoredCheckpoint
		c.awaitCheckpoint(job, restored+3)
		if _, err := c.Run(c.ctx, "cancel", job); err != nil {
			t.Fatal(err)
		}
		printed, err = c.Run(c.ctx, append(stored("inspect", "--verify"), path)...)
		contains(t, must(c, printed, err), " 0 broken")

		job = c.submit(append(append(from, "--claim-mode", "claim",
			"-D", "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION"), args...)...)
		c.awaitCheckpoint(job, restored+2)
		if err := clidriver.Poll(c.ctx, "the claimed savepoint to be deleted", func() (bool, error) {
			_, err := c.Run(c.ctx, append(stored("inspect"), path)...)
			var exit *clidriver.ExitError
			return errors.As(err, &exit) && exit.Code == 4, nil
		}); err != nil {
			t.Fatal(err)
		}
		printed, err = c.Run(c.ctx, "savepoint", job)
		second := savepointOf(t, must(c, printed, err))
		printed, err = c.Run(c.ctx, append(stored("savepoint", "dispose"), second)...)
		contains(t, must(c, printed, err), "disposed: savepoint ", job)
		c.refusal(4, append(stored("savepoint", "dispose"), second)...)
		// A checkpoint of a job that has ended: while it runs, each is subsumed by
		// the next, and this one could be gone before the command has looked at it.
		contains(t, c.refusal(7, append(stored("savepoint", "dispose"), c.cancel(job).LastCheckpointPath)...), "not a savepoint")
	})
}
