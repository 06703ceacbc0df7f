//go:build e2e

package e2e

import (
	"reflect"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/cliresult"
)

// TestHistoryOutlivesAKilledJobManager: what a checkpoint has cost, by subtask,
// is told by the next JobManager as by the one that was killed.
func TestHistoryOutlivesAKilledJobManager(t *testing.T) {
	t.Parallel()
	c := start(t, "--taskmanagers", "2", "--slots", "2")
	f := newFlights(t, 100_000)
	job := c.submit(append([]string{"--parallelism", "2"}, f.args(t, 1000)...)...)
	id := c.awaitCheckpoint(job, 3).LastCheckpoint - 1
	details := func() cliresult.CheckpointDetails {
		var d cliresult.CheckpointDetails
		err := c.Read(c.ctx, &d, "checkpoints", job, "--id", itoa(int(id)))
		return must(c, d, err)
	}
	before := details()
	subtasks := 0
	for _, v := range before.Vertices {
		for _, s := range v.Subtasks {
			subtasks++
			if !s.Acked || s.EndMS <= 0 {
				t.Errorf("subtask %d of %s: %+v", s.Index, v.Name, s)
			}
		}
	}
	if before.Status != cliresult.CheckpointCompleted || subtasks == 0 || before.Size == 0 {
		t.Fatalf("checkpoint %d is %+v", id, before)
	}
	process, err := c.Process(c.ctx, "jobmanager")
	c.kill(must(c, process, err).PID)
	if err := c.Restart(c.ctx); err != nil {
		t.Fatal(err)
	}
	c.awaitStatus(job, cliresult.Running)
	if after := details(); !reflect.DeepEqual(after, before) {
		t.Errorf("checkpoint %d was\n%+v\nand after a restart of the JobManager is\n%+v", id, before, after)
	}
	if text := c.run("checkpoints", job, "--id", itoa(int(id))); !strings.Contains(text, "ALIGN") {
		t.Errorf("no table of alignments in\n%s", text)
	}
	if _, err := c.Run(c.ctx, "checkpoints", job, "--id", "999999"); err == nil || !strings.Contains(err.Error(), "999999") {
		t.Errorf("a checkpoint that does not exist: %v", err)
	}
	c.cancel(job)
}
