package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/localcluster"
)

func (c *cli) clusterStopCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop a local cluster",
		Long: "Stop a local cluster and return when all its processes, task executors included, have\n" +
			"ended and their ports are free. Jobs that run go on when it is started again.",
		Example: "  flinkctl cluster stop --dir /tmp/c",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			stopped, err := localcluster.Stop(cmd.Context(), dir, c.progress)
			if err != nil {
				return fail(cmd.Context(), err)
			}
			processes, err := localcluster.Status(dir)
			if err != nil {
				return fail(cmd.Context(), err)
			}
			return c.result(processesOf(processes), func() error {
				if len(stopped) == 0 {
					return c.say("nothing was running\n")
				}
				return c.say("stopped %s\n", strings.Join(stopped, ", "))
			})
		},
	}
	addDirFlag(cmd, &dir)
	return cmd
}
