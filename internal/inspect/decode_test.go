package inspect

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/codec/avro"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/statebackend"
)

type inner struct {
	A int8
	B string
	C []string
}

// record has a part of every form whose JSON is the one that encoding/json makes.
type record struct {
	Name    string
	I       int
	I8      int8
	Flag    bool
	U32     uint32
	F32     float32
	F64     float64
	Inner   inner
	Array   [3]int16
	Strings [2]string
	Words   []uint64
	Inners  []inner
	Deep    map[string][]string
	P       *int64
	PP      *inner
	T       time.Time
	Empty   [3]struct{ X [0]int64 }
	Pairs   [2]struct {
		N int32
		S string
	}
}

func randomRecord(t *rapid.T) record {
	text := rapid.String()
	inners := rapid.Custom(func(t *rapid.T) inner {
		return inner{rapid.Int8().Draw(t, "a"), text.Draw(t, "b"), rapid.SliceOfN(text, 0, 3).Draw(t, "c")}
	})
	r := record{
		Name: text.Draw(t, "name"), I: rapid.Int().Draw(t, "i"), I8: rapid.Int8().Draw(t, "i8"), Flag: rapid.Bool().Draw(t, "flag"),
		U32: rapid.Uint32().Draw(t, "u32"), F32: rapid.Float32().Draw(t, "f32"), F64: rapid.Float64().Draw(t, "f64"),
		Inner: inners.Draw(t, "inner"), Words: rapid.SliceOf(rapid.Uint64()).Draw(t, "words"), Inners: rapid.SliceOfN(inners, 0, 3).Draw(t, "inners"),
		Deep: rapid.MapOfN(text, rapid.SliceOfN(text, 0, 2), 0, 3).Draw(t, "deep"),
		T:    time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "t"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC(),
	}
	for i := range r.Array {
		r.Array[i] = rapid.Int16().Draw(t, "array")
	}
	r.Strings[1], r.Pairs[0].S, r.Pairs[1].N = text.Draw(t, "s"), text.Draw(t, "pair"), rapid.Int32().Draw(t, "n")
	if rapid.Bool().Draw(t, "set") {
		p, pp := rapid.Int64().Draw(t, "p"), inners.Draw(t, "pp")
		r.P, r.PP = &p, &pp
	}
	return r
}

// sameJSON compares what two texts say.
func sameJSON(t testing.TB, got, want []byte) bool {
	t.Helper()
	var a, b any
	for text, to := range map[*[]byte]*any{&got: &a, &want: &b} {
		decoder := json.NewDecoder(strings.NewReader(string(*text)))
		decoder.UseNumber()
		if err := decoder.Decode(to); err != nil {
			t.Fatalf("%v in %s", err, *text)
		}
	}
	return reflect.DeepEqual(a, b)
}

func TestValuesAreDecodedByTheirSchema(t *testing.T) {
	c, err := codec.For[record]()
	if err != nil {
		t.Fatal(err)
	}
	schema, err := parseSchema(c.Schema())
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		r := randomRecord(rt)
		got, err := decodeValue(schema, c.Append(nil, &r))
		if err != nil {
			rt.Fatal(err)
		}
		want, err := json.Marshal(r)
		if err != nil {
			rt.Fatal(err)
		}
		want = []byte(strings.Replace(string(want), `"Empty":[{"X":[]},{"X":[]},{"X":[]}]`, `"Empty":[]`, 1))
		if !sameJSON(t, got, want) {
			rt.Fatalf("got  %s\nwant %s", got, want)
		}
	})
}

// own encodes itself.
type own struct{ text string }

func (own) CodecName() string                          { return "own(2)" }
func (o own) MarshalAppend(dst []byte) ([]byte, error) { return append(dst, o.text...), nil }
func (o *own) UnmarshalFrom(src []byte) error          { o.text = string(src); return nil }
func encode[T any](t *testing.T, v T) (string, []byte) {
	t.Helper()
	c, err := codec.For[T]()
	if err != nil {
		t.Fatal(err)
	}
	return c.Schema(), c.Append(nil, &v)
}

func TestValuesThatJSONHasNoFormFor(t *testing.T) {
	for _, test := range []struct {
		want   string
		schema string
		bytes  []byte
	}{
		newCase(t, `"NaN"`, math.NaN()),
		newCase(t, `"+Inf"`, float32(math.Inf(1))),
		newCase(t, `[1.5,-2]`, complex(1.5, -2)),
		newCase(t, `"0aff"`, []byte{10, 255}),
		newCase(t, `"000102"`, [3]byte{0, 1, 2}),
		newCase(t, `{"hex":"ff61"}`, "\xffa"),
		newCase(t, `[[1,"a"],[2,"b"]]`, map[int16]string{2: "b", 1: "a"}),
		newCase(t, `[[true,{}]]`, map[bool]struct{}{true: {}}),
		newCase(t, `{"a":1,"hex:fe":2}`, map[string]int8{"a": 1, "\xfe": 2}),
		newCase(t, `{"Own":"6162","After":7}`, struct {
			Own   own
			After int64
		}{own{"ab"}, 7}),
		newCase(t, `{"M":null,"S":null,"P":null}`, struct {
			M map[string]int
			S []inner
			P *int
		}{}),
		newCase(t, `"1970-01-01T02:00:01+02:00"`, time.Unix(1, 0).In(time.FixedZone("", 7200))),
		newCase(t, `18446744073709551615`, uint64(math.MaxUint64)),
		newCase(t, `"<&>"`, "<&>"),
	} {
		schema, err := parseSchema(test.schema)
		if err != nil {
			t.Errorf("%s: %v", test.schema, err)
			continue
		}
		got, err := decodeValue(schema, test.bytes)
		if err != nil || string(got) != test.want {
			t.Errorf("%s of %x: got %s, %v, want %s", test.schema, test.bytes, got, err, test.want)
		}
	}
}

func newCase[T any](t *testing.T, want string, v T) (c struct {
	want   string
	schema string
	bytes  []byte
}) {
	c.want = want
	c.schema, c.bytes = encode(t, v)
	return c
}

type route struct {
	Number  int32
	Origin  string
	Carrier [2]byte
	Night   bool
	Day     struct{ Year uint16 }
	To      string
}

func TestKeysAreDecodedByTheirSchema(t *testing.T) {
	encoding, err := keygroup.NewEncoding[route]()
	if err != nil {
		t.Fatal(err)
	}
	schema, err := parseSchema(strings.TrimPrefix(encoding.Schema(), keyEncoding))
	if err != nil {
		t.Fatal(err)
	}
	k := route{Number: -7, Origin: "A\x00B", Carrier: [2]byte{1, 255}, Night: true, To: ""}
	k.Day.Year = 2026
	got, err := decodeKey(schema, encoding.Append(nil, &k))
	const want = `{"Number":-7,"Origin":"A\u0000B","Carrier":"01ff","Night":true,"Day":{"Year":2026},"To":""}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	checkNumbers[int8](t, math.MinInt8, "-128")
	checkNumbers[int16](t, 300, "300")
	checkNumbers[int](t, math.MinInt64, "-9223372036854775808")
	checkNumbers[uint64](t, math.MaxUint64, "18446744073709551615")
	checkNumbers[uint8](t, 200, "200")
	checkNumbers[uint32](t, 1<<31, "2147483648")
	checkNumbers(t, "plain\x00", `"plain\u0000"`)
}

func checkNumbers[K comparable](t *testing.T, k K, want string) {
	t.Helper()
	encoding, err := keygroup.NewEncoding[K]()
	if err != nil {
		t.Fatal(err)
	}
	schema, err := parseSchema(strings.TrimPrefix(encoding.Schema(), keyEncoding))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeKey(schema, encoding.Append(nil, &k)); err != nil || string(got) != want {
		t.Errorf("%s: got %s, %v, want %s", encoding.Schema(), got, err, want)
	}
}

func TestSchemasThatAreNoneAreRefused(t *testing.T) {
	for _, text := range []string{
		"", "int", "struct{", "struct{A}", "struct{A:int8", "struct{A:int8;B:int8}", "map[string", "map[[0]int8]int8", "[x]int8", "[-1]int8", "[]struct{}",
		"marshaler", "marshaler(a", "int8 ", "time}", "[2147483647][2147483647][2147483647]int64", strings.Repeat("*", 100) + "int8",
	} {
		if parsed, err := parseSchema(text); err == nil {
			t.Errorf("%q is parsed as %+v", text, parsed)
		}
	}
}

func TestBytesThatDoNotFitAreRefused(t *testing.T) {
	for schema, src := range map[string]string{
		"int64": "1234567", "bool": "\x02", "string": "\x05abc", "[]int64": "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "*int8": "\x02a",
		"struct{A:int8,B:string}": "\x01", "map[string]int8": "\x03\x01a", "int8": "\x01\x02", "[1000000000]int64": "12345678", "time": strings.Repeat("\xff", 16),
	} {
		parsed, err := parseSchema(schema)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeValue(parsed, []byte(src)); !errors.Is(err, errMalformed) {
			t.Errorf("%s of %q: got %s, %v", schema, src, got, err)
		}
	}
}

// FuzzDecode looks for panics and for output that is no JSON.
func FuzzDecode(f *testing.F) {
	f.Add("struct{A:int8,B:string,C:[]uint16}", []byte("\x01\x01a\x02bc"))
	f.Add("map[string]*[3]struct{A:bool}", []byte("\x02\x01a\x01\x00\x01\x00"))
	f.Add("[9]marshaler(a(b)c)", []byte("\x00\x00"))
	f.Fuzz(func(t *testing.T, schema string, src []byte) {
		parsed, err := parseSchema(schema)
		if err != nil {
			return
		}
		for _, decode := range []func(*schemaType, []byte) ([]byte, error){decodeValue, decodeKey} {
			if out, err := decode(parsed, src); err == nil && !json.Valid(out) {
				t.Fatalf("%q of %q: %s", schema, src, out)
			}
		}
	})
}

func TestAvroValuesAreDecodedByTheirSchema(t *testing.T) {
	c, err := avro.For[record]()
	if err != nil {
		t.Fatal(err)
	}
	form := formOf(c.Name(), c.Schema())
	rapid.Check(t, func(rt *rapid.T) {
		r := randomRecord(rt)
		got, rest, err := form(nil, c.Append(nil, &r))
		if err != nil || len(rest) > 0 {
			rt.Fatalf("%d bytes left, %v", len(rest), err)
		}
		want, err := json.Marshal(r)
		if err != nil {
			rt.Fatal(err)
		}
		if !sameJSON(t, got, want) {
			rt.Fatalf("got  %s\nwant %s", got, want)
		}
	})
}

// Every kind of state is shown, also with times, and under earlier schemas.
func TestEntriesOfEveryKindAreShown(t *testing.T) {
	c, err := avro.For[map[uint64]inner]()
	if err != nil {
		t.Fatal(err)
	}
	v := map[uint64]inner{1 << 63: {A: -1, B: "b"}}
	content := c.Append(nil, &v)
	const shown = `[[9223372036854775808,{"A":-1,"B":"b","C":null}]]`
	ten := binary.LittleEndian.AppendUint64(nil, 10)
	keys, err := keygroup.NewEncoding[statebackend.MapKey[string, int32]]()
	if err != nil {
		t.Fatal(err)
	}
	both := statebackend.MapKey[string, int32]{Key: "k", User: -7}
	header := func(id uint64, flags byte, parts ...[]byte) []byte {
		return append(statebackend.AppendValueHeader(nil, id, flags), bytes.Join(parts, nil)...)
	}
	for name, test := range map[string]struct {
		meta       snapshot.StateMeta
		key, value []byte
		want       string
	}{
		"value":       {snapshot.StateMeta{Kind: "value", KeySchema: "key/1:string"}, []byte("k"), header(0, 0, content), `"key":"k","value":` + shown},
		"aggregating": {snapshot.StateMeta{Kind: "aggregating", KeySchema: "key/1:string"}, []byte("k"), header(0, statebackend.TimeFlag, ten, content), `"key":"k","written_ms":10,"value":` + shown},
		"list":        {snapshot.StateMeta{Kind: "list", KeySchema: "key/1:string"}, []byte("k"), header(0, 0, []byte{2}, content, content), `"key":"k","value":[` + shown + `,` + shown + `]`},
		"aged list": {snapshot.StateMeta{Kind: "list", KeySchema: "key/1:string"}, []byte("k"), header(0, statebackend.AgeFlag, []byte{1}, ten, content),
			`"key":"k","value":[{"age_ms":10,"value":` + shown + `}]`},
		"map": {snapshot.StateMeta{Kind: "map", KeySchema: keys.Schema()}, keys.Append(nil, &both), header(0, statebackend.AgeFlag, ten, content),
			`"key":"k","user_key":-7,"age_ms":10,"value":` + shown},
		"earlier": {snapshot.StateMeta{Kind: "value", KeySchema: "key/1:string", SchemaID: 4, Earlier: []snapshot.StoredSchema{{ID: 2, Codec: "weir/1", Schema: "int16"}}},
			[]byte("k"), header(2, 0, []byte{1, 2}), `"key":"k","value":513`},
		"damaged": {snapshot.StateMeta{Kind: "value", KeySchema: "key/1:string"}, []byte("k"), []byte{0, 0, 9}, `"key":"k","value_hex":"000009"`},
	} {
		test.meta.Codec, test.meta.Schema = c.Name(), c.Schema()
		got, err := json.Marshal(newEntryForm(test.meta).line(test.key, test.value))
		if want := `{"subtask":0,"key_group":0,` + test.want + `}`; err != nil || string(got) != want {
			t.Errorf("%s is shown as\n%s, want\n%s (%v)", name, got, want, err)
		}
	}
}

func FuzzAvroValue(f *testing.F) {
	c, err := avro.For[record]()
	if err != nil {
		f.Fatal(err)
	}
	r := record{Name: "n", Inners: []inner{{B: "b"}}, Deep: map[string][]string{"d": {"e"}}}
	f.Add(c.Schema(), c.Append(nil, &r))
	f.Add(`["null",{"type":"array","items":"int"}]`, []byte{2, 2, 4, 0})
	f.Fuzz(func(t *testing.T, schema string, src []byte) {
		form := formOf(avro.Name, schema)
		if form == nil {
			return
		}
		if out, _, err := form(nil, src); err == nil && !json.Valid(out) {
			t.Errorf("%x as %s is %s", src, schema, out)
		}
	})
}
