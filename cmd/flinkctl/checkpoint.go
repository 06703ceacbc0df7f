package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

func (c *cli) checkpointCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "checkpoint JOB",
		Short: "Take a checkpoint of a running job now",
		Long: "Take a checkpoint now, beside the job's interval and min-pause, and wait until it is\n" +
			"complete. It is one like the periodic ones: it commits the output before it, and the\n" +
			"job deletes it when newer ones have replaced it. For a copy that stays, take a\n" +
			"savepoint.\n\n" +
			"The command fails with the reason when the checkpoint does, also when a newer one\n" +
			"completed first (\"subsumed\": then that one has all of it).",
		Example: "  flinkctl checkpoint 4f2a",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withJobManager(cmd.Context(), func(ctx context.Context, jobManager *transport.JobManager) error {
				job, err := resolveJob(ctx, jobManager, args[0])
				if err != nil {
					return err
				}
				response, err := jobManager.CheckpointJob(ctx, &pb.CheckpointJobRequest{JobId: job})
				if err != nil {
					return ofJob(job, err)
				}
				result := cliresult.TakenCheckpoint{ID: response.GetCheckpoint(), Path: response.GetPath()}
				return c.result(result, func() error {
					return c.say("checkpoint: %d %s\n", result.ID, result.Path)
				})
			})
		},
	}
}
