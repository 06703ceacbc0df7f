package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

func (c *cli) listCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the jobs",
		Long:    "List the jobs that have not ended, or with --all also those that have.",
		Example: "  flinkctl list --all",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withJobManager(cmd.Context(), func(ctx context.Context, jobManager *transport.JobManager) error {
				return c.list(ctx, jobManager, all)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also list jobs that have ended")
	return cmd
}

func (c *cli) list(ctx context.Context, jobManager *transport.JobManager, all bool) error {
	response, err := read(ctx, &pb.ListJobsRequest{All: all}, jobManager.ListJobs)
	if err != nil {
		return err
	}
	jobs := make([]cliresult.Job, 0, len(response.GetJobs()))
	for _, job := range response.GetJobs() {
		jobs = append(jobs, cliresult.Job{
			ID: job.GetId(), Name: job.GetName(), Status: job.GetStatus(), Restarts: job.GetRestarts(),
			Submitted: timeOf(job.GetSubmittedUnixMs()), Ended: timeOf(job.GetEndedUnixMs()),
		})
	}
	return c.result(jobs, func() error {
		if len(jobs) == 0 {
			return c.say("no jobs\n")
		}
		rows := make([][]string, len(jobs))
		for i, job := range jobs {
			rows[i] = []string{job.ID, job.Name, job.Status, fmt.Sprint(job.Restarts), showTime(job.Submitted), showTime(job.Ended)}
		}
		return c.table([]string{"ID", "NAME", "STATUS", "RESTARTS", "SUBMITTED", "ENDED"}, rows)
	})
}
