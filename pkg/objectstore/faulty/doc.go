// Package faulty wraps an object store with faults that a decision function
// chooses, call by call: an error before anything happens, an error after the
// call took effect, and slowness.
//
// It holds no clock, no randomness and no goroutine, so a simulator that
// decides from its seed gets the same faults each time.
package faulty
