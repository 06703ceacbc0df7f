package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirstream/weir/pkg/statebackend"
)

// clockFile is the one file of a view that is not Pebble's: what time it was,
// and which states have values that are as old after a restore as at the
// freeze, though the database has times and never ages.
const clockFile = "weir-clock"

// clockBytes is what the time takes of it, in milliseconds since 1970,
// little-endian. Behind it is a byte for every state, in the order of their
// numbers: 1 if it keeps the age of its values, else 0.
const clockBytes = 8

// clockRead is a clockFile that was read.
type clockRead struct {
	now      int64
	keepsAge []bool // by state number
}

// writeClock writes that of a view.
func (f *frozen) writeClock(s *store) (statebackend.File, error) {
	content := make([]byte, clockBytes+len(f.columns))
	now := int64(0)
	for i, c := range f.columns {
		now = max(now, f.times[i])
		if number, _ := c.stored(); c.keepsAge() {
			content[clockBytes+number] = 1
		}
	}
	binary.LittleEndian.PutUint64(content, uint64(now))
	path := s.options.FS.PathJoin(f.dir, clockFile)
	file, err := s.options.FS.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return statebackend.File{}, err
	}
	_, err = file.Write(content)
	return statebackend.File{Local: clockFile, Path: path, Size: int64(len(content))}, errors.Join(err, file.Close())
}

// splitClock takes the file that is not Pebble's out of a part and reads it.
func splitClock(o *lsm.Options, p statebackend.RestoredPart) (filePart, clockRead, error) {
	part := filePart{Range: p.Range}
	var content []byte
	for _, f := range p.Files {
		if f.Local != clockFile {
			part.Files = append(part.Files, f)
			continue
		}
		if content != nil {
			return part, clockRead{}, fmt.Errorf("%w: key groups %s have two files %s", statebackend.ErrCorrupt, p.Range, clockFile)
		}
		file, err := o.FS.Open(f.Path)
		if err != nil {
			return part, clockRead{}, fmt.Errorf("read %s: %w", clockFile, err)
		}
		// One byte more than it has, to see that it has no more.
		content, err = io.ReadAll(io.LimitReader(file, int64(clockBytes+len(p.States)+1)))
		if err = errors.Join(err, file.Close()); err != nil {
			return part, clockRead{}, fmt.Errorf("read %s: %w", clockFile, err)
		}
	}
	if len(content) != clockBytes+len(p.States) {
		return part, clockRead{}, fmt.Errorf("%w: key groups %s have a file %s of %d bytes for %d states", statebackend.ErrCorrupt, p.Range, clockFile, len(content), len(p.States))
	}
	clock := clockRead{now: int64(binary.LittleEndian.Uint64(content))}
	for _, b := range content[clockBytes:] {
		clock.keepsAge = append(clock.keepsAge, b == 1)
	}
	if clock.now < 0 || slices.ContainsFunc(content[clockBytes:], func(b byte) bool { return b > 1 }) {
		return part, clockRead{}, fmt.Errorf("%w: file %s of key groups %s holds %x", statebackend.ErrCorrupt, clockFile, p.Range, content)
	}
	return part, clock, nil
}
