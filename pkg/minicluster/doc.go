// Package minicluster is a whole cluster inside one process: a JobManager,
// TaskManagers, and executors that are goroutines. They are the same as in a
// cluster of processes, and speak gRPC over connections in memory; only the
// launcher and the network differ.
//
// Run is what a job program does when it is started by hand. Cluster is for
// tests: it can lose TaskManagers and its JobManager.
//
// What it cannot do is survive user code: a panic in a goroutine that the
// runtime does not own ends the process, and a subtask that does not return
// when it is cancelled goes on.
package minicluster
