package operator

import (
	"context"

	"github.com/weirstream/weir/pkg/ids"
)

// Sink takes the records of a stream out of the job, at least once: after a
// failure, records since the restored checkpoint come again.
type Sink[T any] interface {
	// OpenWriter opens the writer of one subtask.
	OpenWriter(ctx *Context) (SinkWriter[T], error)
	// Describe gives the options for the graph's fingerprint.
	Describe() Description
}

// SinkWriter writes the records of one subtask, on its goroutine.
type SinkWriter[T any] interface {
	Write(v T) error
	// Flush makes everything written so far durable or visible; called before
	// a snapshot and when the subtask has no input waiting.
	Flush() error
	Close() error
}

// TwoPhase is a sink whose output becomes visible exactly once, by two-phase
// commit with the job's checkpoints: what was written before the barrier of
// checkpoint n is prepared before the subtask acknowledges n, and committed
// after n is published. (Source: Flink's TwoPhaseCommittingSink; Carbone et
// al. 2017, State Management in Apache Flink, section 4.)
//
// A prepared transaction whose checkpoint is not to be published goes away in
// one of these ways:
//   - A checkpoint is given up and the job runs on: the transaction stays in
//     the next snapshot, and is committed with it.
//   - The attempt fails or is killed: the next attempt's Recover removes what
//     its restored checkpoint and the savepoints do not need.
//   - The job is cancelled: Abort, in the subtasks that run. Those of processes
//     that are killed then, or were lost before, stay.
//   - The job fails for good: its processes are killed and nobody is left to
//     call Abort, so they stay too. A retained checkpoint may need some of
//     them, and which ones is only known to a job that starts from it.
//
// So a sink gives what it prepares a time limit where its system can, longer
// than a job may be down, and otherwise names that tell people whose it is.
type TwoPhase[T any] interface {
	// OpenWriter opens the writer of one subtask.
	OpenWriter(ctx *Context) (TwoPhaseWriter[T], error)
	// OpenCommitter opens the committer of one subtask. It shares nothing
	// mutable with the writer: they run on different goroutines.
	OpenCommitter(ctx *Context) (Committer, error)
	// Describe gives the options for the graph's fingerprint.
	Describe() Description
}

// Revocable is implemented by a TwoPhase sink that can take back what it has
// committed. When the newest checkpoint of a job turns out to be corrupt, the
// job goes on from an older one, and writes again what came after it. It does
// so by itself only if all its TwoPhase sinks are revocable; it fails
// otherwise, unless execution.checkpointing.fallback.allow-duplicates is set.
//
// What there is to take back is found by Committer.Recover, see Recovery.
type Revocable interface {
	// CommitsAreRevocable is asked when the graph is built, and its answer is
	// part of the graph's fingerprint.
	CommitsAreRevocable() bool
}

// TwoPhaseWriter writes the records of one subtask, on its goroutine.
type TwoPhaseWriter[T any] interface {
	Write(v T) error
	// Prepare ends the current transaction: what was written since the last
	// Prepare belongs to checkpoint id. It is short. What takes long, such as
	// an fsync, is left to Prepared.
	Prepare(id ids.CheckpointID) (Prepared, error)
	// Close releases everything. What has been written and not persisted is in
	// no checkpoint: Close makes it go away.
	Close() error
}

// Prepared is a transaction that has been ended but is not yet durable.
// Persist runs on a goroutine of its own. It is called again, with a later
// checkpoint, if it failed.
type Prepared interface {
	// Persist makes it durable and still invisible, and returns what Commit
	// needs. The committables are stored in the checkpoint, and in every later
	// one until their commit is known. No committables: nothing was written.
	Persist(ctx context.Context) ([]Committable, error)
}

// Committable is a sink's own description of a prepared transaction. It must
// be enough to commit it in another process on another host.
type Committable []byte

// Committer makes prepared transactions visible. Its calls never overlap and
// run on a goroutine of their own.
type Committer interface {
	// Recover is called once at the start of every attempt, before Commit, in
	// every subtask. The committer of subtask 0 removes what earlier attempts
	// of the same job and operator left behind and nothing needs, and takes back
	// what they committed too much if the sink is Revocable: see Recovery.
	Recover(ctx context.Context, r Recovery) error
	// Commit makes the transactions visible. It is idempotent: a committable
	// may be given again, by another subtask or another job, after its commit
	// took effect. It must tell that apart from a transaction that is lost,
	// which is a Permanent error.
	Commit(ctx context.Context, committables []Committable) error
	// Abort makes prepared transactions go away for good: the job is cancelled
	// and no checkpoint or savepoint that has them exists or will. It is
	// idempotent, and is never given a transaction that Commit was given. ctx
	// bounds it; after an error or a crash they may stay, and nobody asks again.
	Abort(ctx context.Context, committables []Committable) error
	Close() error
}

// Recovery says what an attempt was restored from, so that a sink can tell
// leftovers from what is needed.
//
// Prepared transactions of checkpoints up to Restored are needed: they are in
// the restored state, or committed. Those of later checkpoints are leftovers,
// unless a savepoint may hold them: one of Savepoints that is their checkpoint
// or a later one, since a committable stays in every snapshot until its commit
// is known.
//
// What earlier attempts of the job have committed for checkpoints after
// Restored is too much: the job has fallen back from them, and what they wrote
// comes again, under later checkpoints. (Without a fallback there is none of
// it, since nothing is committed before its checkpoint is what is restored.)
// A Revocable sink takes it back, whatever subtask committed it. What one of
// Savepoints may hold becomes prepared again, anything else goes away. It may
// be interrupted, and is then asked again; and a process of an older attempt
// that does not know yet that it was replaced may commit meanwhile.
type Recovery struct {
	Attempt    ids.AttemptID
	Restored   ids.CheckpointID
	Savepoints []ids.CheckpointID
}
