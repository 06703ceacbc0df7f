package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/flightstruth"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

func (d *demo) kill(context.Context) error {
	var err error
	if d.committed, err = flightstruth.Committed(d.output); err != nil {
		return err
	}
	if d.committed.Lines() == 0 {
		return errors.New("no line is committed before the kill: the demo would show nothing")
	}
	d.killedAt = time.Now()
	if err := syscall.Kill(d.victim.pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", d.victim.id, err)
	}
	tell("killed       %s (kill -9 %d), which ran subtasks %v of %q with state; %d lines in %d files were committed",
		d.victim.id, d.victim.pid, d.victim.subtasks, flightstruth.Counts, d.committed.Lines(), len(d.committed))
	return nil
}

// watchInterval is how exactly the recovery is timed. A flinkctl process for
// every look would be slower than what is measured.
const watchInterval = 5 * time.Millisecond

// recover times the recovery: noticed, then running again.
func (d *demo) recover(ctx context.Context) (err error) {
	jobManager, err := transport.DialJobManager(d.cluster.JobManager, transport.DialOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, jobManager.Close()) }()
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	noticed := false
	for {
		status, err := jobManager.JobStatus(ctx, &pb.JobStatusRequest{JobId: d.job})
		if err != nil {
			return err
		}
		since := time.Since(d.killedAt)
		if !noticed && (status.GetStatus() != cliresult.Running || status.GetRestarts() > 0) {
			noticed = true
			tell("noticed      after %s", seconds(since))
		}
		if noticed && allRun(status) {
			return d.recovered(ctx, status.GetRestoredCheckpoint(), since)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the job to run again, it is %s: %w", status.GetStatus(), context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// allRun reports whether the job and each of its subtasks runs.
func allRun(status *pb.JobStatusResponse) bool {
	for _, vertex := range status.GetVertices() {
		if vertex.GetTasks()[cliresult.Running] != vertex.GetParallelism() {
			return false
		}
	}
	return status.GetStatus() == cliresult.Running && len(status.GetVertices()) > 0
}

// recovered checks from where the job goes on.
func (d *demo) recovered(ctx context.Context, id uint64, took time.Duration) error {
	if id == 0 {
		return errors.New("the job was restored from no checkpoint")
	}
	restored := d.checkpoints[id]
	if restored == nil {
		// It was published between the last look and the kill, and is still there: two are retained.
		location := checkpointstore.CheckpointLocation(filepath.Join(d.cluster.Dir, "checkpoints"), ids.JobID(d.job), ids.CheckpointID(id))
		var err error
		if restored, err = flightstruth.Inspect(ctx, d.store, location.URI()); err != nil {
			return fmt.Errorf("read the checkpoint from which the job was restored: %w", err)
		}
	}
	if err := restored.ProvesRestore(d.victim.subtasks); err != nil {
		return err
	}
	tell("running      again after %s, from checkpoint %d with %d source positions, the last at byte %d",
		seconds(took), id, len(restored.Positions), slices.Max(restored.Positions))
	return nil
}
