// Package memory is an object store on the heap, for tests and simulations.
// It is deterministic: what it returns depends only on the calls made, ETags
// included, and it starts no goroutine.
package memory
