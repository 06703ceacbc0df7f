package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

func (c *cli) savepointCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "savepoint JOB [DIR]",
		Short: "Take a savepoint of a running job",
		Long: "Take a savepoint below DIR, a directory or an s3:// URI, or below the configured\n" +
			"execution.checkpointing.savepoint-dir. The job goes on. The last line printed is\n" +
			"\"savepoint: \" and the path to give to submit --from-savepoint.\n\n" +
			"savepoint dispose deletes one.",
		Example: "  flinkctl savepoint 4f2a\n  flinkctl savepoint 4f2a s3://weir/savepoints\n" +
			"  flinkctl savepoint dispose savepoints/savepoint-4f2a5100000000000000000000000001-17",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return oneJob(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := ""
			if len(args) == 2 {
				dir = args[1]
			}
			return c.savepoint(cmd.Context(), args[0], &pb.SavepointRequest{Dir: dir})
		},
	}
	cmd.AddCommand(c.disposeCommand())
	return cmd
}

// savepoint takes the savepoint of the request, with Stop the last thing the
// job does, and prints where it is.
func (c *cli) savepoint(ctx context.Context, given string, request *pb.SavepointRequest) error {
	return c.withJobManager(ctx, func(ctx context.Context, jobManager *transport.JobManager) error {
		dir, err := absoluteLocation(request.GetDir())
		if err != nil {
			return err
		}
		job, err := resolveJob(ctx, jobManager, given)
		if err != nil {
			return err
		}
		request.JobId, request.Dir = job, dir
		response, err := jobManager.Savepoint(ctx, request)
		if err != nil {
			return ofJob(job, err)
		}
		result := cliresult.Savepoint{Path: response.GetPath(), Checkpoint: response.GetCheckpoint()}
		return c.result(result, func() error {
			// The path alone may be wanted by a script, so it stands on the last line.
			return c.say("savepoint: %s\n", result.Path)
		})
	})
}

// absoluteLocation makes a relative path absolute: the JobManager has another
// working directory. URIs and the empty text stay.
func absoluteLocation(location string) (string, error) {
	if location == "" || strings.Contains(location, "://") {
		return location, nil
	}
	absolute, err := filepath.Abs(location)
	if err != nil {
		return "", fmt.Errorf("make %s absolute: %w", location, err)
	}
	return absolute, nil
}
