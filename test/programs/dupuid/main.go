// Command dupuid is a job with two operators of the same UID: it builds no graph.
package main

import (
	"github.com/weirstream/weir/pkg/connector/blackhole"
	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/stream"
)

func main() {
	stream.Main("dupuid", func(env *stream.Env) error {
		numbers := stream.From(env, "numbers", datagen.Sequence(10))
		stream.To(numbers, "numbers", blackhole.Sink[uint64]())
		return nil
	})
}
