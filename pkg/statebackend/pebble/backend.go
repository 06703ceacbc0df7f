package pebble

import (
	"fmt"
	"sync"
	"sync/atomic"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirstream/weir/pkg/statebackend"
)

// Name is the backend's name in state.backend.type.
const Name = "pebble"

// DefaultMemoryBytes is the default of state.backend.pebble.memory.
const DefaultMemoryBytes = 256 << 20

// Options are the settings of a Backend.
type Options struct {
	// MemoryBytes bounds what all keyed state of the backend takes of memory,
	// the garbage of the heap included; 0 is DefaultMemoryBytes.
	MemoryBytes int64
	// ValueBytesMax is the size of a stored value from which snapshots are
	// refused; 0 is statebackend.ValueBytesMax.
	ValueBytesMax int
	// FS is the file system; nil is the host's.
	FS vfs.FS
}

// The shares of MemoryBytes, in percent. All of it is on Go's heap, where
// GovernGarbage has what is live and its garbage fit into the whole; what is
// left here is for that, for readers, writers and compactions.
const (
	blockCacheShare = 15
	// segmentsShare is for two copies of the hot values, the active one and the
	// one that is being written, and for the pages of hash tables, which are
	// half to seven eighths full.
	segmentsShare = 40
)

// Backend opens keyed state on local disk. One is made per executor, so that
// its memory is shared; Close it when all keyed state is closed.
type Backend struct {
	options Options
	cache   *lsm.Cache
	// columns is how many states share the memory for segments.
	columns atomic.Int64
	// releases are views on their way out.
	releases sync.WaitGroup
}

// New makes the backend.
func New(o Options) *Backend {
	if o.MemoryBytes == 0 {
		o.MemoryBytes = DefaultMemoryBytes
	}
	if o.ValueBytesMax == 0 {
		o.ValueBytesMax = statebackend.ValueBytesMax
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	return &Backend{options: o, cache: lsm.NewCache(o.MemoryBytes * blockCacheShare / 100)}
}

// Name is "pebble".
func (*Backend) Name() string { return Name }

// Close frees the block cache. Views must be released by then.
func (b *Backend) Close() error {
	b.releases.Wait()
	b.cache.Unref()
	return nil
}

// Open makes the empty keyed state of one operator in one subtask: a *State.
func (b *Backend) Open(o statebackend.Options) (statebackend.KeyedState, error) {
	if o.Dir == "" {
		return nil, fmt.Errorf("state backend %q: no directory given", Name)
	}
	// What is there is of an attempt that is over.
	if err := b.options.FS.RemoveAll(o.Dir); err != nil {
		return nil, fmt.Errorf("remove old keyed state: %w", err)
	}
	if err := b.options.FS.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of keyed state: %w", err)
	}
	return newState(b, o), nil
}

// segmentShare is how many bytes the segments of one state may take.
func (b *Backend) segmentShare() int64 {
	return b.options.MemoryBytes * segmentsShare / 100 / max(1, b.columns.Load())
}

// lsmOptions are the options of a database.
func (b *Backend) lsmOptions() *lsm.Options {
	o := &lsm.Options{
		Cache: b.cache, FS: withoutSync(b.options.FS), DisableWAL: true, Logger: silent{}, EventListener: returning(),
		FormatMajorVersion: lsm.FormatNewest,
		// Everything comes in sorted files: the memtable stays empty.
		MemTableSize: 64 << 10, MaxOpenFiles: 1000,
		L0CompactionThreshold: 4,
		// Never reached by writes, which do not go through the memtable; see
		// store.relieve.
		L0StopWritesThreshold:       1000,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		TargetFileSizes:             [7]int64{4 << 20},
		DisableAutomaticCompactions: false,
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	o.EnsureDefaults()
	return o
}

// silent drops what Pebble logs; its errors come back from its calls. What it
// would end the process for, a panic ends too.
type silent struct{}

// Infof implements lsm.Logger.
func (silent) Infof(string, ...any) {}

// Errorf implements lsm.Logger.
func (silent) Errorf(string, ...any) {}

// Fatalf implements lsm.Logger.
func (silent) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
