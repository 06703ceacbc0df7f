package codec

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"unsafe"

	"google.golang.org/protobuf/proto"
)

// DerivedName is the name and version of the codecs that For plans. The
// version changes when the layout of any type does.
const DerivedName = "weir/1"

// For derives the codec of T: T's own if it is a Marshaler, protobuf if it is
// a message, else one planned from its fields. Types that cannot be encoded
// without loss (functions, channels, interfaces, unexported fields, recursive
// types, …) are refused with an error that names the type and the field.
func For[T any]() (Codec[T], error) {
	t := reflect.TypeFor[T]()
	p, err := planOf(t)
	if err != nil {
		return nil, fmt.Errorf("codec for %s: %w", t, err)
	}
	// A struct of one field that has its own encoding is not that field.
	isOwn := len(p.ops) == 1 && t.Kind() != reflect.Struct && t.Kind() != reflect.Array || reflect.PointerTo(t).Implements(marshalerType)
	switch {
	case isOwn && p.ops[0].kind == opMessage:
		return &planned[T]{plan: p, name: protobufName, schema: messageSchema(t)}, nil
	case isOwn && p.ops[0].kind == opMarshaler:
		return &planned[T]{plan: p, name: reflect.New(t).Interface().(Marshaler).CodecName(), schema: p.schema}, nil
	case littleEndian && p.isCopyOf(t):
		return flat[T]{schema: p.schema}, nil
	case t.Kind() == reflect.String:
		return text[T]{}, nil
	}
	return &planned[T]{plan: p, name: DerivedName, schema: p.schema}, nil
}

// protobufName is the name of the codec of protobuf messages. Their schema is
// the full name: protobuf's own rules say which changes are compatible.
const protobufName = "protobuf/1"

func messageSchema(t reflect.Type) string {
	return string(reflect.Zero(t).Interface().(proto.Message).ProtoReflect().Descriptor().FullName())
}

// flat is the codec of types whose memory is their encoding: fixed-width
// numbers without padding, on a little-endian host. T's size is a constant
// where the compiler specialises this, so the branches on it vanish.
type flat[T any] struct{ schema string }

func (flat[T]) Name() string     { return DerivedName }
func (c flat[T]) Schema() string { return c.schema }
func (flat[T]) Clone(dst, src *T) {
	*dst = *src
}
func (flat[T]) Flat() bool { return true }

func (flat[T]) Append(dst []byte, v *T) []byte {
	if unsafe.Sizeof(*v) == 8 {
		return binary.LittleEndian.AppendUint64(dst, *(*uint64)(unsafe.Pointer(v)))
	}
	return append(dst, unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))...)
}

func (flat[T]) Decode(src []byte, v *T) (int, error) {
	size := int(unsafe.Sizeof(*v))
	if len(src) < size {
		return 0, tooShort(len(src), size)
	}
	if size == 8 {
		*(*uint64)(unsafe.Pointer(v)) = binary.LittleEndian.Uint64(src)
		return 8, nil
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(v)), size), src)
	return size, nil
}

// IsMemory reports whether c encodes a value as its memory. AppendMemory and
// MemoryAt then do the same without a call through the interface, and so
// without their value having to live on the heap: loops over records use them.
func IsMemory[T any](c Codec[T]) bool {
	_, ok := c.(flat[T])
	return ok
}

// AppendMemory is Append of a codec for which IsMemory holds.
func AppendMemory[T any](dst []byte, v *T) []byte {
	return append(dst, unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))...)
}

// MemoryAt is Decode of a codec for which IsMemory holds: the value is read
// where it is. It is good as long as src is unchanged, and need not be aligned.
func MemoryAt[T any](src []byte) (v *T, n int, err error) {
	size := int(unsafe.Sizeof(*v))
	if len(src) < size {
		return nil, 0, tooShort(len(src), size)
	}
	return (*T)(unsafe.Pointer(unsafe.SliceData(src))), size, nil
}

// text is the codec of strings that are a whole value.
type text[T any] struct{}

func (text[T]) Name() string      { return DerivedName }
func (text[T]) Schema() string    { return "string" }
func (text[T]) Clone(dst, src *T) { *dst = *src }
func (text[T]) Flat() bool        { return true }

func (text[T]) Append(dst []byte, v *T) []byte {
	s := *(*string)(unsafe.Pointer(v))
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func (text[T]) Decode(src []byte, v *T) (int, error) {
	length, used, err := readLength(src)
	if err != nil {
		return 0, err
	}
	*(*string)(unsafe.Pointer(v)) = string(src[used : used+length])
	return used + length, nil
}

// planned is the codec of everything else.
type planned[T any] struct {
	plan         *plan
	name, schema string
}

func (c *planned[T]) Name() string   { return c.name }
func (c *planned[T]) Schema() string { return c.schema }
func (c *planned[T]) Flat() bool     { return !c.plan.deep }

func (c *planned[T]) Append(dst []byte, v *T) []byte {
	return c.plan.append(dst, unsafe.Pointer(v))
}

func (c *planned[T]) Decode(src []byte, v *T) (int, error) {
	var r reader
	if c.plan.text {
		// The first pass finds the end and the bytes of all strings, so that
		// they take one allocation together.
		var s scanner
		if err := s.plan(c.plan, src); err != nil {
			return 0, err
		}
		if s.text > 0 {
			r.text = make([]byte, 0, s.text)
		}
	}
	r.src = src
	if err := r.plan(c.plan, unsafe.Pointer(v)); err != nil {
		return 0, err
	}
	return r.at, nil
}

func (c *planned[T]) Clone(dst, src *T) {
	*dst = *src
	if c.plan.deep {
		c.plan.clone(unsafe.Pointer(dst), unsafe.Pointer(src))
	}
}

func tooShort(have, want int) error {
	return fmt.Errorf("%w: %d bytes left, want %d", ErrMalformed, have, want)
}

// readLength reads the length of something of which every element takes at
// least a byte, and the bytes the length itself took: used+length <= len(src).
func readLength(src []byte) (length, used int, err error) {
	if len(src) > 0 && src[0] < 0x80 { // most strings are short
		length, used = int(src[0]), 1
	} else {
		v, n := binary.Uvarint(src)
		if n <= 0 {
			return 0, 0, fmt.Errorf("%w: no length in the %d bytes left", ErrMalformed, len(src))
		}
		if v > uint64(len(src)) {
			return 0, 0, fmt.Errorf("%w: length %d with %d bytes left", ErrMalformed, v, len(src)-n)
		}
		length, used = int(v), n
	}
	if length > len(src)-used {
		return 0, 0, fmt.Errorf("%w: length %d with %d bytes left", ErrMalformed, length, len(src)-used)
	}
	return length, used, nil
}
