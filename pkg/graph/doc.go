// Package graph describes dataflows as values: the JobGraph that a program
// builds and a user submits, and the ExecutionGraph that results from
// chaining and parallelism.
//
// Nothing here runs, connects or waits. The same program builds the same
// JobGraph wherever it runs; Fingerprint and Diff tell whether it did.
package graph
