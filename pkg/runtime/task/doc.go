// Package task is the goroutine around a subtask: a mailbox loop that hands it
// what has arrived, steps it, and sleeps when it has nothing to do.
//
// Everything that reaches a task from outside goes through its inbox: frames,
// credits, and mail (triggers, notices, splits, the outcome of work, the end).
// The inbox is three slices under one lock that the task's goroutine swaps out
// whole, and a wake-up channel of capacity one. It has no size of its own: its
// bound is the credit that the subtask granted, and for mail the number of
// lanes and of checkpoints under way. So there is no lock and no atomic
// read-modify-write for a record, only some for a frame.
//
// Work that takes long runs on goroutines of its own, one for each lane at
// most, under a context that ends when the task is cancelled. The task ends
// only after all of them have.
//
// A panic of user code, on any of these goroutines, ends the task with a
// failure that has the message and the stack of the panic. So does
// runtime.Goexit. A panic on a goroutine that user code started itself cannot
// be caught and ends the process.
package task
