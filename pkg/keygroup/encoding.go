package keygroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unsafe"
)

// encodingVersion is the prefix of every schema. A second version would be a
// second encoding beside this one, never a change of it.
const encodingVersion = "key/1"

// Encoding turns keys of type K into bytes: frozen, versioned, injective.
//
// Integers are big-endian in their own width (int and uint in eight bytes),
// signed ones with the sign bit flipped, so that bytes order as numbers do.
// A bool is one byte, an array of bytes its bytes. A struct is its fields one
// after the other, nested ones in place; a string in a struct is escaped and
// terminated (0x00 becomes 0x00 0xff, the end is 0x00 0x01), which keeps both
// injectivity and order. A string that is the whole key is its bytes as they
// are, without an end: whoever stores it frames it (see SelfDelimiting).
//
// An Encoding is built once by reflection and immutable; its methods do not
// reflect, box or allocate (Decode and Clone allocate strings), and may be
// called concurrently.
type Encoding[K comparable] struct {
	form   keyForm
	flip   uint64 // XORed into an 8-byte integer: the sign bit for signed ones
	steps  []keyStep
	schema string
}

// keyForm selects the fast paths for keys that are one integer or one string.
type keyForm uint8

const (
	formSteps  keyForm = iota // anything: run the steps
	formWord                  // one 8-byte integer
	formString                // one string, unframed
)

// stepKind says how the field of a keyStep is encoded.
type stepKind uint8

const (
	stepUint   stepKind = iota // big-endian, size bytes, from memory of the same size
	stepInt                    // the same with the sign bit flipped
	stepWide                   // uint of a 32-bit host, in eight bytes
	stepWideI                  // int of a 32-bit host, in eight bytes
	stepBool                   // one byte, 0 or 1
	stepBytes                  // size bytes as they are
	stepString                 // escaped and terminated
)

// keyStep encodes one leaf field.
type keyStep struct {
	kind   stepKind
	offset uintptr
	size   int
}

// ErrKeyBytes is wrapped by every error of Decode.
var ErrKeyBytes = errors.New("malformed key bytes")

// NewEncoding plans the encoding of K. It refuses key types that have no
// injective encoding that is the same in every process (floats, pointers,
// interfaces, …) with an error that names the type and the field.
func NewEncoding[K comparable]() (*Encoding[K], error) {
	t := reflect.TypeFor[K]()
	e := &Encoding[K]{}
	if t.Kind() == reflect.String {
		e.form, e.schema = formString, encodingVersion+":string"
		return e, nil
	}
	var schema strings.Builder
	schema.WriteString(encodingVersion + ":")
	if err := e.plan(t, 0, t.String(), &schema); err != nil {
		return nil, fmt.Errorf("key type %s: %w", t, err)
	}
	e.schema = schema.String()
	if len(e.steps) == 1 && e.steps[0].size == 8 && unsafe.Sizeof(*new(K)) == 8 {
		switch e.steps[0].kind {
		case stepUint:
			e.form = formWord
		case stepInt:
			e.form, e.flip = formWord, 1<<63
		case stepWide, stepWideI, stepBool, stepBytes, stepString:
		}
	}
	return e, nil
}

// plan appends the steps of a value of type t at offset.
func (e *Encoding[K]) plan(t reflect.Type, offset uintptr, path string, schema *strings.Builder) error {
	add := func(kind stepKind, size int, name string) {
		e.steps = append(e.steps, keyStep{kind: kind, offset: offset, size: size})
		schema.WriteString(name)
	}
	switch t.Kind() {
	case reflect.Bool:
		add(stepBool, 1, "bool")
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		add(stepInt, int(t.Size()), t.Kind().String())
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		add(stepUint, int(t.Size()), t.Kind().String())
	case reflect.Int:
		if t.Size() == 8 {
			add(stepInt, 8, "int64")
		} else {
			add(stepWideI, 8, "int64")
		}
	case reflect.Uint:
		if t.Size() == 8 {
			add(stepUint, 8, "uint64")
		} else {
			add(stepWide, 8, "uint64")
		}
	case reflect.String:
		add(stepString, 0, "string")
	case reflect.Array:
		if t.Elem().Kind() != reflect.Uint8 {
			return fmt.Errorf("%s is %s: of arrays only arrays of bytes can be keys", path, t)
		}
		add(stepBytes, t.Len(), fmt.Sprintf("[%d]byte", t.Len()))
	case reflect.Struct:
		return e.planStruct(t, offset, path, schema)
	default:
		return fmt.Errorf("%s is %s: keys are made of integers, bool, string, byte arrays and structs of them", path, t)
	}
	return nil
}

func (e *Encoding[K]) planStruct(t reflect.Type, offset uintptr, path string, schema *strings.Builder) error {
	schema.WriteString("struct{")
	first := true
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name == "_" { // takes no part in ==, so none in the key
			continue
		}
		if !first {
			schema.WriteByte(',')
		}
		first = false
		schema.WriteString(f.Name + ":")
		if err := e.plan(f.Type, offset+f.Offset, path+"."+f.Name, schema); err != nil {
			return err
		}
	}
	schema.WriteByte('}')
	return nil
}

// Schema describes the encoding and its version. Stored state whose key
// schema differs from the program's cannot be read by it.
func (e *Encoding[K]) Schema() string { return e.schema }

// SelfDelimiting reports whether the end of an encoded key can be told from
// its bytes alone. False only for a plain string.
func (e *Encoding[K]) SelfDelimiting() bool { return e.form != formString }

// FixedSize is the number of bytes of every encoded key, or -1 if they differ
// between keys.
func (e *Encoding[K]) FixedSize() int {
	if e.form == formString {
		return -1
	}
	n := 0
	for _, s := range e.steps {
		if s.kind == stepString {
			return -1
		}
		n += s.size
	}
	return n
}

// Hash is Hash of the key's encoded bytes.
func (e *Encoding[K]) Hash(k *K) uint32 {
	if e.form == formWord {
		return hash8(*(*uint64)(unsafe.Pointer(k)) ^ e.flip)
	}
	return e.hashSlow(k)
}

func (e *Encoding[K]) hashSlow(k *K) uint32 {
	if e.form == formString {
		s := *(*string)(unsafe.Pointer(k))
		return Hash(unsafe.Slice(unsafe.StringData(s), len(s)))
	}
	var scratch [128]byte
	return Hash(e.Append(scratch[:0], k))
}

// Append appends the key's bytes to dst.
func (e *Encoding[K]) Append(dst []byte, k *K) []byte {
	switch e.form {
	case formWord:
		return binary.BigEndian.AppendUint64(dst, *(*uint64)(unsafe.Pointer(k))^e.flip)
	case formString:
		return append(dst, *(*string)(unsafe.Pointer(k))...)
	case formSteps:
	}
	base := unsafe.Pointer(k)
	for i := range e.steps {
		dst = e.steps[i].append(dst, base)
	}
	return dst
}

func (s *keyStep) append(dst []byte, base unsafe.Pointer) []byte {
	p := unsafe.Add(base, s.offset)
	switch s.kind {
	case stepUint, stepInt:
		flip := byte(0)
		if s.kind == stepInt {
			flip = 0x80
		}
		at := len(dst)
		switch s.size {
		case 1:
			dst = append(dst, *(*byte)(p))
		case 2:
			dst = binary.BigEndian.AppendUint16(dst, *(*uint16)(p))
		case 4:
			dst = binary.BigEndian.AppendUint32(dst, *(*uint32)(p))
		case 8:
			dst = binary.BigEndian.AppendUint64(dst, *(*uint64)(p))
		}
		dst[at] ^= flip
	case stepWide:
		dst = binary.BigEndian.AppendUint64(dst, uint64(*(*uint)(p)))
	case stepWideI:
		dst = binary.BigEndian.AppendUint64(dst, uint64(*(*int)(p))^1<<63)
	case stepBool:
		b := byte(0)
		if *(*bool)(p) {
			b = 1
		}
		dst = append(dst, b)
	case stepBytes:
		dst = append(dst, unsafe.Slice((*byte)(p), s.size)...)
	case stepString:
		dst = appendEscaped(dst, *(*string)(p))
	}
	return dst
}

// The bytes that follow a 0x00 inside an encoded string. The end sorts below
// the escape, so that a string sorts before every longer one it starts.
const (
	stringEnd    = 0x01
	stringEscape = 0xff
)

func appendEscaped(dst []byte, s string) []byte {
	for {
		i := strings.IndexByte(s, 0)
		if i < 0 {
			break
		}
		dst = append(dst, s[:i]...)
		dst = append(dst, 0, stringEscape)
		s = s[i+1:]
	}
	dst = append(dst, s...)
	return append(dst, 0, stringEnd)
}

// Decode reads one key from the start of src and says how many bytes it took.
// A plain string takes all of src. Errors wrap ErrKeyBytes.
func (e *Encoding[K]) Decode(src []byte) (K, int, error) {
	var k K
	switch e.form {
	case formWord:
		if len(src) < 8 {
			return k, 0, fmt.Errorf("%w: %d bytes left for an 8-byte integer", ErrKeyBytes, len(src))
		}
		*(*uint64)(unsafe.Pointer(&k)) = binary.BigEndian.Uint64(src) ^ e.flip
		return k, 8, nil
	case formString:
		*(*string)(unsafe.Pointer(&k)) = string(src)
		return k, len(src), nil
	case formSteps:
	}
	n := 0
	for i := range e.steps {
		used, err := e.steps[i].decode(src[n:], unsafe.Pointer(&k))
		if err != nil {
			var zero K
			return zero, 0, err
		}
		n += used
	}
	return k, n, nil
}

func (s *keyStep) decode(src []byte, base unsafe.Pointer) (int, error) {
	p := unsafe.Add(base, s.offset)
	if len(src) < s.size {
		return 0, fmt.Errorf("%w: %d bytes left, want %d", ErrKeyBytes, len(src), s.size)
	}
	switch s.kind {
	case stepUint, stepInt:
		s.decodeInteger(src, p)
	case stepWide:
		v := binary.BigEndian.Uint64(src)
		if uint64(uint(v)) != v {
			return 0, fmt.Errorf("%w: %d does not fit this host's uint", ErrKeyBytes, v)
		}
		*(*uint)(p) = uint(v)
	case stepWideI:
		v := int64(binary.BigEndian.Uint64(src) ^ 1<<63)
		if int64(int(v)) != v {
			return 0, fmt.Errorf("%w: %d does not fit this host's int", ErrKeyBytes, v)
		}
		*(*int)(p) = int(v)
	case stepBool:
		if src[0] > 1 {
			return 0, fmt.Errorf("%w: byte %#x for a bool", ErrKeyBytes, src[0])
		}
		*(*bool)(p) = src[0] == 1
	case stepBytes:
		copy(unsafe.Slice((*byte)(p), s.size), src)
	case stepString:
		v, n, err := decodeEscaped(src)
		if err != nil {
			return 0, err
		}
		*(*string)(p) = v
		return n, nil
	}
	return s.size, nil
}

func (s *keyStep) decodeInteger(src []byte, p unsafe.Pointer) {
	flip := s.kind == stepInt
	switch s.size {
	case 1:
		v := src[0]
		if flip {
			v ^= 1 << 7
		}
		*(*uint8)(p) = v
	case 2:
		v := binary.BigEndian.Uint16(src)
		if flip {
			v ^= 1 << 15
		}
		*(*uint16)(p) = v
	case 4:
		v := binary.BigEndian.Uint32(src)
		if flip {
			v ^= 1 << 31
		}
		*(*uint32)(p) = v
	case 8:
		v := binary.BigEndian.Uint64(src)
		if flip {
			v ^= 1 << 63
		}
		*(*uint64)(p) = v
	}
}

func decodeEscaped(src []byte) (string, int, error) {
	var out []byte
	for i := 0; i+1 < len(src); i++ {
		if src[i] != 0 {
			continue
		}
		switch src[i+1] {
		case stringEnd:
			if out == nil {
				return string(src[:i]), i + 2, nil
			}
			return string(unescape(src[:i])), i + 2, nil
		case stringEscape:
			out = src
			i++
		default:
			return "", 0, fmt.Errorf("%w: byte %#x after a zero in a string", ErrKeyBytes, src[i+1])
		}
	}
	return "", 0, fmt.Errorf("%w: string without an end", ErrKeyBytes)
}

// unescape removes the escape byte behind every zero byte.
func unescape(src []byte) []byte {
	out := make([]byte, 0, len(src))
	for i := 0; i < len(src); i++ {
		out = append(out, src[i])
		if src[i] == 0 {
			i++
		}
	}
	return out
}

// Clone copies the key with the strings in it, so that a stored key does not
// keep alive the record it was cut out of.
func (e *Encoding[K]) Clone(k *K) K {
	c := *k
	switch e.form {
	case formWord:
	case formString:
		s := (*string)(unsafe.Pointer(&c))
		*s = strings.Clone(*s)
	case formSteps:
		for i := range e.steps {
			if e.steps[i].kind == stepString {
				s := (*string)(unsafe.Add(unsafe.Pointer(&c), e.steps[i].offset))
				*s = strings.Clone(*s)
			}
		}
	}
	return c
}
