package state

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// Operator is the operator state of one operator in one subtask: lists, and
// maps that are broadcast. Only the subtask's goroutine uses it, but for the
// frozen views.
type Operator struct {
	uid ids.OperatorUID
	// index is the subtask's.
	index     int
	lists     []operatorList // bounded by what the program registers
	broadcast *Keyed[bool]   // nil until a broadcast map is registered
	restored  bool
}

// OperatorContext is what NewSplitList and its siblings take: an Operator, or
// whatever embeds one.
type OperatorContext interface {
	// OperatorState returns the operator state of the operator.
	OperatorState() *Operator
}

// NewOperator opens the empty operator state of an operator in the subtask of
// that index. The runtime calls it before the operator's Open, and Restore
// after it.
func NewOperator(uid ids.OperatorUID, index int) *Operator { return &Operator{uid: uid, index: index} }

// OperatorState returns o: an Operator is its own OperatorContext.
func (o *Operator) OperatorState() *Operator { return o }

// States describes the registered states: lists by the names that they are
// stored under, and broadcast maps.
func (o *Operator) States() []snapshot.StateMeta {
	var metas []snapshot.StateMeta
	for _, l := range o.lists {
		metas = append(metas, l.meta().describe())
	}
	if o.broadcast != nil {
		metas = append(metas, broadcastMaps(o.broadcast.States())...)
	}
	return metas
}

// HasStates reports whether anything is registered.
func (o *Operator) HasStates() bool { return len(o.lists) > 0 || o.broadcast != nil }

// errNoOperatorState is returned to sources: their calls come from several
// goroutines, and what they keep are splits and positions.
var errNoOperatorState = errors.New("a source has no operator state: its splits and positions are its state")

// operatorList is an OperatorList without its element type.
type operatorList interface {
	meta() listMeta
	freeze() (encode func() [][]byte)
	// read prepares for elements stored under that description.
	read(stored listMeta) error
	restore(elements [][]byte) error
}

// OperatorList is a list of a subtask, independent of keys. When the job goes
// on at another parallelism its elements are spread anew, as it was registered.
type OperatorList[E any] struct {
	about    listMeta
	codec    codec.Codec[E]
	reader   codec.Codec[E] // of the elements being restored
	elements []E
	// shared says that the memory of elements is also a view's, and may only
	// be appended to.
	shared bool
}

// NewSplitList registers a list whose elements, on restore, are dealt out:
// each goes to one subtask. At unchanged parallelism everybody keeps his own.
func NewSplitList[E any](ctx OperatorContext, name string, options ...Option) (*OperatorList[E], error) {
	return newOperatorList[E](ctx.OperatorState(), name, snapshot.SplitEvenly, options)
}

// NewUnionList registers a list of which, on restore, every subtask gets the
// elements of all.
func NewUnionList[E any](ctx OperatorContext, name string, options ...Option) (*OperatorList[E], error) {
	return newOperatorList[E](ctx.OperatorState(), name, snapshot.Union, options)
}

func newOperatorList[E any](o *Operator, name string, mode snapshot.Redistribution, options []Option) (*OperatorList[E], error) {
	fail := func(err error) (*OperatorList[E], error) {
		return nil, fmt.Errorf("operator %q: register list %q: %w", o.uid, name, err)
	}
	switch {
	case o == nil:
		return nil, errNoOperatorState
	case name == "" || len(name) > nameLengthMax:
		return fail(fmt.Errorf("a state name has 1 to %d bytes", nameLengthMax))
	case o.restored:
		return fail(errRegisteredLate)
	case slices.ContainsFunc(o.lists, func(l operatorList) bool { return l.meta().name == name }):
		return fail(fmt.Errorf("the name is registered already: every list of an operator needs its own"))
	}
	s, c, err := settle[E](options)
	if err != nil {
		return fail(err)
	}
	if s.ttl != nil {
		return fail(fmt.Errorf("operator state has no time-to-live"))
	}
	l := &OperatorList[E]{codec: c, reader: c, about: listMeta{name: name, mode: mode, codec: c.Name(), schema: c.Schema()}}
	o.lists = append(o.lists, l)
	return l, nil
}

// Get returns the elements. The caller may change them until its function
// returns; a change is sure to be kept only by Set.
func (l *OperatorList[E]) Get() []E {
	if l.shared {
		own := make([]E, len(l.elements))
		for i := range own {
			if l.codec.Flat() {
				own[i] = l.elements[i]
			} else {
				l.codec.Clone(&own[i], &l.elements[i])
			}
		}
		l.elements, l.shared = own, false
	}
	return slices.Clip(l.elements)
}

// Add appends an element.
func (l *OperatorList[E]) Add(v E) { l.elements = append(l.elements, v) }

// Set replaces all elements of this subtask.
func (l *OperatorList[E]) Set(v []E) { l.elements, l.shared = slices.Clip(v), false }

func (l *OperatorList[E]) meta() listMeta { return l.about }

func (l *OperatorList[E]) freeze() func() [][]byte {
	view := l.elements
	l.shared = true
	return func() [][]byte {
		out := make([][]byte, len(view))
		for i := range view {
			out[i] = l.codec.Append(nil, &view[i])
		}
		return out
	}
}

func (l *OperatorList[E]) read(stored listMeta) (err error) {
	l.reader, err = codec.ForSchema(l.codec, stored.codec, stored.schema)
	return err
}

func (l *OperatorList[E]) restore(elements [][]byte) error {
	l.elements = make([]E, len(elements))
	for i, b := range elements {
		n, err := l.reader.Decode(b, &l.elements[i])
		if err == nil && n != len(b) {
			err = fmt.Errorf("%d bytes after it", len(b)-n)
		}
		if err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}
