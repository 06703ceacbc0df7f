package executor

import (
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/memory"
)

// newBackend makes the state backend of one subtask.
func newBackend(c *config.Config) statebackend.Backend {
	switch config.StateBackend.Get(c) {
	case config.MemoryBackend:
		return memory.New()
	}
	// The configuration has refused every other name.
	return memory.New()
}
