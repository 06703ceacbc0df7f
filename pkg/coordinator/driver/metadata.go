package driver

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/weirstream/weir/internal/logfield"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/objectstore"
)

// persistTriesMax bounds how often _metadata is written: a hiccup of the store
// is ridden out in a fraction of a second, while the next checkpoint would
// rather start than wait for a longer one.
const persistTriesMax = 4

// load reads what the job is to restore from.
func (d *Driver) load(ctx context.Context, e coordinator.LoadCheckpoint) {
	fail := func(err error, kind coordinator.FailureKind) {
		d.mail.put(coordinator.CheckpointLoadFailed{Token: e.Token, Ref: e.Ref, Reason: err.Error(), Kind: kind})
	}
	checkpoint, base, err := d.options.Checkpoints.LoadMetadata(ctx, e.Ref.URI)
	if checkpointstore.IsBroken(err) {
		// What may follow cannot be undone, so one bad read is not believed.
		checkpoint, base, err = d.options.Checkpoints.LoadMetadata(ctx, e.Ref.URI)
	}
	if e.Ref.ID != 0 && errors.Is(err, objectstore.ErrNotExist) {
		err = d.whyMissing(ctx, e.Ref.URI, err)
	}
	switch {
	case checkpointstore.IsBroken(err):
		// The store has answered: reading again gives the same.
		d.log.Error("checkpoint to restore is corrupt", logfield.URI(e.Ref.URI), zap.Error(err))
		fail(err, coordinator.CorruptCheckpoint)
	case errors.Is(err, checkpointstore.ErrUnsupported):
		fail(err, coordinator.PermanentFailure)
	case err != nil:
		d.log.Warn("checkpoint to restore could not be read", logfield.URI(e.Ref.URI), zap.Error(err))
		fail(err, coordinator.LostProcess)
	case e.Ref.ID != 0 && checkpoint.ID != e.Ref.ID:
		fail(fmt.Errorf("%s holds checkpoint %d, not %d", e.Ref.URI, checkpoint.ID, e.Ref.ID), coordinator.CorruptCheckpoint)
	default:
		d.mail.put(coordinator.CheckpointLoaded{Token: e.Token, Ref: e.Ref, Base: base, Checkpoint: checkpoint})
	}
}

// verify reads state that a task found corrupt, until something is wrong.
func (d *Driver) verify(ctx context.Context, e coordinator.VerifyState) {
	for _, h := range e.Handles {
		err := d.options.Checkpoints.VerifyState(ctx, e.Base, h)
		if checkpointstore.IsBroken(err) {
			// As in load.
			err = d.options.Checkpoints.VerifyState(ctx, e.Base, h)
		}
		if errors.Is(err, objectstore.ErrNotExist) {
			err = d.whyMissing(ctx, e.Ref.URI, err)
		}
		if err == nil {
			continue
		}
		kind := coordinator.LostProcess
		if checkpointstore.IsBroken(err) {
			kind = coordinator.CorruptCheckpoint
			d.log.Error("state to restore is corrupt", logfield.URI(e.Ref.URI), zap.Error(err))
		} else {
			d.log.Warn("state to restore could not be read", logfield.URI(e.Ref.URI), zap.Error(err))
		}
		d.mail.put(coordinator.StateVerifyFailed{Token: e.Token, Ref: e.Ref, Reason: err.Error(), Kind: kind})
		return
	}
	d.mail.put(coordinator.StateVerified{Token: e.Token, Ref: e.Ref})
}

// whyMissing looks again when the metadata of a checkpoint of the job's own is
// missing: unless something else of the job is to be seen where it was, that
// is no answer about the checkpoint (I9).
func (d *Driver) whyMissing(ctx context.Context, uri string, missing error) error {
	visible, err := d.options.Checkpoints.IsVisible(ctx, uri)
	switch {
	case err != nil:
		return err
	case !visible:
		return fmt.Errorf("%s and everything else of the job is not to be seen by the JobManager: is the checkpoint directory there, and mounted?", uri)
	}
	return missing
}

// persist writes _metadata. Repeating it is safe: the content is the same, and
// other content is never replaced.
func (d *Driver) persist(ctx context.Context, e coordinator.PersistMetadata) {
	id := e.Checkpoint.ID
	var pause backoff
	for try := 1; ; try++ {
		uri, err := d.options.Checkpoints.PersistMetadata(ctx, d.location(id, e.Dir), e.Checkpoint)
		if err == nil {
			d.mail.put(coordinator.MetadataPersisted{Token: e.Token, Checkpoint: id, URI: uri})
			return
		}
		d.log.Warn("checkpoint metadata was not written", logfield.Checkpoint(id), logfield.Try(try), zap.Error(err))
		passes := errors.Is(err, objectstore.ErrUnknownOutcome) || errors.Is(err, objectstore.ErrUnavailable)
		if !passes || try >= persistTriesMax || !pause.wait(ctx) {
			d.mail.put(coordinator.MetadataPersistFailed{Token: e.Token, Checkpoint: id, Reason: err.Error()})
			return
		}
	}
}
