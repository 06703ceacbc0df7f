package avrobench

import (
	"testing"

	hamba "github.com/hamba/avro/v2"
	twmb "github.com/twmb/avro"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/codec/avro"
)

// delays is the state of examples/flights.
type delays struct {
	Origin   string
	Flights  int64
	DelaySum int64
	Late     int64
}

// numbers is a struct of numbers.
type numbers struct {
	Count, Sum, Max, Min int64
	Mean, Deviation      float64
	Kind                 int32
}

// history has one of each kind of variable size.
type history struct {
	Origin, Carrier string
	Delays          []int64
	Gates           []string
	ByGate          map[string]int64
}

var (
	aDelays  = delays{Origin: "ABQ", Flights: 12345, DelaySum: -678901, Late: 321}
	aNumbers = numbers{Count: 12345, Sum: 1 << 40, Max: 700, Min: -20, Mean: 12.5, Deviation: 0.1, Kind: 3}
	aHistory = history{
		Origin: "ABQ", Carrier: "United", Delays: []int64{1, 2, 3, 500, -70000}, Gates: []string{"A1", "B22"},
		ByGate: map[string]int64{"A1": 1, "B22": 22, "C3": 333},
	}
)

// measure runs encode and decode of one library on one value.
func measure(b *testing.B, encode func(dst []byte) ([]byte, error), decode func(src []byte) error) {
	stored, err := encode(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if stored, err = encode(stored[:0]); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(stored)), "bytes")
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := decode(stored); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func compare[T any](b *testing.B, v T) {
	var got T
	library := twmb.MustSchemaFor[T]()
	b.Run("twmb", func(b *testing.B) {
		measure(b, func(dst []byte) ([]byte, error) { return library.AppendEncode(dst, &v) }, func(src []byte) error {
			_, err := library.Decode(src, &got)
			return err
		})
	})
	parsed := hamba.MustParse(library.String())
	b.Run("hamba", func(b *testing.B) {
		w := hamba.NewWriter(nil, 512)
		measure(b, func([]byte) ([]byte, error) {
			w.Reset(nil)
			w.WriteVal(parsed, v)
			return w.Buffer(), w.Error
		}, func(src []byte) error { return hamba.Unmarshal(parsed, src, &got) })
	})
	for name, derive := range map[string]func() (codec.Codec[T], error){"weir1": codec.For[T], "avro1": avro.For[T]} {
		c, err := derive()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			measure(b, func(dst []byte) ([]byte, error) { return c.Append(dst, &v), nil }, func(src []byte) error {
				_, err := c.Decode(src, &got)
				return err
			})
		})
	}
}

type count struct{ N int64 } // the libraries take no number alone

func BenchmarkCount(b *testing.B)   { compare(b, count{12345}) }
func BenchmarkDelays(b *testing.B)  { compare(b, aDelays) }
func BenchmarkNumbers(b *testing.B) { compare(b, aNumbers) }
func BenchmarkHistory(b *testing.B) { compare(b, aHistory) }
