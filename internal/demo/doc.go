// Command demo shows, with real processes on this host, that the flights job
// counts every flight exactly once while one of its TaskManagers is killed. It
// needs the binaries that make build leaves in bin/, is run from the
// repository's root, and is what make demo runs.
//
// It prints what happened in a few lines, and fails unless the failure was a
// real one: the killed TaskManager ran subtasks with state, output was
// committed before, the job was restored from a checkpoint in the middle of its
// input, and what was committed before is still there unchanged. Its processes
// are stopped however it ends; its directory stays when it fails.
package main
