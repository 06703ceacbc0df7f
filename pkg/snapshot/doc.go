// Package snapshot describes stored state as values: state handles, the
// snapshot of one subtask, a completed checkpoint, and which subtask gets
// which handles when a checkpoint is restored at the same or another
// parallelism.
//
// A handle is inert: it names bytes and never reads, writes or deletes them.
// Reading and deleting is the work of package checkpointstore; deciding when
// is the coordinator's.
package snapshot
