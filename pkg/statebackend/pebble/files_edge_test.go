package pebble

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/statebackend"
)

// filledParts captures parallelism DBs of perGroup entries in every key group,
// written in two rounds so that there are several levels.
func filledParts(t testing.TB, opts *pebble.Options, parallelism, perGroup, valueBytes int) []filePart {
	t.Helper()
	root := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	var parts []filePart
	for i := range parallelism {
		r := keygroup.RangeOf(i, parallelism, testGroups)
		dir := filepath.Join(root, fmt.Sprint(i))
		db, _, err := openFiles(dir, opts, nil, r)
		must(t, err)
		value := make([]byte, valueBytes)
		for round := range 2 {
			for g := r.First; g <= r.Last; g++ {
				for n := round; n < perGroup; n += 1 + 4*round {
					for b := range value {
						value[b] = byte(rng.Uint32())
					}
					must(t, db.Set(fmt.Appendf(firstKey(keygroup.Range{First: g}), "%08d", n), value, pebble.NoSync))
				}
			}
			must(t, db.Flush())
			if round == 0 {
				must(t, db.Compact(t.Context(), firstKey(r), endKey(r), false))
			}
		}
		files, err := captureFiles(db, vfs.Default, dir+"-capture")
		must(t, err)
		must(t, db.Close())
		must(t, os.RemoveAll(dir))
		parts = append(parts, filePart{Range: r, Files: files})
	}
	return parts
}

var everything = keygroup.Range{First: 0, Last: testGroups - 1}

func TestSameRangeIsLinkedNotCopied(t *testing.T) {
	t.Parallel()
	parts := filledParts(t, testOptions(), 1, 200, 100)
	dir := filepath.Join(t.TempDir(), "db")
	db, origins, err := openFiles(dir, testOptions(), parts, everything)
	must(t, err)
	defer db.Close()
	tables := 0
	for _, f := range parts[0].Files {
		if !f.Shared {
			continue
		}
		tables++
		if want := (fileOrigin{Part: 0, Local: f.Local}); origins[f.Local] != want {
			t.Errorf("%s has origin %v", f.Local, origins[f.Local])
		}
		stored, err := os.Stat(f.Path)
		must(t, err)
		opened, err := os.Stat(filepath.Join(dir, f.Local))
		if err == nil && !os.SameFile(stored, opened) {
			t.Errorf("%s was copied", f.Local)
		}
	}
	if tables < 10 || len(origins) != tables {
		t.Errorf("%d tables, %d origins", tables, len(origins))
	}
}

// What was opened from files and has not changed since is captured again, as
// often as one likes: in all key groups, in fewer, of several parts, and empty.
func TestUnchangedFilesAreCapturedAgain(t *testing.T) {
	parts := filledParts(t, testOptions(), 3, 50, 10)
	empty := filledParts(t, testOptions(), 1, 0, 10)
	for name, c := range map[string]struct {
		parts []filePart
		r     keygroup.Range
	}{
		"one part": {parts[:1], parts[0].Range}, "clipped": {parts[1:2], keygroup.Range{First: parts[1].Range.First, Last: parts[1].Range.First}},
		"several": {parts, everything}, "empty": {empty, everything},
	} {
		used := c.parts
		var want map[string]string
		for round := range 4 {
			dir := filepath.Join(t.TempDir(), fmt.Sprint(round))
			db, _, err := openFiles(dir, testOptions(), used, c.r)
			must(t, err)
			got := entries(t, db)
			if round == 0 {
				want = got
			}
			compare(t, name, got, want)
			files, err := captureFiles(db, vfs.Default, dir+"-capture")
			must(t, err)
			must(t, db.Close())
			used = []filePart{{Range: c.r, Files: files}}
		}
		if (len(want) == 0) != (name == "empty") {
			t.Errorf("%s: %d entries", name, len(want))
		}
	}
}

// Files that were restored from are somebody else's: nothing changes them,
// whatever becomes of the DB.
func TestRestoredFilesStayAsTheyAre(t *testing.T) {
	parts := filledParts(t, testOptions(), 3, 100, 100)
	sums := func() (out []string) {
		for _, p := range parts {
			for _, f := range p.Files {
				b, err := os.ReadFile(f.Path)
				must(t, err)
				out = append(out, fmt.Sprintf("%s %d %08x", f.Path, len(b), crc32.ChecksumIEEE(b)))
			}
		}
		return out
	}
	before := sums()
	for i, r := range []keygroup.Range{parts[1].Range, {First: 3, Last: 9}, everything} {
		db, _, err := openFiles(filepath.Join(t.TempDir(), fmt.Sprint(i)), testOptions(), parts, r)
		must(t, err)
		must(t, db.DeleteRange(firstKey(r), endKey(r), pebble.NoSync))
		must(t, db.Flush())
		must(t, db.Compact(t.Context(), firstKey(r), endKey(r), false))
		must(t, db.Close())
	}
	if after := sums(); !slices.Equal(before, after) {
		t.Errorf("files were\n%s\nand are\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// A file that is missing, was cut off or is not what it is called is an error
// that names it; there is no part of the state without it.
func TestDamagedFilesAreNamed(t *testing.T) {
	t.Parallel()
	opts := testOptions()
	// Else what the MANIFEST ends with may be a move of a table, which changes
	// nothing, and without which the state is the same.
	opts.DisableAutomaticCompactions = true
	parts := filledParts(t, opts, 2, 60, 100)
	opens := map[string]func(parts []filePart, r keygroup.Range) error{
		"open": func(parts []filePart, r keygroup.Range) error {
			db, _, err := openFiles(filepath.Join(t.TempDir(), "db"), testOptions(), parts, r)
			if err == nil {
				err = db.Close()
				if err == nil {
					return nil
				}
			}
			return err
		},
		"read": func(parts []filePart, r keygroup.Range) error {
			return readFiles(filepath.Join(t.TempDir(), "db"), testOptions(), parts, r, func(_, _ []byte) error { return nil })
		},
	}
	ranges := []keygroup.Range{parts[0].Range, {First: 2, Last: 3}, everything}
	attempt := func(what, name string, damaged []filePart) {
		t.Helper()
		for how, open := range opens {
			for _, r := range ranges {
				err := open(damaged, r)
				if err == nil {
					t.Errorf("%s key groups %s of files with %s: no error", how, r, what)
				} else if !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), parts[0].Range.String()) {
					t.Errorf("%s key groups %s of files with %s: error %q does not name %s and key groups %s", how, r, what, err, name, parts[0].Range)
				}
			}
		}
	}
	with := func(files []statebackend.File) []filePart {
		return []filePart{{Range: parts[0].Range, Files: files}, parts[1]}
	}
	for i, f := range parts[0].Files {
		name := f.Local
		switch kindOf(name) {
		case tableFile:
			// One table stands for all of its kind.
			if i > 0 && kindOf(parts[0].Files[i-1].Local) == tableFile {
				continue
			}
		case manifestFile:
			name = "MANIFEST"
		case markerFile, optionsFile, unknownFile:
			name = "" // without it Pebble says that there is no database
		}
		attempt("no "+f.Local, strings.TrimSuffix(name, ".sst"), with(slices.Delete(slices.Clone(parts[0].Files), i, i+1)))

		gone := slices.Clone(parts[0].Files)
		gone[i].Path += "-gone"
		attempt("a lost "+f.Local, f.Local, with(gone))

		content, err := os.ReadFile(f.Path)
		must(t, err)
		for _, size := range []int{0, len(content) - 1, len(content) + 1} {
			if size < 0 || size == len(content) {
				continue
			}
			damaged := slices.Clone(parts[0].Files)
			damaged[i].Path = filepath.Join(t.TempDir(), "damaged")
			must(t, os.WriteFile(damaged[i].Path, append(slices.Clone(content), 0)[:size], 0o644))
			attempt(fmt.Sprintf("%d of %d bytes of %s", size, len(content), f.Local), f.Local, with(damaged))
			if kindOf(f.Local) == manifestFile && size < len(content) {
				// As if the capture itself had been short.
				damaged[i].Size = int64(size)
				attempt(fmt.Sprintf("%d of %d bytes of %s, as many as were stored", size, len(content), f.Local), "", with(damaged))
			}
		}
		for _, bad := range []string{"../" + f.Local, "1.sst", "000000.sst", "LOCK", "000007.blob", "000007.log", ""} {
			renamed := slices.Clone(parts[0].Files)
			renamed[i].Local = bad
			attempt(fmt.Sprintf("%s called %q", f.Local, bad), fmt.Sprintf("%q", bad), with(renamed))
		}
	}
}

func TestOverlappingPartsAreRefused(t *testing.T) {
	parts := filledParts(t, testOptions(), 2, 10, 10)
	parts[1].Range.First--
	_, _, err := openFiles(filepath.Join(t.TempDir(), "db"), testOptions(), parts, everything)
	if !errors.Is(err, statebackend.ErrCorrupt) || !strings.Contains(err.Error(), parts[1].Range.String()) {
		t.Errorf("error %v", err)
	}
}

// What is clipped stays on disk with the files that hold it, and goes with
// them when compactions have rewritten what else they hold.
func TestClippedBytesGoWithCompactions(t *testing.T) {
	t.Parallel()
	opts := testOptions()
	for i := range opts.TargetFileSizes {
		opts.TargetFileSizes[i] = 1 << 20 // all key groups share a few files
	}
	opts.LBaseMaxBytes = 16 << 20
	parts := filledParts(t, opts, 1, 300, 200)
	dir := filepath.Join(t.TempDir(), "db")
	r := keygroup.Range{First: 7, Last: 7}
	db, _, err := openFiles(dir, opts, parts, r)
	must(t, err)
	defer db.Close()
	before := diskUse(t, dir)
	want := entries(t, db)
	if len(want) != 300 {
		t.Fatalf("%d entries", len(want))
	}
	must(t, db.Set(testKey(7, 0), []byte("new"), pebble.NoSync))
	must(t, db.Set(testKey(7, 999), []byte("new"), pebble.NoSync))
	must(t, db.Flush())
	must(t, db.Compact(t.Context(), firstKey(r), endKey(r), false))
	files, err := captureFiles(db, vfs.Default, dir+"-capture")
	must(t, err)
	after := diskUse(t, dir+"-capture")
	for _, f := range files {
		if f.Shared && slices.ContainsFunc(parts[0].Files, func(old statebackend.File) bool { return old.Local == f.Local }) {
			t.Errorf("%s, of all key groups, is still in use", f.Local)
		}
	}
	if after > before/8 {
		t.Errorf("%d bytes on disk after the restore of one key group of %d, %d after a compaction", before, testGroups, after)
	}
	want[string(testKey(7, 0))], want[string(testKey(7, 999))] = "new", "new"
	compare(t, "compacted", entries(t, db), want)
}

// diskUse is the bytes of all tables in dir.
func diskUse(t testing.TB, dir string) (sum int64) {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range list {
		if kindOf(e.Name()) != tableFile {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // obsolete, and removed meanwhile
		}
		must(t, err)
		sum += info.Size()
	}
	return sum
}
