// Package local is an object store in a directory: of this host, or of a file
// system that all hosts of a cluster share.
//
// An object is written to a hidden temporary file beside its place, fsynced,
// and given its name by rename, or by link when it must not exist yet; the
// directory is fsynced before the call returns. A swap compares and renames
// under a file lock (flock) on the directory's .lock file, which also excludes
// processes on other hosts where the file system supports that. Directories
// are made as needed and removed with their last object.
//
// A call that the file system itself holds up (a hard-mounted NFS server that
// is gone) cannot be given up: there the mount's own time-outs apply.
package local
