// Command slowcancel is a job whose user code does not return when the job is
// cancelled: nothing but the end of its process stops it.
package main

import (
	"flag"
	"time"

	"github.com/weirstream/weir/pkg/connector/blackhole"
	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/stream"
)

var (
	at    = flag.Uint64("at", 10, "stay inside the function at record `N`")
	sleep = flag.Duration("for", time.Hour, "stay for this long")
)

func main() {
	stream.Main("slowcancel", func(env *stream.Env) error {
		numbers := stream.From(env, "numbers", datagen.Sequence(datagen.Unbounded, datagen.WithRate(1000)))
		slow := stream.Map(numbers, func(n uint64) (uint64, error) {
			if n == *at {
				<-time.After(*sleep) // not even a context is looked at
			}
			return n, nil
		})
		stream.To(slow, "out", blackhole.Sink[uint64]())
		return nil
	})
}
