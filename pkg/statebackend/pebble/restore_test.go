package pebble_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
	"github.com/weirstream/weir/pkg/statebackend/pebble"
)

var all = keygroup.Range{First: 0, Last: 15}

// inFiles is a view of now in files, and the view, which the test's end releases.
func (j *job) inFiles(t *testing.T, number int, r keygroup.Range) (statebackend.RestoredPart, statebackend.FileFrozen) {
	t.Helper()
	f := j.freeze(t).(statebackend.FileFrozen)
	t.Cleanup(f.Release)
	set, err := f.Files(t.Context())
	must(t, err)
	return statebackend.RestoredPart{Number: number, Range: r, States: set.States, Backend: pebble.Name, Files: set.Files}, f
}

// now is the canonical snapshot of now.
func (j *job) now(t *testing.T, r keygroup.Range) statebackend.RestoredPart {
	t.Helper()
	f := j.freeze(t)
	defer f.Release()
	return canonical(t, f, r)
}

// What ReadFiles makes of files restores under memory, and is what memory has.
func TestFilesAreReadWithoutTheirTypes(t *testing.T) {
	b := pebble.New(pebble.Options{})
	j := open(t, b, all)
	j.change(t, 1)
	part, _ := j.inFiles(t, 7, all)
	want := j.now(t, all)
	for _, r := range []keygroup.Range{all, {First: 2, Last: 11}} {
		dir := filepath.Join(t.TempDir(), "read")
		got, err := pebble.ReadFiles(t.Context(), dir, part, r)
		must(t, err)
		if got.Number != 7 || got.Range != r || got.Backend != "" {
			t.Errorf("part %d of key groups %s, backend %q", got.Number, got.Range, got.Backend)
		}
		if r == all && !bytes.Equal(got.Data, want.Data) {
			t.Errorf("%d bytes are not the %d of a canonical snapshot", len(got.Data), len(want.Data))
		}
		m, w := open(t, memory.New(), r, got), open(t, memory.New(), r, want)
		if !bytes.Equal(m.now(t, r).Data, w.now(t, r).Data) {
			t.Errorf("key groups %s read from files are not those of the view", r)
		}
	}
	if err := tryOpen(t, memory.New(), all, part); err == nil || !strings.Contains(err.Error(), `"pebble"`) {
		t.Errorf("memory restores files: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pebble.ReadFiles(ctx, filepath.Join(t.TempDir(), "read"), part, all); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	part.Files = part.Files[:len(part.Files)-1]
	if _, err := pebble.ReadFiles(t.Context(), filepath.Join(t.TempDir(), "read"), part, all); !errors.Is(err, statebackend.ErrCorrupt) {
		t.Errorf("without a file: %v", err)
	}
}

func tryOpen(t *testing.T, b statebackend.Backend, r keygroup.Range, parts ...statebackend.RestoredPart) error {
	t.Helper()
	keyed, err := state.NewKeyed[string](state.Options{Operator: "op", Range: r, MaxParallelism: 16, Backend: b, Dir: t.TempDir()})
	must(t, err)
	_, err = state.NewValue[int64](keyed, "value")
	must(t, err)
	_, err = state.NewList[string](keyed, "list")
	must(t, err)
	_, err = state.NewMap[string, int64](keyed, "users")
	must(t, err)
	err = keyed.Backend().Restore(parts)
	must(t, keyed.Backend().Close())
	return err
}

// Entries of dropped states are in no snapshot after the restore, from files
// or canonical; what is left has their numbers.
func TestDroppedStatesAreSkipped(t *testing.T) {
	j := open(t, pebble.New(pebble.Options{}), all)
	j.change(t, 1)
	files, _ := j.inFiles(t, 0, all)
	for _, part := range []statebackend.RestoredPart{files, j.now(t, all)} {
		part.States = append([]snapshot.StateMeta(nil), part.States...)
		for i := range part.States {
			if part.States[i].Name == "value" {
				part.States[i].Kind = snapshot.DroppedKind
			}
		}
		snapshots := map[string][]byte{}
		for _, b := range []statebackend.Backend{pebble.New(pebble.Options{}), memory.New()} {
			if part.Backend != "" && b.Name() != part.Backend {
				continue
			}
			keyed, err := state.NewKeyed[string](state.Options{Operator: "op", Range: all, MaxParallelism: 16, Backend: b, Dir: t.TempDir()})
			must(t, err)
			users, err := state.NewMap[string, int64](keyed, "users")
			must(t, err)
			list, err := state.NewList[string](keyed, "list")
			must(t, err)
			must(t, keyed.Backend().Restore([]statebackend.RestoredPart{part}))
			must(t, keyed.SetCurrentKey("key-2"))
			got, err := list.Get()
			must(t, err)
			u, found, err := users.Get("u1")
			must(t, err)
			if len(got) != 1 || got[0] != "1" || !found || u != 2 {
				t.Errorf("%s: list %q, user %d %v", b.Name(), got, u, found)
			}
			f, err := keyed.Backend().Freeze()
			must(t, err)
			p := canonical(t, f, all)
			if len(p.States) != 2 {
				t.Errorf("%s: states %+v", b.Name(), p.States)
			}
			snapshots[b.Name()] = p.Data
			if ff, ok := f.(statebackend.FileFrozen); ok {
				set, err := ff.Files(t.Context())
				must(t, err)
				if len(set.States) != 2 {
					t.Errorf("files have states %+v", set.States)
				}
			}
			f.Release()
			must(t, keyed.Backend().Close())
		}
		if m, ok := snapshots[memory.Name]; ok && !bytes.Equal(m, snapshots[pebble.Name]) {
			t.Error("the snapshots of the backends differ")
		}
	}
}

// shares counts the files of a view that are files of restored parts, byte by
// byte, and the bytes of others.
func shares(t *testing.T, f statebackend.FileFrozen, files []statebackend.File, parts map[int]statebackend.RestoredPart) (known int, unknown int64) {
	t.Helper()
	origins := f.(statebackend.Origins)
	for _, file := range files {
		if !file.Shared {
			continue
		}
		number, local, ok := origins.OriginOf(file.Local)
		if !ok {
			unknown += file.Size
			continue
		}
		part, ok := parts[number]
		if !ok {
			t.Fatalf("file %s is said to be of part %d", file.Local, number)
		}
		same := false
		for _, of := range part.Files {
			same = same || of.Local == local && of.Size == file.Size && bytes.Equal(content(t, of.Path), content(t, file.Path))
		}
		if !same {
			t.Errorf("file %s is not file %s of part %d", file.Local, local, number)
		}
		known++
	}
	return known, unknown
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	f, err := vfs.Default.Open(path)
	must(t, err)
	info, err := f.Stat()
	must(t, err)
	b := make([]byte, info.Size())
	_, err = f.ReadAt(b, 0)
	must(t, errors.Join(err, f.Close()))
	return b
}

// After a rescale a view has the files of the restored parts, and says so.
func TestViewsAfterARescaleReuseFiles(t *testing.T) {
	b := pebble.New(pebble.Options{})
	halves := []keygroup.Range{{First: 0, Last: 7}, {First: 8, Last: 15}}
	whole := open(t, b, all)
	whole.change(t, 1)
	one, _ := whole.inFiles(t, 4, all)
	restored := map[int]statebackend.RestoredPart{}
	var want [][]byte
	for i, r := range halves {
		j := open(t, b, r, one)
		part, f := j.inFiles(t, 10+i, r)
		if known, unknown := shares(t, f, part.Files, map[int]statebackend.RestoredPart{4: one}); known == 0 || unknown != 0 {
			t.Errorf("1 to 2: %d files are the restored ones, %d bytes are new", known, unknown)
		}
		restored[10+i] = part
		want = append(want, canonical(t, f, r).Data)
	}
	j := open(t, b, all, restored[11], restored[10])
	part, f := j.inFiles(t, 0, all)
	if known, unknown := shares(t, f, part.Files, restored); known == 0 || unknown != 0 {
		t.Errorf("2 to 1: %d files are the restored ones, %d bytes are new", known, unknown)
	}
	if got := canonical(t, f, all); !bytes.Equal(got.Data, append(want[0], want[1]...)) {
		t.Error("two halves are not the whole")
	}
}

// small and large are versions of a type.
type small struct {
	N    int32
	Gone string
}

type large struct {
	N     int64
	Added string
}

func openVersion[V any](t *testing.T, b statebackend.Backend, parts ...statebackend.RestoredPart) (*state.Keyed[string], state.Value[V], state.List[V], state.Map[string, V]) {
	t.Helper()
	keyed, err := state.NewKeyed[string](state.Options{Operator: "op", Range: all, MaxParallelism: 16, Backend: b, Dir: t.TempDir()})
	must(t, err)
	value, err := state.NewValue[V](keyed, "value")
	must(t, err)
	list, err := state.NewList[V](keyed, "list")
	must(t, err)
	users, err := state.NewMap[string, V](keyed, "users")
	must(t, err)
	must(t, keyed.Backend().Restore(parts))
	t.Cleanup(func() { must(t, keyed.Backend().Close()) })
	return keyed, value, list, users
}

// Files keep values of an earlier schema as they are until they are written
// again; what reads them migrates, and a canonical snapshot has only the new one.
func TestFilesHoldSeveralSchemas(t *testing.T) {
	b := pebble.New(pebble.Options{MemoryBytes: 1})
	keyed, value, list, users := openVersion[small](t, b)
	const keys = 40
	for i := range keys {
		must(t, keyed.SetCurrentKey(fmt.Sprint("k", i)))
		v := small{N: int32(i), Gone: "gone"}
		must(t, errors.Join(value.Set(v), list.AddAll([]small{v, v}), users.Set("u", v)))
	}
	j := &job{keyed: keyed}
	first, _ := j.inFiles(t, 0, all)
	keyed2, value2, list2, users2 := openVersion[large](t, b, first)
	for i := range keys / 2 {
		must(t, keyed2.SetCurrentKey(fmt.Sprint("k", i)))
		must(t, errors.Join(value2.Set(large{N: int64(i), Added: "new"}), list2.Add(large{N: 1 << 40}), users2.Set("v", large{N: 1})))
	}
	second, view := (&job{keyed: keyed2}).inFiles(t, 0, all)
	for _, m := range second.States {
		if m.SchemaID == 0 || len(m.Earlier) != 1 {
			t.Errorf("state %q is listed with schema ID %d and %d earlier ones", m.Name, m.SchemaID, len(m.Earlier))
		}
	}
	want := canonical(t, view, all)
	for _, m := range want.States {
		if m.SchemaID != 0 || m.Earlier != nil {
			t.Errorf("canonical state %q has schema ID %d and %d earlier ones", m.Name, m.SchemaID, len(m.Earlier))
		}
	}
	read, err := pebble.ReadFiles(t.Context(), filepath.Join(t.TempDir(), "read"), second, all)
	must(t, err)
	for name, c := range map[string]struct {
		backend statebackend.Backend
		part    statebackend.RestoredPart
	}{
		"files": {b, second}, "canonical": {b, want}, "canonical in memory": {memory.New(), want}, "files in memory": {memory.New(), read},
		"files as others": {b, read},
	} {
		keyed, value, list, users := openVersion[large](t, c.backend, c.part)
		for i := range keys {
			must(t, keyed.SetCurrentKey(fmt.Sprint("k", i)))
			v, found, err := value.Get()
			must(t, err)
			l, err := list.Get()
			must(t, err)
			u, userFound, err := users.Get("u")
			must(t, err)
			n, err := users.Len()
			must(t, err)
			added, elements, length := "", 2, 1
			if i < keys/2 {
				added, elements, length = "new", 3, 2
			}
			if !found || v != (large{N: int64(i), Added: added}) || len(l) != elements || l[0].N != int64(i) || !userFound || u.N != int64(i) || n != length {
				t.Fatalf("%s: key %d has %+v %v, %+v, %+v %v of %d", name, i, v, found, l, u, userFound, n)
			}
		}
		f, err := keyed.Backend().Freeze()
		must(t, err)
		if got := canonical(t, f, all); !bytes.Equal(got.Data, want.Data) {
			t.Errorf("%s: another canonical snapshot", name)
		}
		f.Release()
	}
}

// Parts whose states have other numbers are taken in entry by entry.
func TestPartsWithOtherNumbers(t *testing.T) {
	b := pebble.New(pebble.Options{})
	halves := []keygroup.Range{{First: 0, Last: 7}, {First: 8, Last: 15}}
	var parts []statebackend.RestoredPart
	var want []byte
	for i, r := range halves {
		j := &job{}
		var err error
		j.keyed, err = state.NewKeyed[string](state.Options{Operator: "op", Range: r, MaxParallelism: 16, Backend: b, Dir: t.TempDir()})
		must(t, err)
		register := []func(){
			func() { j.value, err = state.NewValue[int64](j.keyed, "value"); must(t, err) },
			func() { j.list, err = state.NewList[string](j.keyed, "list"); must(t, err) },
			func() { j.users, err = state.NewMap[string, int64](j.keyed, "users"); must(t, err) },
		}
		for n := range register {
			register[(n+i)%len(register)]()
		}
		must(t, j.keyed.Backend().Restore(nil))
		t.Cleanup(func() { must(t, j.keyed.Backend().Close()) })
		for k := range 200 {
			if key := fmt.Sprint("key-", k); j.keyed.SetCurrentKey(key) == nil {
				must(t, errors.Join(j.value.Set(int64(k)), j.list.Add(key), j.users.Set("u", 1), j.users.Set("v", 2)))
			}
		}
		p, _ := j.inFiles(t, i, r)
		parts = append(parts, p)
	}
	m := open(t, memory.New(), all)
	for k := range 200 {
		key := fmt.Sprint("key-", k)
		must(t, m.keyed.SetCurrentKey(key))
		must(t, errors.Join(m.value.Set(int64(k)), m.list.Add(key), m.users.Set("u", 1), m.users.Set("v", 2)))
	}
	want = m.now(t, all).Data
	if got := open(t, b, all, parts...).now(t, all); !bytes.Equal(got.Data, want) {
		t.Errorf("%d bytes restored from both, want %d", len(got.Data), len(want))
	}
}

// Values that are as old after a restore as before keep their age through
// files, under every backend that can read them.
func TestAgesInFiles(t *testing.T) {
	wall := int64(1_000_000)
	now := func() time.Time { return time.UnixMilli(wall) }
	open := func(b statebackend.Backend, withList bool, modes state.TTLMode, parts ...statebackend.RestoredPart) (*state.Keyed[string], state.Value[int64]) {
		keyed, err := state.NewKeyed[string](state.Options{Operator: "op", Range: all, MaxParallelism: 16, Backend: b, Dir: t.TempDir(), Now: now})
		must(t, err)
		v, err := state.NewValue[int64](keyed, "value", state.WithTTL(time.Second, modes))
		must(t, err)
		if withList {
			_, err = state.NewList[int64](keyed, "list", state.WithTTL(time.Second, modes))
			must(t, err)
		}
		t.Cleanup(func() { must(t, keyed.Backend().Close()) })
		must(t, keyed.Backend().Restore(parts))
		return keyed, v
	}
	for _, modes := range []state.TTLMode{0, state.NotWhileDown} {
		b := pebble.New(pebble.Options{})
		keyed, v := open(b, false, modes)
		must(t, keyed.SetCurrentKey("k"))
		must(t, v.Set(5))
		wall += 400
		keyed.Tick()
		part, _ := (&job{keyed: keyed}).inFiles(t, 0, all)
		wall += 100_000
		read, err := pebble.ReadForRestore(t.Context(), filepath.Join(t.TempDir(), "read"), part, all)
		must(t, err)
		for _, p := range []struct {
			backend statebackend.Backend
			part    statebackend.RestoredPart
		}{{b, part}, {memory.New(), read}} {
			keyed, v := open(p.backend, false, modes, p.part)
			for i, want := range []bool{modes == state.NotWhileDown, false} {
				must(t, keyed.SetCurrentKey("k"))
				if _, found, err := v.Get(); err != nil || found != want {
					t.Errorf("%s, modes %d, look %d: found %v, want %v, %v", p.backend.Name(), modes, i, found, want, err)
				}
				wall += 600
				keyed.Tick()
			}
		}
	}
	keyed, _ := open(pebble.New(pebble.Options{}), true, state.NotWhileDown)
	part, _ := (&job{keyed: keyed}).inFiles(t, 0, all)
	if _, err := pebble.ReadForRestore(t.Context(), filepath.Join(t.TempDir(), "read"), part, all); err == nil || !strings.Contains(err.Error(), `"list"`) {
		t.Errorf("a list of ages: %v", err)
	}
}

// While the disk is full checkpoints are declined, nothing is lost, and when
// it is not full any more they succeed.
func TestFullDisk(t *testing.T) {
	full := errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.Contains(op.Path, "ingest-") {
			return errorfs.ErrInjected
		}
		return nil
	})}
	b := pebble.New(pebble.Options{FS: errorfs.Wrap(vfs.Default, &full)})
	j, m := open(t, b, all), open(t, memory.New(), all)
	for round := range 8 {
		if round == 1 {
			full.On()
		}
		if round == 7 {
			full.Off()
			// The first makes the attempt.
			f := j.freeze(t)
			_, _, err := f.WriteSnapshot(&bytes.Buffer{})
			f.Release()
			if err == nil {
				t.Error("a snapshot of what was not sealed")
			}
		}
		j.change(t, round)
		m.change(t, round)
		f := j.freeze(t)
		if round > 0 && round < 7 {
			if _, err := f.(statebackend.FileFrozen).Files(t.Context()); !errors.Is(err, errorfs.ErrInjected) {
				t.Fatalf("round %d: files of a full disk: %v", round, err)
			}
		} else if got, want := canonical(t, f, all), m.now(t, all); !bytes.Equal(got.Data, want.Data) {
			t.Fatalf("round %d: %d bytes, want %d", round, len(got.Data), len(want.Data))
		}
		f.Release()
	}
}

// A full disk is an error of an access only when there is no memory left for
// what has changed.
func TestFullDiskWithoutMemory(t *testing.T) {
	full := errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.Contains(op.Path, "ingest-") {
			return errorfs.ErrInjected
		}
		return nil
	})}
	b := pebble.New(pebble.Options{FS: errorfs.Wrap(vfs.Default, &full), MemoryBytes: 1})
	j := open(t, b, all)
	full.On()
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		must(t, j.keyed.SetCurrentKey(fmt.Sprint("key-", n)))
		err = j.value.Set(int64(n))
	}
	if !errors.Is(err, errorfs.ErrInjected) || n < 3 {
		t.Fatalf("access %d: %v", n, err)
	}
	full.Off()
	for i := range n {
		must(t, j.keyed.SetCurrentKey(fmt.Sprint("key-", i)))
		if v, found, err := j.value.Get(); err != nil || found != (i < n-1) || found && v != int64(i) {
			t.Errorf("key %d has %d %v %v", i, v, found, err)
		}
	}
}

// A value over the limit declines snapshots and leaves the state usable, in
// every backend.
func TestValueOverTheLimit(t *testing.T) {
	const limit = 1000
	for _, b := range []statebackend.Backend{pebble.New(pebble.Options{ValueBytesMax: limit}), memory.NewLimited(limit)} {
		j := open(t, b, all)
		must(t, j.keyed.SetCurrentKey("k"))
		for range 300 {
			must(t, j.list.Add("element"))
		}
		f := j.freeze(t)
		if _, _, err := f.WriteSnapshot(&bytes.Buffer{}); !errors.Is(err, statebackend.ErrValueTooLarge) || !strings.Contains(err.Error(), "state.value.bytes-max") {
			t.Errorf("%s: canonical: %v", b.Name(), err)
		}
		if files, ok := f.(statebackend.FileFrozen); ok {
			if _, err := files.Files(t.Context()); !errors.Is(err, statebackend.ErrValueTooLarge) {
				t.Errorf("%s: files: %v", b.Name(), err)
			}
		}
		f.Release()
		must(t, j.list.Set([]string{"short"}))
		f = j.freeze(t)
		canonical(t, f, all)
		if files, ok := f.(statebackend.FileFrozen); ok {
			_, err := files.Files(t.Context())
			must(t, err)
		}
		f.Release()
	}
}

// After a crash the directory of the state has what a later life left there:
// the state is that of the files and nothing else.
func TestCrashLeavesGarbage(t *testing.T) {
	b := pebble.New(pebble.Options{})
	dir := t.TempDir()
	start := func(parts ...statebackend.RestoredPart) *job {
		j := &job{}
		var err error
		j.keyed, err = state.NewKeyed[string](state.Options{Operator: "op", Range: all, MaxParallelism: 16, Backend: b, Dir: filepath.Join(dir, "state")})
		must(t, err)
		j.value, err = state.NewValue[int64](j.keyed, "value")
		must(t, err)
		j.list, err = state.NewList[string](j.keyed, "list")
		must(t, err)
		j.users, err = state.NewMap[string, int64](j.keyed, "users")
		must(t, err)
		must(t, j.keyed.Backend().Restore(parts))
		return j
	}
	j := start()
	j.change(t, 1)
	f := j.freeze(t)
	set, err := f.(statebackend.FileFrozen).Files(t.Context())
	must(t, err)
	part := statebackend.RestoredPart{Range: all, States: set.States, Backend: pebble.Name, Files: slices.Clone(set.Files)}
	want := canonical(t, f, all)
	// Uploaded, or kept for local recovery: outside the directory.
	for i := range part.Files {
		to := filepath.Join(dir, part.Files[i].Local)
		must(t, vfs.LinkOrCopy(vfs.Default, part.Files[i].Path, to))
		part.Files[i].Path = to
	}
	j.change(t, 2)
	later := j.freeze(t)
	canonical(t, later, all)
	// The process is gone: what it had on disk is there as it was.
	garbage := filepath.Join(dir, "garbage")
	must(t, os.CopyFS(garbage, os.DirFS(filepath.Join(dir, "state"))))
	f.Release()
	later.Release()
	must(t, j.keyed.Backend().Close())
	must(t, b.Close()) // waits for what the views leave behind
	b = pebble.New(pebble.Options{})
	must(t, os.CopyFS(filepath.Join(dir, "state"), os.DirFS(garbage)))
	again := start(part)
	if got := again.now(t, all); !bytes.Equal(got.Data, want.Data) {
		t.Errorf("%d bytes after the crash, want the %d of the files", len(got.Data), len(want.Data))
	}
	must(t, again.keyed.Backend().Close())
}
