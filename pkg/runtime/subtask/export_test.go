package subtask

import (
	"context"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/snapshot"
)

// ReadRestored reads a file as a subtask that is restored does.
func ReadRestored(ctx context.Context, store *checkpointstore.Store, base string, id ids.CheckpointID, h snapshot.StateHandle) ([]byte, error) {
	s := &Subtask{cfg: Config{Store: store, RestoreBase: base, RestoredCheckpoint: id}}
	return (&restoration{Subtask: s}).readHandle(ctx, h)
}
