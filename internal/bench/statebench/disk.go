package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/objectstore/open"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
	"github.com/weirstream/weir/pkg/statebackend/pebble"
)

// wide is a value of 208 bytes: ten million of them are 2 GB.
type wide struct {
	Count uint64
	Sums  [25]float64
}

// memoryBytes is state.backend.pebble.memory of the measurements.
const memoryBytes = 256 << 20

// newPebble makes the backend as an executor does, and what closes it.
func newPebble() (*pebble.Backend, func() error) {
	stop := pebble.GovernGarbage(memoryBytes)
	backend := pebble.New(pebble.Options{MemoryBytes: memoryBytes})
	return backend, func() error {
		stop()
		return backend.Close()
	}
}

// checkpointEvery is the checkpoint interval of the measurements.
const checkpointEvery = time.Second

func updateWide(h held[wide], key uint64) error {
	if err := h.keyed.SetCurrentKey(key); err != nil {
		return err
	}
	v, found, err := h.value.Ref()
	if err != nil {
		return err
	}
	if !found {
		// Bytes that no compression makes less of: 2 GB shall be 2 GB.
		for i := range v.Sums {
			v.Sums[i] = math.Float64frombits(mix(key + uint64(i)))
		}
	}
	v.Count++
	v.Sums[v.Count%25] += float64(key & 1023)
	return nil
}

// mix is SplitMix64's finalizer.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// checkpoints takes the checkpoints of one state, one at a time, as a subtask
// does: a freeze, and then the files that the one before does not have are
// written to a store on local disk.
type checkpoints struct {
	store  *checkpointstore.Store
	opener *open.Opener
	base   string
	last   ids.CheckpointID
	known  map[string]snapshot.StateHandle // shared files of the last one
	files  snapshot.KeyedStateHandle       // of the last one
	// uploaded and total are bytes of the last one.
	uploaded, total int64
	done            chan error // of the one under way
}

func newCheckpoints() *checkpoints {
	opener := open.New(open.Options{})
	return &checkpoints{store: checkpointstore.New(opener.Open), opener: opener, base: filepath.Join(*dir, "store")}
}

// begin freezes, and writes in the background; finish waits for that.
func (c *checkpoints) begin(h statebackend.KeyedState) error {
	f, err := h.Freeze()
	if err != nil {
		return err
	}
	files, ok := f.(statebackend.FileFrozen)
	if !ok {
		f.Release()
		return errors.New("the state is not in files")
	}
	c.last++
	c.done = make(chan error, 1)
	go func() {
		err := c.write(files)
		f.Release()
		c.done <- err
	}()
	return nil
}

func (c *checkpoints) isOver() bool { return c.done == nil || len(c.done) > 0 }

func (c *checkpoints) finish() error {
	if c.done == nil {
		return nil
	}
	err := <-c.done
	c.done = nil
	return err
}

func (c *checkpoints) write(view statebackend.FileFrozen) error {
	ctx := context.Background()
	set, err := view.Files(ctx)
	if err != nil {
		return err
	}
	known := map[string]snapshot.StateHandle{}
	c.files = snapshot.KeyedStateHandle{Range: allGroups, States: set.States, Backend: pebble.Name}
	c.uploaded, c.total = 0, 0
	for i, f := range set.Files {
		handle, ok := c.known[f.Local]
		if !ok || !f.Shared {
			handle, err = c.store.WriteShared(ctx, c.base, checkpointstore.SharedFile{Checkpoint: c.last, Seq: uint32(i)}, checkpointstore.FileContent(f.Path, f.Size))
			if err != nil {
				return err
			}
			c.uploaded += f.Size
		}
		if f.Shared {
			known[f.Local] = handle
		}
		c.total += f.Size
		c.files.Files = append(c.files.Files, snapshot.StateFile{Local: f.Local, Handle: handle})
	}
	for local, handle := range c.known {
		if _, ok := known[local]; !ok {
			if _, err := c.store.DiscardHandles(ctx, c.base, []snapshot.StateHandle{handle}); err != nil {
				return err
			}
		}
	}
	c.known = known
	return nil
}

// fetch brings the files of the last checkpoint to a directory.
func (c *checkpoints) fetch(to string) (statebackend.RestoredPart, error) {
	part := statebackend.RestoredPart{Range: allGroups, States: c.files.States, Backend: pebble.Name}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return part, err
	}
	for _, f := range c.files.Files {
		path := filepath.Join(to, f.Local)
		if err := c.store.FetchState(context.Background(), c.base, f.Handle, path); err != nil {
			return part, err
		}
		_, shared := c.known[f.Local]
		part.Files = append(part.Files, statebackend.File{Local: f.Local, Path: path, Size: f.Handle.Size, Shared: shared})
	}
	return part, nil
}

// fill writes all keys once, with a checkpoint now and then, so that the load
// is as much of a job's life as what follows.
func fill(h held[wide], c *checkpoints) error {
	next := time.Now().Add(checkpointEvery)
	for i := range *keys {
		if err := updateWide(h, keyOf(i)); err != nil {
			return err
		}
		if c != nil && i&4095 == 0 && time.Now().After(next) && c.isOver() {
			if err := c.finish(); err != nil {
				return err
			}
			if err := c.begin(h.keyed.Backend()); err != nil {
				return err
			}
			next = time.Now().Add(checkpointEvery)
		}
	}
	if c == nil {
		return nil
	}
	if err := c.finish(); err != nil {
		return err
	}
	if err := c.begin(h.keyed.Backend()); err != nil {
		return err
	}
	return c.finish()
}

// hotKeys of all keys are used in the hot benchmarks.
const hotKeys = 100_000

// hotUpdatesOf reports updates per second of the hot keys, with checkpoints
// every second if there are any.
func hotUpdatesOf(h held[wide], c *checkpoints) error {
	r := rand.New(rand.NewPCG(1, 2))
	draws := make([]uint64, drawCount)
	for i := range draws {
		draws[i] = keyOf(r.IntN(hotKeys) * (*keys / hotKeys))
	}
	runtime.GC()
	var started time.Time
	next := time.Now().Add(checkpointEvery)
	taken := 0
	warmUp := *updates / 4
	for i := range warmUp + *updates {
		if i == warmUp {
			started, taken = time.Now(), 0
		}
		if err := updateWide(h, draws[i&(drawCount-1)]); err != nil {
			return err
		}
		if c != nil && i&4095 == 0 && time.Now().After(next) && c.isOver() {
			if err := c.finish(); err != nil {
				return err
			}
			if err := c.begin(h.keyed.Backend()); err != nil {
				return err
			}
			next = time.Now().Add(checkpointEvery)
			taken++
		}
	}
	took := time.Since(started)
	if c != nil {
		if err := c.finish(); err != nil {
			return err
		}
	}
	return reportWithMemory("updates_per_second=%.0f\ncheckpoints=%d", float64(*updates)/took.Seconds(), taken)
}

// hotInMemory is the baseline of hotInPebble: it takes no checkpoints, since
// those of the memory backend would write all of the 2 GB each time.
func hotInMemory() error {
	h, err := hold[wide](memory.New())
	if err != nil {
		return err
	}
	if err := fill(h, nil); err != nil {
		return err
	}
	return hotUpdatesOf(h, nil)
}

// withPebble runs do on filled state.
func withPebble(do func(h held[wide], c *checkpoints) error) (err error) {
	backend, end := newPebble()
	defer func() { err = errors.Join(err, end()) }()
	h, err := hold[wide](backend)
	if err != nil {
		return err
	}
	c := newCheckpoints()
	defer c.opener.Close()
	if err := fill(h, c); err != nil {
		return err
	}
	return errors.Join(do(h, c), h.keyed.Backend().Close())
}

func hotInPebble() error { return withPebble(hotUpdatesOf) }

// pebbleFreeze reports the freeze with every key dirty.
func pebbleFreeze() error {
	backend, end := newPebble()
	h, err := hold[counted](backend)
	if err != nil {
		return err
	}
	var took []float64
	for range 11 {
		for i := range *keys {
			if err := h.keyed.SetCurrentKey(keyOf(i)); err != nil {
				return err
			}
			v, _, err := h.value.Ref()
			if err != nil {
				return err
			}
			v.Count++
		}
		started := time.Now()
		f, err := h.keyed.Backend().Freeze()
		took = append(took, time.Since(started).Seconds()*1000)
		if err != nil {
			return err
		}
		// The next round is not to find the disk busy with this one.
		_, err = f.(statebackend.FileFrozen).Files(context.Background())
		f.Release()
		if err != nil {
			return err
		}
	}
	longest := took[0]
	for _, t := range took {
		longest = max(longest, t)
	}
	if err := errors.Join(h.keyed.Backend().Close(), end()); err != nil {
		return err
	}
	return report("median_ms=%.4f\nlongest_ms=%.4f", median(took), longest)
}

// counted is a small value, so that a million dirty ones fit into the share of
// the memory that may be dirty.
type counted struct{ Count uint64 }

// coldUpdates is how many keys are updated after reopening.
const coldUpdates = 300_000

// coldInPebble reports updates per second of uniform keys, from files that
// were just opened.
func coldInPebble() (err error) {
	var part statebackend.RestoredPart
	err = withPebble(func(_ held[wide], c *checkpoints) error {
		part, err = c.fetch(filepath.Join(*dir, "fetched"))
		return err
	})
	if err != nil {
		return err
	}
	backend, end := newPebble()
	defer func() { err = errors.Join(err, end()) }()
	h, err := hold[wide](backend, part)
	if err != nil {
		return err
	}
	draws := uniform(coldUpdates, *keys)
	runtime.GC()
	started := time.Now()
	for _, key := range draws {
		if err := updateWide(h, key); err != nil {
			return err
		}
	}
	took := time.Since(started)
	return errors.Join(reportWithMemory("updates_per_second=%.0f", coldUpdates/took.Seconds()), h.keyed.Backend().Close())
}

// coldInRaw is the baseline of coldInPebble: a bare Pebble with all of the
// memory as its block cache, that gets and sets the same bytes without a log.
func coldInRaw() (err error) {
	path := filepath.Join(*dir, "raw")
	db, cache, err := openRaw(path)
	if err != nil {
		return err
	}
	const bytesOfWide = 208
	value := make([]byte, bytesOfWide)
	batch := db.NewBatch()
	for i := range *keys {
		for j := 0; j < bytesOfWide; j += 8 {
			binary.LittleEndian.PutUint64(value[j:], mix(keyOf(i)+uint64(j)))
		}
		if err := batch.Set(rawKey(keyOf(i)), value, nil); err != nil {
			return err
		}
		if batch.Len() > 4<<20 {
			if err := batch.Commit(lsm.NoSync); err != nil {
				return err
			}
			batch = db.NewBatch()
		}
	}
	if err := batch.Commit(lsm.NoSync); err != nil {
		return err
	}
	if err := db.Flush(); err != nil {
		return err
	}
	settle(db)
	if err := db.Close(); err != nil {
		return err
	}
	cache.Unref()
	if db, cache, err = openRaw(path); err != nil {
		return err
	}
	defer cache.Unref()
	draws := uniform(coldUpdates, *keys)
	runtime.GC()
	started := time.Now()
	for _, key := range draws {
		k := rawKey(key)
		got, closer, err := db.Get(k)
		if err != nil {
			return err
		}
		copy(value, got)
		if err := closer.Close(); err != nil {
			return err
		}
		value[0]++
		if err := db.Set(k, value, lsm.NoSync); err != nil {
			return err
		}
	}
	took := time.Since(started)
	return errors.Join(reportWithMemory("updates_per_second=%.0f", coldUpdates/took.Seconds()), db.Close())
}

// settle waits for the compactions that the load has left to do, so that the
// baseline is not measured while it tidies up.
func settle(db *lsm.DB) {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		if m := db.Metrics(); m.Compact.NumInProgress == 0 {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
}

// rawKey orders as the state backend does: by key group, then by key.
func rawKey(key uint64) []byte {
	encoding, err := keygroup.NewEncoding[uint64]()
	if err != nil {
		panic(err)
	}
	g := keygroup.OfHash(encoding.Hash(&key), 128)
	return encoding.Append([]byte{byte(g >> 8), byte(g), 0, 0}, &key)
}

func openRaw(path string) (*lsm.DB, *lsm.Cache, error) {
	cache := lsm.NewCache(memoryBytes)
	o := &lsm.Options{Cache: cache, DisableWAL: true, FormatMajorVersion: lsm.FormatNewest, MemTableSize: 32 << 20, Logger: quiet{}}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	db, err := lsm.Open(path, o)
	return db, cache, err
}

// quiet drops what Pebble logs.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// rounds of touching one in a hundred keys.
const rounds = 10

// incremental reports the bytes of a full checkpoint and the mean of what ten
// that follow it upload, after one key in a hundred was updated for each.
func incremental() error {
	return withPebble(func(h held[wide], c *checkpoints) error {
		full := c.total
		draws := uniform(rounds*(*keys/100), *keys)
		var sum int64
		for range rounds {
			for _, key := range draws[:*keys/100] {
				if err := updateWide(h, key); err != nil {
					return err
				}
			}
			draws = draws[*keys/100:]
			started := time.Now()
			if err := c.begin(h.keyed.Backend()); err != nil {
				return err
			}
			if err := c.finish(); err != nil {
				return err
			}
			sum += c.uploaded
			fmt.Fprintf(os.Stderr, "checkpoint %d uploaded %d of %d bytes\n", c.last, c.uploaded, c.total)
			// Compactions go on between checkpoints, as they do in a job.
			<-time.After(time.Until(started.Add(checkpointEvery)))
		}
		return reportWithMemory("full_bytes=%d\nuploaded_bytes=%d", full, sum/rounds)
	})
}

// restore reports bytes per second of a restore from local disk and of copying
// the same files, five times in turn.
func restore() error {
	var c *checkpoints
	if err := withPebble(func(_ held[wide], of *checkpoints) error { c = of; return nil }); err != nil {
		return err
	}
	c.opener = open.New(open.Options{})
	c.store = checkpointstore.New(c.opener.Open)
	defer c.opener.Close()
	for i := range 5 {
		to := filepath.Join(*dir, "to-"+strconv.Itoa(i))
		started := time.Now()
		if err := c.copyTo(to); err != nil {
			return err
		}
		copied := time.Since(started)
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		started = time.Now()
		part, err := c.fetch(to)
		if err != nil {
			return err
		}
		backend, end := newPebble()
		h, err := hold[wide](backend, part)
		if err != nil {
			return err
		}
		// A restore is over when records can be processed.
		if err := updateWide(h, keyOf(0)); err != nil {
			return err
		}
		took := time.Since(started)
		if err := errors.Join(h.keyed.Backend().Close(), end(), os.RemoveAll(to)); err != nil {
			return err
		}
		if err := report("restored_%d=%.0f\ncopied_%d=%.0f", i, float64(c.total)/took.Seconds(), i, float64(c.total)/copied.Seconds()); err != nil {
			return err
		}
	}
	return nil
}

// copyTo copies the files of the last checkpoint.
func (c *checkpoints) copyTo(to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, f := range c.files.Files {
		in, err := os.Open(filepath.Join(c.base, f.Handle.Name))
		if err != nil {
			return err
		}
		out, err := os.Create(filepath.Join(to, f.Local))
		if err != nil {
			return errors.Join(err, in.Close())
		}
		// Through a buffer, as any copy over a network would be: the kernel's
		// own copy of a file to a file may share its blocks.
		_, err = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, make([]byte, 256<<10))
		if err := errors.Join(err, in.Close(), out.Close()); err != nil {
			return err
		}
	}
	return nil
}

// reportWithMemory adds the peak of resident memory.
func reportWithMemory(format string, args ...any) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("read resident memory: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "VmHWM:" {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return fmt.Errorf("read resident memory: %w", err)
		}
		return report(format+"\nresident_mib=%.0f", append(args, float64(kib)/1024)...)
	}
	return errors.New("read resident memory: no VmHWM")
}
