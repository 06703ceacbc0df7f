package pebble

import (
	"encoding/binary"
	"fmt"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

// storing is how the values of one state are stored in the database: as in the
// canonical form, but always with the time and never the age of those that
// expire, and under the schema ID that files list. V is what a cell holds.
type storing[V any] struct {
	form statebackend.Form[V]
	// raw appends what follows the header; now drops what has expired of a list.
	raw     func(dst []byte, v *V, now int64) []byte
	flags   byte
	id      uint64
	schemas statebackend.Schemas[V]
	number  int
	planned snapshot.StateMeta
	program snapshot.StateMeta
}

// newStoring is for values that c encodes, the time in front included.
func newStoring[V any](form statebackend.Form[V], program snapshot.StateMeta, raw func(dst []byte, v *V, now int64) []byte) storing[V] {
	s := storing[V]{form: form, raw: raw, program: program, planned: program}
	if form.CanExpire() {
		s.flags = statebackend.TimeFlag
	}
	return s
}

// standing is implemented by forms that read a clock: see statebackend.TimedForm.
type standing[V any] interface {
	Standing(now, shift int64) statebackend.Form[V]
}

// plan implements column: new values get the ID of the stored schema if it is
// the program's, else the next one.
func (s *storing[V]) plan(number int, stored snapshot.StateMeta, now int64) error {
	if st, ok := s.form.(standing[V]); ok {
		s.form = st.Standing(now, 0)
	}
	s.number = number
	s.planned = stored
	if stored.Codec != s.program.Codec || stored.Schema != s.program.Schema {
		s.planned.Earlier = append(append([]snapshot.StoredSchema(nil), stored.Earlier...),
			snapshot.StoredSchema{ID: stored.SchemaID, Codec: stored.Codec, Schema: stored.Schema})
		s.planned.SchemaID = stored.SchemaID + 1
		s.planned.Codec, s.planned.Schema = s.program.Codec, s.program.Schema
	}
	s.id = s.planned.SchemaID
	var err error
	s.schemas, err = statebackend.NewSchemas(s.form, s.planned)
	return err
}

// append appends the stored form of a value, header included.
func (s *storing[V]) append(dst []byte, v *V, now int64) []byte {
	return s.raw(statebackend.AppendValueHeader(dst, s.id, s.flags), v, now)
}

// decode reads a stored value.
func (s *storing[V]) decode(stored []byte, v *V) error {
	return statebackend.DecodeStored(stored, &s.schemas, v)
}

// canonical implements column.
func (s *storing[V]) canonical(dst, stored []byte, now int64) ([]byte, bool, error) {
	id, flags, rest, err := statebackend.ValueHeader(stored)
	if err != nil {
		return dst, false, err
	}
	if id == s.id && flags == 0 && s.flags == 0 {
		return append(statebackend.AppendValueHeader(dst, 0, 0), rest...), false, nil
	}
	var v V
	if err := s.decode(stored, &v); err != nil {
		return dst, false, err
	}
	if s.form.IsExpired(&v, now) {
		return dst, true, nil
	}
	return statebackend.AppendStored(dst, s.form, 0, &v, now), false, nil
}

// isExpired implements column.
func (s *storing[V]) isExpired(stored []byte, now int64) (bool, error) {
	var v V
	if err := s.decode(stored, &v); err != nil {
		return false, err
	}
	return s.form.IsExpired(&v, now), nil
}

// reader implements column.
func (s *storing[V]) reader(from snapshot.StateMeta, now, shift int64) (importer, error) {
	form := s.form
	if !s.keepsAge() {
		shift = 0
	}
	if st, ok := form.(standing[V]); ok {
		form = st.Standing(now, shift)
	}
	schemas, err := statebackend.NewSchemas(form, from)
	if err != nil {
		return nil, err
	}
	return &converter[V]{to: s, from: from, schemas: schemas, shifted: shift != 0}, nil
}

// keepsAge implements column.
func (s *storing[V]) keepsAge() bool { return s.form.Flags() == statebackend.AgeFlag }

// converter is an importer of one state.
type converter[V any] struct {
	to      *storing[V]
	from    snapshot.StateMeta
	schemas statebackend.Schemas[V]
	shifted bool
}

// convert implements importer.
func (c *converter[V]) convert(dst, stored []byte) ([]byte, error) {
	id, flags, rest, err := statebackend.ValueHeader(stored)
	if err != nil {
		return dst, err
	}
	if !c.shifted && flags == c.to.flags && id == c.from.SchemaID && c.from.Codec == c.to.program.Codec && c.from.Schema == c.to.program.Schema {
		if flags != 0 {
			if _, _, err := statebackend.CutTime(rest, flags); err != nil {
				return dst, fmt.Errorf("%w: %w", statebackend.ErrCorrupt, err)
			}
		}
		return append(statebackend.AppendValueHeader(dst, c.to.id, flags), rest...), nil
	}
	var v V
	if err := statebackend.DecodeStored(stored, &c.schemas, &v); err != nil {
		return dst, err
	}
	return c.to.append(dst, &v, -1<<62), nil
}

// list is the list of one key.
type list[E any] struct {
	elements []E
	// shared says that a sealed segment has the same memory. The list may
	// append to it, behind what the segment reads, but nothing else.
	shared bool
}

// listForm stores a list as one value: the number of its elements, a uvarint,
// and the elements one after the other. The flags are about each of them.
type listForm[E any] struct{ element statebackend.Form[E] }

// Flags implements statebackend.Form.
func (f listForm[E]) Flags() byte { return f.element.Flags() }

// Append implements statebackend.Form.
func (f listForm[E]) Append(dst []byte, v *list[E], now int64) []byte {
	return appendList(dst, v, f.element, now, func(dst []byte, e *E) []byte { return f.element.Append(dst, e, now) })
}

// appendList appends the elements that have not expired.
func appendList[E any](dst []byte, v *list[E], form statebackend.Form[E], now int64, element func(dst []byte, e *E) []byte) []byte {
	n := len(v.elements)
	expiring := form.CanExpire()
	if expiring {
		n = 0
		for i := range v.elements {
			if !form.IsExpired(&v.elements[i], now) {
				n++
			}
		}
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	for i := range v.elements {
		if e := &v.elements[i]; !expiring || !form.IsExpired(e, now) {
			dst = element(dst, e)
		}
	}
	return dst
}

// Decode implements statebackend.Form.
func (f listForm[E]) Decode(src []byte, flags byte, v *list[E]) (int, error) {
	count, at := binary.Uvarint(src)
	if at <= 0 || count == 0 {
		return 0, fmt.Errorf("list of %d elements in %d bytes", count, len(src))
	}
	// A claimed count allocates no more than the bytes that are there explain.
	v.elements = make([]E, 0, min(count, uint64(len(src)-at)+1))
	for i := range count {
		begin := at
		var e E
		n, err := f.element.Decode(src[at:], flags, &e)
		if err != nil {
			return 0, fmt.Errorf("element %d of %d: %w", i, count, err)
		}
		if at += n; at == begin && count > emptyElementsMax {
			return 0, fmt.Errorf("%d elements of no bytes", count)
		}
		v.elements = append(v.elements, e)
	}
	return at, nil
}

// emptyElementsMax bounds what a stored count can make a reader do when the
// elements take no bytes, which would not end for a damaged one.
const emptyElementsMax = 1 << 24

// IsExpired implements statebackend.Form.
func (f listForm[E]) IsExpired(v *list[E], now int64) bool {
	// From the newest, which usually decides.
	for i := len(v.elements) - 1; i >= 0; i-- {
		if !f.element.IsExpired(&v.elements[i], now) {
			return false
		}
	}
	return true
}

// CanExpire implements statebackend.Form.
func (f listForm[E]) CanExpire() bool { return f.element.CanExpire() }

// ForSchema implements statebackend.Form.
func (f listForm[E]) ForSchema(codec, schema string) (statebackend.Form[list[E]], error) {
	element, err := f.element.ForSchema(codec, schema)
	return listForm[E]{element}, err
}

// Standing implements standing.
func (f listForm[E]) Standing(now, shift int64) statebackend.Form[list[E]] {
	if st, ok := f.element.(standing[E]); ok {
		return listForm[E]{st.Standing(now, shift)}
	}
	return f
}

// rawList appends a list as the database has it.
func rawList[E any](form statebackend.Form[E], c codec.Codec[E]) func(dst []byte, v *list[E], now int64) []byte {
	return func(dst []byte, v *list[E], now int64) []byte {
		return appendList(dst, v, form, now, c.Append)
	}
}
