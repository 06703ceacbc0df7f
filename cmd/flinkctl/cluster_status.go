package main

import (
	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/localcluster"
)

func (c *cli) clusterStatusCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the processes of a local cluster",
		Long:    "Show the processes of a local cluster with PID, address and log. The PID of a process\nthat does not run is 0 in JSON.",
		Example: "  flinkctl cluster status -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			processes, err := localcluster.Status(dir)
			if err != nil {
				return fail(cmd.Context(), err)
			}
			printed := processesOf(processes)
			return c.result(printed, func() error { return c.printProcesses(printed) })
		},
	}
	addDirFlag(cmd, &dir)
	return cmd
}
