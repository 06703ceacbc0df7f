// Package sim runs a whole cluster on one goroutine from one seed.
//
// It steps production's code: coordinator.Coordinator, slots.Table,
// subtask.Subtask with align.Aligner, the memory backend, and checkpointstore
// over an object store in memory with faults. Simulated are what lies between
// them: links and sessions, the time that I/O takes, the clock, and crashes of
// TaskManagers, executors and JobManagers.
//
// One loop pops the next item from a heap ordered by virtual time and a seeded
// tie-break. Nothing else decides what happens next, so a seed replays byte
// for byte: each is run twice and the hashes of the traces are compared.
//
// A run has two phases. In the first anything may fail, as the options drawn
// from the seed say. In the second everything is healed, and the job must
// finish within a budget of virtual time, with all of its output.
//
// Checkers are in files of their own, check_*.go, one for each invariant. They look at what leaves and
// enters the machines (effects, stored objects, the job's outside world) and
// are never switched off. Plants (plant.go) are bugs made on purpose, which
// the checkers must find.
//
// docs/TESTING.md says how to run it, how to replay a seed and how to add a
// plant.
package sim
