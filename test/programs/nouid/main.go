// Command nouid is a job whose sink has no UID: it builds no graph.
package main

import (
	"github.com/weirstream/weir/pkg/connector/blackhole"
	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/stream"
)

func main() {
	stream.Main("nouid", func(env *stream.Env) error {
		numbers := stream.From(env, "numbers", datagen.Sequence(10))
		stream.To(numbers, "", blackhole.Sink[uint64]())
		return nil
	})
}
