package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// storeFile writes a file of these bytes.
func storeFile(t testing.TB, fs vfs.FS, path string, content []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	must(t, err)
	// With the race detector Pebble's file system spoils what it was given.
	_, err = f.Write(slices.Clone(content))
	must(t, errors.Join(err, f.Close()))
}

func loadFile(t testing.TB, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	must(t, err)
	content, err := io.ReadAll(f)
	must(t, errors.Join(err, f.Close()))
	return content
}

// FuzzClock: a file weir-clock is read as the one that was written, or refused.
func FuzzClock(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 0, 0, 1, 1}, 3)
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0}, 0)
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0x80, 2}, 1)
	f.Add([]byte{}, 1)
	fs := vfs.NewMem()
	f.Fuzz(func(t *testing.T, content []byte, states int) {
		states = max(0, min(states, 1000))
		storeFile(t, fs, clockFile, content)
		table := statebackend.File{Local: tableName(1)}
		part, clock, err := splitClock(&pebble.Options{FS: fs}, statebackend.RestoredPart{
			States: make([]snapshot.StateMeta, states),
			Files:  []statebackend.File{table, {Local: clockFile, Path: clockFile, Size: int64(len(content))}},
		})
		if err != nil {
			if !errors.Is(err, statebackend.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again := binary.LittleEndian.AppendUint64(nil, uint64(clock.now))
		for _, keeps := range clock.keepsAge {
			again = append(again, map[bool]byte{true: 1}[keeps])
		}
		if string(again) != string(content) || len(clock.keepsAge) != states || clock.now < 0 || !slices.Equal(part.Files, []statebackend.File{table}) {
			t.Fatalf("%x of %d states is read as %+v, with files %+v", content, states, clock, part.Files)
		}
	})
}

// fuzzedParts are two parts whose files have several levels, virtual tables
// and deletions, and what they hold.
func fuzzedParts(t testing.TB, opts *pebble.Options) (parts []filePart, want map[string]string) {
	t.Helper()
	write := func(db *pebble.DB, round int, r keygroup.Range) {
		for g := r.First; g <= r.Last; g++ {
			for n := range 6 {
				must(t, db.Set(testKey(g, n*(round+1)), fmt.Appendf(nil, "%d/%d", round, n), pebble.NoSync))
			}
			must(t, db.Delete(testKey(g, round), pebble.NoSync))
		}
		must(t, db.Flush())
	}
	db, _, err := openFiles("whole", opts, nil, everything)
	must(t, err)
	write(db, 1, everything)
	must(t, db.Compact(t.Context(), firstKey(everything), endKey(everything), false))
	write(db, 2, everything)
	files, err := captureFiles(db, opts.FS, "whole-capture")
	must(t, errors.Join(err, db.Close()))
	want = map[string]string{}
	for i, r := range []keygroup.Range{{First: 3, Last: 6}, {First: 7, Last: 12}} {
		dir := fmt.Sprint("part", i)
		db, _, err := openFiles(dir, opts, []filePart{{Range: everything, Files: files}}, r)
		must(t, err)
		write(db, 3, keygroup.Range{First: r.First, Last: r.First})
		maps.Copy(want, entries(t, db))
		files, err := captureFiles(db, opts.FS, dir+"-capture")
		must(t, errors.Join(err, db.Close()))
		parts = append(parts, filePart{Range: r, Files: files})
	}
	return parts, want
}

// The ways in which FuzzFiles damages a part.
const (
	damageBytes = iota // some bytes of a file are others
	damageTail         // the end of a file is others, or missing
	damageLost         // a file is not listed
	damageSwap         // a file is listed under the name of another
	damages
)

// FuzzFiles: files of a part that are damaged, missing or under wrong names are
// an error, or all entries are there: whichever bytes are wrong, nothing
// panics and nothing is claimed of memory that is not there.
//
// A file's own checksum, in its handle, is compared before a backend sees it.
// So other entries than were stored are a failure only where it could not tell.
// A record of a MANIFEST with other bytes and the right checksum is not tried:
// no damage makes one, and Pebble believes the lengths in it.
func FuzzFiles(f *testing.F) {
	fs := vfs.NewMem()
	opts := testOptions()
	opts.FS = withoutSync(fs)
	opts.DisableAutomaticCompactions = true
	parts, want := fuzzedParts(f, opts)
	for i := range parts[0].Files {
		for how := range damages {
			f.Add(uint8(how), uint8(i), uint16(11), []byte{1, 2, 3})
		}
		f.Add(uint8(damageTail), uint8(i), uint16(0), []byte{})
	}
	f.Fuzz(func(t *testing.T, how, file uint8, at uint16, bytes []byte) {
		files := slices.Clone(parts[0].Files)
		i := int(file) % len(files)
		content := loadFile(t, fs, files[i].Path)
		// What a checksum over the bytes tells need not be told here.
		checksummed := true
		switch how := int(how) % damages; how {
		case damageBytes:
			if len(content) > 0 {
				for j, b := range bytes {
					content[(int(at)+j)%len(content)] ^= b
				}
			}
		case damageTail:
			content = append(content[:min(int(at), len(content))], bytes...)
		case damageLost:
			files, checksummed = slices.Delete(files, i, i+1), false
		case damageSwap:
			j := (i + int(at)) % len(files)
			files[i].Local, files[j].Local, checksummed = files[j].Local, files[i].Local, false
		}
		if checksummed {
			files[i].Path, files[i].Size = "damaged", int64(len(content))
			storeFile(t, fs, "damaged", content)
		}
		damaged := []filePart{{Range: parts[0].Range, Files: files}, parts[1]}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for what, read := range map[string]func(map[string]string) error{
			"read": func(got map[string]string) error {
				return readFiles("read", opts, damaged, everything, func(key, value []byte) error {
					got[string(key)] = string(value)
					return nil
				})
			},
			"opened": func(got map[string]string) error { return openAll("opened", opts, damaged, got) },
		} {
			got := map[string]string{}
			err := read(got)
			must(t, fs.RemoveAll(what))
			if err == nil && !checksummed && !maps.Equal(got, want) {
				t.Fatalf("%s are %d entries instead of %d, without an error", what, len(got), len(want))
			}
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
			t.Fatalf("%d bytes allocated for files of some KB", n)
		}
	})
}

// openAll collects all entries of a DB that is made of parts.
func openAll(dir string, opts *pebble.Options, parts []filePart, got map[string]string) (err error) {
	db, _, err := openFiles(dir, opts, parts, everything)
	if err != nil {
		return err
	}
	defer func() { err = closeAfter(db, err) }()
	it, err := db.NewIter(nil)
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return errors.Join(err, it.Close())
		}
		got[string(it.Key())] = string(value)
	}
	return it.Close()
}
