package codec

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"time"
	"unsafe"

	"google.golang.org/protobuf/proto"
)

// reader decodes one value by its plan. Every length is checked against the
// bytes left before anything is allocated for it.
type reader struct {
	src []byte
	at  int
	// text receives the bytes of all strings and byte slices; the scanner has
	// found its capacity. They share it: none overlaps another.
	text []byte
}

func (r *reader) plan(p *plan, base unsafe.Pointer) error {
	if len(r.src)-r.at < p.min {
		return tooShort(len(r.src)-r.at, p.min)
	}
	for i := range p.ops {
		o := &p.ops[i]
		to := unsafe.Add(base, o.offset)
		var err error
		switch o.kind {
		case opCopy:
			// All of fixed size lead, so min has vouched for their bytes.
			if o.size == 8 && littleEndian {
				*(*uint64)(to) = binary.LittleEndian.Uint64(r.src[r.at:])
				r.at += 8
				continue
			}
			r.memory(to, o.size, o.width)
		case opString:
			var length, used int
			if length, used, err = readLength(r.src[r.at:]); err == nil {
				r.at += used
				*(*string)(to) = unsafe.String(unsafe.SliceData(r.cut(length)), length)
			}
		case opBool:
			b := r.src[r.at]
			if b > 1 {
				return fmt.Errorf("%w: byte %#x for a bool", ErrMalformed, b)
			}
			*(*bool)(to) = b == 1
			r.at++
		case opInt:
			v := int64(binary.LittleEndian.Uint64(r.src[r.at:]))
			if int64(int(v)) != v {
				return fmt.Errorf("%w: %d does not fit this host's int", ErrMalformed, v)
			}
			*(*int)(to) = int(v)
			r.at += 8
		case opUint:
			v := binary.LittleEndian.Uint64(r.src[r.at:])
			if uint64(uint(v)) != v {
				return fmt.Errorf("%w: %d does not fit this host's uint", ErrMalformed, v)
			}
			*(*uint)(to) = uint(v)
			r.at += 8
		case opTime:
			err = r.time((*time.Time)(to))
		case opLoop:
			for j := 0; j < o.size && err == nil; j++ {
				err = r.plan(o.elem, unsafe.Add(to, uintptr(j)*o.elem.size))
			}
		case opBytes, opFlatSlice, opSlice:
			err = r.slice(o, to)
		case opPointer:
			err = r.pointer(o, to)
		case opMap:
			err = r.mapping(o, to)
		case opMarshaler:
			err = r.marshaler(o, to)
		case opMessage:
			err = r.message(o, to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// memory copies the next size bytes to p.
func (r *reader) memory(p unsafe.Pointer, size int, width uint8) {
	to := unsafe.Slice((*byte)(p), size)
	copy(to, r.src[r.at:r.at+size])
	r.at += size
	if !littleEndian {
		swapBytes(to, int(width))
	}
}

// cut moves the next n bytes into text and returns them there.
func (r *reader) cut(n int) []byte {
	start := len(r.text)
	r.text = append(r.text, r.src[r.at:r.at+n]...)
	r.at += n
	return r.text[start:len(r.text):len(r.text)]
}

func (r *reader) time(t *time.Time) error {
	seconds := int64(binary.LittleEndian.Uint64(r.src[r.at:]))
	nanos := binary.LittleEndian.Uint32(r.src[r.at+8:])
	offset := int32(binary.LittleEndian.Uint32(r.src[r.at+12:]))
	if nanos >= 1e9 {
		return fmt.Errorf("%w: %d nanoseconds in a time", ErrMalformed, nanos)
	}
	r.at += 16
	*t = time.Unix(seconds, int64(nanos)).UTC()
	if offset != 0 {
		*t = t.In(time.FixedZone("", int(offset)))
	}
	return nil
}

// count reads the length of something that may be nil, of which every element
// takes at least min bytes. n is -1 for nil.
func (r *reader) count(min int) (n int, err error) {
	n, used, err := readCount(r.src[r.at:], min)
	r.at += used
	return n, err
}

func readCount(src []byte, min int) (n, used int, err error) {
	v, used := binary.Uvarint(src)
	if used <= 0 {
		return 0, 0, fmt.Errorf("%w: no length in the %d bytes left", ErrMalformed, len(src))
	}
	if v == 0 {
		return -1, used, nil
	}
	v--
	if left := len(src) - used; v > uint64(left/min) {
		return 0, 0, fmt.Errorf("%w: %d elements with %d bytes left", ErrMalformed, v, left)
	}
	return int(v), used, nil
}

func (r *reader) slice(o *op, to unsafe.Pointer) error {
	n, err := r.count(o.elem.min)
	if err != nil {
		return err
	}
	if n < 0 {
		*(*sliceHeader)(to) = sliceHeader{}
		return nil
	}
	switch {
	case n == 0:
		reflect.NewAt(o.typ, to).Elem().Set(reflect.MakeSlice(o.typ, 0, 0))
	case o.kind == opBytes:
		*(*[]byte)(to) = r.cut(n)
	case o.kind == opFlatSlice:
		// Memory without pointers, aligned for every number.
		words := make([]uint64, (n*o.size+7)/8)
		*(*sliceHeader)(to) = sliceHeader{data: unsafe.Pointer(unsafe.SliceData(words)), len: n, cap: n}
		r.memory(unsafe.Pointer(unsafe.SliceData(words)), n*o.size, o.width)
	default:
		v := reflect.NewAt(o.typ, to).Elem()
		v.SetZero() // or Grow would write to the memory of the value before
		v.Grow(n)
		v.SetLen(n)
		data := v.UnsafePointer()
		for i := range n {
			if err := r.plan(o.elem, unsafe.Add(data, uintptr(i)*o.elem.size)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reader) pointer(o *op, to unsafe.Pointer) error {
	isSet, err := readPresence(r.src[r.at:])
	if err != nil {
		return err
	}
	r.at++
	if !isSet {
		*(*unsafe.Pointer)(to) = nil
		return nil
	}
	p := reflect.New(o.typ).UnsafePointer()
	*(*unsafe.Pointer)(to) = p
	return r.plan(o.elem, p)
}

func readPresence(src []byte) (bool, error) {
	if len(src) == 0 {
		return false, tooShort(0, 1)
	}
	if src[0] > 1 {
		return false, fmt.Errorf("%w: byte %#x for a pointer", ErrMalformed, src[0])
	}
	return src[0] == 1, nil
}

func (r *reader) mapping(o *op, to unsafe.Pointer) error {
	n, err := r.count(o.elem.min + o.value.min)
	if err != nil {
		return err
	}
	m := reflect.NewAt(o.typ, to).Elem()
	if n < 0 {
		m.SetZero()
		return nil
	}
	m.Set(reflect.MakeMapWithSize(o.typ, n))
	key, value := reflect.New(o.typ.Key()), reflect.New(o.typ.Elem())
	for range n {
		key.Elem().SetZero()
		value.Elem().SetZero()
		if err := r.plan(o.elem, key.UnsafePointer()); err != nil {
			return err
		}
		if err := r.plan(o.value, value.UnsafePointer()); err != nil {
			return err
		}
		m.SetMapIndex(key.Elem(), value.Elem())
	}
	return nil
}

func (r *reader) marshaler(o *op, to unsafe.Pointer) error {
	length, used, err := readLength(r.src[r.at:])
	if err != nil {
		return err
	}
	r.at += used
	v := reflect.NewAt(o.typ, to)
	v.Elem().SetZero() // memory of the value before must not be shared
	m := v.Interface().(Marshaler)
	if err := m.UnmarshalFrom(r.src[r.at : r.at+length : r.at+length]); err != nil {
		return fmt.Errorf("%w: %w: %s: %w", ErrMalformed, errMarshaler, m.CodecName(), err)
	}
	r.at += length
	return nil
}

func (r *reader) message(o *op, to unsafe.Pointer) error {
	n, err := r.count(1)
	if err != nil {
		return err
	}
	if n < 0 {
		*(*unsafe.Pointer)(to) = nil
		return nil
	}
	v := reflect.New(o.typ)
	if err := proto.Unmarshal(r.src[r.at:r.at+n], v.Interface().(proto.Message)); err != nil {
		return fmt.Errorf("%w: %w: %w", ErrMalformed, errMarshaler, err)
	}
	*(*unsafe.Pointer)(to) = v.UnsafePointer()
	r.at += n
	return nil
}

// scanner walks an encoding without building the value, to learn how many
// bytes of text it has.
type scanner struct {
	at   int
	text int
}

func (s *scanner) plan(p *plan, src []byte) error {
	if len(src)-s.at < p.min {
		return tooShort(len(src)-s.at, p.min)
	}
	s.at += p.fixed
	for i := p.lead; i < len(p.ops); i++ {
		o := &p.ops[i]
		var err error
		switch o.kind {
		case opCopy, opBool, opInt, opUint, opTime: // lead every plan
		case opLoop:
			for j := 0; j < o.size && err == nil; j++ {
				err = s.plan(o.elem, src)
			}
		case opString, opMarshaler:
			var length, used int
			if length, used, err = readLength(src[s.at:]); err == nil {
				s.at += used + length
				if o.kind == opString {
					s.text += length
				}
			}
		case opBytes, opFlatSlice, opSlice, opMap, opMessage:
			err = s.elements(o, src)
		case opPointer:
			var isSet bool
			if isSet, err = readPresence(src[s.at:]); err == nil {
				s.at++
				if isSet {
					err = s.plan(o.elem, src)
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) elements(o *op, src []byte) error {
	min := 1
	if o.elem != nil {
		min = o.elem.min
	}
	if o.value != nil {
		min += o.value.min
	}
	n, used, err := readCount(src[s.at:], min)
	if err != nil {
		return err
	}
	s.at += used
	if n <= 0 {
		return nil
	}
	switch o.kind {
	case opBytes:
		s.text += n
		s.at += n
		return nil
	case opFlatSlice:
		s.at += n * o.size
		return nil
	case opMessage:
		s.at += n
		return nil
	case opCopy, opBool, opInt, opUint, opTime, opLoop, opString, opSlice, opPointer, opMap, opMarshaler:
	}
	for range n {
		if err := s.plan(o.elem, src); err != nil {
			return err
		}
		if o.value != nil {
			if err := s.plan(o.value, src); err != nil {
				return err
			}
		}
	}
	return nil
}
