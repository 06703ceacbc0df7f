package pebble_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/pebble"
)

// A restore that moves the times of values writes them anew. The new files may
// have the names of the old ones; that they are others must be told, or a
// checkpoint would refer to the old ones.
func TestFilesThatAreWrittenAnewHaveNoOrigin(t *testing.T) {
	all := keygroup.Range{First: 0, Last: 15}
	b := pebble.New(pebble.Options{})
	open := func(now int64, parts ...statebackend.RestoredPart) (*state.Keyed[string], state.Value[int64]) {
		t.Helper()
		keyed, err := state.NewKeyed[string](state.Options{Operator: "op", Range: all, MaxParallelism: 16, Backend: b, Dir: t.TempDir(), Now: func() time.Time { return time.UnixMilli(now) }})
		must(t, err)
		value, err := state.NewValue[int64](keyed, "value", state.WithTTL(time.Hour, state.NotWhileDown))
		must(t, err)
		must(t, keyed.Backend().Restore(parts))
		t.Cleanup(func() { must(t, keyed.Backend().Close()) })
		return keyed, value
	}
	files := func(keyed *state.Keyed[string]) (statebackend.FileSet, statebackend.FileFrozen) {
		t.Helper()
		f, err := keyed.Backend().Freeze()
		must(t, err)
		t.Cleanup(f.Release)
		view := f.(statebackend.FileFrozen)
		set, err := view.Files(t.Context())
		must(t, err)
		return set, view
	}
	before, value := open(1_000)
	for k := range 1 {
		must(t, before.SetCurrentKey(fmt.Sprint("key-", k)))
		must(t, value.Set(int64(k)))
	}
	old, _ := files(before)
	after, _ := open(9_000, statebackend.RestoredPart{Number: 3, Range: all, States: old.States, Backend: pebble.Name, Files: old.Files})
	set, view := files(after)
	shared := 0
	for _, f := range set.Files {
		if !f.Shared {
			continue
		}
		shared++
		part, local, ok := view.(statebackend.Origins).OriginOf(f.Local)
		for _, o := range old.Files {
			if o.Local != f.Local {
				continue
			}
			x, err := os.ReadFile(o.Path)
			must(t, err)
			y, err := os.ReadFile(f.Path)
			must(t, err)
			if bytes.Equal(x, y) {
				t.Errorf("file %s is the old one: the times have not moved", f.Local)
			}
		}
		if ok {
			t.Errorf("file %s is told to be %s of part %d", f.Local, local, part)
		}
	}
	if shared == 0 {
		t.Error("the restored state has no files")
	}
}

// What is taken over as it is, is told.
func TestFilesThatAreTakenOverHaveTheirOrigin(t *testing.T) {
	all := keygroup.Range{First: 0, Last: 15}
	b := pebble.New(pebble.Options{})
	j := open(t, b, all)
	j.change(t, 0)
	f := j.freeze(t)
	defer f.Release()
	old, err := f.(statebackend.FileFrozen).Files(t.Context())
	must(t, err)
	g := open(t, b, all, statebackend.RestoredPart{Number: 3, Range: all, States: old.States, Backend: pebble.Name, Files: old.Files}).freeze(t)
	defer g.Release()
	set, err := g.(statebackend.FileFrozen).Files(t.Context())
	must(t, err)
	shared := 0
	for _, f := range set.Files {
		if !f.Shared {
			continue
		}
		shared++
		if part, local, ok := g.(statebackend.Origins).OriginOf(f.Local); !ok || part != 3 || local != f.Local {
			t.Errorf("file %s is told to be %q of part %d, %t", f.Local, local, part, ok)
		}
	}
	if shared == 0 {
		t.Error("the restored state has no files")
	}
}
