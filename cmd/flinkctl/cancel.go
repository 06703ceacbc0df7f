package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

func (c *cli) cancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel JOB",
		Short: "Cancel a job",
		Long: "Cancel a job and wait until it has ended. Output that no checkpoint has committed is\n" +
			"given up; to be able to go on later, use stop instead.",
		Example: "  flinkctl cancel 4f2a",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withJobManager(cmd.Context(), func(ctx context.Context, jobManager *transport.JobManager) error {
				job, err := resolveJob(ctx, jobManager, args[0])
				if err != nil {
					return err
				}
				response, err := jobManager.CancelJob(ctx, &pb.CancelJobRequest{JobId: job})
				if err != nil {
					return ofJob(job, err)
				}
				return c.result(cliresult.Cancellation{ID: job, Status: response.GetStatus()}, func() error {
					return c.say("job %s is %s\n", job, response.GetStatus())
				})
			})
		},
	}
}
