// Package runtime is the TaskManager: it registers the slots of its host with
// the JobManager, fetches the binaries of jobs, and starts and supervises one
// task executor for each attempt of a job. What runs inside an executor is the
// matter of the packages below: executor, task, subtask, exchange.
//
// TaskManager keeps a session with the JobManager, opens it again when it
// breaks, and kills its executors when it has been cut off for 0.6 of the
// heartbeat time-out, counted from the last heartbeat that was acknowledged,
// on its own monotonic clock: the JobManager has then not yet given the slots
// to anybody else.
//
// Launcher is how an executor comes to life: as a process (ProcessLauncher) or
// inside this one (package minicluster). A process ends with its TaskManager
// in two independent ways. On Linux the kernel kills it when the thread that
// forked it exits: this follows the thread, not the process, so one goroutine
// that holds its thread for life does all forking. Everywhere, it holds the
// read end of a pipe of which this process has the only write end, and exits
// when that end is gone.
//
// The executors' output becomes the job's log: lines wait in a bounded buffer,
// and those that come faster than they can be sent are counted and dropped.
package runtime
