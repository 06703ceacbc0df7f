//go:build e2e

package e2e

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/checkpointstore"
)

// stopping is a flinkctl stop that runs.
type stopping struct {
	printed string
	err     error
	done    chan struct{}
}

// stop begins to stop a job.
func (c *cluster) stop(args ...string) *stopping {
	s := &stopping{done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.printed, s.err = c.Run(c.ctx, append([]string{"stop"}, args...)...)
	}()
	return s
}

// isStopped reports whether a stored record says that the job is stopped with a
// savepoint.
func (c *cluster) isStopped(job string) (bool, error) {
	content, err := os.ReadFile(filepath.Join(c.storeDir("ha"), "default", "jobs", job, "record"))
	if err != nil {
		return false, err
	}
	record, err := checkpointstore.DecodeRecord(content)
	return record.StopSavepoint, err
}

// TestTaskManagerKilledAtEachStepOfStop: before the savepoint is published the
// stop fails, says so, and the job goes on from its last checkpoint; afterwards
// it is stopped, whatever happens, and everything that was read is committed.
func TestTaskManagerKilledAtEachStepOfStop(t *testing.T) {
	t.Parallel()
	savepointState := regexp.MustCompile(`/savepoints/`)
	for _, one := range []struct {
		name string
		// hold holds the stop up where the TaskManager is to be killed.
		hold func(c *cluster, p *storeProxy, job string) *hold
		// acked is whether some subtask must have acknowledged by then.
		acked, published bool
	}{
		{name: "triggered", hold: func(_ *cluster, p *storeProxy, _ string) *hold {
			return p.hold(beforeRequest, isStateOf(http.MethodPut, savepointState))
		}},
		{name: "collecting", acked: true, hold: func(_ *cluster, p *storeProxy, _ string) *hold {
			isState := isStateOf(http.MethodPut, savepointState)
			return p.hold(insideBody, func(r *http.Request) bool {
				parts := statePath.FindStringSubmatch(r.URL.Path)
				return isState(r) && parts[2] == "1"
			})
		}},
		{name: "published", published: true, hold: func(c *cluster, p *storeProxy, job string) *hold {
			return p.hold(beforeReply, func(r *http.Request) bool {
				if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/jobs/"+job+"/record") {
					return false
				}
				stopped, err := c.isStopped(job)
				return err == nil && stopped
			})
		}},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			k := newKinds(t, 120)
			c, proxy := startBehindProxy(t, append([]string{"--taskmanagers", "3", "--slots", "1"}, soon...)...)
			job := c.submit(slices.Concat([]string{"--parallelism", "2"}, onBackend("memory"), k.args(600))...)
			before := c.awaitCheckpoint(job, 2)
			held := one.hold(c, proxy, job)
			stop := c.stop(job)
			held.await(c, "the stop")
			if one.acked {
				c.awaitListed(job, "acknowledgements of the savepoint", func(listed []cliresult.Checkpoint) bool {
					return listed[0].Kind == "stop-savepoint" && listed[0].Acked > 0 && listed[0].Acked < listed[0].Subtasks
				})
			}
			c.kill(int(c.runsSubtasks(c.statusOf(job)).PID))
			held.release()
			<-stop.done
			if one.published {
				path := savepointOf(t, must(c, stop.printed, stop.err))
				status := c.statusOf(job)
				if status.Status != cliresult.Finished || !strings.HasSuffix(path, "-"+itoa(int(status.LastCheckpoint))) {
					t.Errorf("the stopped job is %s, its last checkpoint %d, its savepoint %s", status.Status, status.LastCheckpoint, path)
				}
				if err := c.Restart(c.ctx); err != nil { // for the third slot
					t.Fatal(err)
				}
				resumed := c.submit(append([]string{"--parallelism", "3", "--from-savepoint", path}, k.args(fast)...)...)
				c.awaitStatus(resumed, cliresult.Finished)
				k.check(t, 3, 3)
				return
			}
			var exit *clidriver.ExitError
			if !errors.As(stop.err, &exit) {
				t.Fatalf("stop printed %q, %v: want it to fail", stop.printed, stop.err)
			}
			if exit.Code != 5 {
				t.Errorf("exit code %d, want that of a refusal, 5", exit.Code)
			}
			// The JobManager or a peer of the lost process is the first to notice.
			contains(t, exit.Stderr, "stop-savepoint", "failed: job-failing", "TaskManager")
			status := c.awaitCheckpoint(job, before.LastCheckpoint+1)
			if status.Restarts < 1 {
				t.Errorf("%d restarts", status.Restarts)
			}
			c.awaitStatus(job, cliresult.Finished)
			k.check(t, 2, 2)
			c.noFilesLeft(job)
		})
	}
}
