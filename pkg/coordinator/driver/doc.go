// Package driver carries out what the coordinator of one job decides.
//
// A Driver is one goroutine that owns a coordinator.Coordinator: it takes
// events from a mailbox, steps the machine, and hands the effects out. It
// never blocks: commands go to the Cluster, whose methods return at once, and
// I/O runs on goroutines that the driver owns and waits for. Every result
// comes back as an event.
//
//   - The record writer is the only one that writes the job's record. Claims,
//     updates and publications pass through it one at a time, so that two
//     swaps of one driver never race; an outcome that is not known is looked
//     up until it is.
//   - The deleter carries out one request at a time, and files that wait are one
//     request for each directory. It goes on for as long as files go, tries a few
//     times what does not, and then leaves the rest to the sweep of the next leader.
//   - The history writes what became of ended checkpoints, one at a time and once
//     each, and reads what earlier JobManagers wrote. Nothing waits for it either.
//   - Metadata is read and written by a goroutine for each request; the
//     coordinator bounds how many checkpoints are under way.
//
// Nothing here decides anything about the job. Time is package time's, which
// tests replace by testing/synctest.
package driver
