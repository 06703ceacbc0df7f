package subtask_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/runtime/subtask"
)

func small() simjob.Options {
	return simjob.Options{
		Splits: 5, RecordsPerSplit: 400, Keys: 23, BatchMax: 37,
		SourceParallelism: 2, CountParallelism: 3, SinkParallelism: 2, MaxParallelism: 16,
	}
}

func isEndOfData(r subtask.Report) bool {
	s, ok := r.(subtask.StatusReport)
	return ok && s.Status == coordinator.RunningEndOfData
}

// finish takes the final checkpoint of a bounded job and commits it.
func finish(t *testing.T, r *rig, id ids.CheckpointID) {
	t.Helper()
	r.run(nil)
	if f := r.failures(); len(f) > 0 {
		t.Fatalf("failed: %+v", f)
	}
	if n := r.count(isEndOfData); n != len(r.order) {
		t.Fatalf("%d of %d subtasks reached the end of data", n, len(r.order))
	}
	r.trigger(element.Barrier{Checkpoint: id})
	r.run(nil)
	if n := len(r.acks(id)); n != len(r.order) {
		t.Fatalf("%d of %d subtasks acknowledged the final checkpoint", n, len(r.order))
	}
	r.complete(id)
	r.run(nil)
	if n := r.count(func(x subtask.Report) bool { c, ok := x.(subtask.CommitReport); return ok && c.Checkpoint == id }); n != len(r.order) {
		t.Fatalf("%d of %d subtasks acknowledged the commit", n, len(r.order))
	}
}

func TestI1BoundedJobCommitsEverythingOnce(t *testing.T) {
	o, world := small(), simjob.NewWorld()
	r := newRig(t, o, world, newStore(t), 1, restorePoint{})
	finish(t, r, 1)
	r.close()
	if err := o.CheckOutput(world.Committed(), true); err != nil {
		t.Fatal(err)
	}
}

// TestI1I2RestoreContinuesExactly takes a checkpoint somewhere, goes on, loses
// everything, and restores: with or without the commit having happened.
func TestI1I2RestoreContinuesExactly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := small()
		o.SourceParallelism = rapid.IntRange(1, 3).Draw(rt, "sources")
		o.CountParallelism = rapid.IntRange(1, 3).Draw(rt, "counters")
		at := rapid.IntRange(0, 60).Draw(rt, "steps before the checkpoint")
		after := rapid.IntRange(0, 60).Draw(rt, "steps after it")
		commit := rapid.Bool().Draw(rt, "committed before the failure")
		world, store := simjob.NewWorld(), newStore(t)

		r := newRig(t, o, world, store, 1, restorePoint{})
		steps := 0
		r.run(func() bool { steps++; return steps > at+3*len(r.order) })
		r.trigger(element.Barrier{Checkpoint: 1})
		r.run(func() bool { return len(r.acks(1)) == len(r.order) })
		states := r.acks(1)
		if len(states) != len(r.order) {
			rt.Fatalf("%d of %d acknowledged; failures %+v", len(states), len(r.order), r.failures())
		}
		if commit {
			r.complete(1)
		}
		steps = 0
		r.run(func() bool { steps++; return steps > after })
		r.close()

		r = newRig(t, o, world, store, 2, restorePoint{id: 1, states: states})
		finish(t, r, 2)
		r.close()
		if err := o.CheckOutput(world.Committed(), true); err != nil {
			rt.Fatal(err)
		}
		if v := world.Violations(); len(v) > 0 {
			rt.Fatal(v)
		}
	})
}

// TestOutOfCreditYieldsBetweenRecords: a producer without credit stops, having
// collected no more than a record's worth beyond it, and goes on when credit
// comes.
func TestOutOfCreditYieldsBetweenRecords(t *testing.T) {
	o := small()
	o.RecordsPerSplit, o.BatchMax = 100_000, 100_000
	o.SourceParallelism, o.CountParallelism, o.SinkParallelism = 1, 1, 1
	r := newRig(t, o, simjob.NewWorld(), newStore(t), 1, restorePoint{})
	source, counter := r.hosts[ids.SubtaskID{}], r.hosts[ids.SubtaskID{Vertex: 1}]
	r.doWork(source)
	r.doWork(counter)
	r.doWork(source)
	if p := source.s.Step(1000); p != subtask.Blocked {
		t.Fatalf("stepping a source without credit: %d, want Blocked", p)
	}
	if len(source.sent) != 0 {
		t.Fatalf("%d frames were sent without credit", len(source.sent))
	}
	first := source.s.Metrics()
	if first.OverdraftBytes == 0 || first.OverdraftBytes > 64<<10 {
		t.Fatalf("overdraft of %d bytes, want one frame", first.OverdraftBytes)
	}
	// A barrier keeps its place behind the records that wait.
	source.s.Trigger(element.Barrier{Checkpoint: 1})
	source.s.AddCredit(subtask.Output{}, 1)
	if len(source.sent) != 2 || source.sent[0].f.Kind != element.Records || source.sent[1].f.Kind != element.BarrierKind {
		t.Fatalf("with credit for one frame %d frames were sent, want the records and the barrier", len(source.sent))
	}
	if source.s.Step(1000); source.s.Metrics().RecordsIn <= first.RecordsIn {
		t.Fatal("the source did not go on after credit came")
	}
	r.close()
}

// TestI11BlockedIsNotIdle: a source that is out of credit has records that
// wait, so that its operators are not told that there is no input; they are
// once all has been sent.
func TestI11BlockedIsNotIdle(t *testing.T) {
	o := small()
	o.Splits, o.RecordsPerSplit, o.BatchMax = 1, 20_000, 20_000 // one batch, of several frames
	o.SourceParallelism, o.CountParallelism, o.SinkParallelism = 1, 1, 1
	world := simjob.NewWorld()
	program, err := simjob.Program(o, world)
	if err != nil {
		t.Fatal(err)
	}
	idle := 0
	numbers := program.Nodes[simjob.Numbers]
	makeSource := numbers.New
	numbers.New = func(out func(string) any) (operator.Instance, error) {
		instance, err := makeSource(out)
		instance.Idle = func() error { idle++; return nil }
		return instance, err
	}
	r := newRigOf(t, program, o, world, newStore(t), 1, restorePoint{}, testCredit)
	source := r.hosts[ids.SubtaskID{}]
	r.doWork(source) // restores
	r.doWork(source) // fetches
	if p := source.s.Step(1000); p != subtask.Blocked || idle != 0 {
		t.Fatalf("stepping a source without credit: %d, want Blocked; told %d times that there is no input", p, idle)
	}
	r.run(nil)
	if idle == 0 {
		t.Error("nothing waits, and no operator was told")
	}
	r.close()
}

// TestMailYieldsInsideAFrame: the unread rest of a frame is still input.
func TestMailYieldsInsideAFrame(t *testing.T) {
	o := small()
	o.Splits, o.RecordsPerSplit, o.BatchMax = 1, 1000, 1000
	o.SourceParallelism, o.CountParallelism, o.SinkParallelism = 1, 1, 1
	r := newRig(t, o, simjob.NewWorld(), newStore(t), 1, restorePoint{})
	counter := r.hosts[ids.SubtaskID{Vertex: 1}]
	counter.s.Pace().MailWaits()
	for _, id := range r.order {
		r.doWork(r.hosts[id])
		r.deliver(r.hosts[id])
	}
	for range 3 {
		for _, id := range r.order {
			if id != counter.id {
				r.doWork(r.hosts[id])
				r.hosts[id].s.Step(10)
			}
			r.deliver(r.hosts[id])
		}
	}
	if p := counter.s.Step(100); p != subtask.More || counter.s.Metrics().RecordsIn != 0 {
		t.Fatalf("with mail waiting the counter stepped: progress %d, %d records", p, counter.s.Metrics().RecordsIn)
	}
	counter.s.Pace().MailRead()
	finish(t, r, 1)
	r.close()
}

// TestAbortFasterThanTrigger: no barrier goes out for a checkpoint that was
// given up before its trigger came, and the next one works.
func TestAbortFasterThanTrigger(t *testing.T) {
	o, world := small(), simjob.NewWorld()
	r := newRig(t, o, world, newStore(t), 1, restorePoint{})
	steps := 0
	r.run(func() bool { steps++; return steps > 40 })
	for _, id := range r.order {
		r.hosts[id].s.NotifyAborted(5)
	}
	r.trigger(element.Barrier{Checkpoint: 5})
	r.trigger(element.Barrier{Checkpoint: 6})
	r.run(func() bool { return len(r.acks(6)) == len(r.order) })
	if n := len(r.acks(5)); n != 0 {
		t.Fatalf("%d subtasks acknowledged the aborted checkpoint", n)
	}
	if n := len(r.acks(6)); n != len(r.order) {
		t.Fatalf("%d of %d acknowledged the next one", n, len(r.order))
	}
	finish(t, r, 7)
	r.close()
	if err := o.CheckOutput(world.Committed(), true); err != nil {
		t.Fatal(err)
	}
}

// TestSnapshotThatIsGivenUpBeforeItIsWrittenIsNotWritten: while the store is
// slow, checkpoints expire; only the one that is being written and those that
// are still wanted cost anything, and nothing that a sink prepared is lost.
func TestSnapshotThatIsGivenUpBeforeItIsWrittenIsNotWritten(t *testing.T) {
	o, world := small(), simjob.NewWorld()
	r := newRig(t, o, world, newStore(t), 1, restorePoint{})
	steps := 0
	r.run(func() bool { steps++; return steps > 60 })
	r.slow = true // snapshots are not written
	for id := ids.CheckpointID(1); id <= 5; id++ {
		r.trigger(element.Barrier{Checkpoint: id})
		steps = 0
		r.run(func() bool { steps++; return steps > 40 })
		if id < 5 {
			for _, sub := range r.order {
				r.hosts[sub].s.NotifyAborted(id)
			}
		}
	}
	r.slow = false
	r.run(func() bool { return len(r.acks(5)) == len(r.order) })
	for id := ids.CheckpointID(2); id < 5; id++ {
		if n := len(r.acks(id)); n != 0 {
			t.Errorf("%d subtasks wrote checkpoint %d, which was given up while it waited", n, id)
		}
	}
	if n := len(r.acks(5)); n != len(r.order) {
		t.Fatalf("%d of %d subtasks acknowledged the checkpoint that was wanted", n, len(r.order))
	}
	finish(t, r, 6)
	r.close()
	if err := o.CheckOutput(world.Committed(), true); err != nil {
		t.Fatal(err)
	}
}

// TestStopBarrierPausesSources: nothing is emitted behind the barrier of a
// stop-with-savepoint, and everything goes on if it is given up.
func TestStopBarrierPausesSources(t *testing.T) {
	o, world := small(), simjob.NewWorld()
	r := newRig(t, o, world, newStore(t), 1, restorePoint{})
	steps := 0
	r.run(func() bool { steps++; return steps > 40 })
	r.trigger(element.Barrier{Checkpoint: 1, Savepoint: true, Stop: true, SavepointDir: "/sp"})
	r.run(nil)
	if n := len(r.acks(1)); n != len(r.order) {
		t.Fatalf("%d of %d acknowledged the savepoint", n, len(r.order))
	}
	if n := r.count(isEndOfData); n != 0 {
		t.Fatalf("%d subtasks went on to the end behind the stop barrier", n)
	}
	for _, id := range r.order {
		r.hosts[id].s.NotifyAborted(1)
	}
	finish(t, r, 2)
	r.close()
	if err := o.CheckOutput(world.Committed(), true); err != nil {
		t.Fatal(err)
	}
}

// TestTriggerOfRestoringSourceIsDeclined: a named refusal, not silence.
func TestTriggerOfRestoringSourceIsDeclined(t *testing.T) {
	r := newRig(t, small(), simjob.NewWorld(), newStore(t), 1, restorePoint{})
	r.trigger(element.Barrier{Checkpoint: 1})
	n := r.count(func(x subtask.Report) bool {
		d, ok := x.(subtask.DeclineReport)
		return ok && strings.Contains(d.Reason, "restoring")
	})
	if n != 2 {
		t.Fatalf("%d of 2 sources declined", n)
	}
	r.close()
}

// TestBlockedOutputHoldsBackNoOther: when one consumer gives no credit, what
// was collected for the other is sent although its batch is not full.
func TestBlockedOutputHoldsBackNoOther(t *testing.T) {
	o := small()
	o.RecordsPerSplit, o.BatchMax = 100_000, 100_000
	o.SourceParallelism, o.CountParallelism, o.SinkParallelism = 1, 2, 1
	r := newRig(t, o, simjob.NewWorld(), newStore(t), 1, restorePoint{})
	source := r.hosts[ids.SubtaskID{}]
	r.doWork(source)
	r.doWork(source)
	const plenty = 1 << 30
	source.s.AddCredit(subtask.Output{Channel: 1}, plenty)
	if p := source.s.Step(1000); p != subtask.Blocked {
		t.Fatalf("progress %d, want Blocked", p)
	}
	last := source.sent[len(source.sent)-1]
	if last.out.Channel != 1 || len(last.f.Data) >= operator.CutBytes {
		t.Fatalf("the last frame sent is of channel %d with %d bytes, want the part of a batch for channel 1", last.out.Channel, len(last.f.Data))
	}
	n := len(source.sent)
	source.s.Step(1000)
	if len(source.sent) != n {
		t.Fatal("a blocked source sent again")
	}
	r.close()
}

// TestLittleWaitsInFrontOfASlowSubtask: once a subtask knows that it is slow,
// its producers put no more in front of it than it takes in a tenth of a
// second, so that a barrier is never far behind.
func TestLittleWaitsInFrontOfASlowSubtask(t *testing.T) {
	o := small()
	o.RecordsPerSplit, o.BatchMax = 100_000, 1000
	o.SourceParallelism, o.CountParallelism, o.SinkParallelism = 1, 1, 1
	world := simjob.NewWorld()
	program, err := simjob.Program(o, world)
	if err != nil {
		t.Fatal(err)
	}
	r := newRigOf(t, program, o, world, newStore(t), 1, restorePoint{}, 1<<20)
	source, counter := r.hosts[ids.SubtaskID{}], r.hosts[ids.SubtaskID{Vertex: 1}]
	waiting := func() int64 { return source.s.Metrics().RecordsOut - counter.s.Metrics().RecordsIn }
	const recordBytes = 8
	for range 200 {
		counter.s.SetInputRate(1000 * recordBytes)
		for _, id := range r.order {
			h := r.hosts[id]
			r.doWork(h)
			if id == source.id {
				h.s.Step(100)
			} else {
				h.s.Step(1)
			}
			r.deliver(h)
		}
	}
	// The window for that rate is 1 KiB; a batch more may be on its way, and
	// one be open.
	if n := waiting(); n == 0 || n > 3*1024/recordBytes {
		t.Fatalf("%d records wait in front of a subtask that takes 1000 a second", n)
	}
	r.close()
}
