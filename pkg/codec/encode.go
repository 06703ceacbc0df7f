package codec

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"slices"
	"time"
	"unsafe"

	"google.golang.org/protobuf/proto"
)

// sliceHeader is the memory of a slice of any element type.
type sliceHeader struct {
	data     unsafe.Pointer
	len, cap int
}

// append runs the plan on the value at base.
func (p *plan) append(dst []byte, base unsafe.Pointer) []byte {
	for i := range p.ops {
		o := &p.ops[i]
		at := unsafe.Add(base, o.offset)
		switch o.kind {
		case opCopy:
			if o.size == 8 && littleEndian {
				dst = binary.LittleEndian.AppendUint64(dst, *(*uint64)(at))
				continue
			}
			dst = appendMemory(dst, at, o.size, o.width)
		case opString:
			s := *(*string)(at)
			if len(s) < 0x80 {
				dst = append(dst, byte(len(s)))
			} else {
				dst = binary.AppendUvarint(dst, uint64(len(s)))
			}
			dst = append(dst, s...)
		case opBool:
			b := byte(0)
			if *(*bool)(at) {
				b = 1
			}
			dst = append(dst, b)
		case opInt:
			dst = binary.LittleEndian.AppendUint64(dst, uint64(*(*int)(at)))
		case opUint:
			dst = binary.LittleEndian.AppendUint64(dst, uint64(*(*uint)(at)))
		case opTime:
			dst = appendTime(dst, *(*time.Time)(at))
		case opLoop:
			for j := range o.size {
				dst = o.elem.append(dst, unsafe.Add(at, uintptr(j)*o.elem.size))
			}
		case opBytes, opFlatSlice, opSlice:
			dst = o.appendSlice(dst, (*sliceHeader)(at))
		case opPointer:
			dst = o.appendPointer(dst, *(*unsafe.Pointer)(at))
		case opMap:
			dst = o.appendMap(dst, at)
		case opMarshaler:
			dst = o.appendMarshaler(dst, at)
		case opMessage:
			dst = o.appendMessage(dst, *(*unsafe.Pointer)(at))
		}
	}
	return dst
}

// appendMemory appends size bytes at p that hold numbers of width bytes.
func appendMemory(dst []byte, p unsafe.Pointer, size int, width uint8) []byte {
	start := len(dst)
	dst = append(dst, unsafe.Slice((*byte)(p), size)...)
	if !littleEndian {
		swapBytes(dst[start:], int(width))
	}
	return dst
}

// swapBytes turns numbers of width bytes from the host's order into the
// layout's or back, on hosts where they differ.
func swapBytes(b []byte, width int) {
	for ; len(b) >= width; b = b[width:] {
		slices.Reverse(b[:width])
	}
}

// appendTime keeps the instant and the offset from UTC, as far as whole
// seconds go; the zone's name and the monotonic reading are of this process.
func appendTime(dst []byte, t time.Time) []byte {
	_, offset := t.Zone()
	dst = binary.LittleEndian.AppendUint64(dst, uint64(t.Unix()))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(t.Nanosecond()))
	return binary.LittleEndian.AppendUint32(dst, uint32(int32(offset)))
}

func (o *op) appendSlice(dst []byte, s *sliceHeader) []byte {
	if s.data == nil {
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(s.len)+1)
	switch {
	case s.len == 0:
	case o.kind == opBytes:
		dst = append(dst, unsafe.Slice((*byte)(s.data), s.len)...)
	case o.kind == opFlatSlice:
		dst = appendMemory(dst, s.data, s.len*o.size, o.width)
	default:
		for i := range s.len {
			dst = o.elem.append(dst, unsafe.Add(s.data, uintptr(i)*o.elem.size))
		}
	}
	return dst
}

func (o *op) appendPointer(dst []byte, p unsafe.Pointer) []byte {
	if p == nil {
		return append(dst, 0)
	}
	return o.elem.append(append(dst, 1), p)
}

// appendMap writes the entries in the order of their keys' bytes, because the
// order of the map's own iteration is random.
func (o *op) appendMap(dst []byte, at unsafe.Pointer) []byte {
	m := reflect.NewAt(o.typ, at).Elem()
	if m.IsNil() {
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(m.Len())+1)
	type entry struct{ start, value, end int }
	entries := make([]entry, 0, m.Len())
	var encoded []byte
	key, value := reflect.New(o.typ.Key()), reflect.New(o.typ.Elem())
	for it := m.MapRange(); it.Next(); {
		key.Elem().SetIterKey(it)
		value.Elem().SetIterValue(it)
		e := entry{start: len(encoded)}
		encoded = o.elem.append(encoded, key.UnsafePointer())
		e.value = len(encoded)
		encoded = o.value.append(encoded, value.UnsafePointer())
		e.end = len(encoded)
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return bytes.Compare(encoded[a.start:a.value], encoded[b.start:b.value])
	})
	for _, e := range entries {
		dst = append(dst, encoded[e.start:e.end]...)
	}
	return dst
}

func (o *op) appendMarshaler(dst []byte, at unsafe.Pointer) []byte {
	m := reflect.NewAt(o.typ, at).Interface().(Marshaler)
	b, err := m.MarshalAppend(nil)
	if err != nil {
		panic(&EncodeError{Codec: m.CodecName(), Err: err})
	}
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// Deterministic: equal messages must give equal bytes within one binary.
var messageOptions = proto.MarshalOptions{Deterministic: true}

func (o *op) appendMessage(dst []byte, p unsafe.Pointer) []byte {
	if p == nil {
		return append(dst, 0)
	}
	m := reflect.NewAt(o.typ, p).Interface().(proto.Message)
	size := messageOptions.Size(m)
	dst = binary.AppendUvarint(dst, uint64(size)+1)
	start := len(dst)
	dst, err := messageOptions.MarshalAppend(dst, m)
	if err != nil {
		panic(&EncodeError{Codec: protobufName, Err: err})
	}
	if len(dst)-start != size { // the message changed under our hands
		panic(&EncodeError{Codec: protobufName, Err: errUnstable})
	}
	return dst
}
