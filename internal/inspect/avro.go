package inspect

import (
	"encoding/binary"
	"math"
	"strconv"
	"time"

	"github.com/weirstream/weir/pkg/codec/avro"
)

// avroReader turns the bytes of values that package avro's codec wrote into
// JSON, by their stored schema alone.
type avroReader struct{ src []byte }

func (r *avroReader) take(n int) ([]byte, error) {
	if n < 0 || n > len(r.src) {
		return nil, malformed("%d bytes left, want %d", len(r.src), n)
	}
	b := r.src[:n]
	r.src = r.src[n:]
	return b, nil
}

func (r *avroReader) long() (int64, error) {
	v, n := binary.Varint(r.src)
	if n <= 0 {
		return 0, malformed("no number in the %d bytes left", len(r.src))
	}
	r.src = r.src[n:]
	return v, nil
}

func (r *avroReader) sized() ([]byte, error) {
	n, err := r.long()
	if err != nil {
		return nil, err
	}
	if n < 0 || n > int64(len(r.src)) {
		return nil, malformed("length %d with %d bytes left", n, len(r.src))
	}
	return r.take(int(n))
}

// value reads a value and appends its JSON to dst.
func (r *avroReader) value(dst []byte, t *avro.Type) ([]byte, error) {
	switch t.Kind {
	case avro.Bytes, avro.Slice, avro.Map, avro.Pointer, avro.Message:
		b, err := r.take(1)
		if err != nil {
			return nil, err
		}
		if b[0] == 0 {
			return append(dst, "null"...), nil
		}
		if b[0] != 2 {
			return nil, malformed("byte %#x for one of null or something", b[0])
		}
	}
	switch t.Kind {
	case avro.Bool:
		b, err := r.take(1)
		if err != nil {
			return nil, err
		}
		return appendBool(dst, b[0])
	case avro.Int8, avro.Int16, avro.Int32, avro.Int64, avro.Uint8, avro.Uint16, avro.Uint32, avro.Uint64:
		v, err := r.long()
		if t.Kind == avro.Uint64 {
			return strconv.AppendUint(dst, uint64(v), 10), err
		}
		return strconv.AppendInt(dst, v, 10), err
	case avro.Float32, avro.Float64:
		return r.float(dst, t.Kind == avro.Float64)
	case avro.Complex64, avro.Complex128:
		return r.complex(dst, t.Kind == avro.Complex128)
	case avro.String:
		b, err := r.sized()
		return appendText(dst, string(b)), err
	case avro.ByteArray:
		b, err := r.take(t.Size)
		return appendHex(dst, b), err
	case avro.Bytes, avro.Marshaler, avro.Message:
		b, err := r.sized()
		return appendHex(dst, b), err
	case avro.Time:
		return r.time(dst)
	case avro.Pointer:
		return r.value(dst, t.Elem)
	case avro.Struct:
		return r.structure(dst, t)
	case avro.Array, avro.Slice, avro.Map:
		return r.elements(dst, t)
	}
	return nil, malformed("type of unknown kind %d", t.Kind)
}

func (r *avroReader) structure(dst []byte, t *avro.Type) ([]byte, error) {
	if t.Min == 0 { // a foreign schema can make very much of nothing
		return append(dst, "{}"...), nil
	}
	dst = append(dst, '{')
	for i, f := range t.Fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendText(dst, f.Name), ':')
		var err error
		if dst, err = r.value(dst, f.Type); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

func (r *avroReader) float(dst []byte, double bool) ([]byte, error) {
	if double {
		b, err := r.take(8)
		if err != nil {
			return nil, err
		}
		return appendFloat(dst, math.Float64frombits(binary.LittleEndian.Uint64(b))), nil
	}
	b, err := r.take(4)
	if err != nil {
		return nil, err
	}
	return appendFloat(dst, math.Float32frombits(binary.LittleEndian.Uint32(b))), nil
}

func (r *avroReader) complex(dst []byte, double bool) ([]byte, error) {
	dst, err := r.float(append(dst, '['), double)
	if err != nil {
		return nil, err
	}
	dst, err = r.float(append(dst, ','), double)
	return append(dst, ']'), err
}

func (r *avroReader) time(dst []byte) ([]byte, error) {
	var parts [3]int64
	for i := range parts {
		var err error
		if parts[i], err = r.long(); err != nil {
			return nil, err
		}
	}
	if parts[1] < 0 || parts[1] >= 1e9 {
		return nil, malformed("%d nanoseconds in a time", parts[1])
	}
	t := time.Unix(parts[0], parts[1]).UTC()
	if parts[2] != 0 {
		t = t.In(time.FixedZone("", int(parts[2])))
	}
	return appendText(dst, t.Format(time.RFC3339Nano)), nil
}

// elements reads blocks of elements, or of keys and values. A map with keys
// other than strings is a list of [key, value].
func (r *avroReader) elements(dst []byte, t *avro.Type) ([]byte, error) {
	isMap := t.Kind == avro.Map
	isObject := isMap && t.Key.Kind == avro.String
	open, end := byte('['), byte(']')
	if isObject {
		open, end = '{', '}'
	}
	least := t.Elem.Min
	if isMap {
		least = t.Key.Min
	}
	dst = append(dst, open)
	for total := int64(0); ; {
		n, err := r.block(least)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return append(dst, end), nil
		}
		// Elements without bytes are shown once: there is nothing to see.
		if least == 0 {
			n = min(n, 1)
		}
		for range n {
			if total++; total > 1 {
				dst = append(dst, ',')
			}
			switch {
			case isObject:
				var key []byte
				if key, err = r.sized(); err != nil {
					return nil, err
				}
				dst = append(appendObjectKey(dst, string(key)), ':')
			case isMap:
				if dst, err = r.value(append(dst, '['), t.Key); err != nil {
					return nil, err
				}
				dst = append(dst, ',')
			}
			if dst, err = r.value(dst, t.Elem); err != nil {
				return nil, err
			}
			if isMap && !isObject {
				dst = append(dst, ']')
			}
		}
	}
}

// block reads how many elements of at least min bytes follow.
func (r *avroReader) block(least int) (int64, error) {
	n, err := r.long()
	if err == nil && n < 0 {
		n = -n
		_, err = r.long()
	}
	if err != nil {
		return 0, err
	}
	if n < 0 || least > 0 && n > int64(len(r.src)/least) {
		return 0, malformed("%d elements with %d bytes left", n, len(r.src))
	}
	return n, nil
}
