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
	fail := func(err error, permanent bool) {
		d.mail.put(coordinator.CheckpointLoadFailed{Token: e.Token, Ref: e.Ref, Reason: err.Error(), Permanent: permanent})
	}
	checkpoint, base, err := d.options.Checkpoints.LoadMetadata(ctx, e.Ref.URI)
	switch {
	case errors.Is(err, objectstore.ErrNotExist),
		errors.Is(err, checkpointstore.ErrCorrupt),
		errors.Is(err, checkpointstore.ErrUnsupported):
		// The store has answered: reading again gives the same.
		fail(err, true)
	case err != nil:
		d.log.Warn("checkpoint to restore could not be read", logfield.URI(e.Ref.URI), zap.Error(err))
		fail(err, false)
	case e.Ref.ID != 0 && checkpoint.ID != e.Ref.ID:
		fail(fmt.Errorf("%s holds checkpoint %d, not %d", e.Ref.URI, checkpoint.ID, e.Ref.ID), true)
	default:
		d.mail.put(coordinator.CheckpointLoaded{Token: e.Token, Ref: e.Ref, Base: base, Checkpoint: checkpoint})
	}
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
