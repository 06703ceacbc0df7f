package checkpointstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
)

// IsBroken reports whether an error of a read says that the store has
// answered, and that the file is missing or is not what was written. Any other
// error leaves open what is stored (I9).
func IsBroken(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, objectstore.ErrNotExist)
}

// HasMetadata reports whether there is a _metadata of checkpoint id, or of a
// savepoint, below the base that its handles are relative to, whatever is in it.
func (s *Store) HasMetadata(ctx context.Context, base string, id ids.CheckpointID) (bool, error) {
	store, err := s.open(base)
	if err != nil {
		return false, err
	}
	for _, loc := range []Location{{Base: base, Dir: checkpointDir(id)}, SavepointAt(base)} {
		reader, err := store.Open(ctx, loc.name(metadataName))
		if errors.Is(err, objectstore.ErrNotExist) {
			continue
		}
		if err == nil {
			err = reader.Close()
		}
		if err != nil {
			return false, fmt.Errorf("look for metadata: %w", err)
		}
		return true, nil
	}
	return false, nil
}
