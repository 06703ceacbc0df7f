package state_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

var write = flag.Bool("write", false, "write the snapshots of testdata that are missing: once per format, never again")

// position is a key of several fields.
type position struct {
	Airport string
	Gate    int16
}

// visit is a value that points to something.
type visit struct {
	Flights []string
	Late    map[string]int64
	Last    *int64
}

func visitOf(i int) visit {
	return visit{Flights: []string{fmt.Sprint("WN", i), "AA\x001"}, Late: map[string]int64{"ABQ": int64(i)}, Last: new(int64(-i))}
}

// openValues registers the states of testdata/values.json.
func openValues(t *testing.T, index, parallelism int) (*state.Keyed[position], state.Value[int64], state.Value[visit]) {
	t.Helper()
	k, err := state.NewKeyed[position](state.Options{
		Operator: "stored", Range: keygroup.RangeOf(index, parallelism, 128), MaxParallelism: 128, Backend: memory.New(),
	})
	if err != nil {
		t.Fatal(err)
	}
	count, err := state.NewValue[int64](k, "count")
	if err != nil {
		t.Fatal(err)
	}
	last, err := state.NewValue[visit](k, "last")
	if err != nil {
		t.Fatal(err)
	}
	return k, count, last
}

const storedKeys = 40

func storedKey(i int) position {
	return position{Airport: fmt.Sprint("airport\x00", i), Gate: int16(i - storedKeys/2)}
}

// A snapshot of the first version, whose only kind of state was Value, and one
// of the first that stored Avro restore into this one, at any parallelism.
func TestStoredValuesRestore(t *testing.T) {
	for _, name := range []string{"values.json", "values-avro1.json"} {
		t.Run(name, func(t *testing.T) { restoreStoredValues(t, name) })
	}
}

func restoreStoredValues(t *testing.T, name string) {
	parts := storedParts(t, name, func(t *testing.T, index, parallelism int) *state.Keyed[position] {
		k, count, last := openValues(t, index, parallelism)
		if err := k.Backend().Restore(nil); err != nil {
			t.Fatal(err)
		}
		for i := range storedKeys {
			key := storedKey(i)
			if err := k.SetCurrentKey(key); err != nil {
				continue // another subtask's
			}
			if err := count.Set(int64(i)); err != nil {
				t.Fatal(err)
			}
			if err := last.Set(visitOf(i)); err != nil {
				t.Fatal(err)
			}
		}
		return k
	})
	for parallelism := 1; parallelism <= 3; parallelism++ {
		found := 0
		for index := range parallelism {
			k, count, last := openValues(t, index, parallelism)
			if err := k.Backend().Restore(parts); err != nil {
				t.Fatal(err)
			}
			for i := range storedKeys {
				if k.SetCurrentKey(storedKey(i)) != nil {
					continue
				}
				n, hasCount, err := count.Get()
				if err != nil {
					t.Fatal(err)
				}
				v, hasLast, err := last.Get()
				if err != nil {
					t.Fatal(err)
				}
				w := visitOf(i)
				if !hasCount || !hasLast || n != int64(i) || !slices.Equal(v.Flights, w.Flights) || v.Late["ABQ"] != w.Late["ABQ"] || *v.Last != *w.Last {
					t.Errorf("key %d: %d %+v", i, n, v)
				}
				found++
			}
		}
		if found != storedKeys {
			t.Errorf("parallelism %d: %d keys", parallelism, found)
		}
	}
}

// storedParts reads a snapshot from testdata, written by two subtasks that fill makes.
func storedParts(t *testing.T, name string, fill func(t *testing.T, index, parallelism int) *state.Keyed[position]) []statebackend.RestoredPart {
	t.Helper()
	var parts []statebackend.RestoredPart
	storedIn(t, name, &parts, func() any {
		var parts []statebackend.RestoredPart
		for index := range 2 {
			f, err := fill(t, index, 2).Backend().Freeze()
			if err != nil {
				t.Fatal(err)
			}
			p := statebackend.RestoredPart{Range: keygroup.RangeOf(index, 2, 128)}
			var data bytes.Buffer
			if p.Offsets, p.States, err = f.WriteSnapshot(&data); err != nil {
				t.Fatal(err)
			}
			f.Release()
			p.Data = data.Bytes()
			parts = append(parts, p)
		}
		return parts
	})
	return parts
}

// storedIn reads a file of testdata into to, written by make if it is missing.
func storedIn(t *testing.T, name string, to any, make func() any) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if _, err := os.Stat(path); *write && os.IsNotExist(err) {
		content, err := json.Marshal(make())
		check(err)
		check(os.WriteFile(path, append(content, '\n'), 0o644))
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, to); err != nil {
		t.Fatal(err)
	}
}

// operatorStates are those of testdata/operator-avro1.json.
type operatorStates struct {
	state  *state.Operator
	split  *state.OperatorList[visit]
	union  *state.OperatorList[string]
	limits *state.Broadcast[position, visit]
	flags  *state.Broadcast[string, bool]
}

func openOperatorStates() *operatorStates {
	o := &operatorStates{state: state.NewOperator("stored", 0)}
	var err error
	o.split, err = state.NewSplitList[visit](o.state, "split")
	check(err)
	o.union, err = state.NewUnionList[string](o.state, "union")
	check(err)
	o.limits, err = state.NewBroadcast[position, visit](o.state, "limits")
	check(err)
	o.flags, err = state.NewBroadcast[string, bool](o.state, "flags")
	check(err)
	return o
}

// Lists and broadcast maps of the first version that stored Avro restore into
// this one.
func TestStoredOperatorStateRestores(t *testing.T) {
	var lists map[string][][]byte
	storedIn(t, "operator-avro1.json", &lists, func() any {
		o := openOperatorStates()
		check(o.state.Restore(nil))
		var side state.BroadcastSide
		side.Begin()
		for i := range 3 {
			o.split.Add(visitOf(i))
			o.union.Add(fmt.Sprint("union ", i))
			check(o.limits.Set(&side, storedKey(i), visitOf(-i)))
		}
		check(o.flags.Set(&side, "on", true))
		return listsOf(o.state)
	})
	o := openOperatorStates()
	check(o.state.Restore(lists))
	if got := o.split.Get(); len(got) != 3 || *got[2].Last != -2 || got[1].Late["ABQ"] != 1 || got[1].Flights[1] != "AA\x001" {
		t.Errorf("the split list is %+v", got)
	}
	if got := o.union.Get(); !slices.Equal(got, []string{"union 0", "union 1", "union 2"}) {
		t.Errorf("the union list is %q", got)
	}
	for i := range 3 {
		if v, found, err := o.limits.Get(storedKey(i)); err != nil || !found || *v.Last != int64(i) {
			t.Errorf("limit %d is %+v, %v, %v", i, v, found, err)
		}
	}
	if on, found, err := o.flags.Get("on"); err != nil || !found || !on {
		t.Errorf("flag is %v, %v, %v", on, found, err)
	}
}

// listsOf stores operator state.
func listsOf(o *state.Operator) map[string][][]byte {
	frozen, err := o.Freeze()
	check(err)
	defer frozen.Release()
	stored := map[string][][]byte{}
	check(frozen.Write(func(name string, _ snapshot.Redistribution, elements [][]byte, _ []int64, _ ...snapshot.StateMeta) error {
		stored[name] = elements
		return nil
	}))
	return stored
}

// kinds are the states of testdata/kinds.json: one of each kind, some with time-to-live.
type kinds struct {
	keyed  *state.Keyed[position]
	list   state.List[visit]
	byGate state.Map[position, int64]
	sum    *state.Reducing[int64]
	mean   *state.Aggregating[int64, Sum, float64]
	timed  state.Value[string]
	aged   state.Map[string, visit]
}

func openKinds(t *testing.T, index, parallelism int, now time.Time) *kinds {
	t.Helper()
	k, err := state.NewKeyed[position](state.Options{
		Operator: "stored", Range: keygroup.RangeOf(index, parallelism, 128), MaxParallelism: 128, Backend: memory.New(),
		Now: func() time.Time { return now },
	})
	check(err)
	o := &kinds{keyed: k}
	o.register()
	return o
}

// register registers the states.
func (o *kinds) register() {
	k := o.keyed
	var err error
	o.list, err = state.NewList[visit](k, "list")
	check(err)
	o.byGate, err = state.NewMap[position, int64](k, "by gate")
	check(err)
	o.sum, err = state.NewReducing(k, "sum", func(sofar, v int64) (int64, error) { return sofar + v, nil })
	check(err)
	o.mean, err = state.NewAggregating(k, "mean", Mean{})
	check(err)
	o.timed, err = state.NewValue[string](k, "timed", state.WithTTL(time.Hour))
	check(err)
	o.aged, err = state.NewMap[string, visit](k, "aged", state.WithTTL(time.Hour, state.NotWhileDown))
	check(err)
}

// A snapshot of the version that first had every kind, and one of the first
// that stored Avro, restore into this one.
func TestStoredKindsRestore(t *testing.T) {
	for _, name := range []string{"kinds.json", "kinds-avro1.json"} {
		t.Run(name, func(t *testing.T) { restoreStoredKinds(t, name) })
	}
}

func restoreStoredKinds(t *testing.T, name string) {
	written := time.UnixMilli(1_800_000_000_000)
	parts := storedParts(t, name, func(t *testing.T, index, parallelism int) *state.Keyed[position] {
		o := openKinds(t, index, parallelism, written)
		check(o.keyed.Backend().Restore(nil))
		for i := range storedKeys {
			if o.keyed.SetCurrentKey(storedKey(i)) != nil {
				continue
			}
			check(o.list.AddAll([]visit{visitOf(i), visitOf(i + 1)}))
			check(o.byGate.Set(storedKey(i+1), int64(i)))
			check(o.byGate.Set(storedKey(i+2), int64(-i)))
			check(o.sum.Add(int64(i)))
			check(o.mean.Add(int64(i)))
			check(o.timed.Set("until later"))
			check(o.aged.Set("u", visitOf(i)))
		}
		return o.keyed
	})
	found := 0
	for index := range 3 {
		o := openKinds(t, index, 3, written.Add(2*time.Hour))
		check(o.keyed.Backend().Restore(parts))
		for i := range storedKeys {
			if o.keyed.SetCurrentKey(storedKey(i)) != nil {
				continue
			}
			found++
			list, err := o.list.Get()
			check(err)
			a, hasA, err := o.byGate.Get(storedKey(i + 1))
			check(err)
			b, hasB, err := o.byGate.Get(storedKey(i + 2))
			check(err)
			sum, _, err := o.sum.Get()
			check(err)
			mean, _, err := o.mean.Get()
			check(err)
			_, timed, err := o.timed.Get()
			check(err)
			aged, hasAged, err := o.aged.Get("u")
			check(err)
			if len(list) != 2 || *list[1].Last != -int64(i+1) || !hasA || !hasB || a != int64(i) || b != int64(-i) ||
				sum != int64(i) || mean != float64(i) || timed || !hasAged || *aged.Last != int64(-i) {
				t.Errorf("key %d: %+v, %d, %d, %d, %v, %v, %+v", i, list, a, b, sum, mean, timed, aged)
			}
		}
	}
	if found != storedKeys {
		t.Errorf("%d keys", found)
	}
}
