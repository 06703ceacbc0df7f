package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// ReadFiles makes of a part in this backend's files, and of it what is in
// groups, one laid out by key group, without knowing any types. All of it is
// in memory then. The values are as they are stored: under several schemas,
// which States lists, and with the times of their last writes, never ages.
// It works in dir, which it makes and removes, on the host's file system; the
// part's files stay as they are.
func ReadFiles(ctx context.Context, dir string, part statebackend.RestoredPart, groups keygroup.Range) (statebackend.RestoredPart, error) {
	read, err := readCanonical(ctx, dir, part, groups, false)
	if err != nil {
		return statebackend.RestoredPart{}, fmt.Errorf("read keyed state in files of state backend %q: %w", Name, err)
	}
	return read, nil
}

// ReadForRestore is ReadFiles for another backend's Restore: values that are as
// old after a restore as at the snapshot have ages. It refuses lists of such
// elements, which cannot be told apart without their type.
func ReadForRestore(ctx context.Context, dir string, part statebackend.RestoredPart, groups keygroup.Range) (statebackend.RestoredPart, error) {
	read, err := readCanonical(ctx, dir, part, groups, true)
	if err != nil {
		return statebackend.RestoredPart{}, fmt.Errorf("read keyed state in files of state backend %q: %w", Name, err)
	}
	return read, nil
}

func readCanonical(ctx context.Context, dir string, part statebackend.RestoredPart, groups keygroup.Range, ages bool) (statebackend.RestoredPart, error) {
	none := statebackend.RestoredPart{}
	if part.Backend != Name {
		return none, fmt.Errorf("they are of state backend %q", part.Backend)
	}
	common, ok := part.Range.Intersect(groups)
	if !ok {
		return none, fmt.Errorf("they have key groups %s and none of %s", part.Range, groups)
	}
	options := &lsm.Options{FS: withoutSync(vfs.Default), DisableWAL: true, Logger: silent{}}
	files, clock, err := splitClock(options, part)
	if err != nil {
		return none, err
	}
	if ages {
		for i, m := range part.States {
			if clock.keepsAge[i] && m.Kind == string(statebackend.ListKind) {
				return none, fmt.Errorf("list %q is as old after a restore as before, which only state backend %q reads from files: restore with it, or from a savepoint", m.Name, Name)
			}
		}
	}
	var data bytes.Buffer
	r := reading{out: statebackend.NewLimitedWriter(&data, maxInt), first: common.First, next: common.First, states: part.States, clock: clock, ages: ages}
	err = readFiles(dir, options, []filePart{files}, common, func(key, value []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return r.entry(key, value)
	})
	if err != nil {
		return none, err
	}
	r.section()
	for int(r.next) <= int(common.Last) {
		r.out.Group()
		r.next++
	}
	offsets, err := r.out.Finish()
	if err != nil {
		return none, err
	}
	return statebackend.RestoredPart{Number: part.Number, Range: common, Offsets: offsets, States: part.States, Data: data.Bytes()}, nil
}

const maxInt = int(^uint(0) >> 1)

// reading lays out entries that come in the order of the database's keys,
// which is that of the canonical form.
type reading struct {
	out         *statebackend.Writer
	first, next keygroup.Group // of the range; that is not begun
	states      []snapshot.StateMeta
	clock       clockRead
	ages        bool
	// The entries of one state in one key group, which are counted first.
	number int
	held   []byte
	sizes  []int // two of each
	value  []byte
}

func (r *reading) entry(key, value []byte) error {
	if len(key) < prefixBytes {
		return fmt.Errorf("%w: a key of %d bytes", statebackend.ErrCorrupt, len(key))
	}
	g, number := cutPrefix(key)
	if number >= len(r.states) {
		return fmt.Errorf("%w: a key of state number %d of %d", statebackend.ErrCorrupt, number, len(r.states))
	}
	if len(r.sizes) > 0 && (number != r.number || g >= r.next) {
		r.section()
	}
	for r.next <= g {
		r.out.Group()
		r.next++
	}
	if r.ages && r.clock.keepsAge[number] {
		var err error
		if value, err = r.aged(value); err != nil {
			return fmt.Errorf("state %q: %w", r.states[number].Name, err)
		}
	}
	r.number = number
	r.held = append(append(r.held, key[prefixBytes:]...), value...)
	r.sizes = append(r.sizes, len(key)-prefixBytes, len(value))
	return nil
}

// section writes what is held.
func (r *reading) section() {
	if len(r.sizes) == 0 {
		return
	}
	r.out.State(r.number, len(r.sizes)/2)
	for i, at := 0, 0; i < len(r.sizes); i += 2 {
		middle := at + r.sizes[i]
		end := middle + r.sizes[i+1]
		r.out.Entry(r.held[at:middle], r.held[middle:end])
		at = end
	}
	r.held, r.sizes = r.held[:0], r.sizes[:0]
}

// aged makes the time of a value an age.
func (r *reading) aged(stored []byte) ([]byte, error) {
	id, flags, rest, err := statebackend.ValueHeader(stored)
	if err != nil {
		return nil, err
	}
	if flags != statebackend.TimeFlag {
		return stored, nil
	}
	at, rest, err := statebackend.CutTime(rest, flags)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", statebackend.ErrCorrupt, err)
	}
	r.value = statebackend.AppendValueHeader(r.value[:0], id, statebackend.AgeFlag)
	r.value = binary.LittleEndian.AppendUint64(r.value, uint64(max(0, r.clock.now-at)))
	r.value = append(r.value, rest...)
	return r.value, nil
}
