package keygroup_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/keygroup"
)

// The values that MurmurHash3's users publish for x86 32 with seed 0.
func TestHashIsMurmur3(t *testing.T) {
	for _, c := range []struct {
		in   string
		want uint32
	}{
		{"", 0},
		{"\x00\x00\x00\x00", 0x2362f9de},
		{"\xff\xff\xff\xff", 0x76293b50},
		{"\x21\x43\x65\x87", 0xf55b516b},
		{"\x21\x43\x65", 0x7e4a8634},
		{"\x21\x43", 0xa0f7b07a},
		{"\x21", 0x72661cf4},
		{"\x00", 0x514e28b7},
		{"\x00\x00", 0x30f4c306},
		{"\x00\x00\x00", 0x85f0b427},
		{"hello", 0x248bfa47},
		{"hello, world", 0x149bbb7f},
		{"test", 0xba6bd213},
		{"Hello, world!", 0xc0363e43},
		{"The quick brown fox jumps over the lazy dog", 0x2e4ff723},
	} {
		if got := keygroup.Hash([]byte(c.in)); got != c.want {
			t.Errorf("Hash(%q) = %#x, want %#x", c.in, got, c.want)
		}
	}
}

type route struct {
	From, To string
	Number   int16
}

type nested struct {
	A    route
	Flag bool
	ID   [3]byte
	_    int
	N    int
}

func encodingOf[K comparable](t testing.TB) *keygroup.Encoding[K] {
	t.Helper()
	e, err := keygroup.NewEncoding[K]()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func golden[K comparable](t *testing.T, k K, wantHex, schema string, group keygroup.Group) {
	t.Helper()
	e := encodingOf[K](t)
	b := e.Append(nil, &k)
	if hex.EncodeToString(b) != wantHex {
		t.Errorf("%#v is encoded %x, want %s", k, b, wantHex)
	}
	if e.Schema() != schema {
		t.Errorf("schema of %T is %s, want %s", k, e.Schema(), schema)
	}
	if got := keygroup.OfHash(e.Hash(&k), keygroup.DefaultMaxParallelism); got != group {
		t.Errorf("%#v is in group %d, want %d", k, got, group)
	}
	back, n, err := e.Decode(b)
	if err != nil || n != len(b) || back != k {
		t.Errorf("%#v comes back as %#v from %d bytes, %v", k, back, n, err)
	}
}

// Golden vectors: stored state is found by these bytes and groups. A change
// here loses the state of every job.
func TestEncodingIsFrozen(t *testing.T) {
	golden(t, uint64(0), "0000000000000000", "key/1:uint64", 124)
	golden(t, uint64(1), "0000000000000001", "key/1:uint64", 126)
	golden(t, uint64(1)<<63, "8000000000000000", "key/1:uint64", 34)
	golden(t, int64(0), "8000000000000000", "key/1:int64", 34)
	golden(t, int64(-1), "7fffffffffffffff", "key/1:int64", 6)
	golden(t, -5, "7ffffffffffffffb", "key/1:int64", 42)
	golden(t, uint(7), "0000000000000007", "key/1:uint64", 74)
	golden(t, int32(-1), "7fffffff", "key/1:int32", 105)
	golden(t, uint32(258), "00000102", "key/1:uint32", 19)
	golden(t, int16(3), "8003", "key/1:int16", 47)
	golden(t, uint16(3), "0003", "key/1:uint16", 0)
	golden(t, int8(-128), "00", "key/1:int8", 55)
	golden(t, uint8(9), "09", "key/1:uint8", 19)
	golden(t, true, "01", "key/1:bool", 43)
	golden(t, "", "", "key/1:string", 0)
	golden(t, "ABQ", "414251", "key/1:string", 83)
	golden(t, [2]byte{1, 2}, "0102", "key/1:[2]byte", 126)
	golden(t, struct{}{}, "", "key/1:struct{}", 0)
	golden(t, struct{ N uint64 }{7}, "0000000000000007", "key/1:struct{N:uint64}", 74)
	golden(t, route{"a\x00b", "", -2}, "6100ff62"+"0001"+"0001"+"7ffe",
		"key/1:struct{From:string,To:string,Number:int16}", 110)
	golden(t, nested{A: route{"x", "y", 0}, Flag: true, ID: [3]byte{1, 2, 3}, N: 1},
		"780001"+"790001"+"8000"+"01"+"010203"+"8000000000000001",
		"key/1:struct{A:struct{From:string,To:string,Number:int16},Flag:bool,ID:[3]byte,N:int64}", 3)
}

func drawRoute(t *rapid.T) route {
	s := rapid.StringOf(rapid.RuneFrom([]rune{0, 1, 0xff, 'a', 'é'}))
	return route{From: s.Draw(t, "from"), To: s.Draw(t, "to"), Number: rapid.Int16().Draw(t, "number")}
}

func checkKeys[K comparable](t *rapid.T, draw func(*rapid.T) K, less func(a, b K) int) {
	e, err := keygroup.NewEncoding[K]()
	if err != nil {
		t.Fatal(err)
	}
	a, b := draw(t), draw(t)
	ea, eb := e.Append(nil, &a), e.Append([]byte("before"), &b)[len("before"):]
	if (a == b) != bytes.Equal(ea, eb) {
		t.Fatalf("%#v and %#v are encoded %x and %x", a, b, ea, eb)
	}
	if less != nil && less(a, b) != bytes.Compare(ea, eb) {
		t.Fatalf("%#v and %#v are encoded in another order: %x and %x", a, b, ea, eb)
	}
	if e.Hash(&a) != keygroup.Hash(ea) {
		t.Fatalf("the hash of %#v is not the hash of its bytes", a)
	}
	src := ea
	if e.SelfDelimiting() {
		src = append(slices.Clone(ea), eb...)
	}
	got, n, err := e.Decode(src)
	if err != nil || n != len(ea) || got != a {
		t.Fatalf("%#v comes back as %#v from %d of %d bytes: %v", a, got, n, len(ea), err)
	}
	if size := e.FixedSize(); size >= 0 && size != len(ea) {
		t.Fatalf("%#v takes %d bytes, want %d", a, len(ea), size)
	}
	if e.Clone(&a) != a {
		t.Fatalf("the clone of %#v differs", a)
	}
}

func TestEncodingIsInjectiveAndOrdered(t *testing.T) {
	compare := func(a, b route) int {
		if c := strings.Compare(a.From, b.From); c != 0 {
			return c
		}
		if c := strings.Compare(a.To, b.To); c != 0 {
			return c
		}
		return order(a.Number, b.Number)
	}
	rapid.Check(t, func(t *rapid.T) {
		checkKeys(t, func(t *rapid.T) int64 { return rapid.Int64().Draw(t, "k") }, order[int64])
		checkKeys(t, func(t *rapid.T) int32 { return rapid.Int32().Draw(t, "k") }, order[int32])
		checkKeys(t, func(t *rapid.T) int8 { return rapid.Int8().Draw(t, "k") }, order[int8])
		checkKeys(t, func(t *rapid.T) uint16 { return rapid.Uint16().Draw(t, "k") }, order[uint16])
		checkKeys(t, func(t *rapid.T) uint64 { return rapid.Uint64().Draw(t, "k") }, order[uint64])
		checkKeys(t, func(t *rapid.T) string { return rapid.String().Draw(t, "k") }, strings.Compare)
		checkKeys(t, func(t *rapid.T) bool { return rapid.Bool().Draw(t, "k") }, nil)
		checkKeys(t, drawRoute, compare)
		checkKeys(t, func(t *rapid.T) nested {
			return nested{A: drawRoute(t), Flag: rapid.Bool().Draw(t, "flag"), N: rapid.Int().Draw(t, "n")}
		}, nil)
	})
}

func order[T int64 | int32 | int16 | int8 | uint16 | uint64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func TestKeyTypesWithoutAnEncodingAreRefusedByName(t *testing.T) {
	check := func(err error, parts ...string) {
		t.Helper()
		if err == nil {
			t.Errorf("accepted: want an error with %q", parts)
			return
		}
		for _, p := range parts {
			if !strings.Contains(err.Error(), p) {
				t.Errorf("error %q does not name %q", err, p)
			}
		}
	}
	type inner struct{ Score float64 }
	type key struct {
		Name string
		In   inner
	}
	_, err := keygroup.NewEncoding[key]()
	check(err, "keygroup_test.key", ".In.Score", "float64")
	_, err = keygroup.NewEncoding[*int]()
	check(err, "*int")
	_, err = keygroup.NewEncoding[any]()
	check(err, "interface {}")
	_, err = keygroup.NewEncoding[[2]int]()
	check(err, "[2]int", "arrays of bytes")
	_, err = keygroup.NewEncoding[struct{ P uintptr }]()
	check(err, ".P", "uintptr")
}

func TestDecodeRefusesMalformedKeys(t *testing.T) {
	routes, words, flags := encodingOf[route](t), encodingOf[uint64](t), encodingOf[bool](t)
	for _, src := range []string{"", "a", "a\x00", "a\x00\x02", "a\x00\x01b\x00\x01", "a\x00\xff"} {
		if _, _, err := routes.Decode([]byte(src)); !errors.Is(err, keygroup.ErrKeyBytes) {
			t.Errorf("%q: %v", src, err)
		}
	}
	if _, _, err := words.Decode(make([]byte, 7)); !errors.Is(err, keygroup.ErrKeyBytes) {
		t.Error(err)
	}
	if _, _, err := flags.Decode([]byte{2}); !errors.Is(err, keygroup.ErrKeyBytes) {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	e := encodingOf[nested](f)
	f.Add([]byte("a\x00\xff\x00\x01\x00\x01\x80\x00\x01abc\x80\x00\x00\x00\x00\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, src []byte) {
		k, n, err := e.Decode(src)
		if err == nil && !bytes.Equal(e.Append(nil, &k), src[:n]) {
			t.Errorf("%x decodes to %#v, which is encoded otherwise", src, k)
		}
	})
}

func TestKeysCostNoAllocation(t *testing.T) {
	words, strs, routes := encodingOf[uint64](t), encodingOf[string](t), encodingOf[route](t)
	word, str, r := uint64(1), "a string", route{From: "a", To: "b"}
	buf := make([]byte, 0, 64)
	var sum uint32
	if n := testing.AllocsPerRun(100, func() {
		sum += words.Hash(&word) + strs.Hash(&str) + routes.Hash(&r)
		buf = routes.Append(strs.Append(words.Append(buf[:0], &word), &str), &r)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkHash(b *testing.B) {
	words, strs, routes := encodingOf[uint64](b), encodingOf[string](b), encodingOf[route](b)
	word, str, r := uint64(1), "ABQ", route{From: "ABQ", To: "SFO"}
	b.Run("uint64", func(b *testing.B) {
		for b.Loop() {
			words.Hash(&word)
		}
	})
	b.Run("string", func(b *testing.B) {
		for b.Loop() {
			strs.Hash(&str)
		}
	})
	b.Run("struct", func(b *testing.B) {
		for b.Loop() {
			routes.Hash(&r)
		}
	})
}
