package codec

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unsafe"

	"google.golang.org/protobuf/proto"
)

// littleEndian reports whether memory holds numbers as the layout does.
var littleEndian = func() bool {
	one := uint16(1)
	return *(*byte)(unsafe.Pointer(&one)) == 1
}()

// opKind says how a part of a value is encoded.
type opKind uint8

const (
	// Fixed size.
	opCopy opKind = iota // size bytes as in memory, numbers of width bytes each
	opBool               // one byte, 0 or 1
	opInt                // int of a 32-bit host, in eight bytes
	opUint               // uint of a 32-bit host, in eight bytes
	opTime               // seconds (8), nanoseconds (4), zone offset in seconds (4)
	opLoop               // an array: size times elem
	// Of variable size. A length is a uvarint; 0 is nil where there is nil,
	// and n+1 a length of n.
	opString    // length, bytes
	opBytes     // length+1, bytes
	opFlatSlice // length+1, elements that are one opCopy each
	opSlice     // length+1, elements
	opPointer   // 0, or 1 and elem
	opMap       // length+1, keys and values in the order of the keys' bytes
	opMarshaler // length, MarshalAppend
	opMessage   // length+1, protobuf
)

// op encodes one field, or a run of adjacent ones, or an element.
type op struct {
	kind   opKind
	width  uint8
	offset uintptr
	size   int
	elem   *plan
	value  *plan // opMap: of the values; elem is of the keys
	typ    reflect.Type
}

// plan encodes a value of one type. Its operations are in the order of the
// layout: those of fixed size in field order, then the others in field order.
type plan struct {
	ops    []op
	fixed  int     // bytes of the leading operations of fixed size
	lead   int     // how many they are
	min    int     // least bytes of an encoding
	size   uintptr // bytes in memory
	text   bool    // has strings or byte slices somewhere
	deep   bool    // assignment is not a deep copy
	schema string
}

// isCopyOf reports whether the whole plan is to copy t's memory.
func (p *plan) isCopyOf(t reflect.Type) bool {
	return len(p.ops) == 1 && p.ops[0].kind == opCopy && p.ops[0].size == int(t.Size())
}

// planner collects the operations of one value while its type is walked.
type planner struct {
	fixed, variable []op
	fixedBytes      int
	minVariable     int
	text, deep      bool
	schema          strings.Builder
	open            []reflect.Type // types being walked: one met again is recursive
}

func planOf(t reflect.Type) (*plan, error) { return planElem(t, typeName(t), nil) }

// planElem plans a value that stands for itself: the whole, or an element.
func planElem(t reflect.Type, path string, open []reflect.Type) (*plan, error) {
	pl := planner{open: open}
	if err := pl.add(t, 0, path); err != nil {
		return nil, err
	}
	p := &plan{
		ops: append(pl.fixed, pl.variable...), fixed: pl.fixedBytes, lead: len(pl.fixed), size: t.Size(),
		min: pl.fixedBytes + pl.minVariable, text: pl.text, deep: pl.deep, schema: pl.schema.String(),
	}
	return p, nil
}

func typeName(t reflect.Type) string {
	if t.Name() != "" {
		return t.Name()
	}
	return "value"
}

var (
	marshalerType = reflect.TypeFor[Marshaler]()
	messageType   = reflect.TypeFor[proto.Message]()
	timeType      = reflect.TypeFor[time.Time]()
)

// add appends the operations for a value of type t at offset.
func (pl *planner) add(t reflect.Type, offset uintptr, path string) error {
	for _, o := range pl.open {
		if o == t {
			return fmt.Errorf("field %s: %s contains itself: a codec is planned ahead and cannot follow a recursive type; implement codec.Marshaler", path, t)
		}
	}
	if t.Kind() == reflect.Struct || t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		pl.open = append(pl.open, t)
		defer func() { pl.open = pl.open[:len(pl.open)-1] }()
	}
	if t.Kind() != reflect.Interface && t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(marshalerType) {
		pl.addVariable(op{kind: opMarshaler, offset: offset, typ: t})
		pl.deep = true
		pl.schema.WriteString("marshaler(" + reflect.New(t).Interface().(Marshaler).CodecName() + ")")
		return nil
	}
	if t == timeType {
		pl.addFixed(op{kind: opTime, offset: offset}, 16)
		pl.schema.WriteString("time")
		return nil
	}
	switch t.Kind() {
	case reflect.Bool:
		pl.addFixed(op{kind: opBool, offset: offset}, 1)
		pl.schema.WriteString("bool")
	case reflect.Int, reflect.Uint:
		pl.addInt(t, offset)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		pl.addCopy(offset, int(t.Size()), uint8(t.Size()))
		pl.schema.WriteString(t.Kind().String())
	case reflect.Complex64, reflect.Complex128:
		pl.addCopy(offset, int(t.Size()), uint8(t.Size()/2))
		pl.schema.WriteString(t.Kind().String())
	case reflect.String:
		pl.addVariable(op{kind: opString, offset: offset})
		pl.text = true
		pl.schema.WriteString("string")
	case reflect.Struct:
		return pl.addStruct(t, offset, path)
	case reflect.Array:
		return pl.addArray(t, offset, path)
	case reflect.Slice:
		return pl.addSlice(t, offset, path)
	case reflect.Pointer:
		return pl.addPointer(t, offset, path)
	case reflect.Map:
		return pl.addMap(t, offset, path)
	default:
		return fmt.Errorf("field %s is %s: a %s cannot be encoded", path, t, t.Kind())
	}
	return nil
}

func (pl *planner) addFixed(o op, bytes int) {
	pl.fixed = append(pl.fixed, o)
	pl.fixedBytes += bytes
}

func (pl *planner) addVariable(o op) {
	pl.variable = append(pl.variable, o)
	pl.minVariable++
}

// addCopy adds size bytes of memory that are the encoding as they are, joined
// to the run before them if nothing lies between.
func (pl *planner) addCopy(offset uintptr, size int, width uint8) {
	pl.fixedBytes += size
	if n := len(pl.fixed); n > 0 {
		last := &pl.fixed[n-1]
		if last.kind == opCopy && last.offset+uintptr(last.size) == offset && (littleEndian || last.width == width) {
			last.size += size
			return
		}
	}
	pl.fixed = append(pl.fixed, op{kind: opCopy, offset: offset, size: size, width: width})
}

func (pl *planner) addInt(t reflect.Type, offset uintptr) {
	signed := t.Kind() == reflect.Int
	name, kind := "uint64", opUint
	if signed {
		name, kind = "int64", opInt
	}
	pl.schema.WriteString(name)
	if t.Size() == 8 {
		pl.addCopy(offset, 8, 8)
		return
	}
	pl.addFixed(op{kind: kind, offset: offset}, 8)
}

func (pl *planner) addStruct(t reflect.Type, offset uintptr, path string) error {
	pl.schema.WriteString("struct{")
	first := true
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name == "_" {
			continue
		}
		// The exported fields of an embedded struct are the user's to set even
		// if the struct's name is not exported.
		if !f.IsExported() && (!f.Anonymous || f.Type.Kind() != reflect.Struct) {
			return fmt.Errorf("field %s.%s (%s) is unexported and would be lost: export it, or implement codec.Marshaler on %s", path, f.Name, f.Type, t)
		}
		if !first {
			pl.schema.WriteByte(',')
		}
		first = false
		pl.schema.WriteString(f.Name + ":")
		if err := pl.add(f.Type, offset+f.Offset, path+"."+f.Name); err != nil {
			return err
		}
	}
	pl.schema.WriteByte('}')
	return nil
}

// elemOf plans what t's elements are, and takes over what it says of the whole.
func (pl *planner) elemOf(t reflect.Type, path string) (*plan, error) {
	p, err := planElem(t, path, pl.open)
	if err != nil {
		return nil, err
	}
	pl.text = pl.text || p.text
	pl.deep = pl.deep || p.deep
	return p, nil
}

func (pl *planner) addArray(t reflect.Type, offset uintptr, path string) error {
	elem, err := pl.elemOf(t.Elem(), path+"[]")
	if err != nil {
		return err
	}
	fmt.Fprintf(&pl.schema, "[%d]%s", t.Len(), elem.schema)
	switch {
	case t.Len() == 0 || len(elem.ops) == 0:
	case elem.isCopyOf(t.Elem()):
		pl.addCopy(offset, t.Len()*elem.fixed, elem.ops[0].width)
	case elem.lead == len(elem.ops):
		pl.addFixed(op{kind: opLoop, offset: offset, size: t.Len(), elem: elem}, t.Len()*elem.fixed)
	default:
		pl.addVariable(op{kind: opLoop, offset: offset, size: t.Len(), elem: elem})
		pl.minVariable += t.Len()*elem.min - 1
	}
	return nil
}

func (pl *planner) addSlice(t reflect.Type, offset uintptr, path string) error {
	elem, err := pl.elemOf(t.Elem(), path+"[]")
	if err != nil {
		return err
	}
	if elem.min == 0 {
		return fmt.Errorf("field %s is %s: its elements hold no data", path, t)
	}
	pl.deep = true
	pl.schema.WriteString("[]" + elem.schema)
	o := op{kind: opSlice, offset: offset, elem: elem, typ: t}
	switch {
	case t.Elem().Kind() == reflect.Uint8 && elem.isCopyOf(t.Elem()):
		o.kind, pl.text = opBytes, true
	case elem.isCopyOf(t.Elem()) && t.Elem().Align() <= 8:
		o.kind, o.size, o.width = opFlatSlice, elem.fixed, elem.ops[0].width
	}
	pl.addVariable(o)
	return nil
}

func (pl *planner) addPointer(t reflect.Type, offset uintptr, path string) error {
	if t.Implements(messageType) && t.Elem().Kind() == reflect.Struct {
		pl.addVariable(op{kind: opMessage, offset: offset, typ: t.Elem()})
		pl.deep = true
		pl.schema.WriteString("message(" + messageSchema(t) + ")")
		return nil
	}
	elem, err := pl.elemOf(t.Elem(), path)
	if err != nil {
		return err
	}
	pl.deep = true
	pl.schema.WriteString("*" + elem.schema)
	pl.addVariable(op{kind: opPointer, offset: offset, elem: elem, typ: t.Elem()})
	return nil
}

func (pl *planner) addMap(t reflect.Type, offset uintptr, path string) error {
	key, err := pl.elemOf(t.Key(), path+"[key]")
	if err != nil {
		return err
	}
	if key.deep || key.min == 0 {
		return fmt.Errorf("field %s is %s: its keys cannot be encoded as map keys", path, t)
	}
	value, err := pl.elemOf(t.Elem(), path+"[]")
	if err != nil {
		return err
	}
	pl.deep = true
	pl.schema.WriteString("map[" + key.schema + "]" + value.schema)
	pl.addVariable(op{kind: opMap, offset: offset, elem: key, value: value, typ: t})
	return nil
}

// errMarshaler wraps what a user's UnmarshalFrom or protobuf said of bytes.
var errMarshaler = errors.New("refused by the type's own decoder")
