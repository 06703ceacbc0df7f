package checkpointstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strconv"
	"strings"
	"time"

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

// references are the shared files that some checkpoints of a job refer to.
type references struct {
	store objectstore.Store // of the job's base
	// names is bounded by the metadata of the checkpoints, which are read one
	// after the other.
	names map[string]bool
	// unreadable is the newest of them whose metadata is broken or gone. It
	// refers to nothing that was uploaded for a later checkpoint; what it refers to
	// otherwise, nobody knows.
	unreadable ids.CheckpointID
}

func newReferences(store objectstore.Store) *references {
	return &references{store: store, names: make(map[string]bool)}
}

// read adds what a checkpoint refers to. After an error nothing is known.
func (r *references) read(ctx context.Context, id ids.CheckpointID) error {
	content, _, err := r.store.Read(ctx, path.Join(checkpointDir(id), metadataName), metadataSizeMax)
	switch {
	case errors.Is(err, objectstore.ErrNotExist):
		r.unreadable = max(r.unreadable, id)
		return nil
	case err != nil:
		return fmt.Errorf("read what checkpoint %d refers to: %w", id, err)
	}
	checkpoint, err := DecodeMetadata(content)
	if err != nil {
		r.unreadable = max(r.unreadable, id)
		return nil
	}
	checkpoint.EachHandle(func(h snapshot.StateHandle) {
		if h.IsShared() {
			r.names[h.Name] = true
		}
	})
	return nil
}

// ErrUnexpected says that another checkpoint is where one was to be deleted.
var ErrUnexpected = errors.New("another checkpoint than expected")

// Expected is what is known of a checkpoint apart from its path, which something
// else may have come to use. What is zero is not known.
type Expected struct {
	Job ids.JobID
	ID  ids.CheckpointID
	// CompletedBy: it was complete at that time.
	CompletedBy time.Time
}

func (e Expected) check(c *snapshot.CompletedCheckpoint) error {
	if e.Job != "" && c.Job != e.Job || e.ID != 0 && c.ID != e.ID || !e.CompletedBy.IsZero() && c.CompletedAt.After(e.CompletedBy) {
		return fmt.Errorf("it is checkpoint %d of job %s, completed %s: %w", c.ID, c.Job, c.CompletedAt.Format(time.RFC3339), ErrUnexpected)
	}
	return nil
}

// DiscardRetained deletes the checkpoint or savepoint that a user or a job
// named by its path or URI, when no coordinator counts the references to its
// shared files: one that a job has claimed, or that its job left behind. Its
// shared files go, but for those that another checkpoint beside it refers to or,
// being broken, may refer to; left counts the latter. The caller knows that its job
// does not run. If what is there is not what was expected, nothing is deleted
// (ErrUnexpected).
//
// The shared files go first, so that after an error the call may be repeated
// until all is gone. What metadata that is broken or gone refers to nobody knows:
// then the checkpoint's own directory goes. After a failed read nothing is
// deleted (I9). GotOn says of an error whether a repeated call leads anywhere.
func (s *Store) DiscardRetained(ctx context.Context, uri string, expected Expected) (left int, err error) {
	loc := LocationOf(uri)
	checkpoint, base, err := s.LoadMetadata(ctx, uri)
	switch {
	case errors.Is(err, objectstore.ErrNotExist), errors.Is(err, ErrCorrupt), errors.Is(err, ErrUnsupported):
		return 0, s.DiscardCheckpoint(ctx, loc)
	case err != nil:
		return 0, fmt.Errorf("discard checkpoint: %w", err)
	}
	if err := expected.check(checkpoint); err != nil {
		return 0, fmt.Errorf("discard checkpoint %s: %w", uri, err)
	}
	// Not all shared names of broken or forged metadata are ours to delete.
	own := make(map[string]snapshot.StateHandle)
	checkpoint.EachHandle(func(h snapshot.StateHandle) {
		if file, ok := parseShared(h.Name); ok && h.IsShared() && file.Checkpoint == h.SharedSince {
			own[h.Name] = h
		}
	})
	deleted := 0
	if len(own) > 0 {
		if deleted, left, err = s.discardShared(ctx, base, checkpoint.ID, own); err != nil {
			return left, fmt.Errorf("discard checkpoint: %w", gotOn(deleted, err))
		}
	}
	return left, gotOn(deleted, s.DiscardCheckpoint(ctx, loc))
}

// discardShared deletes shared files of one checkpoint that no other of the
// base refers to.
func (s *Store) discardShared(ctx context.Context, base string, id ids.CheckpointID, own map[string]snapshot.StateHandle) (deleted, left int, err error) {
	store, err := s.openToDelete(base)
	if err != nil {
		return 0, 0, err
	}
	refs := newReferences(store)
	for object, err := range store.List(ctx, checkpointDirPrefix) {
		if err != nil {
			return 0, 0, err
		}
		dir, file, _ := strings.Cut(object.Name, "/")
		beside, ok := parseCheckpointDir(dir)
		if !ok || file != metadataName || beside == id {
			continue
		}
		if err := refs.read(ctx, beside); err != nil {
			return 0, 0, err
		}
	}
	// Those that are listed: when this is repeated, those that are gone take no time.
	deleted, _, err = s.deleteListed(ctx, store, sharedDir+"/", math.MaxInt, func(name string) (bool, error) {
		h, isOwn := own[name]
		switch {
		case !isOwn, refs.names[name]:
			return false, nil
		case h.SharedSince <= refs.unreadable:
			left++
			return false, nil
		}
		return true, nil
	})
	return deleted, left, err
}
