package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"github.com/weirstream/weir/pkg/statebackend"
)

// mergeParts makes one DB of several parts. Each is clipped by itself; then
// their key ranges are disjoint, and so the union of their levels is again a
// valid tree: no table of one part can shadow a key of another, and within a
// part all tables keep level and sequence numbers. Pebble has no call for
// that, so the MANIFEST of the union is written here and read back before it
// is used. All it needs of the parts is what pebble.DB.SSTables says.
func mergeParts(dir string, opts *pebble.Options, used []usedPart) (*pebble.DB, map[string]fileOrigin, error) {
	clipped := make([]clippedPart, len(used))
	for i, p := range used {
		c, err := clipPart(opts.FS.PathJoin(dir, partDirName(p.index)), opts, p)
		if err != nil {
			return nil, nil, err
		}
		clipped[i] = c
	}
	u := unite(clipped)
	for _, m := range u.moves {
		if err := opts.FS.Rename(opts.FS.PathJoin(m.dir, m.from), opts.FS.PathJoin(dir, m.to)); err != nil {
			return nil, nil, fmt.Errorf("move a file of the merged state: %w", err)
		}
	}
	for _, c := range clipped {
		if err := opts.FS.RemoveAll(c.dir); err != nil {
			return nil, nil, fmt.Errorf("remove a part of the merged state: %w", err)
		}
	}
	if err := u.write(dir, opts); err != nil {
		return nil, nil, fmt.Errorf("write the MANIFEST of the merged state: %w", err)
	}
	if err := u.check(dir, opts); err != nil {
		return nil, nil, fmt.Errorf("read back the MANIFEST of the merged state: %w", err)
	}
	db, err := openExisting(dir, opts)
	if err != nil {
		return nil, nil, err
	}
	return db, u.origins, nil
}

// clippedPart is a part in a directory of its own that shows nothing but what
// is asked for of it.
type clippedPart struct {
	usedPart
	dir    string
	format pebble.FormatMajorVersion
	tables []table
}

func clipPart(dir string, opts *pebble.Options, p usedPart) (_ clippedPart, err error) {
	c := clippedPart{usedPart: p, dir: dir}
	if err := opts.FS.MkdirAll(dir, 0o755); err != nil {
		return c, p.wrap(err)
	}
	if c.tables, c.format, err = linkPart(dir, opts, p); err != nil || len(outside(c.tables, p.keep)) == 0 {
		return c, err
	}
	db, err := pebble.Open(dir, quiet(opts))
	if err != nil {
		return c, p.wrap(err)
	}
	if err = clip(db, c.tables, p.keep); err == nil {
		c.tables, err = tablesOf(db)
	}
	c.format = db.FormatMajorVersion()
	if err == nil && len(outside(c.tables, p.keep)) > 0 {
		err = errors.New("tables reach out of the key groups that they were clipped to")
	}
	if err = closeAfter(db, err); err != nil {
		return c, p.wrap(err)
	}
	return c, nil
}

// union is a DB that is about to be made of parts.
type union struct {
	tables  []unionTable
	files   []unionFile // of virtual tables, which have to be declared
	moves   []fileMove
	origins map[string]fileOrigin
	format  pebble.FormatMajorVersion
	next    uint64 // all numbers in use are below
	lastSeq uint64
}

// unionTable is a table of a part under its numbers in the union.
type unionTable struct {
	table
	number, fileNumber uint64
}

type unionFile struct{ number, size uint64 }

// fileMove is a file to be moved from the directory of its part.
type fileMove struct{ dir, from, to string }

// unite plans the union. The part with the most bytes keeps all its numbers.
func unite(parts []clippedPart) *union {
	u := &union{origins: map[string]fileOrigin{}}
	base, baseBytes := 0, uint64(0)
	for i, p := range parts {
		var size uint64
		for _, t := range p.tables {
			size += t.Size
		}
		if size > baseBytes {
			base, baseBytes = i, size
		}
		u.format = max(u.format, p.format)
	}
	for _, t := range parts[base].tables {
		u.next = max(u.next, uint64(t.FileNum)+1, t.file()+1)
	}
	// A name that the largest part had but does not use any more after the
	// clipping must not come back either: it may be in an earlier checkpoint.
	for _, f := range parts[base].part.Files {
		u.next = max(u.next, tableNumber(f.Local)+1)
	}
	u.next = max(u.next, 1)
	for i, p := range parts {
		u.add(p, i == base)
	}
	return u
}

// add adds the tables of a part.
func (u *union) add(p clippedPart, keepNumbers bool) {
	sizes := make(map[uint64]uint64, len(p.part.Files))
	for _, f := range p.part.Files {
		sizes[tableNumber(f.Local)] = uint64(f.Size)
	}
	numbers := make(map[uint64]uint64, len(p.part.Files)) // of files: in the part → in the union
	for _, t := range p.tables {
		ut := unionTable{table: t}
		fileNumber, known := numbers[t.file()]
		if !known {
			fileNumber = t.file()
			if !keepNumbers {
				fileNumber = u.take()
			}
			numbers[t.file()] = fileNumber
			u.moves = append(u.moves, fileMove{dir: p.dir, from: tableName(t.file()), to: tableName(fileNumber)})
			u.origins[tableName(fileNumber)] = fileOrigin{Part: p.index, Local: tableName(t.file())}
			if t.Virtual {
				u.files = append(u.files, unionFile{number: fileNumber, size: sizes[t.file()]})
			}
		}
		ut.fileNumber = fileNumber
		switch {
		case keepNumbers:
			ut.number = uint64(t.FileNum)
		case t.Virtual:
			ut.number = u.take()
		default:
			ut.number = fileNumber
		}
		u.lastSeq = max(u.lastSeq, uint64(t.LargestSeqNum))
		u.tables = append(u.tables, ut)
	}
}

func (u *union) take() uint64 {
	n := u.next
	u.next++
	return n
}

// Tags of the MANIFEST, as in LevelDB, RocksDB and Pebble: a file of records,
// each a list of tagged fields. What has been written once every later version
// of Pebble has to read, as long as it opens DBs of that format version.
const (
	tagComparer     = 1
	tagLogNumber    = 2
	tagNextFile     = 3
	tagLastSequence = 4
	tagNewTable     = 103
	tagBackingFile  = 105

	tableTagEnd     = 1
	tableTagVirtual = 66
)

// manifest is the union as the one record of a MANIFEST.
func (u *union) manifest(comparer string, logNumber uint64) []byte {
	b := binary.AppendUvarint(nil, tagComparer)
	b = appendString(b, []byte(comparer))
	for _, field := range [][2]uint64{{tagLogNumber, logNumber}, {tagNextFile, u.next}, {tagLastSequence, u.lastSeq}} {
		b = binary.AppendUvarint(b, field[0])
		b = binary.AppendUvarint(b, field[1])
	}
	for _, f := range u.files {
		b = binary.AppendUvarint(b, tagBackingFile)
		b = binary.AppendUvarint(b, f.number)
		b = binary.AppendUvarint(b, f.size)
	}
	for _, t := range u.tables {
		b = binary.AppendUvarint(b, tagNewTable)
		b = binary.AppendUvarint(b, uint64(t.level))
		b = binary.AppendUvarint(b, t.number)
		b = binary.AppendUvarint(b, t.Size)
		b = appendInternalKey(b, t.Smallest)
		b = appendInternalKey(b, t.Largest)
		b = binary.AppendUvarint(b, uint64(t.SmallestSeqNum))
		b = binary.AppendUvarint(b, uint64(t.LargestSeqNum))
		if t.Virtual {
			b = binary.AppendUvarint(b, tableTagVirtual)
			b = binary.AppendUvarint(b, t.fileNumber)
		}
		b = binary.AppendUvarint(b, tableTagEnd)
	}
	return b
}

func appendString(b, s []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendInternalKey(b []byte, k pebble.InternalKey) []byte {
	encoded := make([]byte, k.Size())
	k.Encode(encoded)
	return appendString(b, encoded)
}

// write makes dir, which has the files of all tables, a DB.
func (u *union) write(dir string, opts *pebble.Options) error {
	logNumber, manifestNumber := u.take(), u.take()
	name := fmt.Sprintf("MANIFEST-%06d", manifestNumber)
	f, err := opts.FS.Create(opts.FS.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	w := record.NewWriter(f)
	_, err = w.WriteRecord(u.manifest(opts.Comparer.Name, logNumber))
	if closeErr := w.Close(); err == nil {
		err = closeErr
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if err := setMarker(opts.FS, dir, "format-version", u.format.String()); err != nil {
		return err
	}
	return setMarker(opts.FS, dir, "manifest", name)
}

func setMarker(fs vfs.FS, dir, name, value string) error {
	m, _, err := atomicfs.LocateMarker(fs, dir, name)
	if err != nil {
		return err
	}
	err = m.Move(value)
	if closeErr := m.Close(); err == nil {
		err = closeErr
	}
	return err
}

// check compares what Pebble reads from dir with what was meant.
func (u *union) check(dir string, opts *pebble.Options) error {
	read, format, err := readTables(dir, opts)
	if err != nil {
		return err
	}
	var want, got []string
	for _, t := range u.tables {
		want = append(want, t.describe(t.number, t.fileNumber))
	}
	for _, t := range read {
		got = append(got, t.describe(uint64(t.FileNum), t.file()))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) || format != u.format {
		return fmt.Errorf("%w: %d tables of format %s instead of %d of format %s, or others", statebackend.ErrCorrupt, len(got), format, len(want), u.format)
	}
	return nil
}

// describe is everything of a table that decides what can be read through it.
func (t table) describe(number, fileNumber uint64) string {
	return fmt.Sprintf("L%d table %d of file %d, %d bytes, virtual %t, %s to %s, sequence numbers %d to %d",
		t.level, number, fileNumber, t.Size, t.Virtual, t.Smallest, t.Largest, t.SmallestSeqNum, t.LargestSeqNum)
}

// background is the context of calls that nothing could usefully cancel: they
// change metadata only.
func background() context.Context { return context.Background() }
