package state_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/state"
)

type leg struct {
	From, To string
	Minutes  int16
}

type newLeg struct {
	Minutes int64
	Origin  string `weir:"origin,alias=From"`
	Tail    []byte
}

// Values of every kind are migrated, with time-to-live and without; so are
// operator lists and broadcast maps.
func TestEveryKindIsMigrated(t *testing.T) {
	from := openContext()
	value, err := state.NewValue[leg](from, "value")
	check(err)
	list, err := state.NewList[leg](from, "list", state.WithTTL(time.Hour))
	check(err)
	legs, err := state.NewMap[int32, leg](from, "map")
	check(err)
	sum, err := state.NewReducing(from, "sum", func(a, b uint16) (uint16, error) { return a + b, nil })
	check(err)
	begin(from, "k")
	v := leg{"ABQ", "SFO", -20}
	check(value.Set(v))
	check(list.AddAll([]leg{v, {"A", "B", 7}}))
	check(legs.Set(-1, v))
	check(sum.Add(65535))
	parts := snapshotOf(from)

	to := openContext()
	newValue, err := state.NewValue[newLeg](to, "value")
	check(err)
	newList, err := state.NewList[newLeg](to, "list", state.WithTTL(time.Hour))
	check(err)
	newLegs, err := state.NewMap[int32, newLeg](to, "map", state.WithTTL(time.Hour))
	check(err)
	newSum, err := state.NewReducing(to, "sum", func(a, b int64) (int64, error) { return a + b, nil })
	check(err)
	begun := to.Backend().Restore(parts)
	check(begun)
	check(to.SetCurrentKey("k"))
	w := newLeg{Minutes: -20, Origin: "ABQ"}
	a, _, err := newValue.Get()
	check(err)
	b, err := newList.Get()
	check(err)
	c, _, err := newLegs.Get(-1)
	check(err)
	d, _, err := newSum.Get()
	check(err)
	if !reflect.DeepEqual(a, w) || len(b) != 2 || !reflect.DeepEqual(b[0], w) || b[1].Minutes != 7 || !reflect.DeepEqual(c, w) || d != 65535 {
		t.Errorf("read %+v, %+v, %+v, %d", a, b, c, d)
	}

	// What cannot be read is refused with its name.
	wrong := openContext()
	_, err = state.NewValue[struct{ From int }](wrong, "value")
	check(err)
	for _, s := range []string{"list", "map", "sum"} {
		_, err = state.NewValue[int](wrong, s)
		check(err)
	}
	if err := wrong.Backend().Restore(parts); err == nil || !strings.Contains(err.Error(), `operator "example": restore keyed state: state "value": field From was string and is int64`) {
		t.Errorf("error is %v", err)
	}

	// A dropped state is skipped, and only that.
	for i := range parts[0].States {
		if parts[0].States[i].Name != "value" {
			parts[0].States[i].Kind = snapshot.DroppedKind
		}
	}
	only := openContext()
	newValue, err = state.NewValue[newLeg](only, "value")
	check(err)
	check(only.Backend().Restore(parts))
	check(only.SetCurrentKey("k"))
	if a, _, err := newValue.Get(); err != nil || !reflect.DeepEqual(a, w) {
		t.Errorf("read %+v, %v", a, err)
	}
}

func TestOperatorStateIsMigrated(t *testing.T) {
	old := state.NewOperator("op", 0)
	legs, err := state.NewSplitList[leg](old, "legs")
	check(err)
	all, err := state.NewBroadcast[string, leg](old, "all")
	check(err)
	check(old.Restore(nil))
	legs.Add(leg{"ABQ", "SFO", -20})
	var side state.BroadcastSide
	side.Begin()
	check(all.Set(&side, "k", leg{"ABQ", "SFO", 5}))
	stored := listsOf(old)
	is := state.NewOperator("op", 0)
	newLegs, err := state.NewSplitList[newLeg](is, "legs")
	check(err)
	newAll, err := state.NewBroadcast[string, newLeg](is, "all")
	check(err)
	check(is.Restore(stored))
	if got := newLegs.Get(); len(got) != 1 || got[0].Origin != "ABQ" || got[0].Minutes != -20 {
		t.Errorf("list is %+v", got)
	}
	if got, found, err := newAll.Get("k"); err != nil || !found || got.Origin != "ABQ" || got.Minutes != 5 {
		t.Errorf("broadcast is %+v, %v", got, err)
	}
	// What the graph says of the program is what the snapshot says of itself.
	var graph []snapshot.StateMeta
	for _, m := range is.States() {
		graph = append(graph, snapshot.StateMeta{Name: m.Name, Kind: m.Kind, Codec: m.Codec, Schema: m.Schema, KeySchema: m.KeySchema})
	}
	frozen, err := is.Freeze()
	check(err)
	defer frozen.Release()
	var described []snapshot.StateMeta
	check(frozen.Write(func(_ string, _ snapshot.Redistribution, _ [][]byte, _ []int64, states ...snapshot.StateMeta) error {
		described = append(described, states...)
		return nil
	}))
	if !reflect.DeepEqual(described, graph) || len(graph) != 2 || graph[0].Name != "list/legs" || graph[1].Kind != snapshot.BroadcastKind {
		t.Errorf("stored are %+v, in the graph are %+v", described, graph)
	}
	wrong := state.NewOperator("op", 0)
	_, err = state.NewSplitList[int](wrong, "legs")
	check(err)
	if err := wrong.Restore(stored); err == nil || !strings.Contains(err.Error(), `list "legs": the value was struct{From:string,To:string,Minutes:int16} and is int64`) {
		t.Errorf("error is %v", err)
	}
}

// One of two broadcast maps is dropped on the user's word, and only that.
func TestOneBroadcastMapIsDropped(t *testing.T) {
	o := openOperatorStates()
	check(o.state.Restore(nil))
	var side state.BroadcastSide
	side.Begin()
	check(o.limits.Set(&side, storedKey(1), visitOf(1)))
	check(o.flags.Set(&side, "on", true))
	stored := listsOf(o.state)
	restore := func(dropped ...string) (*state.Broadcast[string, bool], error) {
		is := state.NewOperator("stored", 1)
		_, err := state.NewSplitList[visit](is, "split")
		check(err)
		_, err = state.NewUnionList[string](is, "union")
		check(err)
		flags, err := state.NewBroadcast[string, bool](is, "flags")
		check(err)
		return flags, is.Restore(stored, dropped...)
	}
	if _, err := restore(); err == nil || !strings.Contains(err.Error(), `broadcast state`) || !strings.Contains(err.Error(), `state "limits", which the operator did not register`) {
		t.Errorf("error is %v", err)
	}
	flags, err := restore("limits")
	check(err)
	if on, found, err := flags.Get("on"); err != nil || !found || !on {
		t.Errorf("flag is %v, %v, %v", on, found, err)
	}
	if n, err := flags.Len(); err != nil || n != 1 {
		t.Errorf("%d flags, %v", n, err)
	}
}

// A list may have the name of one of the runtime's: it is stored under another.
func TestListsHaveTheirOwnNames(t *testing.T) {
	for _, name := range []string{snapshot.WatermarkList, state.DescriptionsList, state.BroadcastList} {
		o := state.NewOperator("op", 0)
		list, err := state.NewUnionList[string](o, name)
		check(err)
		check(o.Restore(nil))
		list.Add("mine")
		stored := listsOf(o)
		if len(stored) != 2 || len(stored["list/"+name]) != 1 || len(stored[state.DescriptionsList]) != 1 {
			t.Errorf("%s: stored are %q", name, stored)
		}
		stored[snapshot.WatermarkList] = [][]byte{[]byte("the runtime's")}
		is := state.NewOperator("op", 0)
		list, err = state.NewUnionList[string](is, name)
		check(err)
		check(is.Restore(stored))
		if got := list.Get(); len(got) != 1 || got[0] != "mine" {
			t.Errorf("%s: restored is %q", name, got)
		}
	}
}
