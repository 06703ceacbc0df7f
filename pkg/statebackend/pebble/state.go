package pebble

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// State is the keyed state of one operator in one subtask:
// statebackend.KeyedState. The subtask's goroutine alone uses it.
type State struct {
	backend  *Backend
	options  statebackend.Options
	columns  []column // in the order of registration
	restored bool
	closed   bool
	store    *store // from Restore on
	key      []byte // scratch of reads
}

// column is one registered state without its types.
type column interface {
	// meta is the program's description of the state.
	meta() snapshot.StateMeta
	// plan says how the state is stored: its number and the description that
	// files list. An error names what cannot be read.
	plan(number int, stored snapshot.StateMeta) error
	// stored are number and description as planned.
	stored() (number int, m snapshot.StateMeta)
	// reader prepares at now for entries stored under another description.
	// The times of the values move by shift.
	reader(from snapshot.StateMeta, now, shift int64) (importer, error)
	// keepsAge reports whether values are as old after a restore as before.
	keepsAge() bool
	// seal ends the active segment and returns it, nil if it holds no changes.
	seal() segment
	// trim drops the oldest segments that are written, down to a share of memory.
	trim(share int64)
	// activeBytes is what the active segment takes, bytes what all do.
	activeBytes() int64
	bytes() int64
	// seen is the Seq of the key under which the state was last used.
	seen() uint64
	touch(hashes []uint32)
	// now is the time of a state whose values expire.
	now() int64
	canExpire() bool

	// The following are called by any goroutine.

	// checkKey refuses an encoded key that is not of group g.
	checkKey(key []byte, g keygroup.Group, maxParallelism int) error
	// canonical appends the canonical form of a value in the database, or
	// says that it has expired at now.
	canonical(dst, value []byte, now int64) (out []byte, expired bool, err error)
	// isExpired tells whether a value in the database has.
	isExpired(value []byte, now int64) (bool, error)
}

// importer makes the database's form of values that were stored elsewhere.
type importer interface {
	convert(dst, value []byte) ([]byte, error)
}

func newState(b *Backend, o statebackend.Options) *State { return &State{backend: b, options: o} }

func (s *State) register(c column) error {
	if s.restored || s.closed {
		return errors.New("states are registered when the operator is opened, not later: stored state is attached by then")
	}
	if s.find(c.meta().Name) >= 0 {
		return errors.New("the name is registered already: every state of an operator needs its own")
	}
	s.columns = append(s.columns, c)
	s.backend.columns.Add(1)
	return nil
}

// find is the place of a registered state, -1 if there is none of the name.
func (s *State) find(name string) int {
	return slices.IndexFunc(s.columns, func(c column) bool { return c.meta().Name == name })
}

// sealedMax is how many generations may wait for being written before an
// access waits too, if they are large: while one is written the next may fill
// up. Freezes make small ones, of which more may wait.
const sealedMax = 2

// enter is called before a state adds an entry to its active segment, under
// the key number seq. It keeps the segments within their share.
//
// It seals only if nothing was used under this key yet: what user code was
// given may be changed as long as the key is current.
func (s *State) enter(seq uint64) error {
	share := s.backend.segmentShare()
	full := false
	for _, c := range s.columns {
		if c.seen() == seq {
			return nil
		}
		full = full || c.activeBytes() > share/2
	}
	if !full {
		return nil
	}
	s.seal(false)
	if err := s.store.await(sealedMax, share*int64(len(s.columns))/2); err != nil {
		return fmt.Errorf("operator %q: changes of the state cannot be written to %s, and no more of them are kept in memory: %w", s.options.Operator, s.options.Dir, err)
	}
	s.trim(share)
	return nil
}

// seal makes a generation of the active segments. An empty one is made only
// for a freeze that has expired values to look for.
func (s *State) seal(freeze bool) {
	g := &generation{}
	for _, c := range s.columns {
		g.now = max(g.now, c.now())
		g.sweeps = g.sweeps || c.canExpire()
		size := c.activeBytes()
		if seg := c.seal(); seg != nil {
			number, _ := c.stored()
			g.bytes += size
			g.parts = append(g.parts, generationPart{number: number, segment: seg})
		}
	}
	if len(g.parts) > 0 || freeze && g.sweeps {
		s.store.push(g)
	}
}

func (s *State) trim(share int64) {
	for _, c := range s.columns {
		c.trim(share)
	}
}

// Freeze implements statebackend.KeyedState. While earlier generations cannot
// be written, the disk being full, it seals no more of them, so that they do
// not pile up: the view then makes one more attempt at them, and has nothing
// but an error. What changed stays in memory, for a later freeze.
func (s *State) Freeze() (statebackend.Frozen, error) {
	if !s.restored || s.closed {
		return nil, fmt.Errorf("operator %q: keyed state is frozen before it was restored, or after it was closed", s.options.Operator)
	}
	stuck := s.store.stuck()
	if stuck == nil {
		s.seal(true)
		s.trim(s.backend.segmentShare())
	}
	f := &frozen{
		stuck:   stuck,
		options: s.options, columns: s.columns, valueMax: s.backend.options.ValueBytesMax, times: make([]int64, len(s.columns)),
	}
	for i, c := range s.columns {
		f.times[i] = c.now()
	}
	s.store.freeze(f)
	return f, nil
}

// Prefetch implements statebackend.KeyedState.
func (s *State) Prefetch(hashes []uint32) {
	for _, c := range s.columns {
		c.touch(hashes)
	}
}

// Stats implements statebackend.KeyedState. The entries are estimated: those
// that are written several times are counted as often until they are compacted.
func (s *State) Stats() statebackend.Stats {
	var sum statebackend.Stats
	for _, c := range s.columns {
		sum.Bytes += c.bytes()
	}
	if s.store != nil {
		sum.Entries = s.store.entries()
	}
	return sum
}

// CountEntries counts exactly, by passing over the whole state.
func (s *State) CountEntries() (int64, error) {
	s.seal(true)
	return s.store.count()
}

// Close implements statebackend.KeyedState.
func (s *State) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	s.backend.columns.Add(-int64(len(s.columns)))
	if s.store == nil {
		return s.backend.options.FS.RemoveAll(s.options.Dir)
	}
	return s.store.close()
}
