// Command statebench measures keyed state by itself, in one process and
// without a cluster: what a job pays for its state, against what it would pay
// for the same work in a Go map or in a bare Pebble. It is run by
// internal/bench; each run makes one figure or pair of figures, which it
// writes to -result as key=value lines.
package main
