package statebackend

import (
	"encoding/binary"
	"fmt"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/snapshot"
)

// Flags of stored values: what stands between them and the codec's bytes. In
// a list it stands in front of every element.
const (
	// TimeFlag: eight bytes, little-endian, say when the value was last
	// written, in milliseconds since 1970.
	TimeFlag byte = 1 << iota
	// AgeFlag: eight bytes, little-endian, say how many milliseconds before
	// the snapshot the value was last written.
	AgeFlag
)

// timeBytes is what TimeFlag or AgeFlag takes.
const timeBytes = 8

// Form is how the values of one state are stored. It is immutable, but for
// the clock of a state with time-to-live, which Decode alone reads.
type Form[V any] interface {
	// Flags is what the header of every value has.
	Flags() byte
	// Append appends what follows the header. now is the time of the freeze.
	Append(dst []byte, v *V, now int64) []byte
	// Decode reads what follows a header with flags, of this or an earlier
	// version of the program, from the start of src.
	Decode(src []byte, flags byte, v *V) (n int, err error)
	// IsExpired reports whether a value does not exist any more at now.
	IsExpired(v *V, now int64) bool
	// CanExpire reports whether IsExpired may ever say yes.
	CanExpire() bool
	// ForSchema is the same form for values whose codec's bytes were stored
	// under another codec or schema. The error names what cannot be read.
	ForSchema(name, schema string) (Form[V], error)
}

// Schemas reads the values of one state whatever schema they were stored
// under. The zero value reads nothing.
type Schemas[V any] struct{ byID []schemaForm[V] }

type schemaForm[V any] struct {
	id   uint64
	form Form[V]
}

// NewSchemas plans how the values of a stored state are read into the program's
// type, of which f is the form. The error names what cannot be.
func NewSchemas[V any](f Form[V], stored snapshot.StateMeta) (Schemas[V], error) {
	var s Schemas[V]
	add := func(id uint64, name, schema string) error {
		form, err := f.ForSchema(name, schema)
		if err != nil {
			return fmt.Errorf("state %q: %w", stored.Name, err)
		}
		s.byID = append(s.byID, schemaForm[V]{id: id, form: form})
		return nil
	}
	if err := add(stored.SchemaID, stored.Codec, stored.Schema); err != nil {
		return Schemas[V]{}, err
	}
	for _, e := range stored.Earlier {
		if err := add(e.ID, e.Codec, e.Schema); err != nil {
			return Schemas[V]{}, err
		}
	}
	return s, nil
}

// of finds the form for a schema ID. The list is short: one entry a version of
// the program that changed the type.
func (s *Schemas[V]) of(id uint64) Form[V] {
	for i := range s.byID {
		if s.byID[i].id == id {
			return s.byID[i].form
		}
	}
	return nil
}

// AppendStored appends the stored form of a value, header included.
func AppendStored[V any](dst []byte, f Form[V], schemaID uint64, v *V, now int64) []byte {
	return f.Append(AppendValueHeader(dst, schemaID, f.Flags()), v, now)
}

// DecodeStored reads what AppendStored wrote. Errors wrap ErrCorrupt.
func DecodeStored[V any](stored []byte, s *Schemas[V], v *V) error {
	schemaID, flags, rest, err := ValueHeader(stored)
	if err != nil {
		return err
	}
	f := s.of(schemaID)
	if f == nil || flags&^(TimeFlag|AgeFlag) != 0 || flags == TimeFlag|AgeFlag {
		return fmt.Errorf("%w: value has schema ID %d and flags %#x, which its snapshot does not list", ErrCorrupt, schemaID, flags)
	}
	n, err := f.Decode(rest, flags, v)
	if err == nil && n != len(rest) {
		err = fmt.Errorf("%d bytes after the value", len(rest)-n)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

// CutTime splits what flags say is in front of the codec's bytes off src.
// time is 0 if there is nothing.
func CutTime(src []byte, flags byte) (time int64, rest []byte, err error) {
	if flags&(TimeFlag|AgeFlag) == 0 {
		return 0, src, nil
	}
	if len(src) < timeBytes {
		return 0, nil, fmt.Errorf("%d bytes left for the time of a value", len(src))
	}
	time = int64(binary.LittleEndian.Uint64(src))
	if time < 0 {
		return 0, nil, fmt.Errorf("the time of a value is %d", time)
	}
	return time, src[timeBytes:], nil
}

// plainForm is the form of values that do not expire.
type plainForm[V any] struct{ codec codec.Codec[V] }

// PlainForm stores values as c encodes them. A time that was stored with a
// value, when the state had a time-to-live, is dropped: the value stays for ever.
func PlainForm[V any](c codec.Codec[V]) Form[V] { return plainForm[V]{c} }

// Flags implements Form.
func (plainForm[V]) Flags() byte { return 0 }

// Append implements Form.
func (f plainForm[V]) Append(dst []byte, v *V, _ int64) []byte { return f.codec.Append(dst, v) }

// Decode implements Form.
func (f plainForm[V]) Decode(src []byte, flags byte, v *V) (int, error) {
	_, rest, err := CutTime(src, flags)
	if err != nil {
		return 0, err
	}
	n, err := f.codec.Decode(rest, v)
	return len(src) - len(rest) + n, err
}

// IsExpired implements Form.
func (plainForm[V]) IsExpired(*V, int64) bool { return false }

// CanExpire implements Form.
func (plainForm[V]) CanExpire() bool { return false }

// ForSchema implements Form.
func (f plainForm[V]) ForSchema(name, schema string) (Form[V], error) {
	c, err := codec.ForSchema(f.codec, name, schema)
	return plainForm[V]{c}, err
}
