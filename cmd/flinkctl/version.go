package main

import (
	"context"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/jobbuild"
	"github.com/weirstream/weir/internal/version"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

func (c *cli) versionCommand() *cobra.Command {
	var cluster bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of flinkctl",
		Long:    "Print the version of flinkctl, and with --cluster also that of the JobManager.",
		Example: "  flinkctl version --cluster",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			printed := cliresult.Version{Version: version.String(), Go: runtime.Version(), Platform: jobbuild.Host().String()}
			if !cluster {
				return c.printVersion(printed)
			}
			return c.withJobManager(cmd.Context(), func(ctx context.Context, jobManager *transport.JobManager) error {
				info, err := read(ctx, &pb.ClusterInfoRequest{}, jobManager.ClusterInfo)
				if err != nil {
					return err
				}
				printed.JobManager = &cliresult.JobManagerVersion{
					Address: c.jobManager, Version: info.GetVersion(), WireVersion: info.GetWireVersion(), ClusterID: info.GetClusterId(),
				}
				return c.printVersion(printed)
			})
		},
	}
	cmd.Flags().BoolVar(&cluster, "cluster", false, "also ask the JobManager for its version")
	return cmd
}

func (c *cli) printVersion(v cliresult.Version) error {
	return c.result(v, func() error {
		if err := c.say("flinkctl %s (%s, %s)\n", v.Version, v.Go, v.Platform); err != nil || v.JobManager == nil {
			return err
		}
		return c.say("JobManager at %s: %s, wire version %d, cluster %s\n",
			v.JobManager.Address, v.JobManager.Version, v.JobManager.WireVersion, v.JobManager.ClusterID)
	})
}
