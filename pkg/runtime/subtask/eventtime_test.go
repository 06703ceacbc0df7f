package subtask_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/internal/sim/simjob"
	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/runtime/subtask"
	"github.com/weirstream/weir/pkg/stream"
)

// expected are the totals of all events.
func (e events) expected() []total {
	n := map[window]int64{}
	for _, split := range e {
		for _, v := range split {
			n[window{v.Time - v.Time%windowSize, v.Key}]++
		}
	}
	var out []total
	for w, count := range n {
		out = append(out, total{w, count})
	}
	return sortedTotals(out)
}

func sortedTotals(all []total) []total {
	slices.SortFunc(all, func(a, b total) int {
		return cmp.Or(cmp.Compare(a.Window.Start, b.Window.Start), cmp.Compare(a.Window.Key, b.Window.Key))
	})
	return all
}

// TestWindowsAcrossFailuresAndRescales: wherever a checkpoint is taken, and at
// whatever parallelism the job goes on, every window is emitted once with all
// its events, none of which is late (FLINK-32828, FLINK-26063).
func TestWindowsAcrossFailuresAndRescales(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all := make(events, rapid.IntRange(1, 4).Draw(rt, "splits"))
		for s := range all {
			at := rapid.Int64Range(3, 60).Draw(rt, "begin")
			for range rapid.IntRange(0, 40).Draw(rt, "events") {
				at += rapid.Int64Range(0, 4).Draw(rt, "later")
				all[s] = append(all[s], event{Time: at - rapid.Int64Range(0, 3).Draw(rt, "disorder"), Key: rapid.Uint64Range(0, 5).Draw(rt, "key")})
			}
		}
		out := newLedger[total]()
		store := newStore(t)
		parallelism := rapid.IntRange(1, 3)
		var from restorePoint
		var last *rig
		attempts := rapid.IntRange(1, 3).Draw(rt, "attempts")
		for attempt := 1; ; attempt++ {
			o := simjob.Options{Splits: len(all), SourceParallelism: parallelism.Draw(rt, "sources")}
			next := windowed(t, all, o.SourceParallelism, parallelism.Draw(rt, "counters"), out)
			if attempt > 1 {
				from = reassigned(t, last, ids.CheckpointID(attempt-1), next)
			}
			r := newRigOf(t, next, o, simjob.NewWorld(), store, uint32(attempt), from, testCredit)
			r.tick = rapid.Int64Range(20, 300).Draw(rt, "tick")
			steps := rapid.IntRange(0, 300).Draw(rt, "steps")
			if attempt == attempts {
				steps = 1 << 20
			}
			r.run(func() bool { steps--; return steps < 0 })
			// Sources that still restore take no snapshot: wait for them.
			for _, id := range r.order {
				r.doWork(r.hosts[id])
			}
			id := ids.CheckpointID(attempt)
			r.trigger(element.Barrier{Checkpoint: id})
			r.run(func() bool { return len(r.acks(id)) == len(r.order) })
			if failed := r.failures(); len(failed) > 0 {
				rt.Fatalf("attempt %d: %v", attempt, failed)
			}
			if have := len(r.acks(id)); have != len(r.order) {
				rt.Fatalf("attempt %d: %d acknowledgements", attempt, have)
			}
			last = r
			if attempt == attempts {
				r.complete(id)
				r.run(nil)
				r.close()
				break
			}
			r.close()
		}
		if got, want := fmt.Sprint(sortedTotals(out.all())), fmt.Sprint(all.expected()); got != want {
			rt.Fatalf("windows\n%s, want\n%s", got, want)
		}
	})
}

// alarms is a function with a timer of processing time for every event, a
// hundred milliseconds later.
type alarms struct{}

// Open implements stream.ProcessFunction.
func (alarms) Open(*stream.Context[uint64]) error { return nil }

// Process implements stream.ProcessFunction.
func (alarms) Process(ctx *stream.Context[uint64], _ event, _ stream.Collector[total]) error {
	return ctx.Timers().RegisterProcessingTime(ctx.ProcessingTime() + 100)
}

// OnTimer implements stream.TimerFunction.
func (alarms) OnTimer(ctx *stream.Context[uint64], t stream.Timer, out stream.Collector[total]) error {
	if t.Domain != stream.ProcessingTime || ctx.ProcessingTime() < t.Time || ctx.Timestamp() != stream.NoTimestamp {
		return fmt.Errorf("timer %v at %d, timestamp %d", t, ctx.ProcessingTime(), ctx.Timestamp())
	}
	return out.Collect(total{window{t.Time, ctx.Key()}, 1})
}

// TestProcessingTimersAfterARestore: a timer whose time came while the job was
// down is fired once after the restore although no record comes for its key
// (bytewax #138), one whose time has not come is not fired a millisecond early
// (FLINK-9857).
func TestProcessingTimersAfterARestore(t *testing.T) {
	all := events{{{Time: 1, Key: 7}}}
	out := newLedger[total]()
	env := stream.NewEnv("alarms")
	in := stream.From[event](env, simjob.Numbers, all, stream.WithParallelism(1))
	byKey := stream.KeyBy(in, func(e event) uint64 { return e.Key })
	stream.To(stream.Process(byKey, "alarms", func() alarms { return alarms{} }, stream.WithParallelism(2)), "out", out, stream.WithParallelism(1))
	program, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	o, store := simjob.Options{Splits: 1, SourceParallelism: 1}, newStore(t)
	checkpoint := func(r *rig, id ids.CheckpointID) int {
		t.Helper()
		r.trigger(element.Barrier{Checkpoint: id})
		r.run(nil)
		r.complete(id)
		r.run(nil)
		if failed := r.failures(); len(failed) > 0 {
			t.Fatal(failed)
		}
		return len(out.all())
	}
	first := newRigOf(t, program, o, simjob.NewWorld(), store, 1, restorePoint{unbounded: true}, testCredit)
	first.now = 1000
	first.run(nil)
	if n := checkpoint(first, 1); n != 0 {
		t.Fatalf("%d timers were fired at once", n)
	}
	wanted := 0
	for _, h := range first.hosts {
		if at, ok := h.s.NextAdvance(); ok {
			wanted++
			if at != 1100 {
				t.Errorf("subtask %s wants to be called at %d, want 1100", h.id, at)
			}
		}
	}
	if wanted != 1 {
		t.Errorf("%d subtasks want to be called, want the one with the timer", wanted)
	}
	first.close()

	from := reassigned(t, first, 1, program)
	from.unbounded = true
	second := newRigOf(t, program, o, simjob.NewWorld(), store, 2, from, testCredit)
	second.now = 1099
	second.run(nil)
	if n := checkpoint(second, 2); n != 0 {
		t.Fatalf("%d timers were fired a millisecond early", n)
	}
	second.close()

	from = reassigned(t, first, 1, program)
	from.unbounded = true
	third := newRigOf(t, program, o, simjob.NewWorld(), store, 3, from, testCredit)
	third.now = 5000
	third.run(nil)
	checkpoint(third, 3)
	third.now = 9000
	third.run(nil)
	checkpoint(third, 4)
	third.close()
	if got := fmt.Sprint(out.all()); got != "[{{1100 7} 1}]" {
		t.Errorf("fired %s, want the one timer once", got)
	}
}

// statuses are those that a subtask has sent.
func statuses(h *host) string {
	var idle []bool
	for _, f := range h.sent {
		if f.f.Kind == element.StatusKind {
			idle = append(idle, f.f.Idle)
		}
	}
	return fmt.Sprint(idle)
}

// TestI11OutOfCreditIsNotIdle: a source that may not send is waited for,
// however long; one without records is not.
func TestI11OutOfCreditIsNotIdle(t *testing.T) {
	many := make([]event, 5000)
	for i := range many {
		many[i] = event{Time: int64(i), Key: 1}
	}
	env := stream.NewEnv("idle")
	in := stream.From[event](env, simjob.Numbers, events{many, {{Time: 1}}}, stream.WithParallelism(2))
	in = stream.AssignTimestamps(in, "time", func(e event) int64 { return e.Time }, stream.WithIdleness(time.Second))
	byKey := stream.KeyBy(in, func(e event) uint64 { return e.Key })
	stream.To(byKey.Stream(), "out", newLedger[event](), stream.WithParallelism(1))
	program, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	r := newRigOf(t, program, simjob.Options{Splits: 2, SourceParallelism: 2}, simjob.NewWorld(), newStore(t), 1, restorePoint{unbounded: true}, testCredit)
	blocked, quiet := r.hosts[ids.SubtaskID{}], r.hosts[ids.SubtaskID{Index: 1}]
	sink := r.hosts[ids.SubtaskID{Vertex: 1}]
	sink.hold = true // gives no credit
	for range 2000 {
		r.now += 100
		for _, h := range []*host{blocked, quiet} {
			r.doWork(h)
			if h == quiet {
				h.s.AddCredit(subtask.Output{}, 1<<10)
			}
			h.s.Advance(r.now)
			h.s.Step(100)
		}
	}
	if waiting := blocked.s.Metrics().OverdraftBytes; waiting == 0 {
		t.Error("the source was to run out of credit")
	}
	blocked.s.AddCredit(subtask.Output{}, 1<<20) // sends what waited
	blocked.s.Step(1)
	if idle := statuses(blocked); idle != "[]" {
		t.Errorf("the source without credit sent the statuses %s", idle)
	}
	if idle := statuses(quiet); idle != "[true]" {
		t.Errorf("the source without records sent the statuses %s, want idle", idle)
	}
	r.close()
}
