package executor

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/runtime/subtask"
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
	return memory.NewLimited(int(config.StateValueMax.Get(c)))
}

// governGarbage has the process keep to the memory of its state backend, until
// the returned function is called.
func governGarbage(c *config.Config) (stop func()) {
	if config.StateBackend.Get(c) == config.PebbleBackend {
		return pebble.GovernGarbage(int64(config.PebbleMemory.Get(c)))
	}
	return func() {}
}

// fileReaders read what other state backends than the executor's have stored in files.
func fileReaders() map[string]subtask.FileReader {
	return map[string]subtask.FileReader{
		pebble.Name: func(ctx context.Context, part statebackend.RestoredPart, groups keygroup.Range, _ int) (statebackend.RestoredPart, error) {
			if len(part.Files) == 0 {
				return statebackend.RestoredPart{}, fmt.Errorf("%w: key groups %s are in no files", statebackend.ErrCorrupt, part.Range)
			}
			// Beside the directory that the files were brought to, on the same
			// file system; both are the subtask's.
			return pebble.ReadForRestore(ctx, filepath.Dir(part.Files[0].Path)+"-read", part, groups)
		},
	}
}

// closeBackend gives back what the backend holds for all subtasks, when they
// have ended.
func closeBackend(b statebackend.Backend) error {
	if c, ok := b.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
