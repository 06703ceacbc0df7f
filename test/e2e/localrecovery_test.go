//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/cliresult"
)

// restoreRead is what an executor logs of a subtask that has read its state.
type restoreRead struct {
	Fetched int `json:"files_fetched"`
	Local   int `json:"files_local"`
}

// restoreReads are what executors have logged of reads so far.
func (c *cluster) restoreReads(job string) (reads []restoreRead, err error) {
	printed, err := c.Run(c.ctx, "logs", job)
	for line := range strings.Lines(printed) {
		_, fields, isRead := strings.Cut(line, "state was read to restore")
		if !isRead {
			continue
		}
		var one restoreRead
		if err := json.Unmarshal([]byte(strings.TrimSpace(fields)), &one); err != nil {
			return nil, fmt.Errorf("%w in %s", err, line)
		}
		reads = append(reads, one)
	}
	return reads, err
}

// restoresBehind sums up the reads behind the first n, when there are some.
func (c *cluster) restoresBehind(job string, n int) (sum restoreRead) {
	c.t.Helper()
	if err := clidriver.Poll(c.ctx, "what the subtasks have read", func() (bool, error) {
		reads, err := c.restoreReads(job)
		sum = restoreRead{}
		for _, one := range reads[min(n, len(reads)):] {
			sum.Fetched += one.Fetched
			sum.Local += one.Local
		}
		return len(reads) >= n+2, err
	}); err != nil {
		c.t.Fatal(err)
	}
	return sum
}

// breakCopies damages every second file that a TaskManager has kept of a job:
// what is linked gets shorter, what is copied gets another byte. It returns how
// many it has left alone.
func (c *cluster) breakCopies(job string) (broken, whole int) {
	c.t.Helper()
	root := filepath.Join(c.Dir, "work", "taskmanager-1", "local", job)
	manifests, err := filepath.Glob(filepath.Join(root, "*", "chk-*"))
	isCopy := map[string]bool{}
	for _, name := range must(c, manifests, err) {
		content, err := os.ReadFile(name)
		for line := range strings.Lines(string(must(c, content, err))) {
			if fields := strings.Fields(line); len(fields) == 4 && fields[2] == "copy" {
				isCopy[strings.ReplaceAll(fields[3], "/", "%")] = true
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(root, "*", "files", "*"))
	for i, name := range must(c, files, err) {
		switch {
		case i%2 == 1:
			whole++
			continue
		case isCopy[filepath.Base(name)]:
			damages["flipped byte"](c.t, name)
		default:
			info, err := os.Stat(name)
			if err := os.Truncate(name, must(c, info, err).Size()-1); err != nil {
				c.t.Fatal(err)
			}
		}
		broken++
	}
	return broken, whole
}

// TestRestartedSubtasksReadWhatTheirTaskManagerHas kills an executor, whose
// TaskManager has the files of its state; then again, with copies that are
// broken; then the TaskManager, with which they are gone.
func TestRestartedSubtasksReadWhatTheirTaskManagerHas(t *testing.T) {
	t.Parallel()
	k := newKinds(t, 300)
	// A job that waits three seconds leaves time to break what it will read.
	c := start(t, "--taskmanagers", "1", "--slots", "2", "-D", "execution.checkpointing.interval=300ms",
		"-D", "restart-strategy.exponential-delay.initial-backoff=3s", "-D", "restart-strategy.exponential-delay.max-backoff=3s")
	job := c.submit(slices.Concat([]string{"--parallelism", "2"}, onBackend("pebble"), k.args(500, "--ballast", "5000"))...)
	c.awaitCheckpoint(job, 3)
	again := func(attempt int, kill func(status *cliresult.JobStatus)) restoreRead {
		t.Helper()
		earlier, err := c.restoreReads(job)
		kill(c.statusOf(job))
		status := c.await(job, "attempt "+itoa(attempt)+" to run", func(s *cliresult.JobStatus) bool {
			return s.Status == cliresult.Running && s.Attempt == int32(attempt)
		})
		// By then all subtasks have told.
		c.awaitCheckpoint(job, status.RestoredCheckpoint+3)
		return c.restoresBehind(job, len(must(c, earlier, err)))
	}
	if sum := again(2, func(s *cliresult.JobStatus) { c.kill(int(s.Executors[0].PID)) }); sum.Fetched != 0 || sum.Local == 0 {
		t.Errorf("on the same TaskManager %d files were fetched and %d were there", sum.Fetched, sum.Local)
	}
	if sum := again(3, func(s *cliresult.JobStatus) {
		c.kill(int(s.Executors[0].PID))
		if broken, whole := c.breakCopies(job); broken == 0 || whole == 0 {
			t.Errorf("%d copies are broken, %d are whole", broken, whole)
		}
	}); sum.Fetched == 0 || sum.Local == 0 {
		t.Errorf("with broken copies %d files were fetched and %d were there", sum.Fetched, sum.Local)
	}
	if sum := again(4, func(s *cliresult.JobStatus) {
		c.kill(int(c.runsSubtasks(s).PID))
		if err := c.Restart(c.ctx); err != nil {
			t.Fatal(err)
		}
	}); sum.Fetched == 0 || sum.Local != 0 {
		t.Errorf("on a new TaskManager %d files were fetched and %d were there", sum.Fetched, sum.Local)
	}
	status := c.awaitStatus(job, cliresult.Finished)
	if status.Restarts != 3 {
		t.Errorf("%d restarts, want the three of the kills: %s", status.Restarts, status.Cause)
	}
	k.check(t, 2, 2)
	c.noFilesLeft(job)
	if err := clidriver.Poll(c.ctx, "the TaskManager to let go of the copies", func() (bool, error) {
		kept, err := filepath.Glob(filepath.Join(c.Dir, "work", "taskmanager-1", "local", "*"))
		return len(kept) == 0, err
	}); err != nil {
		t.Error(err)
	}
}
