package inspect

import (
	"encoding/binary"
	"fmt"
)

// decodeKey turns the bytes of a key in the encoding of package keygroup into
// JSON: big-endian numbers, the sign bit of signed ones flipped, fields one
// after the other, strings in structs escaped and ended.
func decodeKey(t *schemaType, src []byte) ([]byte, error) {
	if t.form == stringForm {
		return appendText(nil, string(src)), nil
	}
	r := keyReader{src: src}
	out, err := r.part(nil, t)
	if err != nil {
		return nil, err
	}
	if len(r.src) > 0 {
		return nil, malformed("%d bytes follow the key", len(r.src))
	}
	return out, nil
}

type keyReader struct{ src []byte }

func (r *keyReader) take(n int) ([]byte, error) {
	if n > len(r.src) {
		return nil, malformed("%d bytes left, want %d", len(r.src), n)
	}
	b := r.src[:n]
	r.src = r.src[n:]
	return b, nil
}

func (r *keyReader) part(dst []byte, t *schemaType) ([]byte, error) {
	switch t.form {
	case numberForm:
		b, err := r.take(t.size)
		if err != nil {
			return nil, err
		}
		return appendKeyNumber(dst, t, b)
	case boolForm:
		b, err := r.take(1)
		if err != nil {
			return nil, err
		}
		return appendBool(dst, b[0])
	case bytesForm:
		b, err := r.take(t.count)
		if err != nil {
			return nil, err
		}
		return appendHex(dst, b), nil
	case stringForm:
		text, err := r.text()
		if err != nil {
			return nil, err
		}
		return appendText(dst, text), nil
	case structForm:
		dst = append(dst, '{')
		for i, f := range t.fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendText(dst, f.name), ':')
			var err error
			if dst, err = r.part(dst, f.typ); err != nil {
				return nil, err
			}
		}
		return append(dst, '}'), nil
	case timeForm, arrayForm, sliceForm, pointerForm, mapForm, opaqueForm:
	}
	return nil, malformed("no key has a part of this type")
}

// text reads a string that 0x00 0x01 ends and in which 0x00 0xff is a 0x00.
func (r *keyReader) text() (string, error) {
	var text []byte
	for i := 0; i+1 < len(r.src); i++ {
		if r.src[i] != 0 {
			text = append(text, r.src[i])
			continue
		}
		i++
		switch r.src[i] {
		case 0xff:
			text = append(text, 0)
		case 0x01:
			r.src = r.src[i+1:]
			return string(text), nil
		default:
			return "", malformed("byte %#x behind a 0x00 in a string", r.src[i])
		}
	}
	return "", malformed("a string has no end")
}

func appendKeyNumber(dst []byte, t *schemaType, b []byte) ([]byte, error) {
	big := binary.BigEndian
	switch t.name {
	case "int8":
		return fmt.Append(dst, int8(b[0]^0x80)), nil
	case "int16":
		return fmt.Append(dst, int16(big.Uint16(b)^1<<15)), nil
	case "int32":
		return fmt.Append(dst, int32(big.Uint32(b)^1<<31)), nil
	case "int64":
		return fmt.Append(dst, int64(big.Uint64(b)^1<<63)), nil
	case "uint8":
		return fmt.Append(dst, b[0]), nil
	case "uint16":
		return fmt.Append(dst, big.Uint16(b)), nil
	case "uint32":
		return fmt.Append(dst, big.Uint32(b)), nil
	case "uint64":
		return fmt.Append(dst, big.Uint64(b)), nil
	}
	return nil, malformed("no key has a part of type %s", t.name)
}
