package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// cli is one invocation: its streams and the flags that all verbs share.
type cli struct {
	stdout, stderr io.Writer
	jobManager     string
	output         string
	verbose        bool
}

const (
	textOutput = "text"
	jsonOutput = "json"
)

// addressVariable names the environment variable with the JobManager's address.
const addressVariable = "WEIR_JOBMANAGER"

// defaultAddress is where a JobManager listens by default.
const defaultAddress = "127.0.0.1:6123"

func (c *cli) run(ctx context.Context, args []string) int {
	root := c.command()
	root.SetArgs(args)
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return int(codeOK)
	}
	var f *failure
	if !errors.As(err, &f) {
		// Verbs return failures only: everything else is what cobra says about the command line.
		f = &failure{code: codeUsage, message: oneLine(err.Error()), hint: usageHint(cmd, err)}
	}
	f.print(c.stderr, c.verbose)
	return int(f.code)
}

func usageHint(cmd *cobra.Command, err error) string {
	if cmd.Name() == "submit" && strings.Contains(err.Error(), "unknown") && strings.Contains(err.Error(), "flag") {
		return "the program's own flags go behind --, as in: flinkctl submit ./examples/flights -- --rate 1000"
	}
	return "see " + cmd.CommandPath() + " --help"
}

func (c *cli) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "flinkctl",
		Short: "Run jobs on a Weir cluster",
		Long: "flinkctl builds and submits job programs, watches and ends jobs, takes and inspects\n" +
			"savepoints, and runs a local cluster of real processes.\n\n" + exitCodes,
		Example:       "  flinkctl cluster start --taskmanagers 3\n  flinkctl submit ./examples/flights -- --input $PWD/examples/flights/flights.jsonl --output /tmp/flights",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if c.output != textOutput && c.output != jsonOutput {
				return fmt.Errorf("-o %s: give text or json", c.output)
			}
			return nil
		},
	}
	address := os.Getenv(addressVariable)
	if address == "" {
		address = defaultAddress
	}
	flags := root.PersistentFlags()
	flags.StringVar(&c.jobManager, "jobmanager", address, "`HOST:PORT` of the JobManager; the default is taken from $"+addressVariable)
	flags.StringVarP(&c.output, "output", "o", textOutput, "how results are printed: `text|json`")
	flags.BoolVar(&c.verbose, "verbose", false, "show the whole chain of an error, and stacks")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		c.submitCommand(), c.listCommand(), c.statusCommand(), c.cancelCommand(), c.checkpointCommand(), c.savepointCommand(), c.stopCommand(),
		c.inspectCommand(),
		c.checkpointsCommand(), c.logsCommand(), c.taskManagersCommand(), c.clusterCommand(), c.versionCommand(),
	)
	return root
}

const exitCodes = `Exit codes: 0 done; 1 the job failed, files are broken, or another error; 2 wrong
command line or configuration; 3 JobManager or store not reachable; 4 no such job,
cluster, checkpoint or state; 5 not in a status that allows it; 6 the program cannot
be submitted; 7 refused by the cluster or store; 8 the job was cancelled while submit
waited; 130 interrupted.`
