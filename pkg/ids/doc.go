// Package ids holds the identities that every other package speaks in: jobs,
// operators, subtasks, attempts, checkpoints and fencing tokens.
//
// They are plain comparable values. Nothing here creates an identity at
// random or from a clock: whoever needs a new one is told it, so that the
// protocols above stay replayable.
package ids
