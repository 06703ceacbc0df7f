// Package checkpointstore is the one owner of the names of stored objects and
// of their formats: state files, checkpoint metadata, job records, job
// objects and artifacts.
//
//	<dir>/<job-id>/chk-<n>/_metadata              written last
//	<dir>/<job-id>/chk-<n>/<attempt>-<seq>        state private to checkpoint n
//	<dir>/<job-id>/shared/<attempt>/<n>-<seq>     state uploaded for checkpoint n that later ones may refer to
//	<savepoint-dir>/savepoint-<job>-<n>/_metadata
//	<savepoint-dir>/savepoint-<job>-<n>/<attempt>-<seq>
//	<ha-dir>/<cluster-id>/jobs/<job-id>/job       what was submitted, immutable
//	<ha-dir>/<cluster-id>/jobs/<job-id>/record    the job's record
//	<ha-dir>/<cluster-id>/jobs/<job-id>/history/<n>   what is told of checkpoint n, which has ended
//	<ha-dir>/<cluster-id>/artifacts/<sha256>      job binaries
//
// <attempt> is TOKEN.NUMBER, so the files of a fenced attempt can be told from
// those of a living one by their names alone; <seq> is VERTEX.INDEX.NUMBER, so
// subtasks need not agree on numbers. In a savepoint's name <job> is the first
// six digits of the job's ID, as in Flink.
//
// A handle's name is relative to a base: the job's directory for checkpoints,
// the savepoint's own directory for savepoints, which may therefore be moved.
//
// Store writes and reads checkpoints, and is used by executors and the
// JobManager alike. ClusterStore holds what a JobManager must find again after
// a restart. Neither decides anything: when something is written, published
// or deleted is the coordinator's decision. Both may be used by many
// goroutines at once and start none; time and nonces are arguments.
package checkpointstore
