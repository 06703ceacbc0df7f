package codec_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/codec"
)

type inner struct {
	A int8
	B string
	C []string
}

type embedded struct{ E uint16 }

type everything struct {
	Bool    bool
	I       int
	I8      int8
	I16     int16
	I32     int32
	I64     int64
	U       uint
	U8      uint8
	U32     uint32
	F32     float32
	F64     float64
	C       complex128
	S       string
	Bytes   []byte
	Array   [3]int16
	Strings [2]string
	Bools   []bool
	Words   []uint64
	Inners  []inner
	M       map[string]int32
	Set     map[int16]struct{}
	Deep    map[string][]string
	P       *int64
	PP      *inner
	T       time.Time
	D       time.Duration
	embedded
	Own   own
	Msg   *wrapperspb.StringValue
	Times [2]time.Time
}

// own is a type that encodes itself, through an unexported field.
type own struct{ s string }

func (*own) CodecName() string { return "own/3" }
func (o *own) MarshalAppend(dst []byte) ([]byte, error) {
	if o.s == "refuse" {
		return nil, errors.New("will not")
	}
	return append(dst, o.s...), nil
}
func (o *own) UnmarshalFrom(src []byte) error {
	if bytes.Contains(src, []byte("bad")) {
		return errors.New("bad bytes")
	}
	o.s = string(src)
	return nil
}

func mustFor[T any](t testing.TB) codec.Codec[T] {
	t.Helper()
	c, err := codec.For[T]()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func drawInner(t *rapid.T) inner {
	return inner{
		A: rapid.Int8().Draw(t, "a"), B: rapid.String().Draw(t, "b"),
		C: rapid.OneOf(rapid.Just([]string(nil)), rapid.SliceOf(rapid.String())).Draw(t, "c"),
	}
}

func drawTime(t *rapid.T) time.Time {
	at := time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "s"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).UTC()
	if hours := rapid.IntRange(-12, 12).Draw(t, "zone"); hours != 0 {
		return at.In(time.FixedZone("", hours*3600))
	}
	return at
}

func drawEverything(t *rapid.T) everything {
	v := everything{
		Bool: rapid.Bool().Draw(t, "bool"), I: rapid.Int().Draw(t, "i"), I8: rapid.Int8().Draw(t, "i8"), I16: rapid.Int16().Draw(t, "i16"),
		I32: rapid.Int32().Draw(t, "i32"), I64: rapid.Int64().Draw(t, "i64"), U: rapid.Uint().Draw(t, "u"), U8: rapid.Uint8().Draw(t, "u8"),
		U32: rapid.Uint32().Draw(t, "u32"), F32: rapid.Float32().Draw(t, "f32"), F64: rapid.Float64().Draw(t, "f64"),
		C: complex(rapid.Float64().Draw(t, "re"), 1), S: rapid.String().Draw(t, "string"),
		Bytes: rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOf(rapid.Byte())).Draw(t, "bytes"),
		Array: [3]int16{rapid.Int16().Draw(t, "array")}, Strings: [2]string{rapid.String().Draw(t, "s0"), rapid.String().Draw(t, "s1")},
		Bools: rapid.SliceOf(rapid.Bool()).Draw(t, "bools"), Words: rapid.SliceOf(rapid.Uint64()).Draw(t, "words"),
		Inners: rapid.SliceOfN(rapid.Custom(drawInner), 0, 4).Draw(t, "inners"),
		M:      rapid.OneOf(rapid.Just(map[string]int32(nil)), rapid.MapOf(rapid.String(), rapid.Int32())).Draw(t, "m"),
		Set:    rapid.MapOf(rapid.Int16(), rapid.Just(struct{}{})).Draw(t, "set"),
		Deep:   rapid.MapOfN(rapid.String(), rapid.SliceOf(rapid.String()), 0, 4).Draw(t, "deep"),
		T:      drawTime(t), D: time.Duration(rapid.Int64().Draw(t, "d")), embedded: embedded{rapid.Uint16().Draw(t, "e")},
		Own: own{rapid.StringN(0, 2, 8).Draw(t, "own")}, Times: [2]time.Time{drawTime(t), drawTime(t)},
	}
	if rapid.Bool().Draw(t, "p") {
		v.P = new(rapid.Int64().Draw(t, "*p"))
	}
	if rapid.Bool().Draw(t, "pp") {
		v.PP = new(drawInner(t))
	}
	if rapid.Bool().Draw(t, "message") {
		v.Msg = wrapperspb.String(rapid.String().Draw(t, "text"))
	}
	return v
}

// equal compares without regard to the internals of messages.
func equal(a, b everything) bool {
	same := proto.Equal(a.Msg, b.Msg) && (a.Msg == nil) == (b.Msg == nil)
	a.Msg, b.Msg = nil, nil
	return same && reflect.DeepEqual(a, b)
}

func TestDecodeGivesBackWhatWasEncoded(t *testing.T) {
	c := mustFor[everything](t)
	rapid.Check(t, func(t *rapid.T) {
		v := drawEverything(t)
		before := rapid.SliceOf(rapid.Byte()).Draw(t, "prefix")
		b := c.Append(slices.Clone(before), &v)
		if !bytes.HasPrefix(b, before) {
			t.Fatal("the prefix was changed")
		}
		encoded := b[len(before):]
		if again := c.Append(nil, &v); !bytes.Equal(encoded, again) {
			t.Fatal("two encodings of one value differ")
		}
		got := drawEverything(t) // whatever the target held must not show
		src := append(slices.Clone(encoded), "rest"...)
		n, err := c.Decode(src, &got)
		if err != nil || n != len(encoded) {
			t.Fatalf("decoded %d of %d bytes: %v", n, len(encoded), err)
		}
		for i := range src {
			src[i] = 0xee // the value must not share the source's memory
		}
		if !equal(got, v) {
			t.Fatalf("decoded\n%+v\nwant\n%+v", got, v)
		}
		for cut := range encoded {
			if _, err := c.Decode(encoded[:cut], &got); !errors.Is(err, codec.ErrMalformed) {
				t.Fatalf("decoding %d of %d bytes: %v", cut, len(encoded), err)
			}
		}
	})
}

func TestCloneSharesNothing(t *testing.T) {
	c := mustFor[everything](t)
	rapid.Check(t, func(t *rapid.T) {
		v := drawEverything(t)
		want := c.Append(nil, &v)
		var clone everything
		c.Clone(&clone, &v)
		if !equal(clone, v) {
			t.Fatal("the clone differs")
		}
		mutate(&clone)
		if !bytes.Equal(c.Append(nil, &v), want) {
			t.Fatal("a change of the clone shows in the original")
		}
	})
}

func mutate(v *everything) {
	for i := range v.Bytes {
		v.Bytes[i]++
	}
	for i := range v.Words {
		v.Words[i]++
	}
	for i := range v.Inners {
		for j := range v.Inners[i].C {
			v.Inners[i].C[j] += "x"
		}
		v.Inners[i].B += "x"
	}
	for k := range v.M {
		v.M[k]++
	}
	for _, s := range v.Deep {
		for i := range s {
			s[i] += "x"
		}
	}
	if v.P != nil {
		*v.P++
	}
	if v.PP != nil {
		v.PP.B += "x"
	}
	if v.Msg != nil {
		v.Msg.Value += "x"
	}
}

func roundTrip[T any](t *testing.T, v T, wantHex, wantSchema string) {
	t.Helper()
	c := mustFor[T](t)
	b := c.Append(nil, &v)
	if hex.EncodeToString(b) != wantHex {
		t.Errorf("%T: encoded %x, want %s", v, b, wantHex)
	}
	if c.Schema() != wantSchema {
		t.Errorf("%T: schema %s, want %s", v, c.Schema(), wantSchema)
	}
	var got T
	if n, err := c.Decode(b, &got); err != nil || n != len(b) || !reflect.DeepEqual(got, v) {
		t.Errorf("%T: decoded %+v from %d bytes, %v; want %+v", v, got, n, err, v)
	}
}

// Golden bytes: the layout of weir/1 must not change under its name.
func TestLayoutIsFixed(t *testing.T) {
	type padded struct {
		A bool
		B int64
		C uint8
		D int32
		_ [3]int64
		S string
		E float32
	}
	type packed struct {
		A, B int32
		C    uint64
	}
	roundTrip(t, uint64(0x0102030405060708), "0807060504030201", "uint64")
	roundTrip(t, int64(-2), "feffffffffffffff", "int64")
	roundTrip(t, -2, "feffffffffffffff", "int64")
	roundTrip(t, int16(-2), "feff", "int16")
	roundTrip(t, true, "01", "bool")
	roundTrip(t, "héllo", "0668c3a96c6c6f", "string")
	roundTrip(t, math.Pi, "182d4454fb210940", "float64")
	roundTrip(t, packed{1, 2, 3}, "01000000020000000300000000000000", "struct{A:int32,B:int32,C:uint64}")
	roundTrip(t, padded{A: true, B: 1, C: 2, D: 3, S: "ab", E: 1},
		"01"+"0100000000000000"+"02"+"03000000"+"0000803f"+"026162",
		"struct{A:bool,B:int64,C:uint8,D:int32,S:string,E:float32}")
	roundTrip(t, []byte("ab"), "036162", "[]uint8")
	roundTrip(t, []byte{}, "01", "[]uint8")
	roundTrip(t, []byte(nil), "00", "[]uint8")
	roundTrip(t, []int16{1, -1}, "030100ffff", "[]int16")
	roundTrip(t, [2]bool{true, false}, "0100", "[2]bool")
	roundTrip(t, map[string]uint8{"b": 2, "a": 1, "": 3}, "04"+"00"+"03"+"0161"+"01"+"0162"+"02", "map[string]uint8")
	roundTrip(t, new(int8(5)), "0105", "*int8")
	roundTrip(t, struct{}{}, "", "struct{}")
	roundTrip(t, time.Unix(1, 2).UTC(), "01000000000000000200000000000000", "time")
	roundTrip(t, own{"hi"}, "026869", "marshaler(own/3)")
}

func TestNames(t *testing.T) {
	for name, c := range map[string]interface {
		Name() string
		Schema() string
		Flat() bool
	}{
		"weir/1 uint64 true": mustFor[uint64](t),
		"weir/1 string true": mustFor[string](t),
		"weir/1 struct{T:time,S:string} true": mustFor[struct {
			T time.Time
			S string
		}](t),
		"weir/1 []string false":                     mustFor[[]string](t),
		"own/3 marshaler(own/3) false":              mustFor[own](t),
		"protobuf/1 google.protobuf.Duration false": mustFor[*durationpb.Duration](t),
		"weir/1 *marshaler(own/3) false":            mustFor[*own](t),
	} {
		got := c.Name() + " " + c.Schema() + " false"
		if c.Flat() {
			got = c.Name() + " " + c.Schema() + " true"
		}
		if got != name {
			t.Errorf("have %q, want %q", got, name)
		}
	}
}

func TestProtobufMessages(t *testing.T) {
	c := mustFor[*durationpb.Duration](t)
	for _, v := range []*durationpb.Duration{nil, {}, {Seconds: 5, Nanos: 7}} {
		b := c.Append(nil, &v)
		var got, clone *durationpb.Duration
		if n, err := c.Decode(b, &got); err != nil || n != len(b) || !proto.Equal(got, v) || (got == nil) != (v == nil) {
			t.Errorf("decoded %v, %v; want %v", got, err, v)
		}
		c.Clone(&clone, &v)
		if !proto.Equal(clone, v) || v != nil && clone == v {
			t.Errorf("clone %v of %v", clone, v)
		}
	}
}

type recursive struct{ Next *recursive }

func refused[T any](t *testing.T, parts ...string) {
	t.Helper()
	_, err := codec.For[T]()
	if err == nil {
		t.Errorf("%s was accepted", reflect.TypeFor[T]())
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not name %q", err, p)
		}
	}
}

func TestTypesThatLoseDataAreRefusedByName(t *testing.T) {
	type holder struct {
		Deep struct{ Fn func() }
	}
	type hidden struct {
		Count int
		cache map[string]int
	}
	_ = hidden{cache: nil}
	refused[holder](t, "codec_test.holder", "holder.Deep.Fn", "func()")
	refused[hidden](t, "codec_test.hidden", "hidden.cache", "unexported")
	refused[chan int](t, "chan int")
	refused[any](t, "interface")
	refused[struct{ E []error }](t, "value.E[]", "error")
	refused[recursive](t, "recursive", "contains itself")
	refused[map[*int]string](t, "map[*int]string", "key")
	refused[[]struct{}](t, "no data")
	refused[uintptr](t, "uintptr")
	refused[wrapperspb.StringValue](t, "unexported")
}

func TestAppendFailureIsRecoveredAsError(t *testing.T) {
	c := mustFor[own](t)
	encode := func(v own) (err error) {
		defer codec.Recover(&err)
		c.Append(nil, &v)
		return nil
	}
	var failure *codec.EncodeError
	if err := encode(own{"refuse"}); !errors.As(err, &failure) || failure.Codec != "own/3" {
		t.Errorf("have %v", err)
	}
	if err := encode(own{"fine"}); err != nil {
		t.Errorf("have %v", err)
	}
	var v own
	if _, err := c.Decode([]byte("\x03bad"), &v); !errors.Is(err, codec.ErrMalformed) {
		t.Errorf("have %v", err)
	}
}

// FuzzDecode: no bytes panic, allocate out of proportion, or decode to a value
// that does not survive another round.
func FuzzDecode(f *testing.F) {
	c, err := codec.For[everything]()
	if err != nil {
		f.Fatal(err)
	}
	seed := everything{S: "s", Bytes: []byte{1}, M: map[string]int32{"k": 1}, Deep: map[string][]string{"d": {"e"}}, PP: &inner{}}
	f.Add(c.Append(nil, &seed))
	f.Add(bytes.Repeat([]byte{0xff}, 300))
	f.Add(append(make([]byte, 160), bytes.Repeat([]byte{0xff, 0xff, 0xff, 0x7f}, 20)...))
	f.Fuzz(func(t *testing.T, src []byte) {
		var v everything
		n, err := c.Decode(src, &v)
		if err != nil {
			return
		}
		if n > len(src) {
			t.Fatalf("took %d of %d bytes", n, len(src))
		}
		again := c.Append(nil, &v)
		var w everything
		if _, err := c.Decode(again, &w); err != nil {
			t.Fatalf("decoding what was encoded: %v", err)
		}
		if !bytes.Equal(c.Append(nil, &w), again) {
			t.Fatal("a second round gives other bytes")
		}
	})
}

// A struct or array of one part that has its own encoding is not that part.
func TestOnePartWithItsOwnEncoding(t *testing.T) {
	for _, name := range []string{mustFor[struct{ O own }](t).Name(), mustFor[[1]own](t).Name(), mustFor[struct{ M *wrapperspb.StringValue }](t).Name()} {
		if name != "weir/1" {
			t.Errorf("codec %s", name)
		}
	}
	if name := mustFor[own](t).Name(); name != "own/3" {
		t.Errorf("codec %s", name)
	}
}
