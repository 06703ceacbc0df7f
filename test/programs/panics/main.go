// Command panics is a job whose user code panics when it sees a record.
package main

import (
	"flag"
	"fmt"

	"github.com/weirstream/weir/pkg/connector/blackhole"
	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/stream"
)

var (
	records = flag.Uint64("records", 1000, "generate `N` records")
	rate    = flag.Int("rate", 0, "generate `N` records per second, 0 for no limit")
	at      = flag.Uint64("at", 100, "panic at record `N`")
)

func main() {
	stream.Main("panics", func(env *stream.Env) error {
		numbers := stream.From(env, "numbers", datagen.Sequence(*records, datagen.WithRate(*rate)))
		checked := stream.Map(numbers, func(n uint64) (uint64, error) {
			if n == *at {
				panic(fmt.Sprintf("user code panics at record %d", n))
			}
			return n, nil
		})
		stream.To(checked, "out", blackhole.Sink[uint64]())
		return nil
	})
}
