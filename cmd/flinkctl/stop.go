package main

import "github.com/spf13/cobra"

func (c *cli) stopCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "stop JOB",
		Short: "Stop a job with a savepoint",
		Long: "Take a savepoint and end the job there: it reads and emits nothing behind it, and\n" +
			"everything before it is committed when the command returns. The last line printed is\n" +
			"\"savepoint: \" and the path to give to submit --from-savepoint.",
		Example: "  flinkctl stop 4f2a\n  flinkctl stop 4f2a --savepoint-dir savepoints",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.savepoint(cmd.Context(), args[0], dir, true)
		},
	}
	cmd.Flags().StringVar(&dir, "savepoint-dir", "", "take the savepoint below `DIR`, a directory or an s3:// URI, instead of the configured one")
	return cmd
}
