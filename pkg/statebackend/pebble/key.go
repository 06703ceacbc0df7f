package pebble

import (
	"encoding/binary"

	"github.com/weirstream/weir/pkg/keygroup"
)

// prefixBytes is what stands before the encoded key of an entry.
const prefixBytes = 4

// appendPrefix appends key group and state number.
func appendPrefix(dst []byte, g keygroup.Group, number int) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(g))
	return binary.BigEndian.AppendUint16(dst, uint16(number))
}

// cutPrefix reads them.
func cutPrefix(key []byte) (g keygroup.Group, number int) {
	return keygroup.Group(binary.BigEndian.Uint16(key)), int(binary.BigEndian.Uint16(key[2:]))
}

// behind is the first key that does not begin with prefix, nil if there is none.
func behind(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// only is a key as the field of a struct, where the end of a string shows.
type only[K comparable] struct{ Key K }
