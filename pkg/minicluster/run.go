package minicluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/coordinator"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/pb"
)

// RunOptions are how Run runs a program.
type RunOptions struct {
	// Parallelism of operators that set none; 0 means the configuration's.
	Parallelism int
	// Slots are how many the one TaskManager has; 0 means as many as the job needs.
	Slots int
	// Config is set over the defaults, "key=value" each.
	Config []string
	// Dir is where checkpoints and all else goes; empty makes a directory
	// below io.tmp.dirs that is removed at the end.
	Dir string
	// Output takes what the job prints; nil drops it.
	Output io.Writer
	// Progress is called now and then with the job's status, and at its end.
	Progress func(*pb.JobStatusResponse)
	// Log takes the log of the cluster; nil for none.
	Log *zap.Logger
}

// progressInterval is the time between two calls of Progress.
const progressInterval = time.Second

// cancelTimeout bounds how long the job may take to end when ctx has.
const cancelTimeout = 30 * time.Second

// FailedError says why a job ended otherwise than by finishing.
type FailedError struct {
	// Status is its terminal status, in Flink's words.
	Status string
	// Cause is nil when it was cancelled.
	Cause *pb.Failure
}

// Error prints the status and the cause.
func (e *FailedError) Error() string {
	if e.Cause == nil {
		return "the job ended as " + e.Status
	}
	return fmt.Sprintf("the job ended as %s: %s", e.Status, e.Cause.GetMessage())
}

// Run runs a program on a cluster in this process and returns when the job
// has ended: nil when it finished, otherwise a *FailedError or why it could
// not be run. When ctx ends, the job is cancelled. name is the job's; empty
// takes the graph's.
func Run(ctx context.Context, name string, program *operator.Program, options RunOptions) (err error) {
	c, err := config.Load("", options.Config)
	if err != nil {
		return err
	}
	parallelism := options.Parallelism
	if parallelism == 0 {
		parallelism = config.DefaultParallelism.Get(c)
	}
	slots := options.Slots
	if slots == 0 {
		expanded, err := graph.Expand(program.Graph, parallelism)
		if err != nil {
			return err
		}
		slots = expanded.LargestParallelism()
	}
	dir := options.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp(config.TemporaryDirectory.Get(c), "weir-run-"); err != nil {
			return fmt.Errorf("make a directory for the job: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	cluster, err := Start(ctx, Options{
		// The job's need goes over what the configuration says, which is for hosts.
		Config: append(append([]string{}, options.Config...), config.TaskManagerSlots.Key()+"="+strconv.Itoa(slots)),
		Dir:    dir, Log: options.Log,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	job, err := cluster.Submit(ctx, program, JobOptions{Name: name, Parallelism: parallelism})
	if err != nil {
		return err
	}
	return cluster.follow(ctx, job, options)
}

// follow passes on what the job prints and does until it has ended.
func (c *Cluster) follow(ctx context.Context, job ids.JobID, options RunOptions) error {
	// The job ends after ctx: it is cancelled then, and its last words matter.
	lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var printing sync.WaitGroup
	defer printing.Wait()
	printing.Go(func() {
		// The job's log ends with the job; an output that cannot be written is its user's choice.
		_ = c.Logs(lasting, job, true, func(lines *pb.LogLines) error { return printLines(options.Output, lines) })
	})
	ended := make(chan struct{})
	var final *pb.JobStatusResponse
	var waitErr error
	printing.Go(func() {
		defer close(ended)
		final, waitErr = c.Wait(lasting, job)
	})
	if err := c.watch(ctx, job, ended, options.Progress); err != nil {
		stop()
		return err
	}
	if waitErr != nil {
		stop()
		return waitErr
	}
	if options.Progress != nil {
		options.Progress(final)
	}
	if final.GetStatus() == coordinator.FinishedStatus.String() {
		return nil
	}
	return &FailedError{Status: final.GetStatus(), Cause: final.GetCause()}
}

// watch reports progress until the job has ended, and cancels it when ctx ends.
func (c *Cluster) watch(ctx context.Context, job ids.JobID, ended <-chan struct{}, progress func(*pb.JobStatusResponse)) error {
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			return nil
		case <-ticker.C:
			if progress == nil {
				continue
			}
			status, err := c.Status(ctx, job)
			if err != nil {
				return err
			}
			progress(status)
		case <-ctx.Done():
			cancel, done := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
			defer done()
			if err := c.Cancel(cancel, job); err != nil {
				return fmt.Errorf("cancel job: %w", err)
			}
			<-ended
			return nil
		}
	}
}

func printLines(to io.Writer, lines *pb.LogLines) error {
	if to == nil {
		return nil
	}
	for _, line := range lines.GetLines() {
		if _, err := fmt.Fprintf(to, "%s> %s\n", line.GetSource(), line.GetText()); err != nil {
			return err
		}
	}
	return nil
}
