package pebble

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/weirstream/weir/internal/racedetector"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/statebackend"
)

// quietLogger drops Pebble's chatter; what matters comes as an error.
type quietLogger struct{}

func (quietLogger) Infof(string, ...any)  {}
func (quietLogger) Errorf(string, ...any) {}
func (quietLogger) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// testOptions make many small tables on many levels out of little data.
func testOptions() *pebble.Options {
	opts := &pebble.Options{
		FS:                          withoutSync(vfs.Default),
		DisableWAL:                  true,
		Logger:                      quietLogger{},
		EventListener:               returning(), // as the backend's options have it
		FormatMajorVersion:          pebble.FormatTableFormatV6,
		LBaseMaxBytes:               4 << 10,
		L0CompactionThreshold:       3,
		L0CompactionFileThreshold:   20,
		DisableAutomaticCompactions: false,
	}
	opts.EnsureDefaults()
	for i := range opts.Levels {
		opts.Levels[i].BlockSize = 256
	}
	for i := range opts.TargetFileSizes {
		opts.TargetFileSizes[i] = 2 << 10
	}
	return opts
}

const testGroups = 16

func testKey(group keygroup.Group, suffix int) []byte {
	return append(firstKey(keygroup.Range{First: group}), fmt.Sprintf("%03d", suffix)...)
}

// testDB is one subtask's DB beside the model of its content.
type testDB struct {
	db    *pebble.DB
	dir   string
	r     keygroup.Range
	model map[string]string
	// origins and paths are of what it was restored from.
	origins map[string]fileOrigin
	parts   []filePart
}

type fataler interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Helper()
}

func must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// entries is everything that a DB shows.
func entries(t fataler, db *pebble.DB) map[string]string {
	t.Helper()
	iter, err := db.NewIter(nil)
	must(t, err)
	found := map[string]string{}
	for valid := iter.First(); valid; valid = iter.Next() {
		found[string(iter.Key())] = string(iter.Value())
	}
	must(t, iter.Close())
	return found
}

func compare(t fataler, what string, got, want map[string]string) {
	t.Helper()
	for k, v := range want {
		if g, ok := got[k]; !ok || g != v {
			t.Fatalf("%s: key %q is %q (found %t), want %q", what, k, g, ok, v)
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			t.Fatalf("%s: key %q is %q, want none", what, k, v)
		}
	}
}

// within is the model's entries of key groups r.
func within(model map[string]string, r keygroup.Range) map[string]string {
	out := map[string]string{}
	for k, v := range model {
		if k >= string(firstKey(r)) && k < string(endKey(r)) {
			out[k] = v
		}
	}
	return out
}

// change makes random changes to a DB and its model.
func (d *testDB) change(t *rapid.T, scratch string, seq *int) {
	group := func(what string) keygroup.Group {
		return keygroup.Group(rapid.IntRange(int(d.r.First), int(d.r.Last)).Draw(t, what))
	}
	suffix := rapid.IntRange(0, 60)
	for range rapid.IntRange(0, 12).Draw(t, "changes") {
		*seq++
		switch rapid.IntRange(0, 9).Draw(t, "change") {
		case 0, 1, 2, 3:
			// A run of writes, some of which overwrite.
			g, from := group("group"), suffix.Draw(t, "from")
			for i := range rapid.IntRange(1, 40).Draw(t, "run") {
				k, v := testKey(g, from+i), fmt.Sprintf("%d/%d/%060d", *seq, i, *seq)
				must(t, d.db.Set(k, []byte(v), pebble.NoSync))
				d.model[string(k)] = v
			}
		case 4:
			g, from := group("group"), suffix.Draw(t, "from")
			for i := range rapid.IntRange(1, 20).Draw(t, "run") {
				k := testKey(g, from+i)
				must(t, d.db.Delete(k, pebble.NoSync))
				delete(d.model, string(k))
			}
		case 5:
			from, to := testKey(group("from"), suffix.Draw(t, "from")), testKey(group("to"), suffix.Draw(t, "to"))
			if rapid.Bool().Draw(t, "whole groups") {
				from, to = from[:2], endKey(d.r)
			}
			if bytes.Compare(from, to) >= 0 {
				continue
			}
			must(t, d.db.DeleteRange(from, to, pebble.NoSync))
			maps.DeleteFunc(d.model, func(k, _ string) bool { return k >= string(from) && k < string(to) })
		case 6, 7:
			must(t, d.db.Flush())
		case 8:
			from, to := group("from"), group("to")
			if from > to {
				from, to = to, from
			}
			must(t, d.db.Compact(t.Context(), firstKey(keygroup.Range{First: from}), endKey(keygroup.Range{Last: to}), false))
		case 9:
			d.ingest(t, filepath.Join(scratch, fmt.Sprintf("ingest-%d", *seq)), group("group"), *seq)
		}
	}
}

// ingest brings in a table that was written outside, with a range delete in
// front of its keys.
func (d *testDB) ingest(t *rapid.T, path string, g keygroup.Group, seq int) {
	f, err := vfs.Default.Create(path, vfs.WriteCategoryUnspecified)
	must(t, err)
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(f), sstable.WriterOptions{TableFormat: d.db.FormatMajorVersion().MaxTableFormat()})
	must(t, w.DeleteRange(testKey(g, 20), testKey(g, 40)))
	maps.DeleteFunc(d.model, func(k, _ string) bool { return k >= string(testKey(g, 20)) && k < string(testKey(g, 40)) })
	for i := 15; i < 20; i++ {
		k, v := testKey(g, i), fmt.Sprintf("ingested %d/%d", seq, i)
		must(t, w.Set(k, []byte(v)))
		d.model[string(k)] = v
	}
	must(t, w.Close())
	must(t, d.db.Ingest(t.Context(), []string{path}))
}

// Whatever was written, deleted and compacted in which subtasks, and however
// often the parallelism has changed: each new subtask shows exactly the
// content of its key groups.
func TestRescaledFilesAgreeWithModel(t *testing.T) {
	t.Parallel()
	// Pebble looks through the whole database for every table and every reader
	// in builds with the race detector. What the files hold is shown without it,
	// and races do not need many checks.
	if f := flag.Lookup("rapid.checks"); racedetector.Enabled && f.Value.String() == f.DefValue {
		must(t, f.Value.Set("15"))
	}
	var merges, clips, virtual, kept int
	rapid.Check(t, func(t *rapid.T) {
		root, err := os.MkdirTemp("", "weir-files")
		must(t, err)
		defer os.RemoveAll(root)
		seq := 0
		var parts []filePart
		model := map[string]string{}
		for generation := range rapid.IntRange(2, 4).Draw(t, "generations") {
			parallelism := rapid.IntRange(1, 5).Draw(t, "parallelism")
			var next []filePart
			nextModel := map[string]string{}
			for i := range parallelism {
				r := keygroup.RangeOf(i, parallelism, testGroups)
				dir := filepath.Join(root, fmt.Sprintf("%d-%d", generation, i))
				db, origins, err := openFiles(dir, testOptions(), parts, r)
				must(t, err)
				d := &testDB{db: db, dir: dir, r: r, model: within(model, r), origins: origins, parts: parts}
				compare(t, fmt.Sprintf("generation %d, key groups %s", generation, r), entries(t, db), d.model)
				d.checkOrigins(t, dir)
				if n := d.originParts(); n > 1 {
					merges++
				}
				clips += d.virtualTables(t)
				d.change(t, root, &seq)
				must(t, db.Flush())
				capture := dir + "-capture"
				files, err := captureFiles(db, vfs.Default, capture)
				must(t, err)
				kept += d.checkOrigins(t, capture)
				virtual += d.virtualTables(t)
				compare(t, "changed", entries(t, db), d.model)
				// The capture is of one moment, whatever comes after.
				must(t, db.DeleteRange(firstKey(r), endKey(r), pebble.NoSync))
				must(t, db.Flush())
				must(t, db.Compact(t.Context(), firstKey(r), endKey(r), false))
				must(t, db.Close())
				next = append(next, filePart{Range: r, Files: files})
				maps.Copy(nextModel, d.model)
			}
			parts, model = next, nextModel
			rapid.Permutation(parts).Draw(t, "order")
			r := drawRange(t)
			got := map[string]string{}
			last := ""
			must(t, readFiles(filepath.Join(root, "read"), testOptions(), parts, r, func(key, value []byte) error {
				if string(key) <= last {
					return fmt.Errorf("key %q after %q", key, last)
				}
				last = string(key)
				got[last] = string(value)
				return nil
			}))
			compare(t, "read key groups "+r.String(), got, within(model, r))
			db, _, err := openFiles(filepath.Join(root, "odd"), testOptions(), parts, r)
			must(t, err)
			compare(t, "odd key groups "+r.String(), entries(t, db), within(model, r))
			must(t, db.Close())
			must(t, os.RemoveAll(filepath.Join(root, "odd")))
		}
	})
	if merges == 0 || clips == 0 || virtual == 0 || kept == 0 {
		t.Errorf("too kind: %d merges, %d tables clipped, %d virtual tables captured, %d files kept", merges, clips, virtual, kept)
	}
}

func drawRange(t *rapid.T) keygroup.Range {
	first := rapid.IntRange(0, testGroups-1).Draw(t, "first")
	return keygroup.Range{First: keygroup.Group(first), Last: keygroup.Group(rapid.IntRange(first, testGroups-1).Draw(t, "last"))}
}

// checkOrigins compares the files in dir that have an origin with that, and
// counts them.
func (d *testDB) checkOrigins(t fataler, dir string) int {
	t.Helper()
	n := 0
	for local, o := range d.origins {
		got, err := os.ReadFile(filepath.Join(dir, local))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		must(t, err)
		i := slices.IndexFunc(d.parts[o.Part].Files, func(f statebackend.File) bool { return f.Local == o.Local })
		want, err := os.ReadFile(d.parts[o.Part].Files[i].Path)
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Fatalf("%s in %s is not %s of part %d", local, dir, o.Local, o.Part)
		}
		n++
	}
	return n
}

func (d *testDB) originParts() int {
	parts := map[int]bool{}
	for _, o := range d.origins {
		parts[o.Part] = true
	}
	return len(parts)
}

func (d *testDB) virtualTables(t fataler) int {
	tables, err := tablesOf(d.db)
	must(t, err)
	n := 0
	for _, table := range tables {
		if table.Virtual {
			n++
		}
	}
	return n
}
