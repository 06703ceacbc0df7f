// Package subtask is one subtask without threads: it takes frames, credits,
// splits, triggers and notices, and produces frames, credits, work to be done
// elsewhere, and reports.
//
// A Subtask is resumable between two records. Step returns when an output is
// out of credit, when mail waits, or after a bounded stretch; the unread rest
// of a frame is still its input. Nothing in it blocks, starts a goroutine or
// reads a clock, so that the simulator steps the same code that production
// runs: package task puts a goroutine and a mailbox around it.
//
// What takes long (restoring, listing and fetching, writing snapshots,
// committing) is handed to the Host as Work. At most one piece of each lane is
// under way, and its outcome comes back through Complete.
package subtask
