// Package align is the barrier alignment of one subtask: which channels are
// blocked, and when the subtask takes its snapshot.
//
// It is pure. Each call says what arrived on a channel and returns what the
// subtask must now do, in order. Alignment is that of Carbone et al. 2015,
// Lightweight Asynchronous Snapshots for Distributed Dataflows, section 4.2:
// a channel that has delivered barrier n delivers nothing more (it is
// blocked) until every channel has.
package align
