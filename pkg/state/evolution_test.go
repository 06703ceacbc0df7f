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
	frozen, err := old.Freeze()
	check(err)
	defer frozen.Release()
	stored := map[string][][]byte{}
	check(frozen.Write(func(name string, _ snapshot.Redistribution, elements [][]byte, _ []int64) error {
		stored[name] = elements
		return nil
	}))
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
	var names []string
	for _, m := range is.Lists() {
		names = append(names, m.Name)
		if _, is := stored[m.Name]; !is {
			t.Errorf("%q is described, and not stored", m.Name)
		}
	}
	if len(names) != len(stored) {
		t.Errorf("described are %v of %d", names, len(stored))
	}
	wrong := state.NewOperator("op", 0)
	_, err = state.NewSplitList[int](wrong, "legs")
	check(err)
	if err := wrong.Restore(stored); err == nil || !strings.Contains(err.Error(), `list "legs": the value was struct{From:string,To:string,Minutes:int16} and is int64`) {
		t.Errorf("error is %v", err)
	}
}
