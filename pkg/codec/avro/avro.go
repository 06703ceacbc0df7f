package avro

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/weirstream/weir/pkg/codec"
)

// Name is the name and version of the encoding, as stored with state.
const Name = "avro/1"

// For derives the codec that state of type T is stored with: Avro, or T's own
// if it is a codec.Marshaler, or protobuf if it is a message. It accepts the
// types that codec.For accepts. The codec is a codec.Migrating.
func For[T any]() (codec.Codec[T], error) {
	memory, err := codec.For[T]()
	if err != nil {
		return nil, err
	}
	if memory.Name() != codec.DerivedName {
		return memory, nil
	}
	t := reflect.TypeFor[T]()
	path := t.Name()
	if path == "" {
		path = "value"
	}
	s, err := derivation{}.of(t, path)
	if err != nil {
		return nil, fmt.Errorf("codec for %s: %w", t, err)
	}
	c := &stored[T]{memory: memory, typ: s, schema: s.Schema(), plan: planOf(s, t)}
	same, err := new(matcher).match(s, s, "", false)
	if err != nil {
		return nil, fmt.Errorf("codec for %s: %w", t, err)
	}
	c.steps = stepsOf(same, t)
	return c, nil
}

// stored is the codec of one type.
type stored[T any] struct {
	memory codec.Codec[T] // clones values, and reads those that it has stored
	typ    *Type
	schema string
	plan   *plan
	steps  *steps
	// partial says that steps do not write all of a value.
	partial bool
}

// Name implements codec.Codec.
func (c *stored[T]) Name() string { return Name }

// Schema implements codec.Codec.
func (c *stored[T]) Schema() string { return c.schema }

// Flat implements codec.Codec.
func (c *stored[T]) Flat() bool { return c.memory.Flat() }

// Clone implements codec.Codec.
func (c *stored[T]) Clone(dst, src *T) { c.memory.Clone(dst, src) }

// Append implements codec.Codec.
func (c *stored[T]) Append(dst []byte, v *T) []byte { return c.plan.append(dst, unsafe.Pointer(v)) }

// Decode implements codec.Codec.
func (c *stored[T]) Decode(src []byte, v *T) (int, error) {
	if c.partial {
		var zero T
		*v = zero
	}
	r := reader{src: src}
	if err := r.run(c.steps, unsafe.Pointer(v)); err != nil {
		return 0, err
	}
	return r.at, nil
}

// ForSchema implements codec.Migrating.
func (c *stored[T]) ForSchema(name, schema string) (codec.Codec[T], error) {
	switch name {
	case codec.DerivedName:
		if c.memory.Schema() == schema {
			return c.memory, nil
		}
		return nil, asDerived(c.typ, schema)
	case Name:
	default:
		return nil, fmt.Errorf("stored with codec %s as %s, the program has codec %s with %s", name, clip(schema), Name, clip(c.typ.String()))
	}
	w, err := ParseSchema(schema)
	if err != nil {
		return nil, err
	}
	m, err := new(matcher).match(w, c.typ, "", false)
	if err != nil {
		return nil, err
	}
	migrating := *c
	migrating.steps, migrating.partial = stepsOf(m, reflect.TypeFor[T]()), m.changed
	return &migrating, nil
}
