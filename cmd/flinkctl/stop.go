package main

import (
	"github.com/spf13/cobra"

	"github.com/weirstream/weir/pkg/pb"
)

func (c *cli) stopCommand() *cobra.Command {
	var dir string
	var drain bool
	cmd := &cobra.Command{
		Use:   "stop JOB",
		Short: "Stop a job with a savepoint",
		Long: "Take a savepoint and end the job there: it reads and emits nothing behind it, and\n" +
			"everything before it is committed when the command returns. The last line printed is\n" +
			"\"savepoint: \" and the path to give to submit --from-savepoint. When a subtask cannot\n" +
			"take its part the command fails with the reason, and the job goes on.\n\n" +
			"Without --drain event time stands still: windows that are open stay open, and a job\n" +
			"restored from the savepoint goes on with them. With --drain the watermark goes to the\n" +
			"end of time first: all windows close, all event-time timers fire, and the results are\n" +
			"part of the output. There is nothing left to do then: a job restored from such a\n" +
			"savepoint ends at once. Use it to end a job for good. A drained stop that fails restarts\n" +
			"the job from its last checkpoint, because its tasks cannot go back in time.",
		Example: "  flinkctl stop 4f2a\n  flinkctl stop 4f2a --savepoint-dir savepoints\n  flinkctl stop 4f2a --drain",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.savepoint(cmd.Context(), args[0], &pb.SavepointRequest{Dir: dir, Stop: true, Drain: drain})
		},
	}
	cmd.Flags().StringVar(&dir, "savepoint-dir", "", "take the savepoint below `DIR`, a directory or an s3:// URI, instead of the configured one")
	cmd.Flags().BoolVar(&drain, "drain", false, "bring event time to its end first: the job cannot be gone on with")
	return cmd
}
