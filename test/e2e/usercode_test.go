//go:build e2e

package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/cliresult"
)

// pids are the PIDs of the cluster's processes.
func (c *cluster) pids() []int {
	c.t.Helper()
	processes, err := c.Processes(c.ctx)
	var pids []int
	for _, process := range must(c, processes, err) {
		pids = append(pids, process.PID)
	}
	return pids
}

func TestPanicOfUserCodeFailsItsJobOnly(t *testing.T) {
	t.Parallel()
	c := start(t, "--taskmanagers", "1", "--slots", "2")
	before := c.pids()
	f := newFlights(t, 5000)
	other := c.submit(f.args(t, 1000)...)
	c.awaitCheckpoint(other, 1)
	stderr := c.refusal(1, "submit", "-D", "restart-strategy.type=none", program(t, "test/programs/panics"), "--", "--at", "100")
	contains(t, stderr, "error: job ", "user code panics at record 100")
	if strings.Contains(stderr, "goroutine ") {
		t.Errorf("a stack without --verbose:\n%s", stderr)
	}
	var jobs []cliresult.Job
	err := c.Read(c.ctx, &jobs, "list", "--all")
	job := must(c, jobs, err)[0].ID
	status, err := c.Status(c.ctx, job)
	if must(c, status, err).Status != cliresult.Failed {
		t.Errorf("the job is %s", status.Status)
	}
	contains(t, status.Cause, "user code panics at record 100", "main.go:", "goroutine ")
	c.awaitStatus(other, cliresult.Finished)
	f.check(t)
	if status, err = c.Status(c.ctx, other); must(c, status, err).Restarts != 0 {
		t.Errorf("the other job restarted %d times", status.Restarts)
	}
	if after := c.pids(); !slices.Equal(before, after) {
		t.Errorf("processes were %v and are %v", before, after)
	}
}

func TestErrorsOfUserCodeAreRetriedAndThenFailTheJob(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.refusal(1, "submit", "-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.attempts=2",
		"-D", "restart-strategy.fixed-delay.delay=10ms", program(t, "test/programs/fails"), "--", "--at", "100")
	var jobs []cliresult.Job
	err := c.Read(c.ctx, &jobs, "list", "--all")
	status, err2 := c.Status(c.ctx, must(c, jobs, err)[0].ID)
	if must(c, status, err2).Restarts != 2 {
		t.Errorf("%d restarts, want 2", status.Restarts)
	}
	contains(t, status.Cause, "user code fails at record 100")

	// What no restart cures is not tried again.
	c.refusal(1, "submit", program(t, "test/programs/fails"), "--", "--at", "100", "--permanent")
	err = c.Read(c.ctx, &jobs, "list", "--all")
	status, err2 = c.Status(c.ctx, must(c, jobs, err)[0].ID)
	if must(c, status, err2).Restarts != 0 || status.Status != cliresult.Failed {
		t.Errorf("the job is %s after %d restarts", status.Status, status.Restarts)
	}
}

func TestCancelOfUserCodeThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	c := start(t)
	before := c.pids()
	job := c.submit("-D", "task.cancellation.timeout=500ms", program(t, "test/programs/slowcancel"))
	c.await(job, "the job hangs in user code", func(s *cliresult.JobStatus) bool {
		return s.Status == cliresult.Running && s.Started != nil && time.Since(*s.Started) > 2*time.Second
	})
	if _, err := c.Run(c.ctx, "cancel", job); err != nil {
		t.Fatal(err)
	}
	status, err := c.Status(c.ctx, job)
	if must(c, status, err).Status != cliresult.Canceled {
		t.Errorf("the job is %s", status.Status)
	}
	if after := c.pids(); !slices.Equal(before, after) {
		t.Errorf("processes were %v and are %v", before, after)
	}
}

// TestTwoInputsOfDifferentParallelism aligns barriers across both, and is killed.
func TestTwoInputsOfDifferentParallelism(t *testing.T) {
	t.Parallel()
	c := start(t, "--taskmanagers", "2", "--slots", "3")
	output := t.TempDir()
	const keys, rounds = 50, 60
	job := c.submit("--parallelism", "2", program(t, "test/programs/twoinput"), "--", "--keys", itoa(keys), "--rounds", itoa(rounds),
		"--rate", "500", "--left-parallelism", "1", "--right-parallelism", "3", "--output", output)
	status := c.awaitCheckpoint(job, 3)
	c.kill(int(c.runsSubtasks(status).PID))
	if err := c.Restart(c.ctx); err != nil {
		t.Fatal(err)
	}
	c.awaitStatus(job, cliresult.Finished)
	f := flights{output: output}
	seen := map[[2]int]int{}
	for _, content := range f.committed(t) {
		for line := range strings.Lines(string(content)) {
			var total struct{ Key, Total int }
			if err := json.Unmarshal([]byte(line), &total); err != nil {
				t.Fatal(err)
			}
			seen[[2]int{total.Key, total.Total}]++
		}
	}
	for key := range keys {
		for n := 1; n <= 2*rounds; n++ {
			if seen[[2]int{key, n}] != 1 {
				t.Fatalf("key %d has total %d %d times", key, n, seen[[2]int{key, n}])
			}
		}
	}
	if len(seen) != keys*2*rounds {
		t.Errorf("%d totals, want %d", len(seen), keys*2*rounds)
	}
}

func TestLogsShowWhatSinksPrint(t *testing.T) {
	t.Parallel()
	c := start(t)
	if _, err := c.Run(c.ctx, "submit", "examples/wordcount", "--", "--input", root(t)+"/examples/wordcount/text.txt"); err != nil {
		t.Fatal(err)
	}
	var jobs []cliresult.Job
	err := c.Read(c.ctx, &jobs, "list", "--all")
	for _, follow := range [][]string{nil, {"--follow"}} {
		printed, err := c.Run(c.ctx, append([]string{"logs", must(c, jobs, err)[0].ID}, follow...)...)
		printedWords := 0
		for line := range strings.Lines(must(c, printed, err)) {
			source, text, ok := strings.Cut(line, "> ")
			if !ok || source == "" {
				t.Fatalf("a line that is from nowhere: %q", line)
			}
			if strings.Contains(source, "out") && strings.Contains(text, "Word:") {
				printedWords++
			}
		}
		if printedWords < 10 {
			t.Errorf("the sink's lines are missing:\n%s", printed)
		}
	}
}
