package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/snapshot"
)

func (c *cli) disposeCommand() *cobra.Command {
	var settings []string
	var leftBehind bool
	cmd := &cobra.Command{
		Use:   "dispose PATH",
		Short: "Delete a savepoint",
		Long: "Delete the savepoint at PATH, a directory or an s3:// URI, without a cluster. Only\n" +
			"files that belong to the savepoint are deleted: what else lies in its directory stays.\n" +
			"A checkpoint is refused, since its job deletes it, unless --left-behind says that the job has\n" +
			"ended and left it behind: then files stay that other checkpoints of the job share. No cluster\n" +
			"is asked, so whether the job runs, and goes on from that checkpoint, is for you to know.\n" +
			"Nor is it checked whether a job still needs the savepoint: one that was started from it does\n" +
			"until its first own checkpoint.",
		Example: "  flinkctl savepoint dispose savepoints/savepoint-4f2a5100000000000000000000000001-17\n" +
			"  flinkctl savepoint dispose -D s3.endpoint=http://127.0.0.1:9000 s3://weir/savepoints/savepoint-…-17",
		Args: onePath("savepoint dispose"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.dispose(cmd.Context(), args[0], settings, leftBehind); err != nil {
				return failStored(cmd.Context(), args[0], err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&leftBehind, "left-behind", false, "delete a checkpoint whose job has ended")
	cmd.Flags().StringArrayVarP(&settings, "define", "D", nil, "set a configuration option as `key=value`, as in s3.endpoint; may be repeated")
	return cmd
}

func (c *cli) dispose(ctx context.Context, path string, settings []string, leftBehind bool) error {
	return withStored(path, settings, func(opener checkpointstore.Opener, location string) error {
		disposed, err := checkpointstore.New(opener).DisposeSavepoint(ctx, location, leftBehind)
		if errors.Is(err, checkpointstore.ErrNoSavepoint) {
			return &failure{code: codeRefused, message: err.Error(), err: err,
				hint: "execution.checkpointing.num-retained and externalized-checkpoint-retention say when a job deletes its checkpoints; give --left-behind if the job has ended"}
		}
		if err != nil {
			return err
		}
		kind := "savepoint"
		if disposed.Kind == snapshot.Checkpoint || disposed.Kind == snapshot.FinalCheckpoint {
			kind = "checkpoint"
		}
		result := cliresult.Disposed{Path: location, Job: string(disposed.Job), Checkpoint: uint64(disposed.ID)}
		return c.result(result, func() error {
			return c.say("disposed: %s %d of job %s, %s\n", kind, result.Checkpoint, result.Job, result.Path)
		})
	})
}
