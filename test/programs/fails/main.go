// Command fails is a job whose user code returns an error at a record.
package main

import (
	"flag"
	"fmt"

	"github.com/weirstream/weir/pkg/connector/blackhole"
	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/stream"
)

var (
	records   = flag.Uint64("records", 1000, "generate `N` records")
	rate      = flag.Int("rate", 0, "generate `N` records per second, 0 for no limit")
	at        = flag.Uint64("at", 100, "fail at record `N`")
	keys      = flag.Uint64("keys", 0, "count the records of `N` keys, 0 to keep no keyed state")
	permanent = flag.Bool("permanent", false, "say that no restart can cure the error")
)

func main() {
	stream.Main("fails", func(env *stream.Env) error {
		numbers := stream.From(env, "numbers", datagen.Sequence(*records, datagen.WithRate(*rate)))
		checked := stream.Map(numbers, func(n uint64) (uint64, error) {
			if n != *at {
				return n, nil
			}
			err := fmt.Errorf("user code fails at record %d", n)
			if *permanent {
				err = operator.Permanent(err)
			}
			return 0, err
		})
		if *keys > 0 {
			byKey := stream.KeyBy(checked, func(n uint64) uint64 { return n % *keys })
			checked = stream.Reduce(byKey, "last", func(_, n uint64) (uint64, error) { return n, nil })
		}
		stream.To(checked, "out", blackhole.Sink[uint64]())
		return nil
	})
}
