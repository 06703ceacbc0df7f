// Package flightstruth checks the output of the flights job against what its
// input says, computed here without Weir.
//
// The job emits for every flight the running count of its origin with the sum
// of delays and the number of late flights so far. In what order an origin's
// flights are counted is the cluster's affair; everything else is fixed, and
// checked: each origin has the lines n = 1…N once each, the step from each
// line to the next is one flight, and the steps of an origin are exactly its
// flights. A record that was counted twice, not at all, or from state that
// does not fit its input breaks one of these.
//
// The demo, the compose check and the tests of processes share it.
package flightstruth
