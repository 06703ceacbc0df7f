// Command keyedcount counts generated records by key, and writes every count
// exactly once: the output has each key with count = 1, 2, 3, … once each.
package main

import (
	"flag"

	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/stream"
)

var (
	records     = flag.Uint64("records", 10000, "generate `N` records")
	keys        = flag.Uint64("keys", 100, "spread them evenly over `N` keys")
	rate        = flag.Int("rate", 0, "generate `N` records per second, 0 for no limit")
	parallelism = flag.Int("count-parallelism", 0, "count in `N` subtasks, 0 for the job's default")
	countsUID   = flag.String("counts-uid", "counts", "give the operator that counts the `UID`")
	output      = flag.String("output", "keyedcount-output", "write counts to files in `DIR`")
)

// Count is how many records of a key there were so far.
type Count struct {
	Key   uint64 `json:"key"`
	Count uint64 `json:"count"`
}

func main() {
	stream.Main("keyedcount", func(env *stream.Env) error {
		var options []stream.Option
		if *parallelism > 0 {
			options = append(options, stream.WithParallelism(*parallelism))
		}
		ones := stream.From(env, "numbers", datagen.Generate(*records, func(i uint64) Count {
			return Count{Key: i % max(*keys, 1), Count: 1}
		}, datagen.WithRate(*rate)))
		byKey := stream.KeyBy(ones, func(c Count) uint64 { return c.Key })
		counts := stream.Reduce(byKey, *countsUID, func(sofar, c Count) (Count, error) {
			sofar.Count += c.Count
			return sofar, nil
		}, options...)
		stream.To(counts, "out", file.ExactlyOnce[Count](*output), options...)
		return nil
	})
}
