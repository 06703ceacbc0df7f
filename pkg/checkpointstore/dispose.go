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
// files that belong to it are deleted: all other files in its directory stay,
// and names that lead elsewhere are not followed.
//
// A checkpoint is ErrNoSavepoint, since its job deletes it, unless leftBehind says
// that the job has ended and left it behind. Then the shared files go too that
// no other checkpoint beside it refers to, see DiscardRetained.
//
// The error is objectstore.ErrNotExist if there is no _metadata, and ErrCorrupt
// if it is broken: nothing is deleted then. After any later error it cannot
// be relied on to be restored any more, but files of it may be left.
func (s *Store) DisposeSavepoint(ctx context.Context, uri string, leftBehind bool) (*snapshot.CompletedCheckpoint, error) {
	checkpoint, base, err := s.LoadMetadata(ctx, uri)
	if err != nil {
		return nil, fmt.Errorf("dispose of savepoint: %w", err)
	}
	left := 0
	switch checkpoint.Kind {
	case snapshot.Savepoint, snapshot.StopSavepoint:
		err = s.DiscardCheckpoint(ctx, SavepointAt(base))
	case snapshot.Checkpoint, snapshot.FinalCheckpoint:
		if !leftBehind {
			return nil, fmt.Errorf("dispose of savepoint: %s holds %s %d of job %s: %w", uri, checkpoint.Kind, checkpoint.ID, checkpoint.Job, ErrNoSavepoint)
		}
		left, err = s.DiscardRetained(ctx, uri, Expected{Job: checkpoint.Job, ID: checkpoint.ID})
	}
	if err != nil {
		return nil, fmt.Errorf("dispose of savepoint: files may be left in %s: %w", base, err)
	}
	if left > 0 {
		return nil, fmt.Errorf("dispose of savepoint: %d shared files are left in %s: a checkpoint beside it is broken, and may refer to them: %w", left, base, ErrCorrupt)
	}
	return checkpoint, nil
}
