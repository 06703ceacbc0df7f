package avro

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"time"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/pkg/codec"
)

// step decodes one part of a value, in the order in which the writer stored
// them, or skips it.
type step struct {
	stored *Type
	kind   Kind // of stored
	to     Kind // of the program's type; 0: skipped
	size   int  // bytes in memory of an integer
	offset uintptr
	typ    reflect.Type // as in op
	key    *steps
	elem   *steps
}

// steps decode a value of one type.
type steps struct {
	all  []step
	size uintptr // in memory
}

// stepsOf plans how what was stored as m.w is read into the Go type t, whose
// schema is m.r.
func stepsOf(m *match, t reflect.Type) *steps {
	s := &steps{size: t.Size()}
	s.add(m, t, 0)
	return s
}

func (s *steps) add(m *match, t reflect.Type, offset uintptr) {
	d := step{stored: m.w, kind: m.w.Kind, to: m.r.Kind, size: int(t.Size()), offset: offset, typ: t}
	switch m.w.Kind {
	case Struct:
		fields, _ := storedFields(t) // derive has read them without error
		for i, sub := range m.fields {
			if sub == nil {
				s.all = append(s.all, step{stored: m.w.Fields[i].Type})
				continue
			}
			f := fields[m.to[i]]
			s.add(sub, f.Type, offset+f.Offset)
		}
		return
	case Array, Slice:
		d.elem = stepsOf(m.elem, t.Elem())
	case Pointer:
		d.typ, d.elem = t.Elem(), stepsOf(m.elem, t.Elem())
	case Message:
		d.typ = t.Elem()
	case Map:
		d.key, d.elem = stepsOf(m.key, t.Key()), stepsOf(m.elem, t.Elem())
	case Bool, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64, Float32, Float64, Complex64, Complex128, String, Bytes, ByteArray, Time, Marshaler:
	}
	s.all = append(s.all, d)
}

// reader reads one value. Every length is checked against the bytes left
// before anything is allocated for it.
type reader struct {
	src []byte
	at  int
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", codec.ErrMalformed, fmt.Sprintf(format, args...))
}

func (r *reader) left() int { return len(r.src) - r.at }

func (r *reader) need(n int) error {
	if r.left() < n {
		return malformed("%d bytes left, want %d", r.left(), n)
	}
	return nil
}

func (r *reader) long() (int64, error) {
	if r.at < len(r.src) && r.src[r.at] < 0x80 {
		u := uint64(r.src[r.at])
		r.at++
		return int64(u>>1) ^ -int64(u&1), nil
	}
	u, n := binary.Uvarint(r.src[r.at:])
	if n <= 0 {
		return 0, malformed("no number in the %d bytes left", r.left())
	}
	r.at += n
	return int64(u>>1) ^ -int64(u&1), nil
}

// integer reads an integer of a kind: for Uint64 its bits.
func (r *reader) integer(k Kind) (int64, error) {
	v, err := r.long()
	if err != nil {
		return 0, err
	}
	bits := numberBits[k]
	switch k {
	case Int8:
		if v != int64(int8(v)) {
			return 0, malformed("%d for an int8", v)
		}
	case Int16:
		if v != int64(int16(v)) {
			return 0, malformed("%d for an int16", v)
		}
	case Int32:
		if v != int64(int32(v)) {
			return 0, malformed("%d for an int32", v)
		}
	case Uint8, Uint16, Uint32:
		if v < 0 || v >= 1<<bits {
			return 0, malformed("%d for a %s", v, names[k])
		}
	}
	return v, nil
}

// take returns the next n bytes where they are.
func (r *reader) take(n int) ([]byte, error) {
	if err := r.need(n); err != nil {
		return nil, err
	}
	b := r.src[r.at : r.at+n : r.at+n]
	r.at += n
	return b, nil
}

// sized reads a length and as many bytes.
func (r *reader) sized() ([]byte, error) {
	n, err := r.long()
	if err != nil {
		return nil, err
	}
	if n < 0 || n > int64(r.left()) {
		return nil, malformed("length %d with %d bytes left", n, r.left())
	}
	return r.take(int(n))
}

// isSome reads which branch of a union of null and something follows.
func (r *reader) isSome() (bool, error) {
	b, err := r.take(1)
	if err != nil {
		return false, err
	}
	if b[0] != nullBranch && b[0] != someBranch {
		return false, malformed("byte %#x for one of null or something", b[0])
	}
	return b[0] == someBranch, nil
}

// block reads how many elements of at least min bytes follow; 0 at the end.
func (r *reader) block(min int) (int, error) {
	n, err := r.long()
	if err != nil {
		return 0, err
	}
	if n < 0 { // with its length in bytes, which others write to skip by
		if n = -n; n < 0 {
			return 0, malformed("block of %d elements", n)
		}
		if _, err = r.long(); err != nil {
			return 0, err
		}
	}
	if n > int64(r.left()/max(min, 1)) {
		return 0, malformed("%d elements with %d bytes left", n, r.left())
	}
	return int(n), nil
}

// run reads a value into the memory at base, which is zero as far as the steps
// do not write it.
func (r *reader) run(s *steps, base unsafe.Pointer) error {
	for i := range s.all {
		d := &s.all[i]
		to := unsafe.Add(base, d.offset)
		var err error
		switch d.kind {
		case 0:
			err = r.skip(d.stored)
		case Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64:
			var v int64
			if v, err = r.integer(d.kind); err == nil {
				err = d.store(v, to)
			}
		case Bool:
			var b []byte
			if b, err = r.take(1); err == nil {
				if b[0] > 1 {
					return malformed("byte %#x for a boolean", b[0])
				}
				*(*bool)(to) = b[0] == 1
			}
		case Float32:
			var f float32
			if f, err = r.float(); err == nil {
				if d.to == Float64 {
					*(*float64)(to) = float64(f)
				} else {
					*(*float32)(to) = f
				}
			}
		case Float64:
			*(*float64)(to), err = r.double()
		case Complex64:
			var re, im float32
			if re, err = r.float(); err == nil {
				im, err = r.float()
			}
			*(*complex64)(to) = complex(re, im)
		case Complex128:
			var re, im float64
			if re, err = r.double(); err == nil {
				im, err = r.double()
			}
			*(*complex128)(to) = complex(re, im)
		case String:
			var b []byte
			b, err = r.sized()
			*(*string)(to) = string(b)
		case Bytes:
			*(*[]byte)(to), err = r.bytes()
		case Time:
			*(*time.Time)(to), err = r.time()
		case ByteArray:
			var b []byte
			b, err = r.take(d.stored.Size)
			copy(unsafe.Slice((*byte)(to), d.stored.Size), b)
		case Array:
			err = r.array(d, to)
		case Slice:
			err = r.slice(d, to)
		case Pointer:
			err = r.pointer(d, to)
		case Map:
			err = r.mapping(d, to)
		case Marshaler:
			err = r.marshaler(d, to)
		case Message:
			err = r.message(d, to)
		case Struct: // has none
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// store writes an integer into a kind that holds all of its kind.
func (d *step) store(v int64, to unsafe.Pointer) error {
	switch d.to {
	case Int8, Uint8:
		*(*int8)(to) = int8(v)
	case Int16, Uint16:
		*(*int16)(to) = int16(v)
	case Int32, Uint32:
		*(*int32)(to) = int32(v)
	case Int64, Uint64:
		if d.size == 8 {
			*(*int64)(to) = v
			return nil
		}
		// int or uint of a 32-bit host.
		if d.to == Int64 && v != int64(int32(v)) || d.to == Uint64 && v != int64(uint32(v)) {
			return malformed("%d does not fit this host's %s", v, d.typ)
		}
		*(*int32)(to) = int32(v)
	case Float32:
		*(*float32)(to) = float32(v)
	case Float64:
		*(*float64)(to) = float64(v)
	case Bool, Complex64, Complex128, String, Bytes, Time, Struct, Array, ByteArray, Slice, Map, Pointer, Marshaler, Message:
	}
	return nil
}

func (r *reader) float() (float32, error) {
	b, err := r.take(4)
	if err != nil {
		return 0, err
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b)), nil
}

func (r *reader) double() (float64, error) {
	b, err := r.take(8)
	if err != nil {
		return 0, err
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b)), nil
}

func (r *reader) bytes() ([]byte, error) {
	some, err := r.isSome()
	if err != nil || !some {
		return nil, err
	}
	b, err := r.sized()
	if err != nil {
		return nil, err
	}
	return append(make([]byte, 0, len(b)), b...), nil
}

func (r *reader) time() (time.Time, error) {
	seconds, err := r.long()
	if err != nil {
		return time.Time{}, err
	}
	nanos, err := r.long()
	if err != nil {
		return time.Time{}, err
	}
	offset, err := r.integer(Int32)
	if err != nil {
		return time.Time{}, err
	}
	if nanos < 0 || nanos >= 1e9 {
		return time.Time{}, malformed("%d nanoseconds in a time", nanos)
	}
	t := time.Unix(seconds, nanos).UTC()
	if offset != 0 {
		t = t.In(time.FixedZone("", int(offset)))
	}
	return t, nil
}

// each reads the blocks of n elements, or of however many there are if n is
// -1. grow is told before each block how many there will be, and element reads one.
func (r *reader) each(n, min int, grow func(n int), element func(i int) error) error {
	total := 0
	for {
		count, err := r.block(min)
		if err != nil {
			return err
		}
		if n >= 0 && count > n-total {
			return malformed("%d elements for an array of %d", total+count, n)
		}
		if count == 0 {
			break
		}
		grow(total + count)
		for i := range count {
			if err := element(total + i); err != nil {
				return err
			}
		}
		total += count
	}
	if n >= 0 && total != n {
		return malformed("%d elements for an array of %d", total, n)
	}
	return nil
}

// emptyArray reads an array whose elements take no bytes: only its length.
func (r *reader) emptyArray(n int) error {
	count, err := r.long()
	if err == nil && count == int64(n) && n > 0 {
		count, err = r.long()
		count += int64(n)
	}
	if err == nil && count != int64(n) {
		err = malformed("%d elements for an array of %d", count, n)
	}
	return err
}

func nothing(int) {}

func (r *reader) array(d *step, to unsafe.Pointer) error {
	if d.stored.Elem.Min == 0 {
		return r.emptyArray(d.stored.Size)
	}
	return r.each(d.stored.Size, d.stored.Elem.Min, nothing, func(i int) error {
		return r.run(d.elem, unsafe.Add(to, uintptr(i)*d.elem.size))
	})
}

func (r *reader) slice(d *step, to unsafe.Pointer) error {
	v := reflect.NewAt(d.typ, to).Elem()
	v.SetZero() // or Grow would write to the memory of the value before
	some, err := r.isSome()
	if err != nil || !some {
		return err
	}
	v.Set(reflect.MakeSlice(d.typ, 0, 0))
	return r.each(-1, d.stored.Elem.Min, func(n int) {
		v.Grow(n - v.Len())
		v.SetLen(n)
	}, func(i int) error {
		return r.run(d.elem, unsafe.Add(v.UnsafePointer(), uintptr(i)*d.elem.size))
	})
}

func (r *reader) pointer(d *step, to unsafe.Pointer) error {
	*(*unsafe.Pointer)(to) = nil
	some, err := r.isSome()
	if err != nil || !some {
		return err
	}
	p := reflect.New(d.typ).UnsafePointer()
	*(*unsafe.Pointer)(to) = p
	return r.run(d.elem, p)
}

func (r *reader) mapping(d *step, to unsafe.Pointer) error {
	m := reflect.NewAt(d.typ, to).Elem()
	m.SetZero()
	some, err := r.isSome()
	if err != nil || !some {
		return err
	}
	m.Set(reflect.MakeMap(d.typ))
	key, value := reflect.New(d.typ.Key()), reflect.New(d.typ.Elem())
	return r.each(-1, d.stored.Key.Min, func(n int) {
		if m.Len() == 0 {
			m.Set(reflect.MakeMapWithSize(d.typ, n))
		}
	}, func(int) error {
		key.Elem().SetZero()
		value.Elem().SetZero()
		if err := r.run(d.key, key.UnsafePointer()); err != nil {
			return err
		}
		if err := r.run(d.elem, value.UnsafePointer()); err != nil {
			return err
		}
		m.SetMapIndex(key.Elem(), value.Elem())
		return nil
	})
}

func (r *reader) marshaler(d *step, to unsafe.Pointer) error {
	b, err := r.sized()
	if err != nil {
		return err
	}
	v := reflect.NewAt(d.typ, to)
	v.Elem().SetZero() // memory of the value before must not be shared
	m := v.Interface().(codec.Marshaler)
	if err := m.UnmarshalFrom(b); err != nil {
		return fmt.Errorf("%w: refused by %s: %w", codec.ErrMalformed, m.CodecName(), err)
	}
	return nil
}

func (r *reader) message(d *step, to unsafe.Pointer) error {
	*(*unsafe.Pointer)(to) = nil
	some, err := r.isSome()
	if err != nil || !some {
		return err
	}
	b, err := r.sized()
	if err != nil {
		return err
	}
	v := reflect.New(d.typ)
	if err := proto.Unmarshal(b, v.Interface().(proto.Message)); err != nil {
		return fmt.Errorf("%w: refused by protobuf: %w", codec.ErrMalformed, err)
	}
	*(*unsafe.Pointer)(to) = v.UnsafePointer()
	return nil
}

// skip reads a value that the program has no place for.
func (r *reader) skip(t *Type) error {
	if t.Min == 0 {
		return nil // it has no bytes
	}
	if err := r.need(t.Min); err != nil {
		return err
	}
	var err error
	switch t.Kind {
	case Bool, Float32, Float64, Complex64, Complex128, ByteArray:
		_, err = r.take(t.Min)
	case Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64:
		_, err = r.long()
	case String, Marshaler:
		_, err = r.sized()
	case Time:
		_, err = r.time()
	case Struct:
		for _, f := range t.Fields {
			if err = r.skip(f.Type); err != nil {
				return err
			}
		}
	case Array:
		if t.Elem.Min == 0 {
			return r.emptyArray(t.Size)
		}
		err = r.each(t.Size, t.Elem.Min, nothing, func(int) error { return r.skip(t.Elem) })
	case Bytes, Message, Slice, Pointer, Map:
		var some bool
		if some, err = r.isSome(); err != nil || !some {
			return err
		}
		switch t.Kind {
		case Slice:
			err = r.each(-1, t.Elem.Min, nothing, func(int) error { return r.skip(t.Elem) })
		case Pointer:
			err = r.skip(t.Elem)
		case Map:
			err = r.each(-1, t.Key.Min, nothing, func(int) error {
				if err := r.skip(t.Key); err != nil {
					return err
				}
				return r.skip(t.Elem)
			})
		default:
			_, err = r.sized()
		}
	}
	return err
}
