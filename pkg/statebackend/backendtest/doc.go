// Package backendtest is the conformance suite of state backends: every
// implementation of statebackend.Backend passes Run.
//
// It drives the backend as operators and the runtime do, through package
// state, against a model of plain maps: random accesses under random keys,
// freezes whose snapshots are written only after more changes, restores at
// another parallelism, and a caller that changes the values it was given.
package backendtest
