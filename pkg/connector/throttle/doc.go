// Package throttle slows a source down to a number of records per second.
//
// The rate holds for all subtasks of the source together: each takes an equal
// share. Records come in small bursts of at most ten milliseconds' worth. A
// job that could not keep up for a while catches up on at most one second.
package throttle
