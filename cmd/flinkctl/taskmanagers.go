package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

func (c *cli) taskManagersCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "taskmanagers",
		Short:   "List the registered TaskManagers",
		Long:    "List the registered TaskManagers with their slots and task executors.",
		Example: "  flinkctl taskmanagers",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withJobManager(cmd.Context(), c.taskManagers)
		},
	}
}

func (c *cli) taskManagers(ctx context.Context, jobManager *transport.JobManager) error {
	response, err := read(ctx, &pb.ListTaskManagersRequest{}, jobManager.ListTaskManagers)
	if err != nil {
		return err
	}
	listed := make([]cliresult.TaskManager, 0, len(response.GetTaskManagers()))
	for _, t := range response.GetTaskManagers() {
		listed = append(listed, cliresult.TaskManager{
			ID: t.GetId(), Host: t.GetHost(), PID: t.GetPid(), Slots: t.GetSlots(), SlotsFree: t.GetSlotsFree(),
			Platform: t.GetPlatform(), Version: t.GetVersion(), Registered: timeOf(t.GetRegisteredUnixMs()), Executors: executorsOf(t),
		})
	}
	return c.result(listed, func() error {
		if len(listed) == 0 {
			return c.say("no TaskManagers\n")
		}
		rows := make([][]string, len(listed))
		for i, t := range listed {
			rows[i] = []string{t.ID, t.Host, fmt.Sprint(t.PID), fmt.Sprintf("%d of %d", t.SlotsFree, t.Slots), fmt.Sprint(len(t.Executors)),
				t.Platform, showTime(t.Registered)}
		}
		return c.table([]string{"ID", "HOST", "PID", "FREE SLOTS", "EXECUTORS", "PLATFORM", "REGISTERED"}, rows)
	})
}
