package pebble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// frozen is a State as it was when it was frozen: statebackend.FileFrozen. What
// it needs of the database it takes when the generations up to its own are
// applied and no later one is: when it is asked for, or else by the store
// before that applies the next.
type frozen struct {
	options    statebackend.Options
	columns    []column
	times      []int64 // of the columns, when they were frozen
	valueMax   int
	store      *store
	generation uint64
	// stuck is why there is nothing to be had: see State.Freeze.
	stuck error

	// Under store.position.
	captured capture
	iterator *lsm.Iterator
	dir      string // of the linked files
	files    []statebackend.File
	// Why the iterator, or the links, could not be taken.
	iteratorErr, linksErr error
	released              bool
}

// capture says what of the database a view has taken, or is to take.
type capture uint8

const (
	captureIterator capture = 1 << iota
	captureLinks
	captureAll = captureIterator | captureLinks
)

// capture takes what it has not yet; store.position is held. Errors are kept
// for whoever asks: they are this view's alone, and what can be read of a view
// does not depend on whether its files can be linked.
func (f *frozen) capture(s *store, what capture) {
	if f.released || f.stuck != nil {
		return
	}
	what &^= f.captured
	if what&captureIterator != 0 {
		f.iterator, f.iteratorErr = s.db.NewIter(nil)
	}
	if what&captureLinks != 0 {
		f.linksErr = f.captureLinks(s)
	}
	f.captured |= what
}

func (f *frozen) captureLinks(s *store) error {
	if n := len(s.applier.tooLarge); n > 0 {
		largest := 0
		for _, size := range s.applier.tooLarge {
			largest = max(largest, size)
		}
		return fmt.Errorf("%d values are larger than the limit of %d bytes (state.value.bytes-max), the largest has %d: %w", n, f.valueMax, largest, statebackend.ErrValueTooLarge)
	}
	f.dir = s.newViewDir()
	files, err := captureFiles(s.db, s.options.FS, f.dir)
	if err != nil {
		return err
	}
	clock, err := f.writeClock(s)
	if err != nil {
		return fmt.Errorf("write %s of the view: %w", clockFile, err)
	}
	f.files = append(files, clock)
	return nil
}

// take waits until the view can have something of the database, and has it.
func (f *frozen) take(ctx context.Context, what capture) error {
	if err := f.store.reach(ctx, f.generation); err != nil {
		return err
	}
	if f.stuck != nil {
		return f.stuck
	}
	f.store.position.Lock()
	defer f.store.position.Unlock()
	f.capture(f.store, what)
	if what&captureLinks != 0 {
		return f.linksErr
	}
	return f.iteratorErr
}

// WriteSnapshot implements statebackend.Frozen.
func (f *frozen) WriteSnapshot(w io.Writer) (offsets []int64, states []snapshot.StateMeta, err error) {
	defer func() {
		if err != nil {
			offsets, states, err = nil, nil, fmt.Errorf("operator %q: %w", f.options.Operator, err)
		}
	}()
	defer codec.Recover(&err)
	if err := f.take(context.Background(), captureIterator); err != nil {
		return nil, nil, err
	}
	out := statebackend.NewLimitedWriter(w, f.valueMax)
	for i := range f.options.Range.Len() {
		out.Group()
		for number, c := range f.columns {
			s := section{view: f, out: out, column: c, number: number, now: f.times[number]}
			if err := s.write(f.options.Range.First + keygroup.Group(i)); err != nil {
				return nil, nil, err
			}
		}
		if out.Err() != nil {
			break
		}
	}
	for _, c := range f.columns {
		states = append(states, c.meta())
	}
	offsets, err = out.Finish()
	return offsets, states, err
}

// section writes what one state has in one key group.
type section struct {
	view   *frozen
	out    *statebackend.Writer
	column column
	number int // in the snapshot
	now    int64
	value  []byte
	// held are the entries so far, their keys and values one after the other:
	// their count comes first in the snapshot. sizes are two for each.
	held  []byte
	sizes []int
}

// heldMax is how much of a section is kept while it is counted; larger ones
// are read twice.
const heldMax = 1 << 20

func (s *section) write(g keygroup.Group) error {
	stored, _ := s.column.stored()
	prefix := appendPrefix(nil, g, stored)
	count := 0
	err := s.each(prefix, func(key, value []byte) {
		count++
		if len(s.held) < heldMax {
			s.held = append(append(s.held, key...), value...)
			s.sizes = append(s.sizes, len(key), len(value))
		}
	})
	if err != nil || count == 0 {
		return err
	}
	s.out.State(s.number, count)
	if len(s.sizes) < 2*count {
		return s.each(prefix, s.out.Entry)
	}
	for i, at := 0, 0; i < len(s.sizes); i += 2 {
		middle := at + s.sizes[i]
		end := middle + s.sizes[i+1]
		s.out.Entry(s.held[at:middle], s.held[middle:end])
		at = end
	}
	return nil
}

// each passes over the entries with a prefix that have not expired.
func (s *section) each(prefix []byte, do func(key, value []byte)) error {
	it := s.view.iterator
	end := behind(prefix)
	for ok := it.SeekGE(prefix); ok; ok = it.Next() {
		key := it.Key()
		if end != nil && string(key) >= string(end) {
			break
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("read state: %w", err)
		}
		var expired bool
		s.value, expired, err = s.column.canonical(s.value[:0], value, s.now)
		if err != nil {
			return err
		}
		if !expired {
			do(key[prefixBytes:], s.value)
		}
	}
	return it.Error()
}

// Files implements statebackend.FileFrozen.
func (f *frozen) Files(ctx context.Context) (statebackend.FileSet, error) {
	if err := f.take(ctx, captureLinks); err != nil {
		return statebackend.FileSet{}, fmt.Errorf("operator %q: %w", f.options.Operator, err)
	}
	set := statebackend.FileSet{Files: f.files, States: make([]snapshot.StateMeta, len(f.columns))}
	for _, c := range f.columns {
		number, m := c.stored()
		set.States[number] = m
	}
	return set, nil
}

// OriginOf implements statebackend.Origins. A restore that wrote the entries of
// a part anew has none of its files, whatever their names.
func (f *frozen) OriginOf(local string) (part int, restored string, ok bool) {
	o, ok := f.store.origins[local]
	return o.Part, o.Local, ok
}

// Release implements statebackend.Frozen. It does not wait for a generation
// that is being applied: the subtask's goroutine calls it.
func (f *frozen) Release() {
	f.store.forget(f)
	f.store.backend.releases.Go(func() { // waited for by Backend.Close
		// The view has been read, or is not wanted: that something of it could
		// not be closed matters to nobody, and Close of the directory removes
		// the rest.
		_ = errors.Join(f.drop(), f.store.finish())
	})
}

// drop gives back what was taken of the database.
func (f *frozen) drop() (err error) {
	f.store.position.Lock()
	defer f.store.position.Unlock()
	f.released = true
	if f.iterator != nil {
		err = f.iterator.Close()
	}
	if f.dir != "" {
		err = cmp.Or(err, f.store.options.FS.RemoveAll(f.dir))
	}
	f.iterator, f.files = nil, nil
	return err
}
