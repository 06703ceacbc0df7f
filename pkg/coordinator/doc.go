// Package coordinator is the brain of one job: deploy, trigger, acknowledge,
// publish, notify, abort, subsume, fail over, cancel, stop with savepoint.
//
// It is pure. Coordinator.Step(now, event) returns the effects that must now
// be carried out, in order; the driver carries them out and brings results
// back as further events. Nothing that depends on a write leaves before the
// event that says the write is durable.
//
// The life of a checkpoint:
//
//  1. the interval passes, or a user asks → TriggerCheckpoint to the sources
//  2. CheckpointAcked from every subtask → PersistMetadata
//  3. MetadataPersisted → PublishCheckpoint, a compare-and-swap of the job record
//  4. CheckpointPublished → NotifyComplete; older retained ones are discarded
//  5. CommitAcked from every subtask
//
// On any failure before 4 the checkpoint is aborted: NotifyAborted and
// DiscardHandles for what was acknowledged, and for what is acknowledged late.
// Only a published checkpoint is ever restored from.
//
// Stale events (of another attempt, checkpoint or fencing token) are normal:
// they are dropped and counted in one place, at the top of Step.
package coordinator
