// Package invariant checks what can only be wrong by our own mistake. The
// checks stay on in production: a process that finds its own logic broken
// must not go on to write state.
package invariant
