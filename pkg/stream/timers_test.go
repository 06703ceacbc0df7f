package stream_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/element"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/stream"
)

// noTimers registers a timer and has no method to handle it.
type noTimers struct{}

func (noTimers) Open(*stream.Context[uint64]) error { return nil }

func (noTimers) Process(ctx *stream.Context[uint64], v uint64, _ stream.Collector[string]) error {
	return ctx.Timers().RegisterEventTime(int64(v))
}

// reminders joins two streams, and reminds of every record by timers.
type reminders struct{}

func (reminders) Open(*stream.Context[uint64]) error { return nil }

func (reminders) Process1(ctx *stream.Context[uint64], v uint64, _ stream.Collector[string]) error {
	return ctx.Timers().RegisterEventTime(int64(v))
}

func (reminders) Process2(ctx *stream.Context[uint64], v uint64, _ stream.Collector[string]) error {
	return ctx.Timers().RegisterProcessingTime(int64(v))
}

func (reminders) OnTimer(ctx *stream.Context[uint64], t stream.Timer, out stream.Collector[string]) error {
	return out.Collect(fmt.Sprintf("%d:%d@%d", t.Domain, ctx.Key(), t.Time))
}

// forgetful has the states of reminders, and no OnTimer.
type forgetful struct{}

func (forgetful) Open(*stream.Context[uint64]) error { return nil }

func (forgetful) Process1(*stream.Context[uint64], uint64, stream.Collector[string]) error {
	return nil
}

func (forgetful) Process2(*stream.Context[uint64], uint64, stream.Collector[string]) error {
	return nil
}

// almostTimers has an OnTimer that would never be called.
type almostTimers struct{ noTimers }

func (almostTimers) OnTimer(*stream.Context[uint64], int64, stream.Collector[string]) error {
	return nil
}

func same(v uint64) uint64 { return v }

func TestTimersNeedAnOnTimer(t *testing.T) {
	err := runJob(t, 1, func(env *stream.Env) {
		in := stream.KeyBy(stream.From(env, "numbers", valuesOf[uint64](1)), same)
		stream.To(stream.Process(in, "process", func() noTimers { return noTimers{} }), "out", &collected[string]{})
	})
	if err == nil || !strings.Contains(err.Error(), "OnTimer") {
		t.Errorf("error %v, want one about OnTimer", err)
	}
	env := stream.NewEnv("test")
	in := stream.KeyBy(stream.From(env, "numbers", valuesOf[uint64](1)), same)
	stream.To(stream.Process(in, "process", func() almostTimers { return almostTimers{} }), "out", &collected[string]{})
	if _, err := env.Build(); err == nil || !strings.Contains(err.Error(), "method OnTimer") {
		t.Errorf("error %v, want one about the method's signature", err)
	}
}

// TestTimersOfAConnect are fired in order of time, then key, after a restore
// too, and are refused by a function that would lose them.
func TestTimersOfAConnect(t *testing.T) {
	out := &collected[string]{}
	job := func(connect func(a, b stream.KeyedStream[uint64, uint64]) stream.Stream[string]) func(*stream.Env) {
		return func(env *stream.Env) {
			a := stream.From(env, "first", valuesOf[uint64](3, 1, 2))
			b := stream.From(env, "second", valuesOf[uint64](5, 4))
			stream.To(connect(stream.KeyBy(a, same), stream.KeyBy(b, same)), "out", out)
		}
	}
	withTimers := job(func(a, b stream.KeyedStream[uint64, uint64]) stream.Stream[string] {
		return stream.Connect(a, b, "connect", func() reminders { return reminders{} })
	})
	d, err := newDriver(t, withTimers, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.run(); err != nil {
		t.Fatal(err)
	}
	timers, states := connectParts(t, d)
	restored := func(uid ids.OperatorUID, _ ids.SubtaskID) *operator.Restored {
		if uid != "connect" {
			return &operator.Restored{}
		}
		return &operator.Restored{Keyed: append(states.Keyed, timers.Keyed...)}
	}
	again, err := newDriver(t, withTimers, 1, restored)
	if err != nil {
		t.Fatal(err)
	}
	timed := connectOf(again).Instance.Timed
	if at, ok := timed.NextProcessingTime(); !ok || at != 4 {
		t.Errorf("the next timer is at %d (%t), want 4", at, ok)
	}
	for _, fire := range []func() (bool, error){
		func() (bool, error) { return timed.FireEventTime(2, &again.pace) },
		func() (bool, error) { return timed.FireProcessingTime(4, &again.pace) },
		func() (bool, error) { return timed.FireEventTime(stream.MaxWatermark, &again.pace) },
	} {
		if done, err := fire(); err != nil || !done {
			t.Fatal(done, err)
		}
	}
	for _, c := range again.chains {
		again.flush(c)
	}
	if err := again.deliver(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(out.got, " "); got != "1:1@1 1:2@2 2:4@4 1:3@3" {
		t.Errorf("fired %s", got)
	}
	lost, err := newDriver(t, job(func(a, b stream.KeyedStream[uint64, uint64]) stream.Stream[string] {
		return stream.Connect(a, b, "connect", func() forgetful { return forgetful{} })
	}), 1, restored)
	if err == nil || !operator.IsPermanent(err) || !strings.Contains(err.Error(), "5 timers") {
		t.Errorf("error %v, want one that names the 5 timers", err)
	}
	for _, d := range []*driver{d, again, lost} {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}
}

// connectOf finds the connect in the chains of a driver.
func connectOf(d *driver) operator.ChainOperator {
	for _, id := range d.graph.Subtasks() {
		for _, op := range d.chains[id].Operators {
			if op.Context.Operator == "connect" {
				return op
			}
		}
	}
	return operator.ChainOperator{}
}

// connectParts takes the snapshot of the connect apart.
func connectParts(t *testing.T, d *driver) (timers, states operator.Restored) {
	t.Helper()
	op := connectOf(d)
	f, err := op.Instance.Operator.Freeze(element.Barrier{Checkpoint: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Release()
	w := &partsWriter{groups: op.Context.KeyGroups}
	if err := f.Write(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	for _, p := range w.parts {
		if len(p.States) > 0 && p.States[0].Kind == "timers" {
			timers.Keyed = append(timers.Keyed, p)
		} else {
			states.Keyed = append(states.Keyed, p)
		}
	}
	return timers, states
}

// partsWriter keeps every part of keyed state.
type partsWriter struct {
	keyedWriter
	groups keygroup.Range
	parts  []statebackend.RestoredPart
}

// Keyed implements operator.SnapshotWriter.
func (w *partsWriter) Keyed(f statebackend.Frozen) error {
	one := keyedWriter{part: statebackend.RestoredPart{Range: w.groups}}
	if err := one.Keyed(f); err != nil {
		return err
	}
	w.parts = append(w.parts, one.part)
	return nil
}
