// Command flinkctl is the command line of a Weir cluster: it builds and submits
// job programs, watches and ends jobs, takes and inspects savepoints, and
// runs a local cluster of real processes.
//
// Results go to stdout, as text or with -o json as JSON; progress goes to
// stderr. An error is one line, "error: …", with a "hint: …" where there is
// something to do about it, and an exit code of its kind:
//
//	0    done
//	1    the job failed, files of a checkpoint are broken, or something that has
//	     no code of its own
//	2    wrong flags, arguments or configuration keys
//	3    the JobManager or a store cannot be reached
//	4    there is no such job, cluster, checkpoint or state
//	5    the job or cluster is not in a status that allows it
//	6    the program cannot be submitted: it does not compile, builds no graph,
//	     or its binary cannot run on the cluster
//	7    the cluster or store refuses it: storage, savepoint or configuration of the job
//	8    the job that submit waited for was cancelled
//	130  interrupted; a job that submit waited for goes on
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// run returns the exit code.
func run(args []string) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-signals:
			// A second signal ends the process in the system's way.
			signal.Stop(signals)
			cancel(errInterrupted)
		case <-done:
		}
	}()
	c := &cli{stdout: os.Stdout, stderr: os.Stderr}
	return c.run(ctx, args)
}

var errInterrupted = errors.New("interrupted")
