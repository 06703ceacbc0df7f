//go:build e2e

package e2e

import (
	"encoding/json"
	"testing"

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
