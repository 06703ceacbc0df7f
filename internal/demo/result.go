package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/flightstruth"
)

func (d *demo) finish(ctx context.Context) error {
	status, err := d.await(ctx, "the job finishes", func(s *cliresult.JobStatus) (bool, error) {
		return s.Status == cliresult.Finished, nil
	})
	if err != nil {
		return err
	}
	if status.Restarts < 1 {
		return errors.New("the job finished without a restart: the kill did not hit it")
	}
	tell("finished     %s after the kill, %d restart, %d checkpoints", seconds(time.Since(d.killedAt)), status.Restarts, status.LastCheckpoint)
	return nil
}

// check compares what is committed with the truth.
func (d *demo) check(context.Context) error {
	final, err := flightstruth.Committed(d.output)
	if err != nil {
		return err
	}
	if err := d.committed.Unchanged(final); err != nil {
		return err
	}
	tell("committed    %d files: the %d of before the kill are byte for byte the same", len(final), len(d.committed))
	result, err := d.truth.Check(final)
	if err != nil {
		return err
	}
	tell("records checked: %d of %d", result.Records, d.truth.Records)
	tell("duplicates: %d", result.Duplicates)
	tell("lost: %d", result.Lost)
	if err := result.Error(); err != nil {
		return fmt.Errorf("compare with the truth: %w", err)
	}
	return nil
}
