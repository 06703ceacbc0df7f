// Package jobmanager is the JobManager without its network: it accepts jobs,
// keeps their artifacts and records, runs one driver for each, owns the slot
// table of all, and knows the TaskManagers and executors by their sessions.
//
// Server implements what package transport serves: the sessions of
// TaskManagers and executors, and the calls of flinkctl.
//
// Ownership. The server's mutex guards the registry: jobs, TaskManagers,
// executors and the slot table. It is held for moments only, never across a
// call that waits: commands go into the queues of sessions, events into the
// mailboxes of drivers. A session has the goroutine that serves its stream;
// when that ends, or heartbeats stay away, the loss is noticed once.
//
// What is durable is below high-availability.storageDir: what was submitted,
// one record per job, artifacts. A server that starts takes over every job
// that its records call unfinished, under the same ID, and only lists the
// others. An error while reading them is no absence: it is tried again until
// the store answers.
package jobmanager
