package main

import (
	"time"

	"github.com/weirstream/weir/pkg/connector/blackhole"
	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

// key spreads the numbers uniformly over the keys (SplitMix64's finalizer),
// the same for the job and for its baseline.
func key(i uint64) uint64 {
	i += 0x9e3779b97f4a7c15
	i = (i ^ i>>30) * 0xbf58476d1ce4e5b9
	i = (i ^ i>>27) * 0x94d049bb133111eb
	return (i ^ i>>31) % *keys
}

// keyedCount is source -> keyBy -> count, with a hash exchange between.
func keyedCount(env *stream.Env) error {
	numbers := stream.From(env, "numbers", datagen.Generate(*records, key, datagen.WithSplits(1)))
	byKey := stream.KeyBy(numbers, func(k uint64) uint64 { return k })
	counts := stream.Process(byKey, "counts", func() *counter { return &counter{meter: meter{warmUp: *records / 5}} })
	stream.To(counts, "out", blackhole.Sink[uint64]())
	return nil
}

type counter struct {
	meter meter
	n     state.Value[uint64]
}

// Open implements stream.ProcessFunction.
func (c *counter) Open(ctx *stream.Context[uint64]) (err error) {
	c.n, err = state.NewValue[uint64](ctx, "n")
	return err
}

// Process implements stream.ProcessFunction.
func (c *counter) Process(_ *stream.Context[uint64], _ uint64, out stream.Collector[uint64]) error {
	n, _, err := c.n.Ref()
	if err != nil {
		return err
	}
	*n++
	c.meter.record()
	return out.Collect(*n)
}

// Finish implements stream.Finisher.
func (c *counter) Finish(stream.Collector[uint64]) error { return c.meter.report(8) }

// countInMap is the baseline: the same keys into a bare Go map.
func countInMap() error {
	m := make(map[uint64]uint64, *keys)
	for i := range *records / 5 {
		m[key(i)]++
	}
	started := time.Now()
	n := *records - *records/5
	for i := range n {
		m[key(i+*records/5)]++
	}
	return report("records_per_second=%.0f", float64(n)/time.Since(started).Seconds())
}
