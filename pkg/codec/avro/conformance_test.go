package avro_test

import (
	"bytes"
	"reflect"
	"testing"

	lib "github.com/twmb/avro"
)

// conforms stores v with our encoder and with the library's, under our schema:
// the bytes are the same, and each reads the other's.
func conforms[T any](t *testing.T, values ...T) {
	t.Helper()
	c := mustFor[T](t)
	library, err := lib.Parse(c.Schema())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		ours := c.Append(nil, &v)
		theirs, err := library.Encode(&v)
		if err != nil || !bytes.Equal(ours, theirs) {
			t.Errorf("%s: %+v is %x, the library has %x, %v", c.Schema(), v, ours, theirs, err)
			continue
		}
		var read T
		if rest, err := library.Decode(ours, &read); err != nil || len(rest) != 0 || !reflect.DeepEqual(read, v) {
			t.Errorf("%s: the library reads %+v as %+v, %d bytes are left, %v", c.Schema(), v, read, len(rest), err)
		}
		var back T
		if n, err := c.Decode(theirs, &back); err != nil || n != len(theirs) || !reflect.DeepEqual(back, v) {
			t.Errorf("%s: %+v of the library is read as %+v, %v", c.Schema(), v, back, err)
		}
	}
}

// What is stored is Avro: for every type that Avro has, another implementation
// writes the same bytes and reads ours. Maps have one entry: no library orders more.
func TestStoredBytesAreAvro(t *testing.T) {
	type nested struct {
		N int64
		S string
	}
	type record struct {
		A int32
		B nested
		C []nested
		D map[string]int64
		E *string
		F [4]byte
		G *nested
	}
	word := "pointed to"
	conforms(t, false, true)
	conforms[int32](t, 0, -1, 1<<30, -1<<31)
	conforms[int64](t, 0, 63, -64, 64, 1<<62, -1<<63)
	conforms[float32](t, 0, -1.5)
	conforms(t, 0.0, 2.25, -1e300)
	conforms(t, "", "text", "\x00ü")
	conforms(t, [3]byte{1, 2, 3})
	conforms(t, nested{}, nested{-7, "s"})
	conforms(t, record{C: []nested{}, D: map[string]int64{}},
		record{1, nested{2, "b"}, []nested{{3, "c"}, {4, "d"}}, map[string]int64{"k": -5}, &word, [4]byte{9}, &nested{6, "g"}},
		record{})
}
