package subtask

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/objectstore"
)

// readTwice runs a read of a restored file again when it found the file
// missing or corrupt: the job may then go back to an older checkpoint and
// delete this one, so one bad read is not believed.
//
// A file that is missing where nothing of the checkpoint is to be seen is no
// answer about the file: this host does not reach what the JobManager has read.
func (s *Subtask) readTwice(ctx context.Context, read func() error) error {
	err := read()
	if !checkpointstore.IsBroken(err) {
		return err
	}
	if err = read(); !errors.Is(err, objectstore.ErrNotExist) {
		return err
	}
	visible, checkErr := s.cfg.Store.HasMetadata(ctx, s.cfg.RestoreBase, s.cfg.RestoredCheckpoint)
	switch {
	case checkErr != nil:
		return errors.Join(errHidden{err}, checkErr)
	case !visible:
		return fmt.Errorf("nothing of the checkpoint is to be seen from this host: is its directory the same one on all hosts, and mounted? %w", errHidden{err})
	}
	return err
}

// errHidden keeps the text of an error and nothing that callers branch on.
type errHidden struct{ err error }

func (e errHidden) Error() string { return e.err.Error() }

// kindOfReadError says what a failure to read restored state means for the
// job. The store has answered that a file is missing or broken: the checkpoint
// is corrupt. Otherwise the store does not answer, which no code of the user's
// can help: the job waits for it as long as it takes (I9).
func kindOfReadError(err error) coordinator.FailureKind {
	if checkpointstore.IsBroken(err) {
		return coordinator.CorruptCheckpoint
	}
	return coordinator.LostProcess
}
