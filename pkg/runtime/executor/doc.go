// Package executor is a task executor: it runs the subtasks of one attempt of
// one job on one TaskManager. It lives for that attempt only.
//
// An Executor listens for the executors that consume from it, opens its
// session with the JobManager, is sent its tasks, runs them, and passes on
// what they report. The same Executor runs in a process of its own, which Main
// is the life of, and inside the process of a test or of `go run`.
//
// Reports are kept until the answer to a heartbeat says that the JobManager has
// them: it counts those of a session, which arrive in order. Heartbeats go
// ahead of them, for a report of many megabytes takes its time. A session that
// breaks is opened again and what was not acknowledged is sent again, for as long as 0.6 of the
// heartbeat timeout, counted on the monotonic clock from when the last
// acknowledged heartbeat was sent. Then the executor ends: the JobManager may
// have given it up, and must be able to rely on its silence. A refused hello
// ends it at once, its attempt being over (I8).
//
// Its end: when all tasks have ended, it waits to be told to go (its lifeline,
// the context of Run, or the end of the session), because an executor that
// left before its peers had finished would look lost to them. It then ends its
// streams in order. When it is told to go earlier, it does not wait.
package executor
