//go:build e2e

package e2e

import (
	"strconv"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/cliresult"
)

func itoa(n int) string { return strconv.Itoa(n) }

// runsSubtasks returns a TaskManager that runs subtasks of the job.
func (c *cluster) runsSubtasks(status *cliresult.JobStatus) cliresult.TaskManager {
	c.t.Helper()
	listed, err := c.TaskManagers(c.ctx)
	for _, taskManager := range must(c, listed, err) {
		for _, vertex := range status.Vertices {
			for _, subtask := range vertex.Subtasks {
				if subtask.TaskManagerID == taskManager.ID {
					return taskManager
				}
			}
		}
	}
	c.t.Fatalf("no TaskManager runs subtasks of %+v", status)
	return cliresult.TaskManager{}
}

func TestKilledTaskManager(t *testing.T) {
	onEachStorage(t, func(t *testing.T, flags []string) {
		c := start(t, append([]string{"--taskmanagers", "3", "--slots", "2"}, flags...)...)
		f := newFlights(t, 8000)
		job := c.submit(append([]string{"--parallelism", "4"}, f.args(t, 1300)...)...)
		status := c.awaitCheckpoint(job, 4)
		before := f.committed(t)
		if before.Lines() == 0 {
			t.Error("nothing is committed after four checkpoints")
		}
		c.kill(int(c.runsSubtasks(status).PID))
		status = c.awaitStatus(job, cliresult.Finished)
		if status.Restarts < 1 || status.RestoredCheckpoint < 4 {
			t.Errorf("%d restarts, restored from checkpoint %d: want a restore from 4 or later", status.Restarts, status.RestoredCheckpoint)
		}
		if err := before.Unchanged(f.committed(t)); err != nil {
			t.Error(err)
		}
		f.check(t)
	})
}

// TestKilledTwiceInARow kills again while the job is still recovering.
func TestKilledTwiceInARow(t *testing.T) {
	t.Parallel()
	c := start(t, "--taskmanagers", "3", "--slots", "4")
	f := newFlights(t, 6000)
	job := c.submit(append([]string{"--parallelism", "4"}, f.args(t, 1000)...)...)
	c.awaitCheckpoint(job, 2)
	for _, name := range []string{"taskmanager-1", "taskmanager-2"} {
		process, err := c.Process(c.ctx, name)
		c.kill(must(c, process, err).PID)
	}
	c.awaitStatus(job, cliresult.Finished)
	f.check(t)
}

func TestKilledTaskManagerTakesItsExecutorsAlong(t *testing.T) {
	t.Parallel()
	c := start(t, "--taskmanagers", "2", "--slots", "2")
	f := newFlights(t, 20000)
	// Two jobs: two executors on a TaskManager.
	c.submit(append([]string{"--parallelism", "2"}, f.args(t, 500)...)...)
	f2 := newFlights(t, 20000)
	job := c.submit(append([]string{"--parallelism", "2"}, f2.args(t, 500)...)...)
	status := c.awaitCheckpoint(job, 1)
	victim := c.runsSubtasks(status)
	var executors []int
	for _, executor := range victim.Executors {
		if !isAlive(t, int(executor.PID)) {
			t.Errorf("executor %+v does not run", executor)
		}
		executors = append(executors, int(executor.PID))
	}
	if len(executors) == 0 {
		t.Fatalf("TaskManager %+v has no executors", victim)
	}
	killed := time.Now()
	c.kill(int(victim.PID))
	err := clidriver.Poll(c.ctx, "the executors to end", func() (bool, error) {
		for _, pid := range executors {
			if isAlive(t, pid) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(killed); took > time.Second {
		t.Errorf("the executors ended after %v, want within a second", took)
	}
}

func TestKilledExecutor(t *testing.T) {
	t.Parallel()
	c := start(t, "--taskmanagers", "1", "--slots", "2")
	f := newFlights(t, 5000)
	job := c.submit(append([]string{"--parallelism", "2"}, f.args(t, 1000)...)...)
	status := c.awaitCheckpoint(job, 2)
	if len(status.Executors) != 1 {
		t.Fatalf("executors are %+v, want one", status.Executors)
	}
	c.kill(int(status.Executors[0].PID))
	status = c.awaitStatus(job, cliresult.Finished)
	if status.Restarts != 1 {
		t.Errorf("%d restarts, want 1", status.Restarts)
	}
	f.check(t)
}
