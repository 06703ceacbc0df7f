// Package align is the barrier alignment of one subtask: which channels are
// blocked, when the subtask takes its snapshot, and of which channels the
// records in flight belong to it.
//
// It is pure. Each call says what happened on a channel and returns what the
// subtask must now do, in order. A barrier is told twice: when it arrives in
// its channel's queue, and when its turn comes behind the records in front of
// it.
//
// Aligned is the protocol of Carbone et al. 2015, Lightweight Asynchronous
// Snapshots for Distributed Dataflows, section 4.2: a channel that has
// delivered barrier n delivers nothing more (it is blocked) until every
// channel has. At least once is the same without blocking.
//
// Unaligned is Flink's (FLIP-76): the snapshot is taken when the first barrier
// arrives. Records in front of the other barriers, queued or still to come, are
// channel state: they are collected until the barrier of their channel has
// arrived. An aligned barrier with a timeout becomes unaligned when that has
// passed.
//
// Channels of three kinds meet in this. Overtakable ones do as the barrier
// says. InOrder ones always align: their records belong to one consumer for
// other reasons than a key, so that nobody could give them away after a
// rescale. Feedback channels lead back into a loop's head, and barriers on them
// are never waited for: the snapshot is taken without, and what comes on them
// until the barrier has gone round is collected, in every mode (Carbone et al.,
// section 4.3).
//
// Several checkpoints may be open at once: barriers of one follow those of the
// other on every channel.
package align
