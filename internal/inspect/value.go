package inspect

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"time"
)

// errMalformed is wrapped by errors about bytes that do not fit their schema.
var errMalformed = errors.New("bytes do not fit the schema")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// decodeValue turns the bytes of a value that package codec's derived codec
// wrote into JSON.
//
// The layout has everything of fixed size first, in the order of the fields
// and across nested structs, and then the rest in the same order; elements of
// arrays, slices and maps, and what pointers point to, are values of their own.
func decodeValue(t *schemaType, src []byte) ([]byte, error) {
	r := valueReader{src: src}
	out, err := r.value(nil, t)
	if err != nil {
		return nil, err
	}
	if len(r.src) > 0 {
		return nil, malformed("%d bytes follow the value", len(r.src))
	}
	return out, nil
}

type valueReader struct{ src []byte }

// slot is the place of a value while its parts are collected: leaf is its
// JSON, or fields are a struct's.
type slot struct {
	leaf   []byte
	fields []slot
}

// value reads a value that stands for itself and appends its JSON to dst.
func (r *valueReader) value(dst []byte, t *schemaType) ([]byte, error) {
	if t.min > int64(len(r.src)) {
		return nil, malformed("%d bytes left, want %d or more", len(r.src), t.min)
	}
	var s slot
	for _, fixed := range []bool{true, false} {
		if err := r.pass(&s, t, fixed); err != nil {
			return nil, err
		}
	}
	return s.append(dst, t), nil
}

// pass reads the parts of fixed size, or the others.
func (r *valueReader) pass(s *slot, t *schemaType, fixed bool) error {
	if t.form == structForm {
		if s.fields == nil {
			s.fields = make([]slot, len(t.fields))
		}
		for i := range t.fields {
			if err := r.pass(&s.fields[i], t.fields[i].typ, fixed); err != nil {
				return err
			}
		}
		return nil
	}
	if t.fixed != fixed {
		return nil
	}
	var err error
	s.leaf, err = r.leaf(nil, t)
	return err
}

func (s *slot) append(dst []byte, t *schemaType) []byte {
	if t.form != structForm {
		return append(dst, s.leaf...)
	}
	dst = append(dst, '{')
	for i, f := range t.fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendText(dst, f.name), ':')
		dst = s.fields[i].append(dst, f.typ)
	}
	return append(dst, '}')
}

// leaf reads anything but a struct.
func (r *valueReader) leaf(dst []byte, t *schemaType) ([]byte, error) {
	switch t.form {
	case numberForm:
		b, err := r.take(int64(t.size))
		if err != nil {
			return nil, err
		}
		return appendNumber(dst, t, b), nil
	case boolForm:
		b, err := r.take(1)
		if err != nil {
			return nil, err
		}
		return appendBool(dst, b[0])
	case timeForm:
		b, err := r.take(timeSize)
		if err != nil {
			return nil, err
		}
		return appendTime(dst, b)
	case bytesForm:
		b, err := r.take(int64(t.count))
		if err != nil {
			return nil, err
		}
		return appendHex(dst, b), nil
	case stringForm:
		b, err := r.sized()
		if err != nil {
			return nil, err
		}
		return appendText(dst, string(b)), nil
	case opaqueForm:
		return r.opaque(dst, t)
	case arrayForm:
		return r.elements(dst, t.elem, t.count)
	case sliceForm:
		return r.slice(dst, t)
	case pointerForm:
		return r.pointer(dst, t)
	case mapForm:
		return r.mapping(dst, t)
	case structForm:
		return r.value(dst, t)
	}
	return nil, malformed("type of unknown form %d", t.form)
}

func (r *valueReader) take(n int64) ([]byte, error) {
	if n > int64(len(r.src)) {
		return nil, malformed("%d bytes left, want %d", len(r.src), n)
	}
	b := r.src[:n]
	r.src = r.src[n:]
	return b, nil
}

func (r *valueReader) uvarint() (uint64, error) {
	v, n := binary.Uvarint(r.src)
	if n <= 0 {
		return 0, malformed("no length in the %d bytes left", len(r.src))
	}
	r.src = r.src[n:]
	return v, nil
}

// sized reads a length and as many bytes.
func (r *valueReader) sized() ([]byte, error) {
	n, err := r.uvarint()
	if err != nil {
		return nil, err
	}
	if n > uint64(len(r.src)) {
		return nil, malformed("length %d with %d bytes left", n, len(r.src))
	}
	return r.take(int64(n))
}

// count reads the length of something that may be nil, of which every element
// takes at least min bytes; -1 for nil.
func (r *valueReader) count(min int64) (int, error) {
	n, err := r.uvarint()
	if err != nil || n == 0 {
		return -1, err
	}
	n--
	if n > uint64(int64(len(r.src))/min) {
		return 0, malformed("%d elements with %d bytes left", n, len(r.src))
	}
	return int(n), nil
}

func (r *valueReader) opaque(dst []byte, t *schemaType) ([]byte, error) {
	if t.name == "message" {
		n, err := r.count(1)
		if err != nil {
			return nil, err
		}
		if n < 0 {
			return append(dst, "null"...), nil
		}
		b, err := r.take(int64(n))
		return appendHex(dst, b), err
	}
	b, err := r.sized()
	return appendHex(dst, b), err
}

func (r *valueReader) elements(dst []byte, elem *schemaType, n int) ([]byte, error) {
	dst = append(dst, '[')
	for i := range n {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = r.value(dst, elem); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

func (r *valueReader) slice(dst []byte, t *schemaType) ([]byte, error) {
	n, err := r.count(t.elem.min)
	if err != nil {
		return nil, err
	}
	switch {
	case n < 0:
		return append(dst, "null"...), nil
	case t.elem.form == numberForm && t.elem.name == "uint8":
		b, err := r.take(int64(n))
		return appendHex(dst, b), err
	}
	return r.elements(dst, t.elem, n)
}

func (r *valueReader) pointer(dst []byte, t *schemaType) ([]byte, error) {
	b, err := r.take(1)
	switch {
	case err != nil:
		return nil, err
	case b[0] == 0:
		return append(dst, "null"...), nil
	case b[0] == 1:
		return r.value(dst, t.elem)
	}
	return nil, malformed("byte %#x for a pointer", b[0])
}

// mapping writes a list of [key, value]: JSON's objects have no other keys
// than strings.
func (r *valueReader) mapping(dst []byte, t *schemaType) ([]byte, error) {
	n, err := r.count(addSizes(t.key.min, t.elem.min))
	if err != nil {
		return nil, err
	}
	if n < 0 {
		return append(dst, "null"...), nil
	}
	isObject := t.key.form == stringForm
	open, between, end := byte('['), byte(','), byte(']')
	if isObject {
		open, between, end = '{', ':', '}'
	}
	dst = append(dst, open)
	for i := range n {
		if i > 0 {
			dst = append(dst, ',')
		}
		if !isObject {
			dst = append(dst, '[')
		}
		if isObject {
			key, err := r.sized()
			if err != nil {
				return nil, err
			}
			dst = appendObjectKey(dst, string(key))
		} else if dst, err = r.value(dst, t.key); err != nil {
			return nil, err
		}
		dst = append(dst, between)
		if dst, err = r.value(dst, t.elem); err != nil {
			return nil, err
		}
		if !isObject {
			dst = append(dst, ']')
		}
	}
	return append(dst, end), nil
}

// appendNumber writes a little-endian number.
func appendNumber(dst []byte, t *schemaType, b []byte) []byte {
	little := binary.LittleEndian
	switch t.name {
	case "int8":
		return fmt.Append(dst, int8(b[0]))
	case "int16":
		return fmt.Append(dst, int16(little.Uint16(b)))
	case "int32":
		return fmt.Append(dst, int32(little.Uint32(b)))
	case "int64":
		return fmt.Append(dst, int64(little.Uint64(b)))
	case "uint8", "byte":
		return fmt.Append(dst, b[0])
	case "uint16":
		return fmt.Append(dst, little.Uint16(b))
	case "uint32":
		return fmt.Append(dst, little.Uint32(b))
	case "uint64":
		return fmt.Append(dst, little.Uint64(b))
	case "float32":
		return appendFloat(dst, math.Float32frombits(little.Uint32(b)))
	case "float64":
		return appendFloat(dst, math.Float64frombits(little.Uint64(b)))
	case "complex64":
		dst = appendFloat(append(dst, '['), math.Float32frombits(little.Uint32(b)))
		dst = appendFloat(append(dst, ','), math.Float32frombits(little.Uint32(b[4:])))
		return append(dst, ']')
	default: // complex128
		dst = appendFloat(append(dst, '['), math.Float64frombits(little.Uint64(b)))
		dst = appendFloat(append(dst, ','), math.Float64frombits(little.Uint64(b[8:])))
		return append(dst, ']')
	}
}

func appendBool(dst []byte, b byte) ([]byte, error) {
	switch b {
	case 0:
		return append(dst, "false"...), nil
	case 1:
		return append(dst, "true"...), nil
	}
	return nil, malformed("byte %#x for a bool", b)
}

// appendTime writes a time as RFC 3339 where that can hold it.
func appendTime(dst, b []byte) ([]byte, error) {
	seconds := int64(binary.LittleEndian.Uint64(b))
	nanos := binary.LittleEndian.Uint32(b[8:])
	offset := int32(binary.LittleEndian.Uint32(b[12:]))
	if nanos >= 1e9 {
		return nil, malformed("%d nanoseconds in a time", nanos)
	}
	t := time.Unix(seconds, int64(nanos)).UTC()
	if offset != 0 {
		t = t.In(time.FixedZone("", int(offset)))
	}
	return appendText(dst, t.Format(time.RFC3339Nano)), nil
}

func appendHex(dst, b []byte) []byte {
	return append(hex.AppendEncode(append(dst, '"'), b), '"')
}
