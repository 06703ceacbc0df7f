package subtask_test

import (
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/snapshot"
)

// stalled is a rig whose sinks do not get what is sent to them, so that records
// pile up in front of the counting subtasks and in the sources.
func stalled(t *testing.T, change func(*subtask.Config)) *rig {
	t.Helper()
	o := simjob.Options{
		Splits: 2, RecordsPerSplit: 4000, Keys: 13, BatchMax: 16,
		SourceParallelism: 2, CountParallelism: 2, SinkParallelism: 1, MaxParallelism: 8,
	}
	program, err := simjob.Program(o, simjob.NewWorld())
	if err != nil {
		t.Fatal(err)
	}
	r := newRigWith(t, program, o, simjob.NewWorld(), newStore(t), 1, restorePoint{}, testCredit, change)
	for _, id := range r.order {
		// What the counting subtasks send waits for credit that never comes.
		if id.Vertex == 2 {
			r.hosts[id].hold = true
		}
	}
	r.run(nil)
	for _, id := range r.order {
		if id.Vertex < 2 && !r.hosts[id].s.Pace().Blocked() {
			t.Fatalf("subtask %s does not wait for credit", id)
		}
	}
	return r
}

// inFlight counts the bytes that acknowledgements have in flight, by side.
func inFlight(acks []snapshot.SubtaskState) (input, output int64) {
	for _, a := range acks {
		for _, f := range a.InFlight {
			for _, p := range f.Parts {
				if p.Output {
					output += p.Length
				} else {
					input += p.Length
				}
			}
		}
	}
	return input, output
}

func TestUnalignedBarriersPassFullChannels(t *testing.T) {
	r := stalled(t, nil)
	defer r.close()
	r.trigger(element.Barrier{Checkpoint: 1})
	r.run(nil)
	if n := len(r.acks(1)); n == len(r.order) {
		t.Fatal("an aligned checkpoint passed full channels")
	}
	for _, id := range r.order {
		r.hosts[id].s.NotifyAborted(1)
	}
	r.trigger(element.Barrier{Checkpoint: 2, Alignment: element.Unaligned})
	r.run(nil)
	acks := r.acks(2)
	if len(acks) != len(r.order) {
		t.Fatalf("%d of %d subtasks acknowledged", len(acks), len(r.order))
	}
	if input, output := inFlight(acks); input == 0 || output == 0 {
		t.Errorf("%d bytes were in flight on inputs and %d on outputs, want some on both", input, output)
	}
	for _, sub := range r.order {
		for _, rep := range r.hosts[sub].reports {
			if a, ok := rep.(subtask.AckReport); ok && a.Checkpoint == 2 && !a.Stats.Unaligned {
				t.Errorf("subtask %s says that its snapshot was aligned", sub)
			}
		}
	}
}

func TestAlignedBarriersOvertakeAfterTheirTimeout(t *testing.T) {
	r := stalled(t, nil)
	defer r.close()
	// The clock stood still for an hour, since nothing happened.
	r.now += 3_600_000
	r.trigger(element.Barrier{Checkpoint: 1, AlignedTimeout: 100})
	r.run(nil)
	if n := len(r.acks(1)); n != 0 {
		t.Fatalf("%d subtasks acknowledged before the timeout", n)
	}
	source := r.hosts[r.order[0]].s
	at, ok := source.NextAdvance()
	if !ok || at != r.now+100 {
		t.Fatalf("a barrier that waits for credit is to be looked after at %d, %t; want %d", at, ok, r.now+100)
	}
	r.now += 99
	r.run(nil)
	if n := len(r.acks(1)); n != 0 {
		t.Fatalf("%d subtasks acknowledged within the timeout", n)
	}
	r.now++
	r.run(nil)
	if acks := r.acks(1); len(acks) != len(r.order) {
		t.Fatalf("%d of %d subtasks acknowledged", len(acks), len(r.order))
	}
	if at, ok := source.NextAdvance(); ok {
		t.Errorf("it still waits for %d", at)
	}
}

// A record that was half a frame when the barrier came is in the snapshot with
// the rest of its frame, once, and so is what comes before the other barriers.
func TestWhatIsInFlightIsRestoredBeforeAnythingNew(t *testing.T) {
	o := simjob.Options{
		Splits: 2, RecordsPerSplit: 3000, Keys: 13, BatchMax: 16,
		SourceParallelism: 2, CountParallelism: 1, SinkParallelism: 1, MaxParallelism: 8,
	}
	world, store := simjob.NewWorld(), newStore(t)
	r := newRig(t, o, world, store, 1, restorePoint{})
	counting := r.hosts[ids.SubtaskID{Vertex: 1}]
	steps := 0
	r.run(func() bool { steps++; return steps > 400 })
	r.hosts[ids.SubtaskID{Vertex: 2}].hold = true
	r.run(nil)
	if !counting.s.Pace().Blocked() {
		t.Fatal("the counting subtask does not wait for credit")
	}
	// The barrier of the second source comes later than some of its records.
	r.hosts[r.order[0]].s.Trigger(element.Barrier{Checkpoint: 7, Alignment: element.Unaligned})
	r.run(nil)
	if len(r.acks(7)) == len(r.order) {
		t.Fatal("complete without the barrier of the second source")
	}
	r.hosts[r.order[1]].s.Trigger(element.Barrier{Checkpoint: 7, Alignment: element.Unaligned})
	r.run(nil)
	acks := r.acks(7)
	if len(acks) != len(r.order) {
		t.Fatalf("%d of %d subtasks acknowledged", len(acks), len(r.order))
	}
	r.close()

	again := newRig(t, o, world, store, 2, restorePoint{id: 7, states: acks})
	defer again.close()
	again.run(nil)
	again.trigger(element.Barrier{Checkpoint: 8})
	again.run(nil)
	again.complete(8)
	again.run(nil)
	if failures := again.failures(); len(failures) > 0 {
		t.Fatal(failures)
	}
	if err := o.CheckOutput(world.Committed(), true); err != nil {
		t.Error(err)
	}
}

func TestTooMuchInFlightDeclinesTheCheckpoint(t *testing.T) {
	r := stalled(t, func(c *subtask.Config) { c.InFlightBytesMax = 64 })
	defer r.close()
	r.trigger(element.Barrier{Checkpoint: 1, Alignment: element.Unaligned})
	r.run(nil)
	declined := r.count(func(rep subtask.Report) bool {
		d, ok := rep.(subtask.DeclineReport)
		return ok && d.Checkpoint == 1 && strings.Contains(d.Reason, "max-channel-state")
	})
	if declined == 0 {
		t.Error("nobody declined it")
	}
	if failures := r.failures(); len(failures) > 0 {
		t.Errorf("the job failed: %v", failures)
	}
}

func TestAbortedFlightsAreForgotten(t *testing.T) {
	r := stalled(t, nil)
	defer r.close()
	// Only one source sends its barrier: the counting subtasks collect from the other.
	r.hosts[r.order[0]].s.Trigger(element.Barrier{Checkpoint: 1, Alignment: element.Unaligned})
	r.run(nil)
	for _, id := range r.order {
		r.hosts[id].s.NotifyAborted(1)
	}
	r.run(nil)
	// What they had stored is told late, for the coordinator to delete.
	late := r.count(func(rep subtask.Report) bool { a, ok := rep.(subtask.AckReport); return ok && a.Checkpoint == 1 })
	if late < 3 {
		t.Errorf("%d subtasks told what they had stored, want the source and two that count", late)
	}
	r.trigger(element.Barrier{Checkpoint: 2, Alignment: element.Unaligned})
	r.run(nil)
	if n := len(r.acks(2)); n != len(r.order) {
		t.Errorf("%d of %d subtasks acknowledged the next one", n, len(r.order))
	}
}

// restoredFlight gives every subtask what was in flight to it, at unchanged
// parallelism, as the coordinator does.
func (r *rig) restoredFlight(id ids.SubtaskID, states []snapshot.SubtaskState) []coordinator.RestoredInFlight {
	var out []coordinator.RestoredInFlight
	for _, output := range []bool{false, true} {
		for _, st := range states {
			for _, f := range st.InFlight {
				in := coordinator.RestoredInFlight{Handle: f.Handle}
				for _, p := range f.Parts {
					if p.Output == output && r.graph.Edges[p.Edge].To == id.Vertex && p.Consumer == id.Index {
						in.Parts = append(in.Parts, coordinator.RestoredPart{
							Channel: r.graph.InputChannel(p.Edge, p.Producer), Offset: p.Offset, Length: p.Length,
						})
					}
				}
				if len(in.Parts) > 0 {
					out = append(out, in)
				}
			}
		}
	}
	return out
}
