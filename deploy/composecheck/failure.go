package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weirstream/weir/internal/clidriver"
	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/flightstruth"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/ids"
)

// output copies what is committed out of the volume and reads it.
func (c *check) output(ctx context.Context) (flightstruth.Files, error) {
	copied := filepath.Join(c.dir, "output")
	// A file that gets its final name while the directory is copied can fail the copy.
	err := clidriver.Poll(ctx, "a copy of the output", func() (bool, error) {
		if err := os.RemoveAll(copied); err != nil {
			return false, err
		}
		_, err := c.compose.docker(ctx, "cp", c.jobManager+":"+outputInside, copied)
		return err == nil, nil
	})
	if err != nil {
		return nil, err
	}
	return flightstruth.Committed(copied)
}

func (c *check) kill(ctx context.Context) error {
	var err error
	if c.committed, err = c.output(ctx); err != nil {
		return err
	}
	if c.committed.Lines() == 0 {
		return errors.New("no line is committed before the kill: the check would show nothing")
	}
	c.killedAt = time.Now()
	if _, err := c.compose.docker(ctx, "kill", c.victim); err != nil {
		return err
	}
	tell("killed container %s, whose TaskManager ran subtasks %v of %q with state; %d lines in %d files were committed",
		c.host, c.lost, flightstruth.Counts, c.committed.Lines(), len(c.committed))
	return nil
}

func (c *check) recover(ctx context.Context) error {
	status, err := c.driver.AwaitJob(ctx, c.job, "the job runs again", func(s *cliresult.JobStatus) (bool, error) {
		return s.Status == cliresult.Running && s.Restarts > 0, nil
	})
	if err != nil {
		return err
	}
	took := time.Since(c.killedAt)
	location := checkpointstore.CheckpointLocation(checkpoints, ids.JobID(c.job), ids.CheckpointID(status.RestoredCheckpoint))
	restored, err := c.inspect(ctx, location.URI())
	if err != nil {
		return fmt.Errorf("read the checkpoint from which the job was restored: %w", err)
	}
	if err := restored.ProvesRestore(c.lost); err != nil {
		return err
	}
	tell("running again on two TaskManagers after %.1f s, from checkpoint %d", took.Seconds(), restored.ID)
	return nil
}

func (c *check) finish(ctx context.Context) error {
	status, err := c.driver.AwaitJob(ctx, c.job, "the job finishes", func(s *cliresult.JobStatus) (bool, error) {
		return s.Status == cliresult.Finished, nil
	})
	if err != nil {
		return err
	}
	final, err := c.output(ctx)
	if err != nil {
		return err
	}
	if err := c.committed.Unchanged(final); err != nil {
		return err
	}
	result, err := c.truth.Check(final)
	if err != nil {
		return err
	}
	tell("finished with %d restart; %d files, the %d of before the kill unchanged", status.Restarts, len(final), len(c.committed))
	tell("records checked: %d of %d", result.Records, c.truth.Records)
	tell("duplicates: %d", result.Duplicates)
	tell("lost: %d", result.Lost)
	return result.Error()
}

// bringBack starts the killed container and sees its TaskManager registered.
func (c *check) bringBack(ctx context.Context) error {
	if err := c.awaitTaskManagers(ctx, taskManagers-1); err != nil {
		return err
	}
	if _, err := c.compose.docker(ctx, "start", c.victim); err != nil {
		return err
	}
	if err := c.awaitTaskManagers(ctx, taskManagers); err != nil {
		return err
	}
	tell("container %s is back and its TaskManager registered", c.host)
	return nil
}
