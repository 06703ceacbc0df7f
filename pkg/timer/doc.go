// Package timer keeps the timers of one keyed operator in one subtask: per
// key, at most one for each time. It hands out those that are due in the
// order of their times and, at one time, of their keys' bytes, so that the
// order is the same wherever and whenever they are fired.
//
// Timers live in key groups, as keyed state does, and are stored as keyed
// state of their own kind, beside the operator's states. So they move with
// their key group on a rescale, and one that was deleted is in no snapshot.
//
// The package is pure: it knows no clock, and has no idea which of the two
// kinds of time its numbers are.
package timer
