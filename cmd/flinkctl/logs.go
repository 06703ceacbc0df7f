package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

func (c *cli) logsCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs JOB",
		Short: "Print what a job's print sinks and executors wrote",
		Long: "Print the latest lines of a job's print sinks and of its executors' own output, each\n" +
			"behind the operator and subtask, or the executor, that it is from. With -o json each\n" +
			"line is an object.",
		Example: "  flinkctl logs 4f2a --follow",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withJobManager(cmd.Context(), func(ctx context.Context, jobManager *transport.JobManager) error {
				job, err := resolveJob(ctx, jobManager, args[0])
				if err != nil {
					return err
				}
				err = jobManager.Logs(ctx, &pb.LogsRequest{JobId: job, Follow: follow}, c.printLogs)
				if follow && errors.Is(context.Cause(ctx), errInterrupted) {
					return nil // that is how following ends
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on printing until the job has ended")
	return cmd
}

func (c *cli) printLogs(lines *pb.LogLines) error {
	if dropped := lines.GetDropped(); dropped > 0 {
		if err := c.printLogLine(cliresult.LogLine{Source: "logs", Text: fmt.Sprintf("%d lines were lost here", dropped), Dropped: dropped}); err != nil {
			return err
		}
	}
	for _, line := range lines.GetLines() {
		if err := c.printLogLine(cliresult.LogLine{Time: timeOf(line.GetUnixMs()), Source: line.GetSource(), Text: line.GetText()}); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) printLogLine(line cliresult.LogLine) error {
	if c.output == jsonOutput {
		encoder := json.NewEncoder(c.stdout)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(line); err != nil {
			return fmt.Errorf("print logs: %w", err)
		}
		return nil
	}
	return c.say("%s> %s\n", line.Source, line.Text)
}
