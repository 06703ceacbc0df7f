package stream_test

import (
	"testing"

	"github.com/weirstream/weir/pkg/connector/blackhole"
	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

// counted counts the records of a key.
type counted struct{ n state.Value[uint64] }

func (c *counted) Open(ctx *stream.Context[uint64]) (err error) {
	c.n, err = state.NewValue[uint64](ctx, "n")
	return err
}

func (c *counted) Process(_ *stream.Context[uint64], _ uint64, out stream.Collector[uint64]) error {
	n, _, err := c.n.Ref()
	if err != nil {
		return err
	}
	*n++
	return out.Collect(*n)
}

// BenchmarkKeyedCount is the SDK's part of the job that keyed_count_vs_map
// measures: from the source to the encoded frame, and from the frame to the sink.
func BenchmarkKeyedCount(b *testing.B) {
	const keys = 1 << 20
	d, err := newDriver(b, func(env *stream.Env) {
		s := stream.From(env, "numbers", datagen.Sequence(uint64(b.N), datagen.WithSplits(1)))
		keyed := stream.KeyBy(s, func(v uint64) uint64 { return v * 0x9e3779b97f4a7c15 >> 44 & (keys - 1) })
		stream.To(stream.Process(keyed, "counts", func() *counted { return &counted{} }), "out", blackhole.Sink[uint64]())
	}, 1, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	if err := d.run(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkChain is the cost of one more operator in a chain.
func BenchmarkChain(b *testing.B) {
	d, err := newDriver(b, func(env *stream.Env) {
		s := stream.From(env, "numbers", datagen.Sequence(uint64(b.N), datagen.WithSplits(1)))
		for range 8 {
			s = stream.Map(s, func(v uint64) (uint64, error) { return v + 1, nil })
		}
		stream.To(s, "out", blackhole.Sink[uint64]())
	}, 1, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	if err := d.run(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/8, "ns/operator")
}
