package conformance_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirstream/weir/internal/racedetector"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/statebackend/backendtest"
	"github.com/weirstream/weir/pkg/statebackend/memory"
	"github.com/weirstream/weir/pkg/statebackend/pebble"
)

func TestConformanceOfMemory(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, func(*testing.T) statebackend.Backend { return memory.New() })
}

func TestConformanceOfPebble(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, func(*testing.T) statebackend.Backend { return pebble.New(pebble.Options{FS: vfs.NewMem()}) })
}

// With this little memory every few changes are a generation, and hardly
// anything stays in the chain. With the race detector Pebble looks through the
// whole database for every generation: there are fewer of them then, of
// which the cases with thousands of entries still have several.
func TestConformanceOfPebbleWithoutMemory(t *testing.T) {
	t.Parallel()
	size := int64(1)
	if racedetector.Enabled {
		size = 512 << 10
	}
	backendtest.Run(t, func(*testing.T) statebackend.Backend {
		return pebble.New(pebble.Options{FS: vfs.NewMem(), MemoryBytes: size})
	})
}
