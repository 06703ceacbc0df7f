package checkpointstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirstream/weir/pkg/snapshot"
)

// ErrNoSavepoint says that what was to be disposed of is no savepoint.
var ErrNoSavepoint = errors.New("not a savepoint")

// DisposeSavepoint deletes the savepoint that a user names by the path or URI
// of its directory, or of the _metadata in it, and returns what it was. Only
// files that a savepoint writes into its own directory are deleted: all other
// files in it stay, and names that lead elsewhere are not followed.
//
// The error is objectstore.ErrNotExist if there is no _metadata, and
// ErrNoSavepoint for a checkpoint, which its job deletes. Nothing is deleted
// then. After any later error the savepoint cannot be restored any more, but
// files of it may be left.
func (s *Store) DisposeSavepoint(ctx context.Context, uri string) (*snapshot.CompletedCheckpoint, error) {
	checkpoint, base, err := s.LoadMetadata(ctx, uri)
	if err != nil {
		return nil, fmt.Errorf("dispose of savepoint: %w", err)
	}
	switch checkpoint.Kind {
	case snapshot.Savepoint, snapshot.StopSavepoint:
	case snapshot.Checkpoint, snapshot.FinalCheckpoint:
		return nil, fmt.Errorf("dispose of savepoint: %s holds %s %d of job %s: %w", uri, checkpoint.Kind, checkpoint.ID, checkpoint.Job, ErrNoSavepoint)
	}
	if err := s.DiscardCheckpoint(ctx, SavepointAt(base)); err != nil {
		return nil, fmt.Errorf("dispose of savepoint: files may be left in %s: %w", base, err)
	}
	return checkpoint, nil
}
