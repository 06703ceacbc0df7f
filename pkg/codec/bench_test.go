package codec_test

import (
	"encoding/binary"
	"testing"

	"github.com/weirstream/weir/pkg/codec"
)

// hundred is a record of 100 bytes without padding.
type hundred struct {
	A, B, C, D, E, F, G, H int32
	I                      [17]int32
}

type flight struct {
	Origin, Destination, Carrier string
	Delay, Distance              int64
	At                           int64
}

func encodeLoop[T any](b *testing.B, v T) {
	c := mustFor[T](b)
	buf := c.Append(nil, &v)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		buf = c.Append(buf[:0], &v)
	}
}

func decodeLoop[T any](b *testing.B, v T) {
	c := mustFor[T](b)
	buf := c.Append(nil, &v)
	var got T
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Decode(buf, &got); err != nil {
			b.Fatal(err)
		}
	}
}

var flightValue = flight{Origin: "ABQ", Destination: "SFO", Carrier: "United", Delay: 14, Distance: 896, At: 1e12}

func BenchmarkEncodeUint64(b *testing.B)     { encodeLoop(b, uint64(1<<40)) }
func BenchmarkDecodeUint64(b *testing.B)     { decodeLoop(b, uint64(1<<40)) }
func BenchmarkEncodeFlat100(b *testing.B)    { encodeLoop(b, hundred{A: 1}) }
func BenchmarkDecodeFlat100(b *testing.B)    { decodeLoop(b, hundred{A: 1}) }
func BenchmarkEncode3Strings(b *testing.B)   { encodeLoop(b, flightValue) }
func BenchmarkDecode3Strings(b *testing.B)   { decodeLoop(b, flightValue) }
func BenchmarkEncodeStringOnly(b *testing.B) { encodeLoop(b, "a string of some length") }
func BenchmarkDecodeStringOnly(b *testing.B) { decodeLoop(b, "a string of some length") }

// BenchmarkVarint is the rejected layout: the 25 numbers of hundred as varints.
func BenchmarkVarint(b *testing.B) {
	v := hundred{A: 1, B: 500, C: 70000, D: 1 << 30}
	var buf []byte
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			buf = buf[:0]
			for _, n := range []int32{v.A, v.B, v.C, v.D, v.E, v.F, v.G, v.H} {
				buf = binary.AppendVarint(buf, int64(n))
			}
			for _, n := range v.I {
				buf = binary.AppendVarint(buf, int64(n))
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		var out [25]int32
		for b.Loop() {
			src := buf
			for i := range out {
				n, used := binary.Varint(src)
				out[i], src = int32(n), src[used:]
			}
		}
	})
}

func TestAllocationsPerRecord(t *testing.T) {
	check := func(name string, want float64, f func()) {
		t.Helper()
		if got := testing.AllocsPerRun(100, f); got != want {
			t.Errorf("%s: %v allocations, want %v", name, got, want)
		}
	}
	u, h, s := mustFor[uint64](t), mustFor[hundred](t), mustFor[flight](t)
	word, record, strings := uint64(1), hundred{}, flightValue
	buf := make([]byte, 0, 256)
	check("encode uint64", 0, func() { buf = u.Append(buf[:0], &word) })
	check("decode uint64", 0, func() { _, _ = u.Decode(buf, &word) })
	check("encode flat", 0, func() { buf = h.Append(buf[:0], &record) })
	check("decode flat", 0, func() { _, _ = h.Decode(buf, &record) })
	check("encode strings", 0, func() { buf = s.Append(buf[:0], &strings) })
	check("decode strings", 1, func() { _, _ = s.Decode(buf, &strings) })
	empty := flight{}
	buf = s.Append(buf[:0], &empty)
	check("decode empty strings", 0, func() { _, _ = s.Decode(buf, &strings) })
}

var _ codec.Codec[uint64] = mustCompile{}

// mustCompile shows that a codec can be written by hand.
type mustCompile struct{}

func (mustCompile) Name() string                            { return "by-hand/1" }
func (mustCompile) Schema() string                          { return "" }
func (mustCompile) Append(dst []byte, _ *uint64) []byte     { return dst }
func (mustCompile) Decode(_ []byte, _ *uint64) (int, error) { return 0, nil }
func (mustCompile) Clone(dst, src *uint64)                  { *dst = *src }
func (mustCompile) Flat() bool                              { return true }
