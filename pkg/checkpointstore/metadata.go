package checkpointstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"

	"google.golang.org/protobuf/proto"

	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
)

const metadataMagic = "WEIRMETA"

// metadataSizeMax bounds what one _metadata may hold: as much as one message
// between the JobManager and an executor, which is ten million handles. Whoever
// writes or reads it has it in memory, decoded and encoded. A larger one fails
// its checkpoint with an error that says so.
const metadataSizeMax = 1 << 30

// The features of metadata. Each is listed only in metadata that uses it.
const (
	// featureSplits: source splits come from the stored list. A reader that
	// listed them again would read finished ones twice.
	featureSplits = "split-lists"
	// featureEndOfData: some subtasks had ended. A reader that started them
	// as usual would finish them twice.
	featureEndOfData = "end-of-data"
	// featureStateFiles: keyed state is in files of its backend, or files are
	// shared with other checkpoints. A reader that took it for canonical would
	// find no state, and one that deleted it would delete others' files.
	featureStateFiles = "state-files"
	// featureInFlight: records were in flight, and are in files of their own. A
	// reader that did not know of them would lose them.
	featureInFlight = "in-flight-records"
)

var metadataFeatures = []string{featureSplits, featureEndOfData, featureStateFiles, featureInFlight}

// EncodeMetadata makes the content of a _metadata object. It refuses a
// checkpoint that DecodeMetadata would refuse.
func EncodeMetadata(checkpoint *snapshot.CompletedCheckpoint) ([]byte, error) {
	message := checkpoint.ToProto()
	if _, err := snapshot.CompletedCheckpointFromProto(message); err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("encode metadata of checkpoint %d of job %s: %w", checkpoint.ID, checkpoint.Job, err)
	}
	var features []string
	if len(checkpoint.Splits) > 0 {
		features = append(features, featureSplits)
	}
	if len(checkpoint.EndOfData) > 0 {
		features = append(features, featureEndOfData)
	}
	if hasStateFiles(checkpoint) {
		features = append(features, featureStateFiles)
	}
	if len(checkpoint.InFlight) > 0 {
		features = append(features, featureInFlight)
	}
	content := sealEnvelope(metadataMagic, features, body)
	if len(content) > metadataSizeMax {
		return nil, fmt.Errorf("encode metadata of checkpoint %d of job %s: has %d bytes, at most %d are allowed: keep less state inline, or in fewer files",
			checkpoint.ID, checkpoint.Job, len(content), metadataSizeMax)
	}
	return content, nil
}

// hasStateFiles reports whether the checkpoint needs featureStateFiles.
func hasStateFiles(checkpoint *snapshot.CompletedCheckpoint) bool {
	found := false
	for _, op := range checkpoint.Operators {
		for _, subtask := range op.Subtasks {
			for _, keyed := range subtask.Keyed {
				found = found || keyed.IsInFiles()
			}
		}
	}
	checkpoint.EachHandle(func(h snapshot.StateHandle) { found = found || h.IsShared() })
	return found
}

// DecodeMetadata reads what EncodeMetadata made. Its errors are ErrCorrupt or
// ErrUnsupported.
func DecodeMetadata(content []byte) (*snapshot.CompletedCheckpoint, error) {
	body, err := openEnvelope(metadataMagic, metadataFeatures, content)
	if err != nil {
		return nil, err
	}
	var message pb.CompletedCheckpoint
	if err := proto.Unmarshal(body, &message); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	checkpoint, err := snapshot.CompletedCheckpointFromProto(&message)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return checkpoint, nil
}

// PersistMetadata writes the checkpoint's _metadata and returns the path or
// URI by which users name the checkpoint. The checkpoint is not complete
// before the job's record says so.
//
// An existing _metadata is never replaced: the same content counts as written,
// so the call may be repeated after an unknown outcome; other content is
// objectstore.ErrPrecondition.
func (s *Store) PersistMetadata(ctx context.Context, loc Location, checkpoint *snapshot.CompletedCheckpoint) (string, error) {
	content, err := EncodeMetadata(checkpoint)
	if err != nil {
		return "", err
	}
	store, err := s.open(loc.Base)
	if err != nil {
		return "", err
	}
	if err := createIdentical(ctx, store, loc.name(metadataName), content); err != nil {
		return "", fmt.Errorf("persist metadata of checkpoint %d of job %s: %w", checkpoint.ID, checkpoint.Job, err)
	}
	return store.URI(loc.Dir), nil
}

// createIdentical creates an object that never changes. If it is there already
// with the same content, by an earlier call or by this one whose reply was
// lost, that is success.
func createIdentical(ctx context.Context, store objectstore.Store, name string, content []byte) error {
	_, putErr := store.PutIf(ctx, name, content, objectstore.IfAbsent())
	if putErr == nil {
		return nil
	}
	if !errors.Is(putErr, objectstore.ErrPrecondition) && !errors.Is(putErr, objectstore.ErrUnknownOutcome) {
		return putErr
	}
	existing, _, err := store.Read(ctx, name, int64(len(content)))
	switch {
	case err == nil && bytes.Equal(existing, content):
		return nil
	case err == nil || errors.Is(err, objectstore.ErrTooLarge):
		return fmt.Errorf("%s exists with other content: %w", store.URI(name), objectstore.ErrPrecondition)
	}
	// What was written stays unknown: the read failed, or found nothing while
	// the write may still be on its way.
	return errors.Join(putErr, err)
}

// LoadMetadata reads the checkpoint that a user names by the path or URI of
// its directory, or of the _metadata in it, and returns it with the base that
// its handles are relative to. A checkpoint that does not exist is
// objectstore.ErrNotExist.
func (s *Store) LoadMetadata(ctx context.Context, uri string) (*snapshot.CompletedCheckpoint, string, error) {
	dir := directoryOf(uri)
	store, err := s.open(dir)
	if err != nil {
		return nil, "", err
	}
	content, _, err := store.Read(ctx, metadataName, metadataSizeMax)
	if err != nil {
		return nil, "", fmt.Errorf("load metadata: %w", err)
	}
	checkpoint, err := DecodeMetadata(content)
	if err != nil {
		return nil, "", fmt.Errorf("load metadata: %s: %w", store.URI(metadataName), err)
	}
	loc, err := locationOf(dir, checkpoint.Kind)
	if err != nil {
		return nil, "", fmt.Errorf("load metadata: %w", err)
	}
	return checkpoint, loc.Base, nil
}

// directoryOf takes _metadata off the end of what a user named.
func directoryOf(uri string) string {
	if parent, last, ok := splitURI(uri); ok && last == metadataName {
		return parent
	}
	return trimURI(uri)
}

// locationOf finds the base of a checkpoint from its directory: handles of a
// savepoint are relative to it, those of a checkpoint to the one above.
func locationOf(dir string, kind snapshot.Kind) (Location, error) {
	switch kind {
	case snapshot.Savepoint, snapshot.StopSavepoint:
		return SavepointAt(dir), nil
	case snapshot.Checkpoint, snapshot.FinalCheckpoint:
		parent, last, ok := splitURI(dir)
		if !ok {
			return Location{}, fmt.Errorf("%s holds a checkpoint but has no directory above it, which its files are relative to", dir)
		}
		return Location{Base: parent, Dir: path.Base(last)}, nil
	}
	return Location{}, fmt.Errorf("%s holds a checkpoint of unknown kind %d: %w", dir, kind, ErrCorrupt)
}
