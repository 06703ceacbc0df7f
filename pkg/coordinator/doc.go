// Package coordinator is the brain of one job: deploy, trigger, acknowledge,
// publish, notify, abort, subsume, fail over, cancel, stop with savepoint.
//
// It is pure. Coordinator.Step(now, event) returns the effects that must now
// be carried out, in order; the driver carries them out and brings results
// back as further events. Nothing that depends on a write leaves before the
// event that says the write is durable. The first DeadlinePassed starts it.
//
// Stale events (of another attempt, checkpoint or fencing token) are normal:
// they are dropped and counted in one place, at the top of Step. After the
// event is handled, advance does whatever has become possible; it looks at
// where the job stands and not at the event, so the order of events does not
// matter for what is done in the end.
//
// # The life of a job
//
// ClaimJob → the restore point is loaded → RequestSlots → LaunchExecutor →
// DeployTasks → all tasks Running → FinishTasks → the terminal status is
// recorded → JobEnded. A job whose record is terminal is never run again. The
// restore point is the record's latest checkpoint, else what the submission
// names (again and again, until the job has a checkpoint of its own), else
// nothing; a read that fails is tried again for ever (I9). No other checkpoint is
// read: of files that older retained ones of a leader before us may refer to none
// is deleted before those are gone.
//
// A restart puts each subtask where it ran before, if it can: local recovery
// finds its files there. After a takeover nobody knows where that was.
//
// # The life of a checkpoint
//
//  1. the interval passes, or a user asks, who waits for neither interval nor
//     min-pause → TriggerCheckpoint to the sources
//  2. CheckpointAcked from every subtask → PersistMetadata
//  3. MetadataPersisted → PublishCheckpoint, a compare-and-swap of the job record
//  4. CheckpointPublished → NotifyComplete; older retained ones are discarded
//  5. CommitAcked from every subtask
//
// What became of it, and what each subtask's part of it cost, is kept for people
// (RecordHistory): of checkpoints and savepoints, completed or not.
//
// On any failure before 4 the checkpoint is aborted: NotifyAborted and
// DiscardHandles for what was acknowledged, and for what is acknowledged late.
// What goes and what stays of files that several checkpoints share is said at
// registry. Only a published checkpoint is ever restored from. While a publication is
// under way its outcome is unknown: nothing of it is discarded, no restore
// point is chosen, and no other write of the record starts (I10).
//
// IDs are reserved in blocks by the record before they are used, and used
// once (I6). After a restore from another job's savepoint they go on above its ID.
//
// A savepoint is the same without 3 to 5: it is listed in the record and its
// user is answered. Nobody else is told: what sinks prepared for it stays in
// their next checkpoint. Stop-with-savepoint publishes it as the latest; from
// then on the job only commits and ends. After a failure its tasks are
// deployed suspended, and its user is answered when the job has ended. With
// drain, event time is brought to its end before the savepoint: when that fails,
// no task can go on, and the attempt fails over.
//
// How barriers pass records is said in alignment. No barrier overtakes that of
// a savepoint, so while one is on its way checkpoints align.
//
// A bounded job takes a final checkpoint as soon as every task is at the end
// of its data, and finishes when all have committed it. If it fails before
// that, the restart takes another one.
//
// # Failures
//
// A failure ends the attempt; the next one restarts the whole job.
//
//   - Lost processes restart it at once the first time, then after a growing
//     delay, without end. So does a restart that finds too few slots within
//     slot.request.timeout; a job that never ran fails then.
//   - User failures follow the restart strategy. Too many failed checkpoints
//     in a row count as one.
//   - Permanent failures fail the job at once.
//
// FAILED shows the first cause since the last completed checkpoint. Sessions
// are reliable streams, so a message is either delivered or its executor is
// lost: nothing is sent a second time.
//
// # The end
//
// Checkpoints are removed when the job has finished or was cancelled and kept
// when it failed; Retention changes that. Savepoints are never removed.
package coordinator
