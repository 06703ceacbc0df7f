package sim

import (
	"testing"
	"time"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/coordinator"
)

// TestCheckpointsAtParallelism500 runs a wide job without faults: it completes
// checkpoints, is stopped with a savepoint, and goes on from it as wide.
func TestCheckpointsAtParallelism500(t *testing.T) {
	const width = 500
	o := Options{
		Job: simjob.Options{
			Splits: 8, RecordsPerSplit: 120, Keys: 400, BatchMax: 4,
			SourceParallelism: 4, CountParallelism: width, SinkParallelism: 3, MaxParallelism: 2 * width,
		},
		Rescales:     []Rescale{{How: StopWithSavepoint, At: 0.5, Tries: 100, Sources: 2, Counts: width, Sinks: 4, Claim: true}},
		TaskManagers: 50, Slots: 10, CreditBytes: 64, StepBudget: 8,
		FetchMax: 200 * time.Millisecond, LinkMax: time.Millisecond, SessionMax: 2 * time.Millisecond, StoreMax: 10 * time.Millisecond,
		Interval: 300 * time.Millisecond, Timeout: 10 * time.Second, Retained: 1, MaxConcurrent: 1, TolerableFailures: -1,
		Retention: coordinator.DeleteOnCancellation,
		Safety:    5 * time.Second, FaultMean: time.Hour, HeartbeatTimeout: time.Second,
	}
	r := Run(Config{Seed: 1, Options: &o})
	if r.Failure != nil {
		t.Fatal(describe(r))
	}
	t.Logf("%d events, %d completed checkpoints, %d restores", r.Events, r.Completed, r.Restores)
	if r.Completed < 3 || r.Restores < 1 || r.Rescales[StopWithSavepoint] != 1 {
		t.Errorf("%d checkpoints completed, %d restores, %d stops with a savepoint; want at least 3, 1 and 1", r.Completed, r.Restores, r.Rescales[StopWithSavepoint])
	}
}
