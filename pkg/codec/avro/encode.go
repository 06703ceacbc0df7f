package avro

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"slices"
	"time"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/pkg/codec"
)

// op encodes one part of a value. Nested structs have no op of their own: a
// record is its fields one after the other.
type op struct {
	kind   Kind
	size   int // bytes in memory of an integer; elements of an Array; bytes of a ByteArray
	offset uintptr
	typ    reflect.Type // of what is at offset; of a Pointer or Message what it points to
	key    *plan
	elem   *plan
}

// plan encodes a value of one type.
type plan struct {
	ops  []op
	size uintptr // in memory
}

// planOf plans the encoding of a type that derive has accepted.
func planOf(s *Type, t reflect.Type) *plan {
	p := &plan{size: t.Size()}
	p.add(s, t, 0)
	return p
}

func (p *plan) add(s *Type, t reflect.Type, offset uintptr) {
	o := op{kind: s.Kind, size: int(t.Size()), offset: offset, typ: t}
	switch s.Kind {
	case Struct:
		fields, _ := storedFields(t) // derive has read them without error
		for i, f := range fields {
			p.add(s.Fields[i].Type, f.Type, offset+f.Offset)
		}
		return
	case Array:
		o.size, o.elem = s.Size, planOf(s.Elem, t.Elem())
	case ByteArray:
		o.size = s.Size
	case Slice:
		o.elem = planOf(s.Elem, t.Elem())
	case Pointer:
		o.typ, o.elem = t.Elem(), planOf(s.Elem, t.Elem())
	case Message:
		o.typ = t.Elem()
	case Map:
		o.key, o.elem = planOf(s.Key, t.Key()), planOf(s.Elem, t.Elem())
	case Bool, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64, Float32, Float64, Complex64, Complex128, String, Bytes, Time, Marshaler:
	}
	p.ops = append(p.ops, o)
}

// appendLong appends an int or long: zigzag, seven bits a byte.
func appendLong(dst []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	if u < 0x80 {
		return append(dst, byte(u))
	}
	return binary.AppendUvarint(dst, u)
}

// The branches of a union of null and something.
const (
	nullBranch = 0
	someBranch = 2 // 1 as a long
)

// append runs the plan on the value at base.
func (p *plan) append(dst []byte, base unsafe.Pointer) []byte {
	for i := range p.ops {
		o := &p.ops[i]
		at := unsafe.Add(base, o.offset)
		switch o.kind {
		case Int64:
			if o.size == 8 {
				dst = appendLong(dst, *(*int64)(at))
			} else {
				dst = appendLong(dst, int64(*(*int32)(at)))
			}
		case Int32:
			dst = appendLong(dst, int64(*(*int32)(at)))
		case Int16:
			dst = appendLong(dst, int64(*(*int16)(at)))
		case Int8:
			dst = appendLong(dst, int64(*(*int8)(at)))
		case Uint64:
			if o.size == 8 {
				dst = appendLong(dst, *(*int64)(at)) // the same bits
			} else {
				dst = appendLong(dst, int64(*(*uint32)(at)))
			}
		case Uint32:
			dst = appendLong(dst, int64(*(*uint32)(at)))
		case Uint16:
			dst = appendLong(dst, int64(*(*uint16)(at)))
		case Uint8:
			dst = appendLong(dst, int64(*(*uint8)(at)))
		case Bool:
			b := byte(0)
			if *(*bool)(at) {
				b = 1
			}
			dst = append(dst, b)
		case Float32:
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(*(*float32)(at)))
		case Float64:
			dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(*(*float64)(at)))
		case Complex64:
			c := *(*complex64)(at)
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(real(c)))
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(imag(c)))
		case Complex128:
			c := *(*complex128)(at)
			dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(real(c)))
			dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(imag(c)))
		case String:
			s := *(*string)(at)
			dst = append(appendLong(dst, int64(len(s))), s...)
		case Bytes:
			b := *(*[]byte)(at)
			if b == nil {
				dst = append(dst, nullBranch)
				continue
			}
			dst = append(appendLong(append(dst, someBranch), int64(len(b))), b...)
		case Time:
			dst = appendTime(dst, *(*time.Time)(at))
		case ByteArray:
			dst = append(dst, unsafe.Slice((*byte)(at), o.size)...)
		case Array:
			dst = o.appendArray(dst, at)
		case Slice:
			dst = o.appendSlice(dst, (*sliceHeader)(at))
		case Pointer:
			if to := *(*unsafe.Pointer)(at); to != nil {
				dst = o.elem.append(append(dst, someBranch), to)
			} else {
				dst = append(dst, nullBranch)
			}
		case Map:
			dst = o.appendMap(dst, at)
		case Marshaler:
			dst = o.appendMarshaler(dst, at)
		case Message:
			dst = o.appendMessage(dst, *(*unsafe.Pointer)(at))
		case Struct: // has none
		}
	}
	return dst
}

// sliceHeader is the memory of a slice of any element type.
type sliceHeader struct {
	data     unsafe.Pointer
	len, cap int
}

// appendTime keeps what codec.For's codec does: the instant and the offset
// from UTC in seconds.
func appendTime(dst []byte, t time.Time) []byte {
	_, offset := t.Zone()
	return appendLong(appendLong(appendLong(dst, t.Unix()), int64(t.Nanosecond())), int64(offset))
}

// appendArray writes one block and the end of blocks.
func (o *op) appendArray(dst []byte, at unsafe.Pointer) []byte {
	if o.size == 0 {
		return append(dst, 0)
	}
	dst = appendLong(dst, int64(o.size))
	if len(o.elem.ops) > 0 {
		for i := range o.size {
			dst = o.elem.append(dst, unsafe.Add(at, uintptr(i)*o.elem.size))
		}
	}
	return append(dst, 0)
}

func (o *op) appendSlice(dst []byte, s *sliceHeader) []byte {
	if s.data == nil {
		return append(dst, nullBranch)
	}
	dst = append(dst, someBranch)
	if s.len == 0 {
		return append(dst, 0)
	}
	dst = appendLong(dst, int64(s.len))
	for i := range s.len {
		dst = o.elem.append(dst, unsafe.Add(s.data, uintptr(i)*o.elem.size))
	}
	return append(dst, 0)
}

// appendMap writes the entries in the order of their keys' bytes, because the
// order of the map's own iteration is random.
func (o *op) appendMap(dst []byte, at unsafe.Pointer) []byte {
	m := reflect.NewAt(o.typ, at).Elem()
	if m.IsNil() {
		return append(dst, nullBranch)
	}
	dst = append(dst, someBranch)
	if m.Len() == 0 {
		return append(dst, 0)
	}
	dst = appendLong(dst, int64(m.Len()))
	type entry struct{ start, value, end int }
	entries := make([]entry, 0, m.Len())
	var encoded []byte
	key, value := reflect.New(o.typ.Key()), reflect.New(o.typ.Elem())
	for it := m.MapRange(); it.Next(); {
		key.Elem().SetIterKey(it)
		value.Elem().SetIterValue(it)
		e := entry{start: len(encoded)}
		encoded = o.key.append(encoded, key.UnsafePointer())
		e.value = len(encoded)
		encoded = o.elem.append(encoded, value.UnsafePointer())
		e.end = len(encoded)
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return bytes.Compare(encoded[a.start:a.value], encoded[b.start:b.value])
	})
	for _, e := range entries {
		dst = append(dst, encoded[e.start:e.end]...)
	}
	return append(dst, 0)
}

func (o *op) appendMarshaler(dst []byte, at unsafe.Pointer) []byte {
	m := reflect.NewAt(o.typ, at).Interface().(codec.Marshaler)
	b, err := m.MarshalAppend(nil)
	if err != nil {
		panic(&codec.EncodeError{Codec: m.CodecName(), Err: err})
	}
	return append(appendLong(dst, int64(len(b))), b...)
}

// errUnstable is the cause of an EncodeError for a message that was changed by
// another goroutine while it was encoded.
var errUnstable = errors.New("the value changed while it was encoded")

// Deterministic: equal messages must give equal bytes within one binary.
var messageOptions = proto.MarshalOptions{Deterministic: true}

func (o *op) appendMessage(dst []byte, p unsafe.Pointer) []byte {
	if p == nil {
		return append(dst, nullBranch)
	}
	m := reflect.NewAt(o.typ, p).Interface().(proto.Message)
	size := messageOptions.Size(m)
	dst = appendLong(append(dst, someBranch), int64(size))
	start := len(dst)
	dst, err := messageOptions.MarshalAppend(dst, m)
	if err == nil && len(dst)-start != size {
		err = errUnstable
	}
	if err != nil {
		panic(&codec.EncodeError{Codec: Name, Err: err})
	}
	return dst
}
