package subtask_test

import (
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/faulty"
	"github.com/weirstream/weir/pkg/objectstore/memory"
	"github.com/weirstream/weir/pkg/runtime/subtask"
)

// TestI9RestoreWithoutAllOfTheStateFailsByName: a job never starts with part of
// its state. A file that is gone is named and cannot be cured by a restart; a
// store that does not answer says nothing about the file.
func TestI9RestoreWithoutAllOfTheStateFailsByName(t *testing.T) {
	o, world := small(), simjob.NewWorld()
	objects := memory.New("/ckpt")
	var fault faulty.Fault
	store := checkpointstore.New(func(string) (objectstore.Store, error) {
		return faulty.New(objects, func(call faulty.Call) faulty.Fault {
			if call.Op == faulty.Open {
				return fault
			}
			return faulty.Fault{}
		}, nil), nil
	})
	r := newRig(t, o, world, store, 1, restorePoint{})
	steps := 0
	r.run(func() bool { steps++; return steps > 60 })
	r.trigger(element.Barrier{Checkpoint: 1})
	r.run(func() bool { return len(r.acks(1)) == len(r.order) })
	states := r.acks(1)
	r.close()
	var missing string
	for _, st := range states {
		for _, op := range st.Operators {
			for _, k := range op.Keyed {
				missing = k.Handle.Name
			}
		}
	}
	restore := func() (running int, failures []coordinator.Failure) {
		next := newRig(t, o, world, store, 2, restorePoint{id: 1, states: states})
		for _, id := range next.order {
			next.doWork(next.hosts[id])
		}
		running = next.count(func(r subtask.Report) bool {
			s, ok := r.(subtask.StatusReport)
			return ok && s.Status == coordinator.Running
		})
		failures = next.failures()
		next.close()
		return running, failures
	}

	fault = faulty.Fault{Before: objectstore.ErrUnavailable}
	if _, failures := restore(); len(failures) == 0 || failures[0].Kind != coordinator.LostProcess {
		t.Errorf("while the store is away: %v, want failures that are restarted from for ever", failures)
	}
	fault = faulty.Fault{}
	if err := objects.Delete(t.Context(), missing); err != nil {
		t.Fatal(err)
	}
	running, failures := restore()
	if len(failures) != 1 || running != len(states)-1 || failures[0].Kind != coordinator.PermanentFailure || !strings.Contains(failures[0].Message, missing) {
		t.Errorf("%d of %d subtasks run; failures %v, want one for good that names %s", running, len(states), failures, missing)
	}
}
