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

// damages are what may happen to one file of a checkpoint.
var damages = map[string]func(t *testing.T, path string){
	"flipped byte": func(t *testing.T, path string) {
		content, err := os.ReadFile(path)
		if err == nil {
			content[len(content)/2] ^= 1
			err = os.WriteFile(path, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	},
	"missing": func(t *testing.T, path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	},
}

// TestCorruptCheckpointFallsBack damages the newest checkpoint while the job is
// down: it goes on from the older one, and the output is exact.
func TestCorruptCheckpointFallsBack(t *testing.T) {
	t.Parallel()
	for what, damage := range damages {
		for _, file := range []string{"state", "_metadata"} {
			t.Run(what+" "+file, func(t *testing.T) {
				t.Parallel()
				c := start(t, "--taskmanagers", "2", "--slots", "2")
				f := newFlights(t, 6000)
				job := c.submit(append([]string{"--parallelism", "2"}, f.args(t, 1000)...)...)
				c.awaitCheckpoint(job, 3)
				newest, dir := c.stopInCheckpoint(job)
				path := filepath.Join(dir, "_metadata")
				if file == "state" {
					path = stateFile(t, dir)
				}
				damage(t, path)
				if err := c.Restart(c.ctx); err != nil {
					t.Fatal(err)
				}
				status := c.await(job, "the job goes on", func(s *cliresult.JobStatus) bool {
					return (s.Status == cliresult.Running || s.Status == cliresult.Finished) && s.RestoredCheckpoint < newest
				})
				contains(t, status.Cause, "corrupt checkpoint "+itoa(int(newest)), path, "falling back to checkpoint "+itoa(int(status.RestoredCheckpoint)))
				contains(t, eventsOf(status), "falling back from checkpoint "+itoa(int(newest)))
				printed, err := c.Run(c.ctx, "status", job)
				contains(t, must(c, printed, err), path)
				if status = c.awaitStatus(job, cliresult.Finished); status.LastCheckpoint <= newest {
					t.Errorf("the last checkpoint is %d after a fallback from %d: IDs must grow", status.LastCheckpoint, newest)
				}
				f.check(t)
			})
		}
	}
}

// TestI9UnreadableCheckpointIsWaitedFor: a store that answers with errors never
// makes a job go back, however long.
func TestI9UnreadableCheckpointIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"state", "_metadata"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			c := start(t, "--taskmanagers", "2", "--slots", "2")
			f := newFlights(t, 5000)
			job := c.submit(append([]string{"--parallelism", "2"}, f.args(t, 1000)...)...)
			c.awaitCheckpoint(job, 3)
			newest, dir := c.stopInCheckpoint(job)
			path, aside := filepath.Join(dir, "_metadata"), filepath.Join(t.TempDir(), "aside")
			if file == "state" {
				path = stateFile(t, dir)
			}
			if err := os.Rename(path, aside); err != nil {
				t.Fatal(err)
			}
			// Opening a link to itself fails for root too, and not as a file that is missing does.
			if err := os.Symlink(filepath.Base(path), path); err != nil {
				t.Fatal(err)
			}
			if err := c.Restart(c.ctx); err != nil {
				t.Fatal(err)
			}
			status := c.await(job, "several failed reads", func(s *cliresult.JobStatus) bool {
				failed := 0
				for _, e := range s.Events {
					if strings.Contains(e.Text, path) && strings.Contains(e.Text, "too many levels") {
						failed++
					}
				}
				return failed >= 3
			})
			if status.LastCheckpoint != newest || status.Status == cliresult.Failed {
				t.Errorf("the job is %s with checkpoint %d as the last, want it to wait for %d", status.Status, status.LastCheckpoint, newest)
			}
			if err := os.Rename(aside, path); err != nil {
				t.Fatal(err)
			}
			status = c.awaitStatus(job, cliresult.Finished)
			if status.RestoredCheckpoint < newest || strings.Contains(eventsOf(status), "falling back") {
				t.Errorf("restored from checkpoint %d, want %d or later:\n%s", status.RestoredCheckpoint, newest, eventsOf(status))
			}
			f.check(t)
		})
	}
}

// TestCorruptCheckpointBehindACommitThatStays: with a sink that cannot take back
// what it has committed the job fails and says what its user can do, and that works.
func TestCorruptCheckpointBehindACommitThatStays(t *testing.T) {
	t.Parallel()
	const records = 5000
	run := func(t *testing.T, c *cluster, flags ...string) (job, path, output string, newest uint64) {
		output = filepath.Join(t.TempDir(), "output")
		job = c.submit(append(flags, "--parallelism", "2", program(t, "test/programs/irrevocable"), "--",
			"--records", itoa(records), "--rate", "1000", "--output", output)...)
		c.awaitCheckpoint(job, 3)
		newest, dir := c.stopInCheckpoint(job)
		path = stateFile(t, dir)
		damages["missing"](t, path)
		if err := c.Restart(c.ctx); err != nil {
			t.Fatal(err)
		}
		return job, path, output, newest
	}
	t.Run("override", func(t *testing.T) {
		t.Parallel()
		c := start(t, "--taskmanagers", "2", "--slots", "2")
		job, path, output, newest := run(t, c)
		status := c.awaitStatus(job, cliresult.Failed)
		const command = "flinkctl submit --from-savepoint "
		contains(t, status.Cause, "corrupt checkpoint "+itoa(int(newest)), path, `sink "out" cannot take back`, command, "execution.checkpointing.fallback.allow-duplicates")
		_, rest, _ := strings.Cut(status.Cause, command)
		older, _, _ := strings.Cut(rest, " ")
		next := c.submit("--from-savepoint", older, "--parallelism", "2", program(t, "test/programs/irrevocable"), "--",
			"--records", itoa(records), "--output", output)
		c.awaitStatus(next, cliresult.Finished)
		checkCountsWithRepeats(t, output, records)
	})
	t.Run("allowed", func(t *testing.T) {
		t.Parallel()
		c := start(t, "--taskmanagers", "2", "--slots", "2")
		job, path, output, newest := run(t, c, "-D", "execution.checkpointing.fallback.allow-duplicates=true")
		status := c.awaitStatus(job, cliresult.Finished)
		contains(t, eventsOf(status), "falling back from checkpoint "+itoa(int(newest)), path)
		checkCountsWithRepeats(t, output, records)
	})
}

// checkCountsWithRepeats wants every count of every key of an irrevocable job, some of
// them twice: those that came after the older checkpoint.
func checkCountsWithRepeats(t *testing.T, output string, records int) {
	t.Helper()
	files, err := flightstruth.Committed(output)
	if err != nil {
		t.Fatal(err)
	}
	type count struct{ Key, Count uint64 }
	seen, lines := map[count]bool{}, 0
	for _, content := range files {
		for line := range strings.Lines(string(content)) {
			var one count
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatal(err)
			}
			seen[one] = true
			lines++
		}
	}
	if len(seen) != records || lines <= records {
		t.Errorf("%d different counts in %d lines, want %d in more", len(seen), lines, records)
	}
}

// stopInCheckpoint kills all processes while the job runs, and returns the
// checkpoint that is the newest for good, and its directory.
func (c *cluster) stopInCheckpoint(job string) (newest uint64, dir string) {
	c.t.Helper()
	processes, err := c.Processes(c.ctx)
	for _, process := range must(c, processes, err) {
		if process.Role == cliresult.TaskManagerRole {
			c.kill(process.PID)
		}
	}
	// The TaskManagers are gone and the outcome of the last publication is known.
	status := c.await(job, "the job waits for slots", func(s *cliresult.JobStatus) bool {
		return s.Status == "RESTARTING" && strings.Contains(s.Detail, "slots")
	})
	process, err := c.Process(c.ctx, "jobmanager")
	c.kill(must(c, process, err).PID)
	return status.LastCheckpoint, strings.TrimPrefix(status.LastCheckpointPath, "file://")
}

// stateFile is a file of a checkpoint that is not its metadata.
func stateFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*-*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("no state files in %s", dir)
	}
	return files[0]
}

func eventsOf(status *cliresult.JobStatus) string {
	var text strings.Builder
	for _, e := range status.Events {
		text.WriteString(e.Text + "\n")
	}
	return text.String()
}
