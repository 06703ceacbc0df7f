//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/flightstruth"
)

// soakCheckpoints is how many checkpoints the soak takes.
const soakCheckpoints = 500

// TestSoak takes hundreds of checkpoints one right after the other: all of them
// complete, no more of them is there than is to be retained, and the last one
// has counted everything once.
func TestSoak(t *testing.T) {
	onEachBackend(t, func(t *testing.T, backend string) {
		binary, output := program(t, "test/programs/keyedcount"), filepath.Join(t.TempDir(), "output")
		c := start(t, "--taskmanagers", "1", "--slots", "2")
		args := func(rate string) []string {
			return []string{binary, "--", "--output", output, "--records", "200000", "--keys", "100", "--rate", rate}
		}
		job := c.submit(append(append([]string{"--parallelism", "2", "-D", "execution.checkpointing.num-retained=3", "-D", "execution.checkpointing.interval=20ms",
			"-D", "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION"}, onBackend(backend)...), args("1000")...)...)
		c.awaitCheckpoint(job, soakCheckpoints)
		var taken cliresult.Checkpoints
		if err := c.Read(c.ctx, &taken, "checkpoints", job); err != nil {
			t.Fatal(err)
		}
		if taken.Completed < soakCheckpoints || taken.Failed != 0 {
			t.Errorf("%d checkpoints were completed and %d failed: %+v", taken.Completed, taken.Failed, taken.Checkpoints)
		}
		status := c.cancel(job)
		if status.Restarts != 0 {
			t.Errorf("%d restarts: %s", status.Restarts, status.Cause)
		}
		entries, err := os.ReadDir(c.storeDir(filepath.Join("checkpoints", job)))
		kept := 0
		for _, entry := range must(c, entries, err) {
			if strings.HasPrefix(entry.Name(), "chk-") {
				kept++
			}
		}
		if kept != 3 {
			t.Errorf("%d checkpoints are left of those that were to be retained: %v", kept, entries)
		}
		next := c.submit(append(append([]string{"--parallelism", "2", "--from-savepoint", status.LastCheckpointPath}, onBackend(backend)...), args("0")...)...)
		c.awaitStatus(next, cliresult.Finished)
		checkCounts(t, output, 100, 2000)
	})
}

// checkCounts wants each of the keys with each count from 1 on, once.
func checkCounts(t *testing.T, output string, keys, counts int) {
	t.Helper()
	files, err := flightstruth.Committed(output)
	if err != nil {
		t.Fatal(err)
	}
	type count struct {
		Key   int `json:"key"`
		Count int `json:"count"`
	}
	seen := map[count]bool{}
	for name, content := range files {
		for line := range strings.Lines(string(content)) {
			var l count
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%s has the line %q: %v", name, line, err)
			}
			if seen[l] || l.Key < 0 || l.Key >= keys || l.Count < 1 || l.Count > counts {
				t.Errorf("key %d has count %d twice, or should not have it", l.Key, l.Count)
			}
			seen[l] = true
		}
	}
	if len(seen) != keys*counts {
		t.Errorf("there are %d counts, want %d", len(seen), keys*counts)
	}
}
