// Command pressed is a job under back-pressure: it counts numbers by key in an
// operator that takes its time, so that its channels are full, and writes a
// line for each. It has two sources, of which one may end long before the
// other, and for each key a timer that only the end of event time fires.
//
// The numbers are 0, 1, 2, … to -records from the one source, and on from there
// to -early more from the other. The lines of the output, by their kind:
//
//   - record: one for each number, with how many of its key there were so far
//   - timer: one for each key when event time has come to its end, with how many there were
package main

import (
	"flag"
	"time"

	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

var (
	records = flag.Uint64("records", 10000, "generate `N` numbers")
	early   = flag.Uint64("early", 0, "generate `N` more in a source of their own")
	keys    = flag.Uint64("keys", 50, "spread them evenly over `N` keys")
	rate    = flag.Int("rate", 0, "generate `N` numbers per second, 0 for no limit; the other source has none")
	delay   = flag.Duration("delay", 0, "take so long for every tenth number")
	fill    = flag.Int("fill", 0, "make every number `N` bytes larger")
	output  = flag.String("output", "pressed-output", "write lines to files in `DIR`")
)

// Number is a record.
type Number struct {
	N    uint64
	Fill string
}

// Line is a line of the output.
type Line struct {
	Kind  string `json:"kind"`
	N     uint64 `json:"n"`
	Key   uint64 `json:"key"`
	Count uint64 `json:"count"`
}

// endOfTime is later than every number: only the end of event time comes to it.
const endOfTime = 1 << 60

func main() {
	stream.Main("pressed", func(env *stream.Env) error {
		text := string(make([]byte, *fill))
		source := func(uid string, first, n uint64, options []datagen.Option, more ...stream.Option) stream.Stream[Number] {
			numbers := stream.From(env, uid, datagen.Generate(n, func(i uint64) Number { return Number{N: first + i, Fill: text} }, options...), more...)
			return stream.AssignTimestamps(numbers, uid+"-time", func(v Number) int64 { return int64(v.N) }, more...)
		}
		all := source("numbers", 0, *records, []datagen.Option{datagen.WithRate(*rate), datagen.WithSplits(4)})
		if *early > 0 {
			all = stream.Union(all, source("early", *records, *early, []datagen.Option{datagen.WithSplits(1)}, stream.WithParallelism(1)))
		}
		byKey := stream.KeyBy(all, func(v Number) uint64 { return v.N % max(*keys, 1) })
		stream.To(stream.Process(byKey, "counts", newCounts), "out", file.ExactlyOnce[Line](*output))
		return nil
	})
}

type counts struct {
	count state.Value[uint64]
	seen  uint64 // by this run of the subtask
}

func newCounts() *counts { return &counts{} }

// Open registers the state.
func (c *counts) Open(ctx *stream.Context[uint64]) (err error) {
	c.count, err = state.NewValue[uint64](ctx, "count")
	return err
}

// Process counts a number, and takes its time.
func (c *counts) Process(ctx *stream.Context[uint64], v Number, out stream.Collector[Line]) error {
	if c.seen++; *delay > 0 && c.seen%10 == 0 {
		<-time.After(*delay)
	}
	n, found, err := c.count.Get()
	if err != nil {
		return err
	}
	if !found {
		if err := ctx.Timers().RegisterEventTime(endOfTime); err != nil {
			return err
		}
	}
	if err := c.count.Set(n + 1); err != nil {
		return err
	}
	return out.Collect(Line{Kind: "record", N: v.N, Key: ctx.Key(), Count: n + 1})
}

// OnTimer says that event time has come to its end.
func (c *counts) OnTimer(ctx *stream.Context[uint64], _ stream.Timer, out stream.Collector[Line]) error {
	n, _, err := c.count.Get()
	if err != nil {
		return err
	}
	return out.Collect(Line{Kind: "timer", Key: ctx.Key(), Count: n})
}
