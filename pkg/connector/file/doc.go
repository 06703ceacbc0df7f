// Package file reads lines of files as a source, and writes lines to files
// exactly once as a sink.
//
// Source. JSONLines and Lines read a file, the files of a directory, or those
// that match a pattern. A file is cut into splits by byte ranges without being
// read; a split owns the lines that start in its range, wherever they end, so
// every line belongs to exactly one split. The position in a split is the byte
// offset of the next line. The files must not change while a job reads them.
//
// Sink. ExactlyOnce writes one file for each checkpoint and subtask, and makes
// it visible when the checkpoint is published:
//
//	.part-….inprogress   being written (hidden by the dot)
//	.part-….pending      complete and durable, before the acknowledgement
//	part-….jsonl         committed, by a link that never replaces a file
//
// Hidden files that nothing needs go with the next attempt's start, or with the
// job when it is cancelled. Those of a job that failed, or whose processes were
// killed while it was cancelled, stay: their names carry the job's ID.
//
// When a job goes back to an older checkpoint because a newer one is corrupt,
// the files that were committed since are taken back: their names carry the
// checkpoint.
//
// The directory must be the same one on every host that runs the sink.
package file
