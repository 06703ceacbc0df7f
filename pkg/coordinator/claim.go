package coordinator

// A job that claims what it was submitted to start from owns it like a
// checkpoint of its own, from its first publication on: then the claimed one is
// the oldest of the retained checkpoints, and is deleted when newer ones push
// it out or when the job's end deletes its checkpoints. Before that the job
// has nothing else to go back to and nothing of its own to lose, and neither a
// failure nor a cancel costs the user the savepoint.
//
// A job that does not claim reads it, also after failures, until its first own
// checkpoint, which holds all state in files of its own; it never deletes it.
// Neither is ever the base of a checkpoint: the first own one has none.

// claimed is what the next publication takes over, if any.
func (c *Coordinator) claimed() (CheckpointRef, bool) {
	ref := c.restored.ref
	first := c.record.desired.Latest.ID == 0
	return ref, first && c.cfg.ClaimRestored && ref.ID != 0 && ref.URI == c.cfg.RestoreFrom
}

// isClaimed reports whether a retained checkpoint is the claimed one. It lies
// below another base than the job's own, where other checkpoints may share its
// files: whoever deletes it looks at what lies beside it.
func (c *Coordinator) isClaimed(ref CheckpointRef) bool {
	return c.cfg.ClaimRestored && ref.URI == c.cfg.RestoreFrom
}

// ownRetained are the retained checkpoints below the job's own base.
func (c *Coordinator) ownRetained() []CheckpointRef {
	var own []CheckpointRef
	for _, ref := range c.record.desired.Retained {
		if !c.isClaimed(ref) {
			own = append(own, ref)
		}
	}
	return own
}

// discardClaimed deletes a claimed checkpoint that is no longer retained. The
// JobManager before this one may have gone away after the publication that
// pushed it out, and no sweep of the job's own directory finds it.
func (c *Coordinator) discardClaimed() {
	desired := &c.record.desired
	if !c.cfg.ClaimRestored || c.cfg.RestoreFrom == "" || desired.Latest.ID == 0 {
		return
	}
	for _, ref := range desired.Retained {
		if c.isClaimed(ref) {
			return
		}
	}
	c.emit(c.discardOf(CheckpointRef{URI: c.cfg.RestoreFrom}))
}

// discardOf deletes a checkpoint. A claimed one lies where others may have put
// something else since: it goes only if it is what was claimed, as far as is
// known. The record has its ID while it is retained; its job is known to the
// leader that read it; and it was complete before this job ran.
func (c *Coordinator) discardOf(ref CheckpointRef) DiscardCheckpoint {
	if !c.isClaimed(ref) {
		return DiscardCheckpoint{Ref: ref}
	}
	return DiscardCheckpoint{Ref: ref, Claimed: true, Job: c.claimedJob, CompletedBy: c.record.desired.StartedAt}
}
