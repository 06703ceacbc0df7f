package statebackend

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/weirstream/weir/pkg/keygroup"
)

// The stored form of keyed state, of every backend. The bytes of a key group
// are empty, or formatVersion and then a section for every state that has
// entries in the group, in the order of the states' numbers:
//
//	state number, count of entries, that many entries      uvarints
//	entry: key length, key, value length, value            in the order of the keys' bytes
//	value: schema ID (uvarint), flags (byte), with time-to-live a time (8 bytes), codec bytes
//
// Of a list the value is the header, the number of elements (uvarint), and of
// each element the time and its codec bytes. A map has an entry for every user
// key, under the encoding of MapKey. Reducing and aggregating are values.
//
// A state's number is its place in the snapshot's list of StateMeta, which
// says what the schema IDs mean. In this form all values of a state are stored
// under the schema of its StateMeta, ID 0: whoever writes it migrates what was
// written under earlier ones.
const formatVersion = 1

// writeBufferBytes is how much a Writer gathers before it writes.
const writeBufferBytes = 64 << 10

// ErrCorrupt is wrapped by errors about stored bytes that are no snapshot.
var ErrCorrupt = errors.New("corrupt state")

// ErrValueTooLarge is wrapped by errors about a snapshot with a value over the
// limit. The state itself is usable.
var ErrValueTooLarge = errors.New("value too large for a snapshot")

// ValueBytesMax is the default of state.value.bytes-max: larger stored values
// are usually a list or aggregate that grows for ever.
const ValueBytesMax = 64 << 20

// ErrNoKey is returned when a state is used while no key is current.
var ErrNoKey = errors.New("no current key: keyed state can be used only while a record or timer of a keyed operator is processed")

// Writer writes the stored form, group by group.
type Writer struct {
	w       io.Writer
	buf     []byte
	flushed int64
	offsets []int64
	started bool // the current group has its version byte
	// valueMax is the size of the largest value it writes.
	valueMax int
	err      error
}

// NewWriter makes a Writer that writes to w through a buffer of its own.
func NewWriter(w io.Writer) *Writer { return NewLimitedWriter(w, ValueBytesMax) }

// NewLimitedWriter makes a Writer that refuses values of more than valueMax
// bytes: the error is ErrValueTooLarge and names state number and size.
func NewLimitedWriter(w io.Writer, valueMax int) *Writer {
	return &Writer{w: w, buf: make([]byte, 0, writeBufferBytes+4096), valueMax: valueMax}
}

// Group begins the next group. The first call begins the first group of the range.
func (w *Writer) Group() {
	w.offsets = append(w.offsets, w.flushed+int64(len(w.buf)))
	w.started = false
}

// State begins the section of a state with count entries; count is not 0.
func (w *Writer) State(number, count int) {
	if !w.started {
		w.buf = append(w.buf, formatVersion)
		w.started = true
	}
	w.buf = binary.AppendUvarint(w.buf, uint64(number))
	w.buf = binary.AppendUvarint(w.buf, uint64(count))
}

// Entry writes one entry. value begins with its header (AppendValueHeader).
// Errors are kept for Finish; Err tells early.
func (w *Writer) Entry(key, value []byte) {
	if len(value) > w.valueMax && w.err == nil {
		w.err = fmt.Errorf("%w: it has %d bytes, the limit is %d (state.value.bytes-max)", ErrValueTooLarge, len(value), w.valueMax)
	}
	w.buf = binary.AppendUvarint(w.buf, uint64(len(key)))
	w.buf = append(w.buf, key...)
	w.buf = binary.AppendUvarint(w.buf, uint64(len(value)))
	w.buf = append(w.buf, value...)
	if len(w.buf) >= writeBufferBytes {
		w.flush()
	}
}

// Err is the first error of the underlying writer or about a value.
func (w *Writer) Err() error { return w.err }

func (w *Writer) flush() {
	if w.err == nil {
		_, w.err = w.w.Write(w.buf)
	}
	w.flushed += int64(len(w.buf))
	w.buf = w.buf[:0]
}

// Finish ends the last group and returns where the groups begin and end.
func (w *Writer) Finish() ([]int64, error) {
	w.flush()
	if w.err != nil {
		return nil, fmt.Errorf("write keyed state: %w", w.err)
	}
	return append(w.offsets, w.flushed), nil
}

// AppendValueHeader appends what stands before the codec's bytes of a value.
func AppendValueHeader(dst []byte, schemaID uint64, flags byte) []byte {
	return append(binary.AppendUvarint(dst, schemaID), flags)
}

// ValueHeader splits a stored value into its header and the codec's bytes.
func ValueHeader(value []byte) (schemaID uint64, flags byte, codecBytes []byte, err error) {
	schemaID, n := binary.Uvarint(value)
	if n <= 0 || len(value) <= n {
		return 0, 0, nil, fmt.Errorf("%w: value of %d bytes has no header", ErrCorrupt, len(value))
	}
	return schemaID, value[n], value[n+1:], nil
}

// ReadGroup calls entry for every entry in the bytes of one group, with the
// state's number below states. key and value are parts of src. Errors wrap
// ErrCorrupt, or are entry's own.
func ReadGroup(src []byte, states int, entry func(state int, key, value []byte) error) error {
	if len(src) == 0 {
		return nil
	}
	if src[0] != formatVersion {
		return fmt.Errorf("%w: format version %d, this program reads %d", ErrCorrupt, src[0], formatVersion)
	}
	src = src[1:]
	last := -1
	for len(src) > 0 {
		var number, count uint64
		var err error
		if number, src, err = cutUvarint(src); err != nil {
			return err
		}
		if count, src, err = cutUvarint(src); err != nil {
			return err
		}
		if number >= uint64(states) || int(number) <= last {
			return fmt.Errorf("%w: section of state number %d of %d after %d", ErrCorrupt, number, states, last)
		}
		last = int(number)
		for range count {
			var key, value []byte
			if key, src, err = cutBytes(src); err != nil {
				return err
			}
			if value, src, err = cutBytes(src); err != nil {
				return err
			}
			if err := entry(last, key, value); err != nil {
				return err
			}
		}
	}
	return nil
}

func cutUvarint(src []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(src)
	if n <= 0 {
		return 0, nil, fmt.Errorf("%w: the group ends inside an entry", ErrCorrupt)
	}
	return v, src[n:], nil
}

func cutBytes(src []byte) (b, rest []byte, err error) {
	n, src, err := cutUvarint(src)
	if err != nil {
		return nil, nil, err
	}
	if n > uint64(len(src)) {
		return nil, nil, fmt.Errorf("%w: length %d with %d bytes left in the group", ErrCorrupt, n, len(src))
	}
	return src[:n:n], src[n:], nil
}

// Groups calls group for every key group that the part has within r, in
// order. It checks range and offsets against the data first.
func (p *RestoredPart) Groups(r keygroup.Range, group func(g keygroup.Group, bytes []byte) error) error {
	if p.Range.First > p.Range.Last || len(p.Offsets) != p.Range.Len()+1 {
		return fmt.Errorf("%w: %d offsets for key groups %s", ErrCorrupt, len(p.Offsets), p.Range)
	}
	for i, o := range p.Offsets {
		if o < 0 || o > int64(len(p.Data)) || i > 0 && o < p.Offsets[i-1] {
			return fmt.Errorf("%w: offset %d of key groups %s is %d, with %d bytes stored", ErrCorrupt, i, p.Range, o, len(p.Data))
		}
	}
	common, ok := p.Range.Intersect(r)
	if !ok {
		return nil
	}
	for g := int(common.First); g <= int(common.Last); g++ {
		i := g - int(p.Range.First)
		if err := group(keygroup.Group(g), p.Data[p.Offsets[i]:p.Offsets[i+1]]); err != nil {
			return err
		}
	}
	return nil
}
