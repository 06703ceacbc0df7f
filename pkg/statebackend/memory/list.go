package memory

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/statebackend"
)

// list is the list of one key.
type list[E any] struct {
	elements []E
	// shared says that the memory of elements is also a view's. The list may
	// append to it, behind what the view reads, but nothing else.
	shared bool
}

// shareList makes *dst a list of the same content that may be appended to
// while others read *src.
func shareList[E any](dst, src *list[E]) { *dst = list[E]{elements: src.elements, shared: true} }

// listState is the list of the current key: statebackend.List.
type listState[K comparable, E any] struct {
	lists *value[K, list[E]]
	codec codec.Codec[E]
	form  statebackend.Form[E]
}

// NewList registers a list per key in s, as NewValue does a value.
func NewList[K comparable, E any](s *State, d statebackend.Descriptor[K, E]) (statebackend.List[E], error) {
	t := newTable(traits[K, list[E]]{key: d.Key, clone: shareList[E], form: listForm[E]{d.StoredForm()}, clock: d.Clock})
	if err := s.register(d.Meta(), t); err != nil {
		return nil, err
	}
	return &listState[K, E]{lists: newValue(t, d.Current), codec: d.Codec, form: d.StoredForm()}, nil
}

// Get implements statebackend.List.
func (l *listState[K, E]) Get() ([]E, error) {
	at, err := l.lists.look()
	if at == nil || err != nil {
		return nil, err
	}
	if at.shared {
		own := make([]E, len(at.elements))
		if l.codec.Flat() {
			copy(own, at.elements)
		} else {
			for i := range own {
				l.codec.Clone(&own[i], &at.elements[i])
			}
		}
		*at = list[E]{elements: own}
	}
	// Without the room behind them: what the caller appends is his.
	return slices.Clip(at.elements), nil
}

// Add implements statebackend.List.
func (l *listState[K, E]) Add(v E) error {
	s, _, err := l.lists.place()
	if err != nil {
		return err
	}
	if l.lists.table.traits.clock != nil {
		l.trim(&s.value)
	}
	s.value.elements = append(s.value.elements, v)
	return nil
}

// trimMax is how many elements an Add removes at most: more than it adds, so
// that a list that is only added to does not keep what has expired.
const trimMax = 4

// trim drops expired elements from the beginning, where the oldest are.
func (l *listState[K, E]) trim(at *list[E]) {
	now := l.lists.table.traits.clock.Now
	for range min(trimMax, len(at.elements)) {
		if !l.form.IsExpired(&at.elements[0], now) {
			return
		}
		at.elements = at.elements[1:]
	}
}

// Sweep implements statebackend.Sweeper.
func (l *listState[K, E]) Sweep() { l.lists.Sweep() }

// AddAll implements statebackend.List.
func (l *listState[K, E]) AddAll(v []E) error {
	if len(v) == 0 {
		return nil
	}
	s, _, err := l.lists.place()
	if err != nil {
		return err
	}
	s.value.elements = append(s.value.elements, v...)
	return nil
}

// Set implements statebackend.List.
func (l *listState[K, E]) Set(v []E) error {
	if len(v) == 0 {
		return l.Clear()
	}
	s, _, err := l.lists.place()
	if err != nil {
		return err
	}
	s.value = list[E]{elements: slices.Clip(v)}
	return nil
}

// Clear implements statebackend.List.
func (l *listState[K, E]) Clear() error { return l.lists.Clear() }

// listForm stores a list as one value: the number of its elements, a uvarint,
// and the elements one after the other. The flags are about each of them.
type listForm[E any] struct{ element statebackend.Form[E] }

// Flags implements statebackend.Form.
func (f listForm[E]) Flags() byte { return f.element.Flags() }

// Append implements statebackend.Form.
func (f listForm[E]) Append(dst []byte, v *list[E], now int64) []byte {
	n := 0
	for i := range v.elements {
		if !f.element.IsExpired(&v.elements[i], now) {
			n++
		}
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	for i := range v.elements {
		if e := &v.elements[i]; !f.element.IsExpired(e, now) {
			dst = f.element.Append(dst, e, now)
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

// emptyElementsMax bounds what a stored count can make a restore do when the
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
func (f listForm[E]) ForSchema(name, schema string) (statebackend.Form[list[E]], error) {
	element, err := f.element.ForSchema(name, schema)
	return listForm[E]{element}, err
}
