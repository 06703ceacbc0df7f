package avro

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	lib "github.com/twmb/avro"
)

// Kind is what a stored value is, as Go has it.
type Kind uint8

// The kinds.
const (
	Bool Kind = iota + 1
	Int8
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Float32
	Float64
	Complex64
	Complex128
	String
	Bytes // []byte
	Time
	Struct
	Array     // of Size elements
	ByteArray // of Size bytes
	Slice
	Map
	Pointer
	Marshaler // its codec is Of
	Message   // the protobuf message of name Of
)

// names are those of the kinds without parts, as codec's schemas have them.
var names = [...]string{
	Bool: "bool", Int8: "int8", Int16: "int16", Int32: "int32", Int64: "int64",
	Uint8: "uint8", Uint16: "uint16", Uint32: "uint32", Uint64: "uint64",
	Float32: "float32", Float64: "float64", Complex64: "complex64", Complex128: "complex128",
	String: "string", Bytes: "[]uint8", Time: "time", Message: "",
}

// Type is a schema: what is stored and how. It is a tree in which the same
// type may hang in several places, and is never changed once made.
type Type struct {
	Kind   Kind
	Fields []Field // of a Struct
	Key    *Type   // of a Map
	Elem   *Type   // of an Array, Slice, Map, Pointer
	Size   int     // of an Array, ByteArray
	Of     string  // of a Marshaler, Message
	// Min is the least bytes of an encoding.
	Min int

	name string // of the struct, for those who look at the schema
}

// Field is a field of a Struct.
type Field struct {
	Name string
	Type *Type
	// Aliases are names that the field had before.
	Aliases []string
	// goName is its name in the program, if that is another.
	goName string
}

// String is the type in the notation of the schemas of codec.For, with the
// fields' names in the program.
func (t *Type) String() string {
	var b strings.Builder
	t.write(&b)
	return b.String()
}

func (t *Type) write(b *strings.Builder) {
	// Types that hang in several places of a foreign schema can make a text
	// that is far longer than the schema.
	if b.Len() > schemaBytesMax {
		return
	}
	switch t.Kind {
	case Struct:
		b.WriteString("struct{")
		for i, f := range t.Fields {
			if i > 0 {
				b.WriteByte(',')
			}
			name := f.Name
			if f.goName != "" {
				name = f.goName
			}
			b.WriteString(name + ":")
			f.Type.write(b)
		}
		b.WriteByte('}')
	case Array:
		b.WriteString("[" + strconv.Itoa(t.Size) + "]")
		t.Elem.write(b)
	case ByteArray:
		b.WriteString("[" + strconv.Itoa(t.Size) + "]uint8")
	case Slice:
		b.WriteString("[]")
		t.Elem.write(b)
	case Map:
		b.WriteString("map[")
		t.Key.write(b)
		b.WriteByte(']')
		t.Elem.write(b)
	case Pointer:
		b.WriteByte('*')
		t.Elem.write(b)
	case Marshaler:
		b.WriteString("marshaler(" + t.Of + ")")
	case Message:
		b.WriteString("message(" + t.Of + ")")
	case Bool, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64, Float32, Float64, Complex64, Complex128, String, Bytes, Time:
		b.WriteString(names[t.Kind])
	}
}

// isNullable reports whether the schema is one of null or something.
func (t *Type) isNullable() bool {
	switch t.Kind {
	case Bytes, Slice, Map, Pointer, Message:
		return true
	}
	return false
}

// setMin computes Min from the parts.
func (t *Type) setMin() *Type {
	switch t.Kind {
	case Float32:
		t.Min = 4
	case Float64, Complex64:
		t.Min = 8
	case Complex128:
		t.Min = 16
	case Time:
		t.Min = 3
	case ByteArray:
		t.Min = t.Size
	case Array:
		t.Min = addSizes(2, mulSizes(t.Size, t.Elem.Min))
		if t.Size == 0 {
			t.Min = 1
		}
	case Struct:
		t.Min = 0
		for _, f := range t.Fields {
			t.Min = addSizes(t.Min, f.Type.Min)
		}
	case Bool, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64, String, Bytes, Slice, Map, Pointer, Marshaler, Message:
		t.Min = 1
	}
	return t
}

// sizeMax is more than any stored value has: sizes stay there rather than overflow.
const sizeMax = math.MaxInt32

func addSizes(a, b int) int { return int(min(int64(a)+int64(b), sizeMax)) }

func mulSizes(a, b int) int {
	if b != 0 && int64(a) > sizeMax/int64(b) {
		return sizeMax
	}
	return a * b
}

// The attribute that marks a type, and its values beside the names of kinds.
const (
	mark       = "weir"
	lengthMark = "length" // of an array
	ofMark     = "of"     // of marshalers and messages
	goMark     = "go"     // of fields that have another name in Go

	arrayMark     = "array"
	mapMark       = "map"
	boxMark       = "box"
	marshalerMark = "marshaler"
	messageMark   = "message"
)

// Schema is the type as Avro schema in JSON, the same text for the same type.
func (t *Type) Schema() string {
	w := schemaWriter{defined: map[*Type]string{}, taken: map[string]int{}}
	w.write(t)
	return string(w.out)
}

type schemaWriter struct {
	out     []byte
	defined map[*Type]string // names of the types that are written out already
	taken   map[string]int   // names given
}

func (w *schemaWriter) text(s string) { w.out = append(w.out, s...) }

func (w *schemaWriter) quoted(s string) {
	w.out = append(w.out, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			w.out = append(w.out, '\\', byte(r))
		case r < 0x20:
			w.out = fmt.Appendf(w.out, `\u%04x`, r)
		default:
			w.out = utf8.AppendRune(w.out, r)
		}
	}
	w.out = append(w.out, '"')
}

// define opens a named type; false if it is written already, and was referred to.
func (w *schemaWriter) define(t *Type, kind, name string) bool {
	if known, ok := w.defined[t]; ok {
		w.quoted(known)
		return false
	}
	w.taken[name]++
	if n := w.taken[name]; n > 1 {
		name += "_" + strconv.Itoa(n)
		w.taken[name]++
	}
	w.defined[t] = name
	w.text(`{"type":"` + kind + `","name":`)
	w.quoted(name)
	return true
}

func (w *schemaWriter) marked(avro string, k Kind) {
	w.text(`{"type":"` + avro + `","` + mark + `":"` + names[k] + `"}`)
}

func (w *schemaWriter) write(t *Type) {
	switch t.Kind {
	case Bool:
		w.text(`"boolean"`)
	case Int32:
		w.text(`"int"`)
	case Int64:
		w.text(`"long"`)
	case Int8, Int16, Uint8, Uint16:
		w.marked("int", t.Kind)
	case Uint32, Uint64:
		w.marked("long", t.Kind)
	case Float32:
		w.text(`"float"`)
	case Float64:
		w.text(`"double"`)
	case Complex64, Complex128:
		part := `"float"`
		if t.Kind == Complex128 {
			part = `"double"`
		}
		if w.define(t, "record", names[t.Kind]) {
			w.text(`,"` + mark + `":"` + names[t.Kind] + `","fields":[{"name":"real","type":` + part + `},{"name":"imag","type":` + part + `}]}`)
		}
	case String:
		w.text(`"string"`)
	case Bytes:
		w.text(`["null","bytes"]`)
	case Time:
		if w.define(t, "record", "Time") {
			w.text(`,"` + mark + `":"time","fields":[{"name":"seconds","type":"long"},{"name":"nanos","type":"int"},{"name":"offset","type":"int"}]}`)
		}
	case Struct:
		w.record(t)
	case Array:
		w.text(`{"type":"array","` + mark + `":"` + arrayMark + `","` + lengthMark + `":` + strconv.Itoa(t.Size) + `,"items":`)
		w.write(t.Elem)
		w.text(`}`)
	case ByteArray:
		if w.define(t, "fixed", "Bytes"+strconv.Itoa(t.Size)) {
			w.text(`,"size":` + strconv.Itoa(t.Size) + `}`)
		}
	case Slice:
		w.text(`["null",{"type":"array","items":`)
		w.write(t.Elem)
		w.text(`}]`)
	case Map:
		w.mapping(t)
	case Pointer:
		w.text(`["null",`)
		if !t.Elem.isNullable() {
			w.write(t.Elem)
		} else if w.define(t, "record", "Box") {
			w.text(`,"` + mark + `":"` + boxMark + `","fields":[{"name":"value","type":`)
			w.write(t.Elem)
			w.text(`}]}`)
		}
		w.text(`]`)
	case Marshaler:
		w.text(`{"type":"bytes","` + mark + `":"` + marshalerMark + `","` + ofMark + `":`)
		w.quoted(t.Of)
		w.text(`}`)
	case Message:
		w.text(`["null",{"type":"bytes","` + mark + `":"` + messageMark + `","` + ofMark + `":`)
		w.quoted(t.Of)
		w.text(`}]`)
	}
}

func (w *schemaWriter) record(t *Type) {
	if !w.define(t, "record", t.name) {
		return
	}
	w.text(`,"fields":[`)
	for i, f := range t.Fields {
		if i > 0 {
			w.text(",")
		}
		w.text(`{"name":`)
		w.quoted(f.Name)
		for j, a := range f.Aliases {
			w.text([]string{`,"aliases":[`, ","}[min(j, 1)])
			w.quoted(a)
		}
		if len(f.Aliases) > 0 {
			w.text("]")
		}
		if f.goName != "" {
			w.text(`,"` + goMark + `":`)
			w.quoted(f.goName)
		}
		w.text(`,"type":`)
		w.write(f.Type)
		w.text("}")
	}
	w.text("]}")
}

func (w *schemaWriter) mapping(t *Type) {
	if t.Key.Kind == String {
		w.text(`["null",{"type":"map","values":`)
		w.write(t.Elem)
		w.text(`}]`)
		return
	}
	w.text(`["null",{"type":"array","` + mark + `":"` + mapMark + `","items":`)
	if w.define(t, "record", "Entry") {
		w.text(`,"fields":[{"name":"key","type":`)
		w.write(t.Key)
		w.text(`},{"name":"value","type":`)
		w.write(t.Elem)
		w.text(`}]}`)
	}
	w.text(`}]`)
}

// Bounds of the schemas that are read: more than Go types have that anybody
// writes, little enough for recursion.
const (
	schemaBytesMax = 1 << 20
	depthMax       = 100
)

// ParseSchema reads what Type.Schema wrote, by this version or another. Other
// Avro schemas are refused with an error.
func ParseSchema(schema string) (t *Type, err error) {
	if len(schema) > schemaBytesMax {
		return nil, fmt.Errorf("avro schema of %d bytes: at most %d are read", len(schema), schemaBytesMax)
	}
	parsed, err := lib.Parse(schema, lib.WithLaxNames(func(string) error { return nil }))
	if err != nil {
		return nil, fmt.Errorf("avro schema: %w", err)
	}
	p := parser{named: map[string]*Type{}, boxes: map[string]*Type{}, maps: map[string]*Type{}}
	if t, err = p.parse(parsed.Root(), 0); err != nil {
		return nil, fmt.Errorf("avro schema: %w", err)
	}
	return t, nil
}

// parser collects what may be referred to by name.
type parser struct {
	named map[string]*Type
	// boxes are the types in boxes, maps those whose entries are records.
	boxes, maps map[string]*Type
}

func markOf(n *lib.SchemaNode) string {
	s, _ := n.Props[mark].(string)
	return s
}

func leaf(k Kind) *Type { return (&Type{Kind: k}).setMin() }

func (p *parser) parse(n *lib.SchemaNode, depth int) (*Type, error) {
	if depth > depthMax {
		return nil, fmt.Errorf("more than %d types inside each other", depthMax)
	}
	depth++
	switch n.Type {
	case "boolean":
		return leaf(Bool), nil
	case "int":
		return markedNumber(n, Int32, Int8, Int16, Uint8, Uint16)
	case "long":
		return markedNumber(n, Int64, Uint32, Uint64)
	case "float":
		return leaf(Float32), nil
	case "double":
		return leaf(Float64), nil
	case "string":
		return leaf(String), nil
	case "bytes":
		if markOf(n) != marshalerMark {
			return nil, fmt.Errorf("bytes that are marked %q", markOf(n))
		}
		of, _ := n.Props[ofMark].(string)
		return (&Type{Kind: Marshaler, Of: of}).setMin(), nil
	case "fixed":
		if n.Size < 0 || n.Size > sizeMax {
			return nil, fmt.Errorf("fixed of %d bytes", n.Size)
		}
		t := (&Type{Kind: ByteArray, Size: n.Size}).setMin()
		p.named[n.Name] = t
		return t, nil
	case "array":
		length, ok := n.Props[lengthMark].(int64)
		if markOf(n) != arrayMark || !ok || length < 0 || length > sizeMax || n.Items == nil {
			return nil, fmt.Errorf("array that is marked %q", markOf(n))
		}
		elem, err := p.parse(n.Items, depth)
		if err != nil {
			return nil, err
		}
		return (&Type{Kind: Array, Size: int(length), Elem: elem}).setMin(), nil
	case "record":
		return p.record(n, depth)
	case "union":
		if len(n.Branches) != 2 || n.Branches[0].Type != "null" {
			return nil, fmt.Errorf("union that is not of null and one other type")
		}
		return p.nullable(&n.Branches[1], depth)
	}
	if known := p.named[n.Type]; known != nil {
		return known, nil
	}
	return nil, fmt.Errorf("type %q, which is of another's making or contains itself", n.Type)
}

func markedNumber(n *lib.SchemaNode, plain Kind, others ...Kind) (*Type, error) {
	m := markOf(n)
	if m == "" {
		return leaf(plain), nil
	}
	for _, k := range others {
		if names[k] == m {
			return leaf(k), nil
		}
	}
	return nil, fmt.Errorf("%s that is marked %q", n.Type, m)
}

func (p *parser) record(n *lib.SchemaNode, depth int) (*Type, error) {
	t := &Type{Kind: Struct, name: n.Name}
	switch m := markOf(n); m {
	case "":
		for i := range n.Fields {
			f := &n.Fields[i]
			typ, err := p.parse(&f.Type, depth)
			if err != nil {
				return nil, fmt.Errorf("field %s: %w", f.Name, err)
			}
			goName, _ := f.Props[goMark].(string)
			t.Fields = append(t.Fields, Field{Name: f.Name, Type: typ, Aliases: f.Aliases, goName: goName})
		}
	case names[Complex64]:
		t = &Type{Kind: Complex64}
	case names[Complex128]:
		t = &Type{Kind: Complex128}
	case names[Time]:
		t = &Type{Kind: Time}
	default:
		return nil, fmt.Errorf("record that is marked %q", m)
	}
	p.named[n.Name] = t.setMin()
	return t, nil
}

// nullable parses what is one of null or n.
func (p *parser) nullable(n *lib.SchemaNode, depth int) (*Type, error) {
	var err error
	switch m := markOf(n); {
	case n.Type == "bytes" && m == "":
		return leaf(Bytes), nil
	case n.Type == "bytes" && m == messageMark:
		of, _ := n.Props[ofMark].(string)
		return (&Type{Kind: Message, Of: of}).setMin(), nil
	case n.Type == "array" && m == "" && n.Items != nil:
		t := &Type{Kind: Slice}
		if t.Elem, err = p.parse(n.Items, depth); err != nil {
			return nil, err
		}
		if t.Elem.Min == 0 {
			return nil, fmt.Errorf("array of %s, whose elements hold no data", t.Elem)
		}
		return t.setMin(), nil
	case n.Type == "map" && n.Values != nil:
		t := &Type{Kind: Map, Key: leaf(String)}
		if t.Elem, err = p.parse(n.Values, depth); err != nil {
			return nil, err
		}
		return t.setMin(), nil
	case n.Type == "array" && m == mapMark && n.Items != nil:
		return p.entries(n.Items, depth)
	}
	elem := p.boxes[n.Type]
	switch {
	case elem != nil:
	case n.Type == "record" && markOf(n) == boxMark && len(n.Fields) == 1:
		if elem, err = p.parse(&n.Fields[0].Type, depth); err != nil {
			return nil, err
		}
		p.boxes[n.Name] = elem
	default:
		if elem, err = p.parse(n, depth); err != nil {
			return nil, err
		}
	}
	return (&Type{Kind: Pointer, Elem: elem}).setMin(), nil
}

// entries parses a map that is stored as a list of records.
func (p *parser) entries(n *lib.SchemaNode, depth int) (*Type, error) {
	if known := p.maps[n.Type]; known != nil {
		return known, nil
	}
	if n.Type != "record" || len(n.Fields) != 2 || n.Fields[0].Name != "key" || n.Fields[1].Name != "value" {
		return nil, fmt.Errorf("map whose entries are not records of key and value")
	}
	t := &Type{Kind: Map}
	var err error
	if t.Key, err = p.parse(&n.Fields[0].Type, depth); err != nil {
		return nil, err
	}
	if t.Elem, err = p.parse(&n.Fields[1].Type, depth); err != nil {
		return nil, err
	}
	if t.Key.Min == 0 {
		return nil, fmt.Errorf("map with keys of %s, which hold no data", t.Key)
	}
	p.maps[n.Name] = t.setMin()
	return t, nil
}

// findField is the place of the field of that name, or -1.
func (t *Type) findField(name string) int {
	return slices.IndexFunc(t.Fields, func(f Field) bool { return f.Name == name })
}
