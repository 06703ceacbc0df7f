package codec

import (
	"errors"
	"reflect"
	"unsafe"

	"google.golang.org/protobuf/proto"
)

// errUnstable is the cause of an EncodeError for a value that was changed by
// another goroutine while it was encoded.
var errUnstable = errors.New("the value changed while it was encoded")

// clone makes the value at dst, which is an assigned copy of the one at src,
// a deep copy.
func (p *plan) clone(dst, src unsafe.Pointer) {
	for i := p.lead; i < len(p.ops); i++ {
		o := &p.ops[i]
		to, from := unsafe.Add(dst, o.offset), unsafe.Add(src, o.offset)
		switch o.kind {
		case opCopy, opBool, opInt, opUint, opTime, opString: // assignment did it
		case opLoop:
			if o.elem.deep {
				for j := range o.size {
					o.elem.clone(unsafe.Add(to, uintptr(j)*o.elem.size), unsafe.Add(from, uintptr(j)*o.elem.size))
				}
			}
		case opBytes, opFlatSlice, opSlice:
			o.cloneSlice(to)
		case opPointer:
			if p := *(*unsafe.Pointer)(from); p != nil {
				v := reflect.New(o.typ)
				v.Elem().Set(reflect.NewAt(o.typ, p).Elem())
				*(*unsafe.Pointer)(to) = v.UnsafePointer()
				if o.elem.deep {
					o.elem.clone(v.UnsafePointer(), p)
				}
			}
		case opMap:
			o.cloneMap(to)
		case opMarshaler:
			o.cloneMarshaler(to, from)
		case opMessage:
			if p := *(*unsafe.Pointer)(from); p != nil {
				c := proto.Clone(reflect.NewAt(o.typ, p).Interface().(proto.Message))
				*(*unsafe.Pointer)(to) = reflect.ValueOf(c).UnsafePointer()
			}
		}
	}
}

// cloneSlice replaces the slice at p by a copy of it.
func (o *op) cloneSlice(p unsafe.Pointer) {
	v := reflect.NewAt(o.typ, p).Elem()
	if v.IsNil() {
		return
	}
	old := v.UnsafePointer()
	c := reflect.MakeSlice(o.typ, v.Len(), v.Len())
	reflect.Copy(c, v)
	v.Set(c)
	if o.elem.deep {
		for i := range v.Len() {
			at := uintptr(i) * o.elem.size
			o.elem.clone(unsafe.Add(c.UnsafePointer(), at), unsafe.Add(old, at))
		}
	}
}

// cloneMap replaces the map at p by a copy of it. Keys are never deep.
func (o *op) cloneMap(p unsafe.Pointer) {
	m := reflect.NewAt(o.typ, p).Elem()
	if m.IsNil() {
		return
	}
	c := reflect.MakeMapWithSize(o.typ, m.Len())
	from, to := reflect.New(o.typ.Elem()), reflect.New(o.typ.Elem())
	for it := m.MapRange(); it.Next(); {
		from.Elem().SetIterValue(it)
		to.Elem().Set(from.Elem())
		if o.value.deep {
			o.value.clone(to.UnsafePointer(), from.UnsafePointer())
		}
		c.SetMapIndex(it.Key(), to.Elem())
	}
	m.Set(c)
}

// cloneMarshaler copies through the type's own encoding, the only thing known
// to carry all of it.
func (o *op) cloneMarshaler(to, from unsafe.Pointer) {
	m := reflect.NewAt(o.typ, from).Interface().(Marshaler)
	b, err := m.MarshalAppend(nil)
	if err != nil {
		panic(&EncodeError{Codec: m.CodecName(), Err: err})
	}
	v := reflect.NewAt(o.typ, to)
	v.Elem().SetZero()
	if err := v.Interface().(Marshaler).UnmarshalFrom(b); err != nil {
		panic(&EncodeError{Codec: m.CodecName(), Err: err})
	}
}
