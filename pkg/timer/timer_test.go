package timer_test

import (
	"bytes"
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/timer"
)

const maxParallelism = 16

type want struct {
	time int64
	key  uint64
}

// subtasks are the timers of an operator at some parallelism.
type subtasks []*timer.Timers[uint64]

func newSubtasks(t rapid.TB, parallelism int, parts []statebackend.RestoredPart) subtasks {
	t.Helper()
	var s subtasks
	for i := range parallelism {
		all, err := timer.New[uint64](keygroup.RangeOf(i, parallelism, maxParallelism), maxParallelism)
		if err == nil {
			err = all.Restore(parts)
		}
		if err != nil {
			t.Fatal(err)
		}
		s = append(s, all)
	}
	return s
}

func (s subtasks) owner(t rapid.TB, key uint64) int {
	t.Helper()
	e, err := keygroup.NewEncoding[uint64]()
	if err != nil {
		t.Fatal(err)
	}
	return keygroup.OwnerOf(keygroup.OfHash(e.Hash(&key), maxParallelism), len(s), maxParallelism)
}

func write(t rapid.TB, f statebackend.Frozen, r keygroup.Range) statebackend.RestoredPart {
	t.Helper()
	defer f.Release()
	var data bytes.Buffer
	offsets, states, err := f.WriteSnapshot(&data)
	if err != nil {
		t.Fatal(err)
	}
	return statebackend.RestoredPart{Range: r, Offsets: offsets, States: states, Data: data.Bytes()}
}

// TestTimersAgainstModel registers, deletes and fires timers at random, takes
// snapshots and restores them at other parallelisms: what fires is what was
// registered and not deleted (FLINK-26063), once, in order.
func TestTimersAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := map[want]bool{}
		s := newSubtasks(t, rapid.IntRange(1, 4).Draw(t, "parallelism"), nil)
		restore := func(views []statebackend.Frozen) {
			var parts []statebackend.RestoredPart
			for i, f := range views {
				parts = append(parts, write(t, f, keygroup.RangeOf(i, len(s), maxParallelism)))
			}
			timers, rest := timer.Split(parts)
			if len(rest) > 0 || len(timers) != len(parts) {
				t.Fatalf("%d parts of timers and %d others", len(timers), len(rest))
			}
			s = newSubtasks(t, rapid.IntRange(1, 4).Draw(t, "parallelism"), timers)
		}
		var frozen []statebackend.Frozen
		var frozenModel map[want]bool
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			w := want{time: rapid.Int64Range(-5, 20).Draw(t, "time"), key: rapid.Uint64Range(0, 20).Draw(t, "key")}
			q := s[s.owner(t, w.key)].EventTime
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0:
				if frozen == nil {
					frozenModel = map[want]bool{}
					for m := range model {
						frozenModel[m] = true
					}
					for _, all := range s {
						frozen = append(frozen, all.Freeze())
					}
				}
			case 1:
				if frozen != nil { // a failure
					restore(frozen)
					model, frozen = frozenModel, nil
				}
			case 2, 3:
				if had := q.Delete(w.key, w.time); had != model[w] {
					t.Fatalf("deleting %v found it: %t", w, had)
				}
				delete(model, w)
			case 4:
				fire(t, s, w.time, model)
			default:
				if added := q.Register(w.key, w.time); added == model[w] {
					t.Fatalf("registering %v added it: %t", w, added)
				}
				model[w] = true
			}
		}
		fire(t, s, 100, model)
		if len(model) > 0 {
			t.Fatalf("%v were never fired", model)
		}
	})
}

// fire fires all subtasks up to a time and takes what was fired from the model.
func fire(t rapid.TB, s subtasks, until int64, model map[want]bool) {
	t.Helper()
	for _, all := range s {
		var fired []want
		for {
			key, time, ok := all.EventTime.PopDue(until)
			if !ok {
				break
			}
			w := want{time, key}
			if !model[w] {
				t.Fatalf("%v was fired, and is not registered", w)
			}
			delete(model, w)
			fired = append(fired, w)
		}
		if !slices.IsSortedFunc(fired, func(a, b want) int {
			return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.key, b.key))
		}) {
			t.Fatalf("fired in the order %v", fired)
		}
	}
	for w := range model {
		if w.time <= until {
			t.Fatalf("%v was due at %d and not fired", w, until)
		}
	}
}

// TestEqualTimersGiveEqualBytes whatever the order in which they came.
func TestEqualTimersGiveEqualBytes(t *testing.T) {
	all := keygroup.RangeOf(0, 1, maxParallelism)
	up, down := newSubtasks(t, 1, nil)[0], newSubtasks(t, 1, nil)[0]
	for i := range uint64(100) {
		up.ProcessingTime.Register(i%10, int64(i))
		down.ProcessingTime.Register((99-i)%10, int64(99-i))
		down.EventTime.Register(i, 1)
		down.EventTime.Delete(i, 1)
	}
	if a, b := write(t, up.Freeze(), all), write(t, down.Freeze(), all); !bytes.Equal(a.Data, b.Data) || !slices.Equal(a.Offsets, b.Offsets) {
		t.Error("the snapshots differ")
	}
}

// FuzzRestore: stored bytes that are no timers are an error, never a panic.
func FuzzRestore(f *testing.F) {
	all, err := timer.New[uint64](keygroup.Range{}, 1)
	if err != nil {
		f.Fatal(err)
	}
	all.EventTime.Register(3, 7)
	frozen := all.Freeze()
	var data bytes.Buffer
	_, states, err := frozen.WriteSnapshot(&data)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := timer.New[uint64](keygroup.Range{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		err = all.Restore([]statebackend.RestoredPart{{Offsets: []int64{0, int64(len(data))}, States: states, Data: data}})
		if err == nil && len(data) == 0 && all.Len() > 0 {
			t.Fatal("timers out of nothing")
		}
	})
}
