// Package operator is the contract between a program's operators and the
// subtask that runs them: collectors that pass records along a chain, the
// life cycle of an operator, sources with splits, sinks that commit in two
// phases, and the assembly of a chain from a program.
//
// Records pass from one chained operator to the next by one interface call
// and by value. Where they leave or enter a subtask they are encoded into, or
// decoded from, frames by loops that are generic over the record type, so
// that nothing is boxed or allocated for a record.
//
// Everything of one chain runs on one goroutine, except what is named
// asynchronous: Reader.Fetch, Source.ListSplits, Frozen.Write,
// Prepared.Persist and the Committer. Those get their own objects and share
// nothing mutable with the rest.
package operator
