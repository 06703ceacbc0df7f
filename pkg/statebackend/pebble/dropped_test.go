package pebble_test

import (
	"fmt"
	"testing"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
	"github.com/weirstream/weir/pkg/statebackend/pebble"
)

// A state that the user lets go is not restored, from files or a canonical
// snapshot, and those beside it are.
func TestDroppedStateIsSkipped(t *testing.T) {
	all := keygroup.Range{First: 0, Last: 15}
	b := pebble.New(pebble.Options{})
	j, m := open(t, b, all), open(t, memory.New(), all)
	j.change(t, 0)
	m.change(t, 0)
	f, g := j.freeze(t), m.freeze(t)
	defer f.Release()
	defer g.Release()
	set, err := f.(statebackend.FileFrozen).Files(t.Context())
	must(t, err)
	for name, part := range map[string]statebackend.RestoredPart{
		"files":     {Range: all, States: set.States, Backend: pebble.Name, Files: set.Files},
		"canonical": canonical(t, g, all),
	} {
		for i := range part.States {
			if part.States[i].Name != "list" {
				part.States[i].Kind = snapshot.DroppedKind
			}
		}
		keyed, err := state.NewKeyed[string](state.Options{Operator: "op", Range: all, MaxParallelism: 16, Backend: b, Dir: t.TempDir()})
		must(t, err)
		list, err := state.NewList[string](keyed, "list")
		must(t, err)
		if err := keyed.Backend().Restore([]statebackend.RestoredPart{part}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for k := range 200 {
			must(t, keyed.SetCurrentKey(fmt.Sprint("key-", k)))
			got, err := list.Get()
			must(t, err)
			if len(got) != 1 || got[0] != "0" {
				t.Fatalf("%s: key %d has %v", name, k, got)
			}
		}
		frozen, err := keyed.Backend().Freeze()
		must(t, err)
		after, err := frozen.(statebackend.FileFrozen).Files(t.Context())
		must(t, err)
		if len(after.States) != 1 || after.States[0].Name != "list" {
			t.Errorf("%s: the next snapshot has %v", name, after.States)
		}
		if n := keyed.Backend().Stats().Entries; n != 200 {
			t.Errorf("%s: %d entries are left, not those of the list alone", name, n)
		}
		frozen.Release()
		must(t, keyed.Backend().Close())
	}
}
