// Package keygroup holds the arithmetic of key groups, the smallest unit of
// keyed state that moves on a rescale, and the frozen, versioned, injective
// encoding of keys that decides which group a key is in.
//
// The encoding is for hashing, ordering and storing keys only, never for
// transport. It may never change: stored state would be looked for in the
// wrong place. Golden vectors in the tests hold it still.
//
// Source: Flink's KeyGroupRangeAssignment.
package keygroup
