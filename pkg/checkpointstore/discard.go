package checkpointstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/snapshot"
)

// LocationOf is the location of a checkpoint or savepoint of a job from the
// path or URI that the job's record has for it. A directory that is named
// like a checkpoint and lies in a job's base is one, any other is a savepoint.
func LocationOf(uri string) Location {
	dir := directoryOf(uri)
	if parent, last, ok := splitURI(dir); ok {
		if _, isCheckpoint := parseCheckpointDir(last); isCheckpoint {
			return Location{Base: parent, Dir: last}
		}
	}
	return SavepointAt(dir)
}

// DiscardCheckpoint deletes everything below the location: a subsumed or
// aborted checkpoint, or a savepoint that was never completed. The caller
// knows that nothing restores from it and that nobody writes there any more.
// Shared files lie elsewhere and stay. _metadata goes first, so that
// what an interruption leaves cannot be taken for a checkpoint. It goes on after
// the error of one file. Deleting what is gone succeeds, so the call may be
// repeated, and GotOn says of an error whether that leads anywhere.
func (s *Store) DiscardCheckpoint(ctx context.Context, loc Location) error {
	store, err := s.openToDelete(loc.Base)
	if err != nil {
		return err
	}
	fail := func(err error) error { return fmt.Errorf("discard checkpoint: %w", err) }
	if err := store.Delete(ctx, loc.name(metadataName)); err != nil {
		return fail(err)
	}
	prefix := ""
	if loc.Dir != "" {
		prefix = loc.Dir + "/"
	}
	// A savepoint's directory is the user's: what we did not write stays.
	isOurs := func(name string) bool { return isCheckpointFile(strings.TrimPrefix(name, prefix)) }
	deleted, _, err := s.deleteListed(ctx, store, prefix, math.MaxInt, func(name string) (bool, error) { return isOurs(name), nil })
	if err == nil {
		_, err = store.DiscardStaged(ctx, prefix, isOurs)
	}
	if err != nil {
		return fail(gotOn(deleted, err))
	}
	return nil
}

// isCheckpointFile reports whether a file of that name, relative to a
// checkpoint's directory, is one that this package writes there.
func isCheckpointFile(name string) bool {
	_, isState := parseStateFile(name)
	return isState || name == metadataName
}

// DiscardHandles deletes the files of handles of a checkpoint that will never
// be published, relative to base. It goes on after an error, so that one bad
// file keeps no other. left are the handles whose files may still be there: none
// if there is no error, and those to repeat the call with after one.
func (s *Store) DiscardHandles(ctx context.Context, base string, handles []snapshot.StateHandle) (left []snapshot.StateHandle, err error) {
	store, err := s.openToDelete(base)
	if err != nil {
		return handles, err
	}
	var files []snapshot.StateHandle
	var names []string
	for _, handle := range handles {
		if !handle.IsInline() {
			files, names = append(files, handle), append(names, handle.Name)
		}
	}
	indices, err := s.deleteAll(ctx, store, names)
	if err != nil {
		err = fmt.Errorf("discard state: %w", gotOn(len(names)-len(indices), err))
	}
	for _, i := range indices {
		left = append(left, files[i])
	}
	return left, err
}

// SweepRequest says what Sweep may delete below the base of one job.
type SweepRequest struct {
	// Base is the job's, see JobBase.
	Base string
	// Below: attempts older than this one are fenced.
	Below ids.AttemptID
	// Keep are the retained checkpoints. Nothing that they refer to is
	// deleted, and nobody deletes them before the sweep is over.
	Keep []ids.CheckpointID
	// Over is set when the job has ended: nothing of it is being written any more.
	Over bool
	// DeleteMax bounds the deletions of one call, so that a long sweep leaves
	// the store to others in between; 0 means sweepDeleteMax.
	DeleteMax int
}

// sweepDeleteMax is one page of an S3 listing: a sweep is background work and
// comes back for the rest.
const sweepDeleteMax = 1000

// SweepResult says what a Sweep did.
type SweepResult struct {
	Deleted int
	// More is set when DeleteMax was reached before the end.
	More bool
	// Left counts shared files that stay because the metadata of a kept
	// checkpoint, which may refer to them, is broken or gone.
	Left int
}

// Sweep deletes the state files of fenced attempts and the metadata they
// wrote, in checkpoints that are not kept: what is left of checkpoints that
// were pending or published when a JobManager or executor died. A checkpoint that
// is older than one that is kept was given up or subsumed, whatever its metadata
// says, and if that is broken too. Of their shared
// files it deletes those that no kept checkpoint refers to: it reads the
// metadata of these itself, if there is any such file, and deletes none after a
// failed read (I9). Later checkpoints get shared files of fenced attempts only
// from kept ones, so what they publish meanwhile does not matter. Files of
// attempts that are not fenced are the coordinator's to discard one by one,
// since it knows whether they are still being written. Objects with names of
// any other form, and savepoints, are never touched. It goes on after a deletion
// that fails, see GotOn.
func (s *Store) Sweep(ctx context.Context, request SweepRequest) (SweepResult, error) {
	deleteMax := request.DeleteMax
	if deleteMax <= 0 {
		deleteMax = sweepDeleteMax
	}
	var result SweepResult
	store, err := s.openToDelete(request.Base)
	if err != nil {
		return result, err
	}
	sweep := &sweep{store: store, below: request.Below, over: request.Over, keep: make(map[ids.CheckpointID]bool, len(request.Keep))}
	for _, id := range request.Keep {
		sweep.keep[id] = true
		sweep.newest = max(sweep.newest, id)
	}
	result.Deleted, result.More, err = s.deleteListed(ctx, store, checkpointDirPrefix, deleteMax,
		func(name string) (bool, error) { return sweep.isDead(ctx, name) })
	if err != nil {
		return result, fmt.Errorf("sweep: %w", gotOn(result.Deleted, err))
	}
	if result.More {
		return result, nil
	}
	if err := s.sweepShared(ctx, sweep, &result, deleteMax-result.Deleted); err != nil {
		return result, fmt.Errorf("sweep: %w", gotOn(result.Deleted, err))
	}
	if result.More {
		return result, nil
	}
	staged, err := store.DiscardStaged(ctx, checkpointDirPrefix, sweep.isDeadStaged)
	result.Deleted += staged
	if err == nil {
		staged, err = store.DiscardStaged(ctx, sharedDir+"/", func(name string) bool {
			file, ok := parseShared(name)
			return ok && file.Attempt.Less(request.Below)
		})
		result.Deleted += staged
	}
	if err != nil {
		return result, fmt.Errorf("sweep: %w", gotOn(result.Deleted, err))
	}
	return result, nil
}

// sweepShared sweeps the shared files.
func (s *Store) sweepShared(ctx context.Context, sweep *sweep, result *SweepResult, limit int) error {
	var refs *references
	deleted, more, err := s.deleteListed(ctx, sweep.store, sharedDir+"/", limit, func(name string) (bool, error) {
		file, ok := parseShared(name)
		if !ok || !file.Attempt.Less(sweep.below) {
			return false, nil
		}
		if refs == nil {
			refs = newReferences(sweep.store)
			// In order, so that a simulated store sees the same calls each time.
			for _, id := range slices.Sorted(maps.Keys(sweep.keep)) {
				if err := refs.read(ctx, id); err != nil {
					return false, err
				}
			}
		}
		switch {
		case refs.names[name]:
			return false, nil
		case file.Checkpoint <= refs.unreadable:
			result.Left++
			return false, nil
		}
		return true, nil
	})
	result.Deleted += deleted
	result.More = more
	return err
}

type sweep struct {
	store objectstore.Store
	below ids.AttemptID
	over  bool
	keep  map[ids.CheckpointID]bool
	// newest is the newest that is kept.
	newest ids.CheckpointID
}

func (s *sweep) isDead(ctx context.Context, name string) (bool, error) {
	if s.isDeadStaged(name) {
		return true, nil
	}
	id, file, ok := s.parse(name)
	if !ok || s.keep[id] || file != metadataName {
		return false, nil
	}
	if id < s.newest || s.over {
		return true, nil
	}
	// The name of _metadata has no attempt; its content has.
	content, _, err := s.store.Read(ctx, name, metadataSizeMax)
	if errors.Is(err, objectstore.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	checkpoint, err := DecodeMetadata(content)
	if err != nil {
		// We cannot tell whose it is: it stays, for a human to look at.
		return false, nil
	}
	return checkpoint.Attempt.Less(s.below), nil
}

// isDeadStaged reports whether the state file of that name belongs to a
// fenced attempt and to no checkpoint that is kept.
func (s *sweep) isDeadStaged(name string) bool {
	id, base, ok := s.parse(name)
	if !ok || s.keep[id] {
		return false
	}
	file, ok := parseStateFile(base)
	return ok && file.Attempt.Less(s.below)
}

func (s *sweep) parse(name string) (ids.CheckpointID, string, bool) {
	dir, file, ok := strings.Cut(name, "/")
	if !ok {
		return 0, "", false
	}
	id, ok := parseCheckpointDir(dir)
	return id, file, ok
}
