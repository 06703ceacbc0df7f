// Package simjob is the job that the simulator runs: numbers from a source,
// counted by key, into a two-phase-commit sink whose outside world is a map.
// It knows what the output must be, whatever fails on the way.
//
// Everything in it is deterministic and free of I/O, so that the simulator
// can step it; package subtask tests with it too.
package simjob
