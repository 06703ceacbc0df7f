package file

import (
	"bytes"
	"testing"
)

// FuzzStored: splits, positions and committables come from checkpoints. What is
// read of any bytes means the same when it is written and read again.
func FuzzStored(f *testing.F) {
	f.Add(split{path: "in/a.jsonl", start: 5, end: 1 << 40}.encode())
	f.Add(encodePosition(77))
	f.Add([]byte(committable{
		name: "part-0123456789abcdef0123456789abcdef-out-1.2-0-7.jsonl", size: 300, crc: 0xdeadbeef,
	}.encode()))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := decodeSplit(data); err == nil {
			if again, err := decodeSplit(s.encode()); err != nil || again != s || s.start < 0 || s.end < s.start {
				t.Errorf("split %+v is read again as %+v, %v", s, again, err)
			}
		}
		if at, err := decodePosition(data); err == nil && (at < 0 || !bytes.Equal(encodePosition(at), data)) {
			t.Errorf("position %d of %x", at, data)
		}
		if c, err := decodeCommittable(data); err == nil {
			if again, err := decodeCommittable(c.encode()); err != nil || again != c || c.size < 0 {
				t.Errorf("committable %+v is read again as %+v, %v", c, again, err)
			}
			if n, ok := parseCommitted(c.name); !ok || n.String() != c.name {
				t.Errorf("%q is taken for %s", c.name, n)
			}
		}
	})
}
