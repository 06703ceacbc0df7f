package filetest_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/backendtest"
	"github.com/weirstream/weir/pkg/statebackend/filetest"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) statebackend.Backend { return &filetest.Backend{Root: t.TempDir()} })
}

const groups = 16

// counts is a keyed state with one value per key.
type counts struct {
	keyed *state.Keyed[uint64]
	n     state.Value[uint64]
}

func open(t *testing.T, r keygroup.Range, dir string, parts ...statebackend.RestoredPart) counts {
	t.Helper()
	var c counts
	var err error
	c.keyed, err = state.NewKeyed[uint64](state.Options{
		Operator: "op", Range: r, MaxParallelism: groups, Backend: &filetest.Backend{GroupsPerFile: 4}, Dir: dir,
	})
	if err == nil {
		c.n, err = state.NewValue[uint64](c.keyed, "n")
	}
	if err == nil {
		err = c.keyed.Backend().Restore(parts)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c counts) set(t *testing.T, key, n uint64) {
	t.Helper()
	err := c.keyed.SetCurrentKey(key)
	if err == nil {
		err = c.n.Set(n)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (c counts) files(t *testing.T) (statebackend.FileFrozen, statebackend.FileSet) {
	t.Helper()
	f, err := c.keyed.Backend().Freeze()
	if err != nil {
		t.Fatal(err)
	}
	view := f.(statebackend.FileFrozen)
	set, err := view.Files(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return view, set
}

func sharedOf(set statebackend.FileSet) []string {
	var names []string
	for _, f := range set.Files {
		if f.Shared {
			names = append(names, f.Local)
		}
	}
	return names
}

// keysOf returns a key of each group of the range.
func keysOf(t *testing.T, r keygroup.Range) []uint64 {
	t.Helper()
	encoding, err := keygroup.NewEncoding[uint64]()
	if err != nil {
		t.Fatal(err)
	}
	keys := make([]uint64, r.Len())
	for k := uint64(1); slices.Contains(keys, 0); k++ {
		g := keygroup.OfHash(encoding.Hash(&k), groups)
		if r.Contains(g) {
			keys[g-r.First] = k
		}
	}
	return keys
}

// TestFilesAreSharedUntilTheirGroupsChange: a change makes one new file, and a
// view's files stay until it is released.
func TestFilesAreSharedUntilTheirGroupsChange(t *testing.T) {
	all := keygroup.Range{First: 0, Last: groups - 1}
	c := open(t, all, filepath.Join(t.TempDir(), "state"))
	keys := keysOf(t, all)
	for _, k := range keys {
		c.set(t, k, 1)
	}
	first, one := c.files(t)
	if got := len(sharedOf(one)); got != 4 {
		t.Fatalf("%d shared files, want 4", got)
	}
	c.set(t, keys[5], 2)
	second, two := c.files(t)
	changed := slices.DeleteFunc(sharedOf(two), func(n string) bool { return slices.Contains(sharedOf(one), n) })
	if len(changed) != 1 {
		t.Errorf("new files %v, want one", changed)
	}
	for _, f := range append(one.Files, two.Files...) {
		if info, err := os.Stat(f.Path); err != nil || info.Size() != f.Size {
			t.Errorf("file %s of %d bytes: %v", f.Local, f.Size, err)
		}
	}
	first.Release()
	old := one.Files[1].Path
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("a file that no view has any more: %v", err)
	}
	second.Release()
	if err := c.keyed.Backend().Close(); err != nil {
		t.Error(err)
	}
}

// TestRestoredFilesAreKnownAgain: by their own names after a restore of one
// part as it was, by their origin when several are merged.
func TestRestoredFilesAreKnownAgain(t *testing.T) {
	dir := t.TempDir()
	left, right := keygroup.Range{First: 0, Last: 7}, keygroup.Range{First: 8, Last: 15}
	var parts []statebackend.RestoredPart
	for i, r := range []keygroup.Range{left, right} {
		c := open(t, r, filepath.Join(dir, r.String()))
		for _, k := range keysOf(t, r) {
			c.set(t, k, uint64(i))
		}
		view, set := c.files(t)
		defer view.Release()
		parts = append(parts, statebackend.RestoredPart{Number: i, Range: r, States: set.States, Backend: filetest.Name, Files: set.Files})
	}
	same := open(t, left, filepath.Join(dir, "same"), parts[0])
	view, set := same.files(t)
	view.Release()
	if got, want := sharedOf(set), sharedOf(statebackend.FileSet{Files: parts[0].Files}); !slices.Equal(got, want) {
		t.Errorf("files %v after a restore, want %v", got, want)
	}
	merged := open(t, keygroup.Range{First: 0, Last: 15}, filepath.Join(dir, "merged"), parts...)
	view, set = merged.files(t)
	defer view.Release()
	for i, name := range sharedOf(set) {
		part, local, ok := view.(statebackend.Origins).OriginOf(name)
		if want := parts[i/2].Files[i%2].Local; !ok || part != i/2 || local != want {
			t.Errorf("file %s is %s of part %d (%t), want %s of part %d", name, local, part, ok, want, i/2)
		}
	}
	for i, r := range []keygroup.Range{left, right} {
		for _, k := range keysOf(t, r) {
			if err := merged.keyed.SetCurrentKey(k); err != nil {
				t.Fatal(err)
			}
			if n, ok, err := merged.n.Get(); n != uint64(i) || !ok || err != nil {
				t.Errorf("key %d has %d (%t, %v), want %d", k, n, ok, err, i)
			}
		}
	}
}
