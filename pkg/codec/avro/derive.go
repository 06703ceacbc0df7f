package avro

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/pkg/codec"
)

var (
	marshalerType = reflect.TypeFor[codec.Marshaler]()
	messageType   = reflect.TypeFor[proto.Message]()
	timeType      = reflect.TypeFor[time.Time]()
)

// numberKinds are the kinds of Go's numbers and bool.
var numberKinds = map[reflect.Kind]Kind{
	reflect.Bool: Bool, reflect.Int8: Int8, reflect.Int16: Int16, reflect.Int32: Int32, reflect.Int64: Int64, reflect.Int: Int64,
	reflect.Uint8: Uint8, reflect.Uint16: Uint16, reflect.Uint32: Uint32, reflect.Uint64: Uint64, reflect.Uint: Uint64,
	reflect.Float32: Float32, reflect.Float64: Float64, reflect.Complex64: Complex64, reflect.Complex128: Complex128,
	reflect.String: String,
}

// derive is the schema of Go types for which codec.For has a codec, which
// therefore are not recursive and have no parts that cannot be stored.
type derivation map[reflect.Type]*Type

func (d derivation) of(t reflect.Type, path string) (*Type, error) {
	if known := d[t]; known != nil {
		return known, nil
	}
	s, err := d.derive(t, path)
	if err != nil {
		return nil, err
	}
	d[t] = s.setMin()
	return s, nil
}

func (d derivation) derive(t reflect.Type, path string) (*Type, error) {
	kind := t.Kind()
	switch {
	case kind != reflect.Pointer && reflect.PointerTo(t).Implements(marshalerType):
		return &Type{Kind: Marshaler, Of: reflect.New(t).Interface().(codec.Marshaler).CodecName()}, nil
	case t == timeType:
		return &Type{Kind: Time}, nil
	case kind == reflect.Pointer && t.Implements(messageType) && t.Elem().Kind() == reflect.Struct:
		return &Type{Kind: Message, Of: string(reflect.Zero(t).Interface().(proto.Message).ProtoReflect().Descriptor().FullName())}, nil
	case kind == reflect.Struct:
		return d.structure(t, path)
	case numberKinds[kind] != 0:
		return &Type{Kind: numberKinds[kind]}, nil
	}
	elem, err := d.of(t.Elem(), path+"[]")
	if err != nil {
		return nil, err
	}
	switch isBytes := elem.Kind == Uint8; {
	case kind == reflect.Slice && isBytes:
		return &Type{Kind: Bytes}, nil
	case kind == reflect.Slice:
		return &Type{Kind: Slice, Elem: elem}, nil
	case kind == reflect.Array && isBytes && t.Len() > 0:
		return &Type{Kind: ByteArray, Size: t.Len()}, nil
	case kind == reflect.Array:
		if t.Len() > sizeMax {
			return nil, fmt.Errorf("field %s is %s: arrays have at most %d elements", path, t, sizeMax)
		}
		return &Type{Kind: Array, Size: t.Len(), Elem: elem}, nil
	case kind == reflect.Pointer:
		return &Type{Kind: Pointer, Elem: elem}, nil
	case kind == reflect.Map:
		key, err := d.of(t.Key(), path+"[key]")
		return &Type{Kind: Map, Key: key, Elem: elem}, err
	}
	return nil, fmt.Errorf("field %s is %s: a %s cannot be stored", path, t, kind)
}

// Tag is the key of the struct tags that say how a field is stored.
const Tag = "weir"

// storedField is a field of a Go struct that is stored.
type storedField struct {
	reflect.StructField
	name    string
	aliases []string
}

func (d derivation) structure(t reflect.Type, path string) (*Type, error) {
	s := &Type{Kind: Struct, name: avroName(t.Name())}
	fields, err := storedFields(t)
	if err != nil {
		return nil, fmt.Errorf("type %s: %w", t, err)
	}
	for _, f := range fields {
		typ, err := d.of(f.Type, path+"."+f.Name)
		if err != nil {
			return nil, err
		}
		field := Field{Name: f.name, Type: typ, Aliases: f.aliases}
		if f.name != f.Name {
			field.goName = f.Name
		}
		s.Fields = append(s.Fields, field)
	}
	return s, nil
}

// storedFields reads the tags of a struct's fields.
func storedFields(t reflect.Type) ([]storedField, error) {
	var all []storedField
	owner := map[string]string{} // of names and aliases
	for i := range t.NumField() {
		f := storedField{StructField: t.Field(i)}
		if f.Name == "_" {
			continue
		}
		f.name = f.Name
		if tag, ok := f.Tag.Lookup(Tag); ok {
			parts := strings.Split(tag, ",")
			if parts[0] != "" {
				f.name = parts[0]
			}
			for _, p := range parts[1:] {
				alias, ok := strings.CutPrefix(p, "alias=")
				if !ok {
					return nil, fmt.Errorf("field %s has the tag %q: it is of the form %s:\"name,alias=old,alias=older\"", f.Name, tag, Tag)
				}
				f.aliases = append(f.aliases, alias)
			}
		}
		for _, name := range append([]string{f.name}, f.aliases...) {
			if name != f.Name && (name == "" || avroName(name) != name) {
				return nil, fmt.Errorf("field %s has the name or alias %q: names are letters, digits and _", f.Name, name)
			}
			if other, taken := owner[name]; taken {
				return nil, fmt.Errorf("fields %s and %s both have the name or alias %q", other, f.Name, name)
			}
			owner[name] = f.Name
		}
		all = append(all, f)
	}
	return all, nil
}

// avroName makes a name that Avro allows of a type's.
func avroName(name string) string {
	if name == "" {
		return "Struct"
	}
	out := []byte(name)
	for i, c := range out {
		if !(c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || i > 0 && '0' <= c && c <= '9') {
			out[i] = '_'
		}
	}
	return string(out)
}
