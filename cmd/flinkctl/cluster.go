package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/localcluster"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

// defaultClusterDir is where a local cluster lives unless told otherwise.
const defaultClusterDir = "cluster"

func (c *cli) clusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Run a local cluster of real processes",
		Long: "Run a local cluster: a JobManager, TaskManagers and, if wanted, an S3 server as\n" +
			"processes on this host's loopback interface, which go on when flinkctl ends.",
		Example: "  flinkctl cluster start --taskmanagers 3\n  flinkctl cluster status\n  flinkctl cluster stop",
		Args:    cobra.NoArgs,
		// Without this cobra would show the help for a verb that does not exist, and call it success.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.clusterStartCommand(), c.clusterStopCommand(), c.clusterStatusCommand())
	return cmd
}

func addDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", defaultClusterDir, "the cluster's `directory`")
}

// registered asks the JobManager of a local cluster for the PIDs of its TaskManagers.
func registered(ctx context.Context, address string) (pids []int, err error) {
	jobManager, err := transport.DialJobManager(address, transport.DialOptions{})
	if err != nil {
		return nil, err
	}
	response, err := read(ctx, &pb.ListTaskManagersRequest{}, jobManager.ListTaskManagers)
	if closeErr := jobManager.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, err
	}
	for _, taskManager := range response.GetTaskManagers() {
		pids = append(pids, int(taskManager.GetPid()))
	}
	return pids, nil
}

func processesOf(processes []localcluster.Process) []cliresult.Process {
	printed := make([]cliresult.Process, 0, len(processes))
	for _, p := range processes {
		printed = append(printed, cliresult.Process{Name: p.Name, Role: string(p.Role), PID: p.PID, Address: p.Address, Log: p.Log})
	}
	return printed
}

func (c *cli) printProcesses(processes []cliresult.Process) error {
	rows := make([][]string, len(processes))
	for i, p := range processes {
		pid := "stopped"
		if p.PID != 0 {
			pid = fmt.Sprint(p.PID)
		}
		rows[i] = []string{p.Name, pid, p.Address, p.Log}
	}
	return c.table([]string{"NAME", "PID", "ADDRESS", "LOG"}, rows)
}
