//go:build e2e

package e2e

import (
	"syscall"
	"testing"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/cliresult"
)

// TestPausedHostWakesAsAZombie stops a TaskManager with its executor for
// longer than the heartbeat timeout, so that the job goes on elsewhere, and
// lets them go on: they have lost their attempt, end it, and change nothing.
func TestPausedHostWakesAsAZombie(t *testing.T) {
	t.Parallel()
	c := start(t, "--taskmanagers", "3", "--slots", "2", "-D", "heartbeat.interval=400ms", "-D", "heartbeat.timeout=2s")
	f := newFlights(t, 12000)
	job := c.submit(append([]string{"--parallelism", "4"}, f.args(t, 1000)...)...)
	status := c.awaitCheckpoint(job, 3)
	victim := c.runsSubtasks(status)
	var executors []int
	for _, executor := range victim.Executors {
		executors = append(executors, int(executor.PID))
	}
	if len(executors) == 0 {
		t.Fatalf("TaskManager %+v has no executors", victim)
	}
	signal := func(s syscall.Signal) {
		for _, pid := range append(executors, int(victim.PID)) {
			if err := syscall.Kill(pid, s); err != nil {
				t.Error(err)
			}
		}
	}
	signal(syscall.SIGSTOP)
	before := c.await(job, "the job goes on without them", func(s *cliresult.JobStatus) bool {
		return s.Restarts > 0 && s.Status == cliresult.Running && s.LastCheckpoint > s.RestoredCheckpoint
	})
	signal(syscall.SIGCONT)
	err := clidriver.Poll(c.ctx, "the executors of the old attempt to end", func() (bool, error) {
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
	err = clidriver.Poll(c.ctx, "the TaskManager to be registered again", func() (bool, error) {
		listed, err := c.TaskManagers(c.ctx)
		return len(listed) == 3, err
	})
	if err != nil {
		t.Fatal(err)
	}
	after := c.awaitStatus(job, cliresult.Finished)
	if after.Restarts != before.Restarts {
		t.Errorf("%d restarts, %d before the zombies woke: they failed the new attempt", after.Restarts, before.Restarts)
	}
	f.check(t)
}
