// Package exchange moves frames between the subtasks of a job: directly from
// inbox to inbox inside one executor, and over one stream for each producing
// executor and consuming subtask between two.
//
// The consumer opens the stream, naming job, attempt and subtask; a producer
// of another attempt refuses (I8). Frames come with the number of the
// consumer's input channel, byte credits go back by the same number.
//
// Nothing here waits for room. A subtask hands out records only against
// credit, so that what a stream has queued is bounded by the credit of its
// channels, one frame beyond it each, and the few control elements of the
// checkpoints under way. The consumer takes everything off its streams at once
// into the inbox of its task, whose bound is the same credit. That is why a
// channel that is blocked holds up no other on the same stream, and why a
// barrier never waits behind records that nobody asked for.
//
// A stream that ends in order means that its other end is done. One that
// breaks, or whose peer stays silent for longer than the keepalive allows,
// fails the subtasks at this end with LostProcess and the peer's name.
//
// Goroutines: one that sends and one that receives for each end of a stream.
// Close ends and waits for all of them.
package exchange
