//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/flightstruth"
	"github.com/weirstream/weir/pkg/checkpointstore"
)

// soon makes lost processes come back without long waits.
var soon = []string{"-D", "restart-strategy.exponential-delay.initial-backoff=100ms", "-D", "execution.checkpointing.interval=300ms"}

// ownerOf is the TaskManager that runs the subtask of which a file of state is,
// and the PID of its executor.
func (c *cluster) ownerOf(status *cliresult.JobStatus, file string) (taskManager cliresult.TaskManager, executor int) {
	c.t.Helper()
	parts := statePath.FindStringSubmatch(file)
	if parts == nil {
		c.t.Fatalf("%s is no file of state", file)
	}
	id := ""
	for _, vertex := range status.Vertices {
		for _, subtask := range vertex.Subtasks {
			if itoa(int(vertex.ID)) == parts[1] && itoa(int(subtask.Index)) == parts[2] {
				id = subtask.TaskManagerID
			}
		}
	}
	listed, err := c.TaskManagers(c.ctx)
	for _, t := range must(c, listed, err) {
		if t.ID != id {
			continue
		}
		for _, e := range t.Executors {
			if e.JobID == status.ID {
				return t, int(e.PID)
			}
		}
	}
	c.t.Fatalf("no TaskManager has %s: %+v, %+v", file, status, listed)
	return taskManager, 0
}

// statusOf is the job's status.
func (c *cluster) statusOf(job string) *cliresult.JobStatus {
	c.t.Helper()
	status, err := c.Status(c.ctx, job)
	return must(c, status, err)
}

// noFilesLeft waits until nothing is stored of the checkpoints of a job that
// has ended, nor parts of an upload that was neither completed nor aborted: the
// S3 server keeps those in a directory of its own.
func (c *cluster) noFilesLeft(job string) {
	c.t.Helper()
	var left []string
	if err := clidriver.Poll(c.ctx, "the job's files to be deleted", func() (bool, error) {
		left = nil
		for _, dir := range []string{filepath.Join("checkpoints", job), ".sgwtmp"} {
			names, err := c.storedNames(dir)
			if err != nil {
				return false, err
			}
			left = append(left, names...)
		}
		return len(left) == 0, nil
	}); err != nil {
		c.t.Errorf("%v: there are %v", err, left)
	}
}

// TestKilledDuringUpload kills a process when half of a file of its state has
// reached the store.
func TestKilledDuringUpload(t *testing.T) {
	onEachBackend(t, func(t *testing.T, backend string) {
		for _, victim := range []string{"executor", "taskmanager"} {
			t.Run(victim, func(t *testing.T) {
				t.Parallel()
				k := newKinds(t, 120)
				c, proxy := startBehindProxy(t, append([]string{"--taskmanagers", "3", "--slots", "1"}, soon...)...)
				job := c.submit(slices.Concat([]string{"--parallelism", "2"}, onBackend(backend), k.args(600, "--ballast", "5000"))...)
				before := c.awaitCheckpoint(job, 2)
				upload := proxy.hold(insideBody, isStateOf(http.MethodPut, regexp.MustCompile(`/checkpoints/`+job+`/`)))
				file := upload.await(c, "an upload")
				status := c.statusOf(job)
				taskManager, executor := c.ownerOf(status, file)
				if victim == "executor" {
					c.kill(executor)
				} else {
					c.kill(int(taskManager.PID))
				}
				upload.release()
				status = c.awaitStatus(job, cliresult.Finished)
				if status.Restarts < 1 || status.RestoredCheckpoint < before.LastCheckpoint {
					t.Errorf("%d restarts, restored from %d when %d was complete", status.Restarts, status.RestoredCheckpoint, before.LastCheckpoint)
				}
				k.check(t, 2, 2)
				c.noFilesLeft(job)
			})
		}
	})
}

// TestKilledDuringAnUploadInParts leaves an upload behind that neither is
// completed nor will be: nobody but a sweep can remove it.
func TestKilledDuringAnUploadInParts(t *testing.T) {
	onEachBackend(t, func(t *testing.T, backend string) {
		k := newKinds(t, 500)
		k.splits, k.keys = 1, 1
		c, proxy := startBehindProxy(t, append([]string{"--taskmanagers", "2", "--slots", "1"}, soon...)...)
		upload := proxy.hold(insideBody, func(r *http.Request) bool {
			return strings.Contains(r.URL.Path, "/checkpoints/") && r.URL.Query().Get("partNumber") == "2"
		})
		// Twelve megabytes in one file are two parts, and one value is in one file.
		job := c.submit(slices.Concat([]string{"--parallelism", "1"}, onBackend(backend), k.args(100, "--ballast", "12000000"))...)
		file := upload.await(c, "the second part of an upload")
		_, executor := c.ownerOf(c.statusOf(job), file)
		c.kill(executor)
		// The rest would come when the sweep has been there: such a part stays.
		upload.sever()
		if status := c.awaitStatus(job, cliresult.Finished); status.Restarts < 1 {
			t.Errorf("the killed executor's job was not restarted: %+v", status)
		}
		k.check(t, 1, 1)
		c.noFilesLeft(job)
	})
}

// TestKilledDuringRestore kills whoever downloads a savepoint's state, twice in
// a row and before the job has any checkpoint of its own; then once more, when
// it has, in the restore from that.
func TestKilledDuringRestore(t *testing.T) {
	onEachBackend(t, func(t *testing.T, backend string) {
		k := newKinds(t, 120)
		c, proxy := startBehindProxy(t, append([]string{"--taskmanagers", "5", "--slots", "1",
			// Copies on TaskManagers would spare the downloads that are held.
			"-D", "execution.state-recovery.from-local=false"}, soon...)...)
		old := c.submit(slices.Concat([]string{"--parallelism", "2"}, onBackend(backend), k.args(600))...)
		c.awaitCheckpoint(old, 2)
		path := savepointOf(t, c.run("stop", old))
		savepoint := c.stored("savepoints")

		download := proxy.hold(beforeRequest, isStateOf(http.MethodGet, regexp.MustCompile(`/savepoints/`)))
		job := c.submit(slices.Concat([]string{"--parallelism", "2", "--from-savepoint", path}, onBackend(backend), k.args(600))...)
		executorsOf := func(attempt int) *cliresult.JobStatus {
			return c.await(job, "the executors of attempt "+itoa(attempt), func(s *cliresult.JobStatus) bool {
				return len(s.Executors) == 2 && !slices.ContainsFunc(s.Executors, func(e cliresult.Executor) bool {
					return !strings.HasSuffix(e.Attempt, "."+itoa(attempt))
				})
			})
		}
		for i, victim := range []string{"executor", "taskmanager"} {
			download.await(c, "a download")
			status := executorsOf(i + 1)
			if victim == "executor" {
				c.kill(int(status.Executors[0].PID))
			} else {
				c.kill(int(c.runsSubtasks(status).PID))
			}
			// The next attempt's downloads are held by a hold of their own.
			next := proxy.hold(beforeRequest, isStateOf(http.MethodGet, regexp.MustCompile(`/savepoints/`)))
			download.release()
			download = next
		}
		download.await(c, "the third download")
		download.release()
		status := c.await(job, "RUNNING", func(s *cliresult.JobStatus) bool { return s.Status == cliresult.Running })
		// A peer may be heard of before the TaskManager is known to be dead: then the
		// third attempt is given a slot of that, and a fourth follows.
		third := status.Attempt
		if third != 3 && third != 4 || !strings.HasSuffix(path, "-"+strconv.FormatUint(status.RestoredCheckpoint, 10)) {
			t.Errorf("attempt %d is restored from %d of %s", status.Attempt, status.RestoredCheckpoint, path)
		}

		own := c.awaitCheckpoint(job, status.RestoredCheckpoint+1)
		download = proxy.hold(beforeRequest, isStateOf(http.MethodGet, regexp.MustCompile(`/checkpoints/`+job+`/`)))
		c.kill(int(own.Executors[0].PID))
		download.await(c, "a download of a checkpoint")
		c.kill(int(executorsOf(int(third) + 1).Executors[1].PID))
		download.release()
		status = c.awaitStatus(job, cliresult.Finished)
		if status.Attempt != third+2 || status.RestoredCheckpoint < own.LastCheckpoint {
			t.Errorf("attempt %d is restored from %d when %d was complete", status.Attempt, status.RestoredCheckpoint, own.LastCheckpoint)
		}
		k.check(t, 2, 2)
		c.noFilesLeft(job)
		if after := c.stored("savepoints"); len(after) != len(savepoint) || savepoint.Unchanged(after) != nil {
			t.Errorf("the savepoint's %d files have become %d: %v", len(savepoint), len(after), savepoint.Unchanged(after))
		}
	})
}

// latest is the checkpoint that the stored record of a job points to.
func (c *cluster) latest(job string) (uint64, error) {
	content, err := os.ReadFile(filepath.Join(c.storeDir("ha"), "default", "jobs", job, "record"))
	if err != nil {
		return 0, err
	}
	record, err := checkpointstore.DecodeRecord(content)
	return uint64(record.Latest.ID), err
}

// committedOf are the committed files of one checkpoint of a job.
func committedOf(files flightstruth.Files, checkpoint uint64) []string {
	var names []string
	for name := range files {
		if strings.HasSuffix(name, fmt.Sprintf("-%d.jsonl", checkpoint)) {
			names = append(names, name)
		}
	}
	return names
}

// TestKilledBetweenPublicationAndNotification kills processes when a checkpoint
// is in the job's record and nobody knows yet, for the store's answer is held
// back: the next attempt restores from it, and commits what it prepared.
func TestKilledBetweenPublicationAndNotification(t *testing.T) {
	onEachBackend(t, func(t *testing.T, backend string) {
		for _, victim := range []string{"jobmanager", "taskmanagers", "everything"} {
			t.Run(victim, func(t *testing.T) {
				t.Parallel()
				k := newKinds(t, 120)
				c, proxy := startBehindProxy(t, append([]string{"--taskmanagers", "2", "--slots", "2"}, soon...)...)
				job := c.submit(slices.Concat([]string{"--parallelism", "2"}, onBackend(backend), k.args(600))...)
				last := c.awaitCheckpoint(job, 2).LastCheckpoint
				publication := proxy.hold(beforeReply, func(r *http.Request) bool {
					if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/jobs/"+job+"/record") {
						return false
					}
					latest, err := c.latest(job)
					return err == nil && latest > last
				})
				publication.await(c, "a publication")
				published, err := c.latest(job)
				if must(c, published, err); published <= last {
					t.Fatalf("checkpoint %d is published, %d was before", published, last)
				}
				before, err := flightstruth.Committed(k.output)
				if early := committedOf(must(c, before, err), published); len(early) > 0 {
					t.Errorf("%v are committed before their checkpoint %d was notified of", early, published)
				}
				processes, err := c.Processes(c.ctx)
				for _, p := range must(c, processes, err) {
					if p.Role == cliresult.JobManagerRole && victim != "taskmanagers" || p.Role == cliresult.TaskManagerRole && victim != "jobmanager" {
						c.kill(p.PID)
					}
				}
				publication.release()
				if err := c.Restart(c.ctx); err != nil {
					t.Fatal(err)
				}
				status := c.awaitStatus(job, cliresult.Finished)
				if status.RestoredCheckpoint != published {
					t.Errorf("restored from checkpoint %d, %d was published", status.RestoredCheckpoint, published)
				}
				after, err := flightstruth.Committed(k.output)
				if committed := committedOf(must(c, after, err), published); len(committed) == 0 {
					t.Errorf("nothing of checkpoint %d is committed", published)
				}
				if err := before.Unchanged(after); err != nil {
					t.Error(err)
				}
				k.check(t, 2, 2)
				c.noFilesLeft(job)
			})
		}
	})
}
