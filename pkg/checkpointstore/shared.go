package checkpointstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/snapshot"
)

// sharedDir has the files of a job that several checkpoints may refer to.
const sharedDir = "shared"

// SharedFile names a file that several checkpoints may refer to. A name is
// used for one upload only and says nothing about the content: two uploads of
// equal bytes are two files, so that deleting one never takes away the other.
type SharedFile struct {
	Attempt ids.AttemptID
	// Checkpoint is the one that the file is uploaded for.
	Checkpoint ids.CheckpointID
	Subtask    ids.SubtaskID
	// Seq counts the files of one subtask for one checkpoint.
	Seq uint32
}

// name is the file's name relative to the job's base:
// "shared/3.1/17-2.0.5" is file 5 of subtask 0 of vertex 2 for checkpoint 17.
func (f SharedFile) name() string {
	return path.Join(sharedDir, f.Attempt.String(), fmt.Sprintf("%d-%d.%d.%d", f.Checkpoint, f.Subtask.Vertex, f.Subtask.Index, f.Seq))
}

// parseShared reads what SharedFile.name wrote, and nothing else.
func parseShared(name string) (SharedFile, bool) {
	rest, ok := strings.CutPrefix(name, sharedDir+"/")
	if !ok {
		return SharedFile{}, false
	}
	attempt, rest, ok := strings.Cut(rest, "/")
	if !ok {
		return SharedFile{}, false
	}
	digits, rest, ok := strings.Cut(rest, "-")
	if !ok {
		return SharedFile{}, false
	}
	id, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return SharedFile{}, false
	}
	// What follows is as in the name of a file that is private to a checkpoint.
	private, ok := parseStateFile(attempt + "-" + rest)
	if !ok {
		return SharedFile{}, false
	}
	f := SharedFile{Attempt: private.Attempt, Checkpoint: ids.CheckpointID(id), Subtask: private.Subtask, Seq: private.Seq}
	return f, f.name() == name
}

// WriteShared stores what write produces as a file that later checkpoints of
// the job at base may refer to. It is never inline. Otherwise as WriteState.
func (s *Store) WriteShared(ctx context.Context, base string, file SharedFile, write func(io.Writer) error) (snapshot.StateHandle, error) {
	store, err := s.open(base)
	if err != nil {
		return snapshot.StateHandle{}, err
	}
	name := file.name()
	var sink stateWriter
	err = store.Put(ctx, name, func(w io.Writer) error {
		sink = stateWriter{dst: w, spilled: true}
		return write(&sink)
	})
	if err == nil {
		return snapshot.StateHandle{Name: name, Size: sink.size, CRC32C: sink.crc, SharedSince: file.Checkpoint}, nil
	}
	err = fmt.Errorf("write shared state: %w", err)
	if errors.Is(err, objectstore.ErrUnknownOutcome) {
		if deleteErr := store.Delete(ctx, name); deleteErr != nil {
			err = fmt.Errorf("%w (and removing it: %w)", err, deleteErr)
		}
	}
	return snapshot.StateHandle{}, err
}
