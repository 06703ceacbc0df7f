package executor

import (
	"io"

	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
	"github.com/weirstream/weir/pkg/statebackend/pebble"
)

// newBackend makes the state backend of an executor: its subtasks share its memory.
func newBackend(c *config.Config) statebackend.Backend {
	if config.StateBackend.Get(c) == config.PebbleBackend {
		return pebble.New(pebble.Options{
			MemoryBytes: int64(config.PebbleMemory.Get(c)), ValueBytesMax: int(config.StateValueMax.Get(c)),
		})
	}
	// The configuration has refused every other name.
	return memory.New()
}

// closeBackend gives back what the backend holds for all subtasks, when they
// have ended.
func closeBackend(b statebackend.Backend) error {
	if c, ok := b.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
