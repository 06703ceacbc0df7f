package minicluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/minicluster"
	"github.com/weirstream/weir/pkg/pb"
)

// The whole cluster runs in fake time: an hour of checkpoints every ten
// minutes takes as long as the work in it.
func TestClusterRunsInFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := minicluster.Start(t.Context(), minicluster.Options{
			TaskManagers: 2, Slots: 1, Dir: t.TempDir(),
			Config: []string{"execution.checkpointing.interval=10 min", "heartbeat.interval=1 min", "heartbeat.timeout=10 min"},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}()
		job, err := c.Submit(t.Context(), counting(t, datagen.Unbounded, 1, t.TempDir()), minicluster.JobOptions{Parallelism: 2})
		if err != nil {
			t.Fatal(err)
		}
		await(t.Context(), t, c, job, "RUNNING", func(s *pb.JobStatusResponse) bool { return s.GetStatus() == "RUNNING" })
		time.Sleep(time.Hour)
		status, err := c.Status(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		if status.GetLastCheckpoint() < 5 || status.GetRestarts() != 0 {
			t.Errorf("checkpoint %d, %d restarts after an hour: %s", status.GetLastCheckpoint(), status.GetRestarts(), describe(status))
		}
		if err := c.Cancel(t.Context(), job); err != nil {
			t.Error(err)
		}
	})
}
