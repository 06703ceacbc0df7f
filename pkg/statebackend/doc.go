// Package statebackend is the port between the keyed state that operators
// use (package state) and where it lives while a job runs.
//
// Two sides meet here. The runtime sees KeyedState and Frozen, free of types:
// it freezes on the mailbox between two records, writes the frozen view on
// another goroutine, restores, and counts. The user's side is typed: Value
// and its siblings, one call per access.
//
// A backend of Go values (memory) is built for the types of key and value;
// one of bytes goes through the key encoding and the codec of a Descriptor.
// Both store the same snapshot format, which this package owns: see Format.
package statebackend
