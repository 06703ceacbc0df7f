package pebble

import (
	"slices"
	"unsafe"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/statebackend"
)

// listState is the list of the current key: statebackend.List. A list is one
// value: adding to one that is not in memory reads it once.
type listState[K comparable, E any] struct {
	lists *value[K, list[E]]
	codec codec.Codec[E]
	form  statebackend.Form[E]
}

// NewList registers a list per key in s, as NewValue does a value.
func NewList[K comparable, E any](s *State, d statebackend.Descriptor[K, E]) (statebackend.List[E], error) {
	form := d.StoredForm()
	v := newValue(s, d.Key, d.Current, d.Clock, newStoring[list[E]](listForm[E]{form}, d.Meta(), rawList(form, d.Codec)))
	v.share = func(dst, src *list[E]) { *dst = list[E]{elements: src.elements, shared: true} }
	if err := s.register(v); err != nil {
		return nil, err
	}
	return &listState[K, E]{lists: v, codec: d.Codec, form: form}, nil
}

// Get implements statebackend.List.
func (l *listState[K, E]) Get() ([]E, error) {
	c, err := l.lists.fetch()
	if err != nil || c.flags&present == 0 {
		return nil, err
	}
	at := &c.value
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
	c, err := l.toAdd(1)
	if err != nil {
		return err
	}
	if l.lists.clock != nil {
		l.trim(&c.value)
	}
	c.value.elements = append(c.value.elements, v)
	return nil
}

// toAdd is the present list of the current key, which gets n more elements.
func (l *listState[K, E]) toAdd(n int) (*cell[list[E]], error) {
	c, err := l.lists.fetch()
	if err != nil {
		return nil, err
	}
	c.flags = present | dirty
	var e E
	l.lists.beyond += int64(n) * int64(unsafe.Sizeof(e))
	return c, nil
}

// trimMax is how many elements an Add removes at most: more than it adds, so
// that a list that is only added to does not keep what has expired.
const trimMax = 4

// trim drops expired elements from the beginning, where the oldest are.
func (l *listState[K, E]) trim(at *list[E]) {
	for range min(trimMax, len(at.elements)) {
		if !l.form.IsExpired(&at.elements[0], l.lists.clock.Now) {
			return
		}
		at.elements = at.elements[1:]
	}
}

// AddAll implements statebackend.List.
func (l *listState[K, E]) AddAll(v []E) error {
	if len(v) == 0 {
		return nil
	}
	c, err := l.toAdd(len(v))
	if err != nil {
		return err
	}
	c.value.elements = append(c.value.elements, v...)
	return nil
}

// Set implements statebackend.List.
func (l *listState[K, E]) Set(v []E) error {
	if len(v) == 0 {
		return l.Clear()
	}
	c, err := l.lists.place()
	if err != nil {
		return err
	}
	var e E
	l.lists.beyond += int64(len(v)) * int64(unsafe.Sizeof(e))
	c.value = list[E]{elements: slices.Clip(v)}
	return nil
}

// Clear implements statebackend.List.
func (l *listState[K, E]) Clear() error { return l.lists.Clear() }
