// Command twoinput connects two keyed streams of different parallelism on
// shared state. Both streams have each key once for every round; after each
// record it writes how often the key has come on either side, so that the
// output has each key with total = 1, 2, 3, … 2 × rounds once each.
package main

import (
	"flag"

	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

var (
	keys   = flag.Uint64("keys", 100, "use `N` keys")
	rounds = flag.Uint64("rounds", 100, "give each key `N` times on each side")
	rate   = flag.Int("rate", 0, "generate `N` records per second on each side, 0 for no limit")
	left   = flag.Int("left-parallelism", 1, "generate the first side in `N` subtasks")
	right  = flag.Int("right-parallelism", 3, "generate the second side in `N` subtasks")
	output = flag.String("output", "twoinput-output", "write totals to files in `DIR`")
)

// Total is how often a key has come so far, on each side and in all.
type Total struct {
	Key   uint64 `json:"key"`
	Left  uint64 `json:"left"`
	Right uint64 `json:"right"`
	Total uint64 `json:"total"`
}

func main() {
	stream.Main("twoinput", func(env *stream.Env) error {
		key := func(i uint64) uint64 { return i % max(*keys, 1) }
		side := func(uid string, parallelism int) stream.KeyedStream[uint64, uint64] {
			numbers := stream.From(env, uid, datagen.Sequence(*keys**rounds, datagen.WithRate(*rate)), stream.WithParallelism(parallelism))
			return stream.KeyBy(numbers, key)
		}
		totals := stream.Connect(side("left", *left), side("right", *right), "totals", newTotals)
		stream.To(totals, "out", file.ExactlyOnce[Total](*output))
		return nil
	})
}

type totals struct{ sofar state.Value[Total] }

func newTotals() *totals { return &totals{} }

// Open registers the state.
func (t *totals) Open(ctx *stream.Context[uint64]) (err error) {
	t.sofar, err = state.NewValue[Total](ctx, "sofar")
	return err
}

// Process1 counts a record of the left side.
func (t *totals) Process1(ctx *stream.Context[uint64], _ uint64, out stream.Collector[Total]) error {
	return t.add(ctx.Key(), Total{Left: 1}, out)
}

// Process2 counts a record of the right side.
func (t *totals) Process2(ctx *stream.Context[uint64], _ uint64, out stream.Collector[Total]) error {
	return t.add(ctx.Key(), Total{Right: 1}, out)
}

func (t *totals) add(key uint64, one Total, out stream.Collector[Total]) error {
	sofar, _, err := t.sofar.Ref()
	if err != nil {
		return err
	}
	sofar.Key = key
	sofar.Left += one.Left
	sofar.Right += one.Right
	sofar.Total++
	return out.Collect(*sofar)
}
