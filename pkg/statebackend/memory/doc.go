// Package memory is the state backend of Go values on the heap.
//
// Every registered state is a hash table of fixed-size pages under a
// two-level directory. Freezing copies 256 directory pointers and starts a new
// generation; the first write to a page of an older generation works on a copy
// of it while a frozen view is alive. Nothing is locked, and no table is ever
// rehashed as a whole: a page that is full is split.
//
// docs/decisions/0002-memory-backend.md says why, with numbers.
package memory
