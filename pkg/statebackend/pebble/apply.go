package pebble

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirstream/weir/pkg/codec"
)

// generation is what changed between two seals.
type generation struct {
	number uint64
	parts  []generationPart
	now    int64
	bytes  int64 // that it takes in memory
	sweeps bool  // some state has values that expire
}

type generationPart struct {
	number  int // of the state
	segment segment
}

// segment is a sealed table of one state's values, without its types.
type segment interface {
	// collect names the entries that changed, in any order.
	collect(c *changes, s *store) error
	// value appends the stored form of the i-th entry it named, or says that
	// there is none.
	value(dst []byte, i uint32, now int64) (out []byte, present bool)
	// written says that the database has it.
	written()
}

// change is one entry to be written. There are many, so it has no pointers.
type change struct {
	rank  uint64 // the first bytes of what follows key group and state number
	at    uint64 // of the key in changes.keys
	size  uint32
	index uint32 // in its segment
	part  int32  // the segment; -1 for a deletion that gives way to any other change
}

// changes are those of a generation.
type changes struct {
	keys []byte
	list []change
	part int32
}

// add takes a change whose key was appended to c.keys from begin on.
func (c *changes) add(begin int, index uint32) {
	key := c.keys[begin:]
	var piece [8]byte
	copy(piece[:], key[:2])
	copy(piece[2:], key[min(prefixBytes, len(key)):])
	c.list = append(c.list, change{rank: binary.BigEndian.Uint64(piece[:]), at: uint64(begin), size: uint32(len(key)), index: index, part: c.part})
}

// addDeletion takes a key that is to be deleted unless something else is known of it.
func (c *changes) addDeletion(key []byte) {
	begin, part := len(c.keys), c.part
	c.keys = append(c.keys, key...)
	c.part = -1
	c.add(begin, 0)
	c.part = part
}

func (c *changes) key(r *change) []byte { return c.keys[r.at : r.at+uint64(r.size)] }

// sort puts the changes in the order of their keys, and of several of one key
// the deletion that gives way last.
func (c *changes) sort(states int) {
	slices.SortFunc(c.list, func(a, b change) int {
		// With several states the number comes between group and key, so the
		// rank decides only if there is one.
		if states == 1 && a.rank != b.rank {
			return cmp.Compare(a.rank, b.rank)
		}
		if d := bytes.Compare(c.key(&a), c.key(&b)); d != 0 {
			return d
		}
		return cmp.Compare(b.part, a.part)
	})
}

// applier writes generations. It keeps its buffers.
type applier struct {
	changes changes
	value   []byte
	files   uint64
	swept   []byte // where the sweep for expired values has come to
	// tooLarge are stored keys of values over the limit: snapshots in files
	// are refused while there are any. Bounded by tooLargeMax.
	tooLarge map[string]int
}

const tooLargeMax = 1000

// buffersMax is how much of a buffer is kept for the next generation.
const buffersMax = 1 << 20

// apply brings a generation into the database: all of it or, with an error, nothing.
func (a *applier) apply(s *store, g *generation) (err error) {
	defer codec.Recover(&err)
	c := &a.changes
	c.keys, c.list = c.keys[:0], c.list[:0]
	for i := range g.parts {
		c.part = int32(i)
		if err := g.parts[i].segment.collect(c, s); err != nil {
			return err
		}
	}
	if g.sweeps {
		if err := a.sweep(s, g); err != nil {
			return err
		}
	}
	c.sort(len(s.columns))
	out := newTables(s)
	var last []byte
	for i := range c.list {
		r := &c.list[i]
		key := c.key(r)
		if i > 0 && bytes.Equal(key, last) {
			continue
		}
		last = key
		present := false
		if r.part >= 0 {
			a.value, present = g.parts[r.part].segment.value(a.value[:0], r.index, g.now)
		}
		if !present {
			delete(a.tooLarge, string(key))
			err = out.delete(key)
		} else {
			a.note(key, len(a.value), s.valueMax)
			err = out.set(key, a.value)
		}
		if err != nil {
			out.abandon()
			return err
		}
	}
	if err := out.ingest(); err != nil {
		return err
	}
	for i := range g.parts {
		g.parts[i].segment.written()
	}
	if cap(c.keys) > buffersMax {
		c.keys, c.list = nil, nil
	}
	if cap(a.value) > buffersMax {
		a.value = nil
	}
	return nil
}

// note keeps account of values over the limit.
func (a *applier) note(key []byte, size, limit int) {
	if size <= limit {
		if len(a.tooLarge) > 0 {
			delete(a.tooLarge, string(key))
		}
		return
	}
	if a.tooLarge == nil {
		a.tooLarge = map[string]int{}
	}
	if len(a.tooLarge) < tooLargeMax {
		a.tooLarge[string(key)] = size
	}
}

// sweepMin is how many entries a generation looks at for expired ones, beside
// twice as many as it writes itself.
const sweepMin = 1024

// sweep deletes expired entries among the next few of the database.
func (a *applier) sweep(s *store, g *generation) (err error) {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, it.Close()) }()
	// Not a seek to an empty key: with the race detector Pebble looks at its first byte.
	ok := false
	if len(a.swept) == 0 {
		ok = it.First()
	} else {
		ok = it.SeekGE(a.swept)
	}
	for range sweepMin + 2*len(a.changes.list) {
		if !ok {
			if a.swept = a.swept[:0]; it.Error() != nil {
				return it.Error()
			}
			return nil
		}
		_, number := cutPrefix(it.Key())
		if c := s.columns[number]; c.canExpire() {
			value, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			expired, err := c.isExpired(value, g.now)
			if err != nil {
				return err
			}
			if expired {
				a.changes.addDeletion(it.Key())
			}
		}
		ok = it.Next()
	}
	a.swept = a.swept[:0]
	if ok {
		a.swept = append(a.swept, it.Key()...)
	}
	return it.Error()
}

// tables writes sorted files and has the database take them in together.
type tables struct {
	store *store
	w     *sstable.Writer
	paths []string
}

// tableBytesMax is when the next file is begun: with many small ones
// compactions can move most of them as they are.
const tableBytesMax = 16 << 20

func newTables(s *store) *tables { return &tables{store: s} }

func (t *tables) writer() (*sstable.Writer, error) {
	if t.w != nil && t.w.Raw().EstimatedSize() > tableBytesMax {
		if err := t.finish(); err != nil {
			return nil, err
		}
	}
	if t.w == nil {
		t.store.applier.files++
		path := filepath.Join(t.store.dir, fmt.Sprintf("ingest-%d.sst", t.store.applier.files))
		f, err := t.store.options.FS.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return nil, fmt.Errorf("write state: %w", err)
		}
		t.paths = append(t.paths, path)
		t.w = sstable.NewWriter(objstorageprovider.NewFileWritable(f), t.store.options.MakeWriterOptions(0, t.store.db.FormatMajorVersion().MaxTableFormat()))
	}
	return t.w, nil
}

func (t *tables) set(key, value []byte) error {
	w, err := t.writer()
	if err != nil {
		return err
	}
	return w.Set(key, value)
}

func (t *tables) delete(key []byte) error {
	w, err := t.writer()
	if err != nil {
		return err
	}
	return w.Delete(key)
}

func (t *tables) finish() error {
	if t.w == nil {
		return nil
	}
	err := t.w.Close()
	t.w = nil
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

// ingest ends writing: from then on the database has everything.
func (t *tables) ingest() error {
	err := t.finish()
	if err == nil && len(t.paths) > 0 {
		if err = t.store.db.Ingest(context.Background(), t.paths); err != nil {
			err = fmt.Errorf("take in written state: %w", err)
		}
	}
	if err != nil {
		t.abandon()
	}
	return err
}

// abandon removes what was written. It follows an error, which says more than
// one of its own would: the files are overwritten or removed at the end anyway.
func (t *tables) abandon() {
	if t.w != nil {
		_ = t.w.Close()
		t.w = nil
	}
	for _, p := range t.paths {
		_ = t.store.options.FS.Remove(p)
	}
}
