package avro_test

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	lib "github.com/twmb/avro"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/codec/avro"
)

type inner struct {
	A int8
	B string
	C []string
}

type embedded struct{ E uint16 }

type point struct{ X, Y int32 }

// everything has a field of every type that is stored.
type everything struct {
	Bool    bool
	I       int
	I8      int8
	I16     int16
	I32     int32
	I64     int64
	U       uint
	U8      uint8
	U16     uint16
	U32     uint32
	U64     uint64
	F32     float32
	F64     float64
	C64     complex64
	C       complex128
	S       string
	Bytes   []byte
	Hash    [5]byte
	Array   [3]int16
	Empty   [0]string
	Nothing [2]struct{}
	Strings [2]string
	Bools   []bool
	Words   []uint64
	Inners  []inner
	M       map[string]int32
	Set     map[int16]struct{}
	Deep    map[string][]string
	Points  map[point]map[bool]string
	P       *int64
	PP      *inner
	PS      *[]string
	PPP     **string
	PB      *[]byte
	T       time.Time
	D       time.Duration
	embedded
	Own   own
	Owns  []own
	POwn  *own
	Msg   *wrapperspb.StringValue
	PMsg  **wrapperspb.StringValue
	Times [2]time.Time
	Again inner
	Named int64 `weir:"called,alias=Was"`
}

// own is a type that encodes itself, through an unexported field.
type own struct{ s string }

func (*own) CodecName() string { return `own "3"` }
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
	c, err := avro.For[T]()
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
		U16: rapid.Uint16().Draw(t, "u16"), U32: rapid.Uint32().Draw(t, "u32"), U64: rapid.Uint64().Draw(t, "u64"),
		F32: rapid.Float32().Draw(t, "f32"), F64: rapid.Float64().Draw(t, "f64"),
		C: complex(rapid.Float64().Draw(t, "re"), 1), C64: complex(1, rapid.Float32().Draw(t, "im")), S: rapid.String().Draw(t, "string"),
		Bytes: rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOf(rapid.Byte())).Draw(t, "bytes"), Hash: [5]byte{1, rapid.Byte().Draw(t, "hash")},
		Array: [3]int16{rapid.Int16().Draw(t, "array")}, Strings: [2]string{rapid.String().Draw(t, "s0"), rapid.String().Draw(t, "s1")},
		Bools: rapid.SliceOf(rapid.Bool()).Draw(t, "bools"), Words: rapid.SliceOf(rapid.Uint64()).Draw(t, "words"),
		Inners: rapid.SliceOfN(rapid.Custom(drawInner), 0, 4).Draw(t, "inners"),
		M:      rapid.OneOf(rapid.Just(map[string]int32(nil)), rapid.MapOf(rapid.String(), rapid.Int32())).Draw(t, "m"),
		Set:    rapid.MapOf(rapid.Int16(), rapid.Just(struct{}{})).Draw(t, "set"),
		Deep:   rapid.MapOfN(rapid.String(), rapid.SliceOf(rapid.String()), 0, 4).Draw(t, "deep"),
		Points: map[point]map[bool]string{{rapid.Int32().Draw(t, "x"), 2}: {true: "y"}, {3, 4}: nil},
		T:      drawTime(t), D: time.Duration(rapid.Int64().Draw(t, "d")), embedded: embedded{rapid.Uint16().Draw(t, "e")},
		Own: own{rapid.StringN(0, 2, 8).Draw(t, "own")}, Owns: []own{{"a"}, {}}, Times: [2]time.Time{drawTime(t), drawTime(t)},
		Again: drawInner(t), Named: 7,
	}
	if rapid.Bool().Draw(t, "pointers") {
		s, list, raw, m := "s", []string{"x"}, []byte{}, wrapperspb.String("in")
		ps, pb := &s, &raw
		v.P, v.PP, v.PS, v.PPP, v.PB, v.POwn, v.PMsg = new(v.I64), new(v.Again), &list, &ps, pb, &own{"p"}, &m
		v.Msg = wrapperspb.String(rapid.String().Draw(t, "msg"))
	}
	return v
}

// equal compares values whose messages have hidden caches.
func equal(a, b everything) bool {
	if !proto.Equal(a.Msg, b.Msg) || (a.PMsg == nil) != (b.PMsg == nil) || a.PMsg != nil && !proto.Equal(*a.PMsg, *b.PMsg) {
		return false
	}
	a.Msg, b.Msg, a.PMsg, b.PMsg = nil, nil, nil, nil
	return reflect.DeepEqual(a, b)
}

func TestWhatIsStoredComesBack(t *testing.T) {
	c := mustFor[everything](t)
	if c.Name() != "avro/1" || c.Flat() {
		t.Errorf("codec %s, flat %v", c.Name(), c.Flat())
	}
	parsed, err := avro.ParseSchema(c.Schema())
	if err != nil {
		t.Fatal(err)
	}
	if again := parsed.Schema(); again != c.Schema() {
		t.Errorf("parsed and written again:\n%s\nwas\n%s", again, c.Schema())
	}
	old, err := codec.For[everything]()
	if err != nil {
		t.Fatal(err)
	}
	if parsed.String() != old.Schema() {
		t.Errorf("the type is\n%s, was\n%s", parsed, old.Schema())
	}
	// The whole of another writer's schema, so that nothing is read by the same plan.
	migrating, err := codec.ForSchema(c, "avro/1", strings.Replace(c.Schema(), `"aliases":["Was"],`, "", 1))
	if err != nil {
		t.Fatal(err)
	}
	library, err := lib.Parse(c.Schema())
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		v := drawEverything(t)
		stored := c.Append([]byte("before"), &v)[len("before"):]
		if again := c.Append(nil, &v); !bytes.Equal(again, stored) {
			t.Fatalf("equal values give %x and %x", stored, again)
		}
		for _, from := range []codec.Codec[everything]{c, migrating} {
			got := everything{S: "held before", Inners: []inner{{A: 1}, {A: 2}}}
			held := got.Inners
			n, err := from.Decode(append(stored[:len(stored):len(stored)], "behind"...), &got)
			if err != nil || n != len(stored) || !equal(got, v) {
				t.Fatalf("%d of %d bytes, %v:\n%+v\n%+v", n, len(stored), err, got, v)
			}
			if held[0].A != 1 || held[1].A != 2 {
				t.Fatalf("memory of the value before was written")
			}
		}
		var clone everything
		c.Clone(&clone, &v)
		if !equal(clone, v) {
			t.Fatalf("clone is %+v", clone)
		}
		// The library reads it as the schema says.
		var decoded any
		rest, err := library.Decode(stored, &decoded)
		if err != nil || len(rest) != 0 {
			t.Fatalf("the library leaves %d bytes: %v", len(rest), err)
		}
		record := decoded.(map[string]any)
		if record["I64"] != v.I64 || record["S"] != v.S || record["U64"] != int64(v.U64) || (record["M"] == nil) != (v.M == nil) {
			t.Fatalf("the library reads %v", record)
		}
	})
}

// libraryValue is a value that the library can encode too.
type libraryValue struct {
	A int64
	B float64
	C string
	D int32
	E bool
	F []byte
	G [3]byte
}

func TestTheLibraryWritesTheSame(t *testing.T) {
	c := mustFor[libraryValue](t)
	library := lib.MustParse(c.Schema())
	rapid.Check(t, func(t *rapid.T) {
		v := libraryValue{rapid.Int64().Draw(t, "a"), rapid.Float64().Draw(t, "b"), rapid.String().Draw(t, "c"), rapid.Int32().Draw(t, "d"),
			rapid.Bool().Draw(t, "e"), rapid.SliceOf(rapid.Byte()).Draw(t, "f"), [3]byte{rapid.Byte().Draw(t, "g")}}
		want, err := library.Encode(&v)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Append(nil, &v); !bytes.Equal(got, want) {
			t.Fatalf("%x, the library has %x", got, want)
		}
	})
}

// Blocks that others write: several, and with their sizes.
func TestBlocksOfOthers(t *testing.T) {
	c := mustFor[[]int64](t)
	var got []int64
	n, err := c.Decode([]byte{2, 2, 10, 3, 4, 12, 14, 0}, &got)
	if err != nil || n != 8 || !reflect.DeepEqual(got, []int64{5, 6, 7}) {
		t.Errorf("%v after %d bytes, %v", got, n, err)
	}
}

func TestTypesWithACodecOfTheirOwnKeepIt(t *testing.T) {
	if c := mustFor[own](t); c.Name() != `own "3"` {
		t.Errorf("a Marshaler has codec %s", c.Name())
	}
	if c := mustFor[*wrapperspb.StringValue](t); c.Name() != "protobuf/1" {
		t.Errorf("a message has codec %s", c.Name())
	}
	if _, err := avro.For[struct{ F func() }](); err == nil || !strings.Contains(err.Error(), ".F") {
		t.Errorf("a function is stored: %v", err)
	}
	refuse := own{"refuse"}
	v := struct{ O own }{refuse}
	err := func() (err error) {
		defer codec.Recover(&err)
		mustFor[struct{ O own }](t).Append(nil, &v)
		return nil
	}()
	if err == nil || !strings.Contains(err.Error(), "will not") {
		t.Errorf("a refusal is %v", err)
	}
}

func TestTagsAreChecked(t *testing.T) {
	for want, make := range map[string]func() error{
		"both have the name or alias": func() error {
			_, err := avro.For[struct {
				A int `weir:"x"`
				B int `weir:"y,alias=x"`
			}]()
			return err
		},
		"is of the form": func() error {
			_, err := avro.For[struct {
				A int `weir:"x,omitempty"`
			}]()
			return err
		},
		"letters, digits": func() error {
			_, err := avro.For[struct {
				A int `weir:"x y"`
			}]()
			return err
		},
		`alias ""`: func() error {
			_, err := avro.For[struct {
				A int `weir:"x,alias="`
			}]()
			return err
		},
	} {
		if err := make(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// migrate stores v as Old and reads it as New.
func migrate[Old, New any](t testing.TB, v Old) (New, []avro.Change, error) {
	t.Helper()
	from, to := mustFor[Old](t), mustFor[New](t)
	changes, compareErr := avro.Compare(from.Name(), from.Schema(), to.Name(), to.Schema())
	var got New
	reader, err := codec.ForSchema(to, from.Name(), from.Schema())
	if (err == nil) != (compareErr == nil) || err != nil && err.Error() != compareErr.Error() {
		t.Fatalf("Compare says %v, ForSchema %v", compareErr, err)
	}
	if err != nil {
		return got, nil, err
	}
	stored := from.Append(nil, &v)
	n, err := reader.Decode(stored, &got)
	if err != nil || n != len(stored) {
		t.Fatalf("%d of %d bytes: %v", n, len(stored), err)
	}
	// Into a value that held something.
	held := got
	if _, err = reader.Decode(stored, &held); err != nil || !reflect.DeepEqual(held, got) {
		t.Fatalf("%+v into %+v: %v", held, got, err)
	}
	return got, changes, nil
}

type oldPart struct {
	N    int8
	Gone map[string][]string
	Name string
}
type newPart struct {
	Title string `weir:"title,alias=Heading,alias=Name"`
	More  []byte
	N     int64
}
type oldWhole struct {
	A     int16
	U     uint32
	F     float32
	I     int32
	Parts []oldPart
	ByID  map[uint16]oldPart
	Ptr   *oldPart
	Pair  [2]oldPart
	Gone  struct{ X, Y time.Time }
	Last  string
}
type newWhole struct {
	Last  string
	Extra [3]int64
	Pair  [2]newPart
	Ptr   *newPart
	ByID  map[int64]newPart
	Parts []newPart
	I     float64
	F     float64
	U     int64
	A     int32
}

func TestChangesOfStructsAreMigrated(t *testing.T) {
	part := func(n int8) oldPart { return oldPart{N: n, Gone: map[string][]string{"a": {"b", "c"}}, Name: "name"} }
	moved := func(n int64) newPart { return newPart{N: n, Title: "name"} }
	p := part(4)
	q := moved(4)
	got, changes, err := migrate[oldWhole, newWhole](t, oldWhole{
		A: -5, U: math.MaxUint32, F: 1.5, I: math.MinInt32, Parts: []oldPart{part(1), part(2)}, ByID: map[uint16]oldPart{65535: part(3)},
		Ptr: &p, Pair: [2]oldPart{part(5), part(-128)}, Last: "last",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := newWhole{
		A: -5, U: math.MaxUint32, F: 1.5, I: math.MinInt32, Parts: []newPart{moved(1), moved(2)}, ByID: map[int64]newPart{65535: moved(3)},
		Ptr: &q, Pair: [2]newPart{moved(5), moved(-128)}, Last: "last",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v, want\n%+v", got, want)
	}
	var lines []string
	for _, c := range changes {
		lines = append(lines, c.String())
	}
	for _, line := range []string{
		"added Extra [3]int64", "removed Gone struct{X:time,Y:time}", "widened A from int16 to int32", "widened U from uint32 to int64",
		"widened F from float32 to float64", "widened I from int32 to float64", "renamed Parts[].title from Name", "added Parts[].More []uint8",
		"removed Parts[].Gone map[string][]string", "widened ByID[key] from uint16 to int64", "widened Ptr.N from int8 to int64", "renamed Pair[].title from Name",
	} {
		if !strings.Contains("\n"+strings.Join(lines, "\n")+"\n", "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, strings.Join(lines, "\n"))
		}
	}
}

func TestTopLevelNumbersAreWidened(t *testing.T) {
	got, changes, err := migrate[uint32, uint64](t, math.MaxUint32)
	if err != nil || got != math.MaxUint32 || len(changes) != 1 || changes[0].String() != "widened the value from uint32 to uint64" {
		t.Errorf("%d, %v, %v", got, changes, err)
	}
	if got, _, err := migrate[[]int8, []float32](t, []int8{-1, 127}); err != nil || !reflect.DeepEqual(got, []float32{-1, 127}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, changes, err := migrate[struct{ A, B int }, struct{ B, A int }](t, struct{ A, B int }{1, 2}); err != nil || got.A != 1 || got.B != 2 || len(changes) != 0 {
		t.Errorf("%+v, %v, %v", got, changes, err)
	}
}

func TestOtherChangesAreRefused(t *testing.T) {
	refused := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	_, _, err := migrate[struct{ S struct{ N int64 } }, struct{ S struct{ N int32 } }](t, struct{ S struct{ N int64 } }{})
	refused(err, "field S.N was int64 and is int32")
	_, _, err = migrate[int64, float64](t, 1)
	refused(err, "the value was int64 and is float64")
	_, _, err = migrate[int64, uint64](t, 1)
	refused(err, "was int64 and is uint64")
	_, _, err = migrate[uint64, int64](t, 1)
	refused(err, "was uint64 and is int64")
	_, _, err = migrate[map[string]string, map[string]int64](t, nil)
	refused(err, "field [] was string and is int64")
	_, _, err = migrate[[2]int32, [3]int32](t, [2]int32{})
	refused(err, "was [2]int32 and is [3]int32")
	_, _, err = migrate[struct{ M map[point]int }, struct{ M map[struct{ X int32 }]int }](t, struct{ M map[point]int }{})
	refused(err, "field M[key].Y was int32 and is gone")
	_, _, err = migrate[struct{ O own }, struct{ O string }](t, struct{ O own }{})
	refused(err, "field O was marshaler(own \"3\") and is string")
}

// What codec.For's codec has stored is read while the type is as it was, also
// with names from tags.
func TestWhatWasStoredBeforeAvroIsRead(t *testing.T) {
	old, err := codec.For[everything]()
	if err != nil {
		t.Fatal(err)
	}
	c := mustFor[everything](t)
	r, err := codec.ForSchema(c, old.Name(), old.Schema())
	if err != nil {
		t.Fatal(err)
	}
	v := everything{S: "s", Named: 3, U64: 1 << 63}
	var got everything
	if _, err := r.Decode(old.Append(nil, &v), &got); err != nil || got.S != "s" || got.Named != 3 || got.U64 != 1<<63 {
		t.Errorf("%+v, %v", got, err)
	}
	if changes, err := avro.Compare(old.Name(), old.Schema(), c.Name(), c.Schema()); err != nil || len(changes) > 0 {
		t.Errorf("%v, %v", changes, err)
	}
	if _, err = avro.Compare("weir/1", "struct{A:int8}", c.Name(), c.Schema()); err == nil {
		t.Error("another type stored before Avro is read")
	}
	if _, err = avro.Compare("other/1", "", c.Name(), c.Schema()); err == nil {
		t.Error("another codec's bytes are read")
	}
	if _, err = codec.ForSchema(c, "other/1", ""); err == nil {
		t.Error("another codec's bytes are read")
	}
}

func TestSchemasOfOthersAreRefused(t *testing.T) {
	for _, schema := range []string{
		"", "int32", `"null"`, `{"type":"enum","name":"E","symbols":["A"]}`, `["int","string"]`, `{"type":"array","items":"int"}`, `"bytes"`,
		`{"type":"record","name":"R","fields":[{"name":"r","type":["null","R"]}]}`, `{"type":"int","weir":"int64"}`,
		`["null",{"type":"array","items":{"type":"record","name":"R","fields":[]}}]`, `{"type":"array","weir":"array","length":-1,"items":"int"}`,
		strings.Repeat(`["null",{"type":"array","items":`, 200) + `"int"` + strings.Repeat(`}]`, 200),
	} {
		if typ, err := avro.ParseSchema(schema); err == nil {
			t.Errorf("%.80s is read as %s", schema, typ)
		}
	}
}
