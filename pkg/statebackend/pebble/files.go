// Package pebble keeps keyed state in a Pebble database.
package pebble

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/statebackend"
)

// How a DB becomes files and files become a DB again, at the same or another
// key-group range, without reading or writing its keys one by one. What was
// tried, and the numbers, are in docs/decisions/0005-rescaling-files.md.
//
// Every key begins with its key group, two bytes, big-endian. The DBs have no
// WAL, no range keys, no blob files and never an open pebble.Snapshot.
//
// A table may be virtual: it shows a part of a file. Files are what is
// captured, so clipped keys stay on disk, in checkpoints too, until a
// compaction rewrites the tables of the file.

// minFormat is the lowest format with virtual tables, which clipping makes.
const minFormat = pebble.FormatVirtualSSTables

// filePart is the files of one earlier subtask, which hold key groups Range.
type filePart struct {
	Range keygroup.Range
	Files []statebackend.File
}

// fileOrigin is a file of a part: Files[i] of parts[Part] that has this Local.
type fileOrigin struct {
	Part  int
	Local string
}

// captureFiles hard-links everything that db holds now, but for its
// memtables, into dir, which it makes, and names it. Tables are Shared.
//
// It may be called while db is written, flushed and compacted; the caller sees
// to it that what has to be in the view was flushed before.
func captureFiles(db *pebble.DB, fs vfs.FS, dir string) (_ []statebackend.File, err error) {
	if err := db.Checkpoint(dir); err != nil {
		return nil, fmt.Errorf("link the files of a state database into %s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("capture the files of a state database in %s: %w", dir, err)
			_ = fs.RemoveAll(dir) // best effort: the directory is the caller's to remove anyway
		}
	}()
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	files := make([]statebackend.File, 0, len(names))
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		if err != nil {
			return nil, err
		}
		kind := kindOf(name)
		switch {
		case kind == optionsFile:
			// Whoever opens the files brings their own options. What has to
			// fit, the order of keys and the format, is in the other files.
			continue
		case kind == unknownFile && strings.HasSuffix(name, ".log") && info.Size() == 0:
			// Pebble makes a WAL even if it is never to be written.
			continue
		case kind == manifestFile && info.Size() == 0:
			return nil, fmt.Errorf("file %s is empty: the database was opened and has not begun its own; see beginManifest", name)
		case kind == unknownFile:
			return nil, fmt.Errorf("file %s, of %d bytes, is none of a database without WAL and blob files", name, info.Size())
		}
		files = append(files, statebackend.File{
			Local: name, Path: path, Size: info.Size(), Shared: kind == tableFile,
		})
	}
	return files, nil
}

// openFiles makes a DB in dir, which is empty or does not exist, that holds
// exactly the key groups r of parts. The parts' ranges are disjoint; their
// files are linked and stay as they are.
//
// The map says of file names that the DB may use which file of which part
// they are. The DB gives none of these names to anything else, ever. With one
// part in r all files keep their names; with several those of the largest do.
//
// After an error dir has rubbish in it.
func openFiles(dir string, opts *pebble.Options, parts []filePart, r keygroup.Range) (*pebble.DB, map[string]fileOrigin, error) {
	db, origins, err := openParts(dir, options(opts), parts, r)
	if err != nil {
		return nil, nil, fmt.Errorf("make the state database of key groups %s from files: %w", r, err)
	}
	return db, origins, nil
}

func openParts(dir string, opts *pebble.Options, parts []filePart, r keygroup.Range) (*pebble.DB, map[string]fileOrigin, error) {
	used, err := partsIn(parts, r)
	if err != nil {
		return nil, nil, err
	}
	if err := opts.FS.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	switch len(used) {
	case 0:
		opts.ErrorIfExists = true
		db, err := pebble.Open(dir, opts)
		return db, nil, err
	case 1:
		return openPart(dir, opts, used[0])
	default:
		return mergeParts(dir, opts, used)
	}
}

// openPart makes the DB of a single part: link, open, clip if need be.
func openPart(dir string, opts *pebble.Options, p usedPart) (*pebble.DB, map[string]fileOrigin, error) {
	tables, _, err := linkPart(dir, opts, p)
	if err != nil {
		return nil, nil, err
	}
	origins := make(map[string]fileOrigin, len(p.part.Files))
	for _, f := range p.part.Files {
		if f.Shared {
			origins[f.Local] = fileOrigin{Part: p.index, Local: f.Local}
		}
	}
	db, err := openExisting(dir, opts)
	if err != nil {
		return nil, nil, p.wrap(err)
	}
	if err := clip(db, tables, p.keep); err != nil {
		return nil, nil, p.wrap(closeAfter(db, err))
	}
	return db, origins, nil
}

// beginManifest has an opened DB write a MANIFEST of its own. Pebble does that
// with the first change, and until then takes the one it has read for empty:
// captureFiles would have no tables. The change is to take out what is behind
// all key groups, where nothing is.
func beginManifest(db *pebble.DB) error {
	if err := db.Excise(background(), pebble.KeyRange{Start: []byte{0xff, 0xff}, End: []byte{0xff, 0xff, 0xff}}); err != nil {
		return fmt.Errorf("begin a MANIFEST: %w", err)
	}
	return nil
}

// readFiles calls each for every entry of key groups r in parts, in the order
// of the keys; key and value are good until it returns. It works in dir, which
// it makes and removes. The files stay as they are.
func readFiles(dir string, opts *pebble.Options, parts []filePart, r keygroup.Range, each func(key, value []byte) error) (err error) {
	opts = options(opts)
	used, err := partsIn(parts, r)
	if err != nil {
		return fmt.Errorf("read key groups %s from files: %w", r, err)
	}
	defer func() {
		if removeErr := opts.FS.RemoveAll(dir); err == nil && removeErr != nil {
			err = fmt.Errorf("read key groups %s from files: %w", r, removeErr)
		}
	}()
	for _, p := range used {
		partDir := opts.FS.PathJoin(dir, partDirName(p.index))
		if err := opts.FS.MkdirAll(partDir, 0o755); err != nil {
			return fmt.Errorf("read key groups %s from files: %w", r, err)
		}
		if err := readPart(partDir, opts, p, each); err != nil {
			return err
		}
	}
	return nil
}

func readPart(dir string, opts *pebble.Options, p usedPart, each func(key, value []byte) error) (err error) {
	if _, _, err := linkPart(dir, opts, p); err != nil {
		return err
	}
	db, err := pebble.Open(dir, readOnly(opts))
	if err != nil {
		return p.wrap(err)
	}
	defer func() { err = closeAfter(db, err) }()
	iter, err := db.NewIter(&pebble.IterOptions{LowerBound: firstKey(p.keep), UpperBound: endKey(p.keep)})
	if err != nil {
		return p.wrap(err)
	}
	for valid := iter.First(); valid; valid = iter.Next() {
		value, err := iter.ValueAndErr()
		if err == nil {
			err = each(iter.Key(), value)
		}
		if err != nil {
			_ = iter.Close() // its error would be the same one
			return err
		}
	}
	if err := iter.Close(); err != nil {
		return p.wrap(err)
	}
	return nil
}

// usedPart is a part that has key groups of the range that is asked for.
type usedPart struct {
	index int // among all parts
	part  filePart
	keep  keygroup.Range // what is asked for of the part's range
}

func (p usedPart) wrap(err error) error {
	return fmt.Errorf("the files of key groups %s: %w", p.part.Range, err)
}

// partsIn picks the parts that have key groups of r, in the order of their ranges.
func partsIn(parts []filePart, r keygroup.Range) ([]usedPart, error) {
	var used []usedPart
	for i, p := range parts {
		if p.Range.First > p.Range.Last || p.Range.Last >= keygroup.MaxParallelismLimit {
			return nil, fmt.Errorf("%w: files of key groups %s", statebackend.ErrCorrupt, p.Range)
		}
		if keep, ok := p.Range.Intersect(r); ok {
			used = append(used, usedPart{index: i, part: p, keep: keep})
		}
	}
	slices.SortFunc(used, func(a, b usedPart) int { return int(a.part.Range.First) - int(b.part.Range.First) })
	for i := 1; i < len(used); i++ {
		if used[i-1].part.Range.Last >= used[i].part.Range.First {
			return nil, fmt.Errorf("%w: two sets of files have key groups %s and %s, which overlap",
				statebackend.ErrCorrupt, used[i-1].part.Range, used[i].part.Range)
		}
	}
	return used, nil
}

// linkPart links the files of a part into dir and says which tables they
// hold. Nothing that is missing, too short or not named by the part goes
// unnoticed: pebble.Open alone makes a new DB where it finds no MANIFEST, and
// stops reading one where it ends too early.
func linkPart(dir string, opts *pebble.Options, p usedPart) ([]table, pebble.FormatMajorVersion, error) {
	manifests := 0
	named := make(map[uint64]bool, len(p.part.Files))
	for _, f := range p.part.Files {
		switch kindOf(f.Local) {
		case tableFile:
			named[tableNumber(f.Local)] = true
		case manifestFile:
			manifests++
		case markerFile:
		case optionsFile, unknownFile:
			return nil, 0, p.wrap(fmt.Errorf("%w: a file called %q", statebackend.ErrCorrupt, f.Local))
		}
		info, err := opts.FS.Stat(f.Path)
		if err != nil {
			return nil, 0, p.wrap(fmt.Errorf("file %s: %w", f.Local, err))
		}
		if info.Size() != f.Size {
			return nil, 0, p.wrap(fmt.Errorf("%w: file %s, at %s, has %d bytes instead of %d", statebackend.ErrCorrupt, f.Local, f.Path, info.Size(), f.Size))
		}
		if err := vfs.LinkOrCopy(opts.FS, f.Path, opts.FS.PathJoin(dir, f.Local)); err != nil {
			return nil, 0, p.wrap(fmt.Errorf("link file %s: %w", f.Local, err))
		}
	}
	if manifests != 1 {
		return nil, 0, p.wrap(fmt.Errorf("%w: %d MANIFEST files instead of one", statebackend.ErrCorrupt, manifests))
	}
	tables, format, err := readTables(dir, opts)
	if err != nil {
		return nil, 0, p.wrap(err)
	}
	held := make(map[uint64]bool, len(named))
	for _, t := range tables {
		held[t.file()] = true
	}
	for n := range held {
		if !named[n] {
			return nil, 0, p.wrap(fmt.Errorf("%w: file %s is missing", statebackend.ErrCorrupt, tableName(n)))
		}
	}
	for n := range named {
		if !held[n] {
			return nil, 0, p.wrap(fmt.Errorf("%w: file %s is not in the MANIFEST", statebackend.ErrCorrupt, tableName(n)))
		}
	}
	return tables, format, nil
}

// table is one table of a DB. Its numbers are those of the DB.
type table struct {
	level int
	pebble.SSTableInfo
}

// file is the number of the file that the table is, or is a part of.
func (t table) file() uint64 { return uint64(t.BackingSSTNum) }

// readTables lists the tables of the DB in dir, from the top level down.
func readTables(dir string, opts *pebble.Options) (_ []table, _ pebble.FormatMajorVersion, err error) {
	db, err := pebble.Open(dir, readOnly(opts))
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = closeAfter(db, err) }()
	tables, err := tablesOf(db)
	return tables, db.FormatMajorVersion(), err
}

func tablesOf(db *pebble.DB) ([]table, error) {
	levels, err := db.SSTables()
	if err != nil {
		return nil, err
	}
	var tables []table
	for level, infos := range levels {
		for _, info := range infos {
			if info.BackingType != pebble.BackingTypeLocal {
				return nil, fmt.Errorf("file %s is not local", tableName(uint64(info.BackingSSTNum)))
			}
			tables = append(tables, table{level: level, SSTableInfo: info})
		}
	}
	return tables, nil
}

// clip removes from db what tables, its tables, show of key groups that are
// not in keep. Tables across a bound become virtual; no key is written.
func clip(db *pebble.DB, tables []table, keep keygroup.Range) error {
	for _, span := range outside(tables, keep) {
		if err := db.Excise(background(), span); err != nil {
			return fmt.Errorf("clip to key groups %s: %w", keep, err)
		}
	}
	return nil
}

// outside is what there is to clip: a span before keep and one behind it, if
// any table reaches into them.
func outside(tables []table, keep keygroup.Range) []pebble.KeyRange {
	first, end := firstKey(keep), endKey(keep)
	lowest, highest := first, end
	for _, t := range tables {
		if bytes.Compare(t.Smallest.UserKey, lowest) < 0 {
			lowest = t.Smallest.UserKey
		}
		// The next key behind the largest, unless that is exclusive itself.
		behind := t.Largest.UserKey
		if !t.Largest.IsExclusiveSentinel() {
			behind = append(slices.Clone(behind), 0)
		}
		if bytes.Compare(behind, highest) > 0 {
			highest = behind
		}
	}
	var spans []pebble.KeyRange
	if bytes.Compare(lowest, first) < 0 {
		spans = append(spans, pebble.KeyRange{Start: lowest, End: first})
	}
	if bytes.Compare(end, highest) < 0 {
		spans = append(spans, pebble.KeyRange{Start: end, End: highest})
	}
	return spans
}

// firstKey is below or equal to every key of r.
func firstKey(r keygroup.Range) []byte { return binary.BigEndian.AppendUint16(nil, uint16(r.First)) }

// endKey is above every key of r and below or equal to all that follow.
func endKey(r keygroup.Range) []byte { return binary.BigEndian.AppendUint16(nil, uint16(r.Last)+1) }

// options are the caller's with what this file relies on.
func options(opts *pebble.Options) *pebble.Options {
	if opts == nil {
		opts = &pebble.Options{DisableWAL: true}
	}
	opts = opts.Clone()
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	if opts.EventListener == nil {
		opts.EventListener = returning()
	}
	if opts.Comparer == nil {
		opts.Comparer = pebble.DefaultComparer
	}
	opts.FormatMajorVersion = max(opts.FormatMajorVersion, minFormat)
	return opts
}

// readOnly are options to look into a DB with.
func readOnly(opts *pebble.Options) *pebble.Options {
	opts = quiet(opts)
	opts.ReadOnly = true
	return opts
}

// quiet are options for a DB that is opened in between: it does nothing by
// itself and the caller's listener does not hear of it.
func quiet(opts *pebble.Options) *pebble.Options {
	opts = opts.Clone()
	opts.ErrorIfNotExists = true
	opts.DisableAutomaticCompactions = true
	opts.EventListener = returning()
	return opts
}

// returning is a listener that lets damaged blocks be errors of the calls that
// read them. Without one Pebble has its logger end the process.
func returning() *pebble.EventListener {
	return &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}}
}

// openExisting opens the DB in dir, to be changed and captured, and never makes one.
func openExisting(dir string, opts *pebble.Options) (*pebble.DB, error) {
	opts = opts.Clone()
	opts.ErrorIfNotExists = true
	db, err := pebble.Open(dir, opts)
	if err != nil {
		return nil, err
	}
	if err := beginManifest(db); err != nil {
		return nil, closeAfter(db, err)
	}
	return db, nil
}

// closeAfter closes db and returns err, or else what went wrong with closing.
func closeAfter(db *pebble.DB, err error) error {
	if closeErr := db.Close(); err == nil {
		return closeErr
	}
	return err
}

// fileKind is what a name in a DB's directory stands for.
type fileKind int

const (
	unknownFile fileKind = iota
	tableFile
	manifestFile
	markerFile
	optionsFile
)

// kindOf knows the names that captureFiles gives, and no name that leads out
// of a directory.
func kindOf(local string) fileKind {
	if strings.ContainsAny(local, `/\`) {
		return unknownFile
	}
	if n := tableNumber(local); n > 0 && tableName(n) == local {
		return tableFile
	}
	switch {
	case strings.HasPrefix(local, "MANIFEST-"):
		return manifestFile
	case strings.HasPrefix(local, "marker.format-version."), strings.HasPrefix(local, "marker.manifest."):
		return markerFile
	case strings.HasPrefix(local, "OPTIONS-"):
		return optionsFile
	}
	return unknownFile
}

// tableName is the name of the file of a number.
func tableName(number uint64) string { return fmt.Sprintf("%06d.sst", number) }

// tableNumber is the number in a table file's name, 0 for other names.
func tableNumber(local string) uint64 {
	digits, ok := strings.CutSuffix(local, ".sst")
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// partDirName is where a part is worked on, within a DB's directory.
func partDirName(index int) string { return "part-" + strconv.Itoa(index) }
