package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

func (c *cli) checkpointsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "checkpoints JOB",
		Short:   "List the latest checkpoints and savepoints of a job",
		Long:    "List the latest checkpoints and savepoints of a job, newest first.",
		Example: "  flinkctl checkpoints 4f2a",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withJobManager(cmd.Context(), func(ctx context.Context, jobManager *transport.JobManager) error {
				return c.checkpoints(ctx, jobManager, args[0])
			})
		},
	}
}

func (c *cli) checkpoints(ctx context.Context, jobManager *transport.JobManager, given string) error {
	job, err := resolveJob(ctx, jobManager, given)
	if err != nil {
		return err
	}
	response, err := read(ctx, &pb.ListCheckpointsRequest{JobId: job}, jobManager.ListCheckpoints)
	if err != nil {
		return err
	}
	listed := cliresult.Checkpoints{Completed: response.GetCompleted(), Failed: response.GetFailed(), Checkpoints: []cliresult.Checkpoint{}}
	for _, info := range response.GetCheckpoints() {
		listed.Checkpoints = append(listed.Checkpoints, cliresult.Checkpoint{
			ID: info.GetId(), Kind: info.GetKind(), Status: info.GetStatus(), Reason: info.GetReason(),
			Triggered: timeOf(info.GetTriggeredUnixMs()), DurationMS: info.GetDurationMs(), Size: info.GetSize(), Uploaded: info.GetUploaded(),
			Acked: info.GetAcked(), Subtasks: info.GetSubtasks(), Path: info.GetPath(),
		})
	}
	return c.result(listed, func() error {
		rows := make([][]string, len(listed.Checkpoints))
		for i, one := range listed.Checkpoints {
			state := one.Status
			if one.Reason != "" {
				state += " (" + one.Reason + ")"
			}
			rows[i] = []string{fmt.Sprint(one.ID), one.Kind, state, showTime(one.Triggered),
				(time.Duration(one.DurationMS) * time.Millisecond).String(), showBytes(one.Size), showBytes(one.Uploaded),
				fmt.Sprintf("%d/%d", one.Acked, one.Subtasks), showText(one.Path)}
		}
		if err := c.say("completed: %d, failed: %d\n", listed.Completed, listed.Failed); err != nil || len(rows) == 0 {
			return err
		}
		return c.table([]string{"ID", "KIND", "STATUS", "TRIGGERED", "DURATION", "SIZE", "UPLOADED", "ACKED", "PATH"}, rows)
	})
}
