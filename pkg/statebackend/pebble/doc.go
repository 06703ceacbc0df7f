// Package pebble is the state backend on local disk, with what is hot on the heap.
//
// Every KeyedState has a Pebble database of its own. An entry's key there is
//
//	key group (2 bytes), state number (2 bytes), key or keys     big-endian; see keygroup.Encoding
//
// and its value is a stored value of package statebackend: schema ID, flags,
// with time-to-live the time of the last write, the codec's bytes. So a
// snapshot in the canonical form is the database in its order.
//
// In front of it each state has a chain of segments: tables of decoded values.
// The newest, the active one, takes every access; what it has not it gets from
// the older ones or from the database, and keeps. A freeze seals the active
// segments of all states as one generation: a swap of pointers. A goroutine
// writes the changed values of one generation after the other into sorted
// files that the database takes in as they are, and never begins one before
// every view of the generations before has what it needs. So the database's
// files are exactly the state at a freeze at some moment, and that is when they
// are linked. Written segments stay in the chain as a cache until they are the
// oldest and room is needed: what is used again has moved to a newer one by then.
//
// Nothing is synced to disk and there is no log: after a crash of the host the
// state comes from a checkpoint, whose files have checksums.
//
// docs/decisions/0004-pebble-backend.md says why, with numbers.
package pebble
