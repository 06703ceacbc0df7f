package subtask_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/runtime/subtask"
)

func isCanceled(r subtask.Report) bool {
	s, ok := r.(subtask.StatusReport)
	return ok && s.Status == coordinator.Canceled
}

// prepareThree runs a job until its sinks have prepared transactions for
// checkpoints 1, 2 and 3, of which 1 is committed. The last snapshot is not
// written yet.
func prepareThree(t *testing.T, world *simjob.World) *rig {
	t.Helper()
	o := small()
	o.RecordsPerSplit = 4000
	r := newRig(t, o, world, newStore(t), 1, restorePoint{})
	for id := ids.CheckpointID(1); id <= 3; id++ {
		steps := 0
		r.run(func() bool { steps++; return steps > 60 })
		r.slow = id == 3
		r.trigger(element.Barrier{Checkpoint: id})
		r.run(func() bool { return len(r.acks(id)) == len(r.order) })
		if id == 1 {
			r.complete(1)
			r.run(func() bool {
				n := r.count(func(x subtask.Report) bool { c, ok := x.(subtask.CommitReport); return ok && c.Checkpoint == 1 })
				return n == len(r.order)
			})
		}
	}
	return r
}

// TestI1CancelAbortsWhatWillNeverBePublished: transactions of later checkpoints
// than the newest needed one go away before the subtask is Canceled, also those
// whose snapshot was being written when the cancel came; others stay.
func TestI1CancelAbortsWhatWillNeverBePublished(t *testing.T) {
	for keep, want := range map[ids.CheckpointID][]string{1: nil, 2: {"2"}, subtask.KeepAll: {"2", "3"}} {
		world := simjob.NewWorld()
		r := prepareThree(t, world)
		for _, id := range r.order {
			h := r.hosts[id]
			h.s.Cancel(keep)
			h.s.Cancel(0) // the first counts
			if id.Vertex == 2 && slices.ContainsFunc(h.reports, isCanceled) {
				t.Fatalf("keeping up to %d: %s is Canceled while its snapshot is being written", keep, id)
			}
		}
		r.slow = false
		r.run(nil)
		if n := r.count(isCanceled); n != len(r.order) {
			t.Errorf("keeping up to %d: %d of %d subtasks are Canceled", keep, n, len(r.order))
		}
		var prepared []string
		for _, name := range world.PreparedTransactions() {
			prepared = append(prepared, strings.Split(name, "/")[2])
		}
		slices.Sort(prepared)
		if prepared = slices.Compact(prepared); !slices.Equal(prepared, want) {
			t.Errorf("keeping up to %d: transactions of checkpoints %v are left, want %v", keep, prepared, want)
		}
		if v := world.Violations(); len(v) > 0 {
			t.Error(v)
		}
		r.close()
	}
}

// TestFailedSubtaskAbortsNothing: the next attempt decides what is a leftover.
func TestFailedSubtaskAbortsNothing(t *testing.T) {
	world := simjob.NewWorld()
	r := prepareThree(t, world)
	r.slow = false
	r.run(func() bool { return len(r.acks(3)) == len(r.order) })
	before := world.Prepared()
	for _, id := range r.order {
		r.hosts[id].s.Fail(errors.New("failed"), "")
	}
	r.run(nil)
	r.close()
	if after := world.Prepared(); before == 0 || after != before {
		t.Errorf("%d transactions were prepared, %d are", before, after)
	}
}
