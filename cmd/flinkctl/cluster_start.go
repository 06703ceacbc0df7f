package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/localcluster"
)

func (c *cli) clusterStartCommand() *cobra.Command {
	var (
		dir                 string
		taskManagers, slots int
		s3                  bool
		settings            []string
	)
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start a local cluster, or what is missing of it",
		Long: "Start a local cluster and return when every TaskManager is registered. Processes,\n" +
			"addresses, logs and checkpoints are in the cluster's directory. On a directory whose\n" +
			"cluster runs, start what is missing; flags that are left out have the values that\n" +
			"the cluster was started with. A JobManager that is started again has its old\n" +
			"address and goes on with its jobs.",
		Example: "  flinkctl cluster start --taskmanagers 3 --slots 2\n" +
			"  flinkctl cluster start --dir /tmp/c --s3 -D execution.checkpointing.interval=500ms",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			executable, err := os.Executable()
			if err != nil {
				return fail(cmd.Context(), fmt.Errorf("find flinkctl's own directory: %w", err))
			}
			programs := filepath.Dir(executable)
			options := localcluster.Options{
				Dir: dir, Programs: programs, Registered: registered, Progress: c.progress,
				S3Server: func() (string, error) { return findS3Server(programs) },
			}
			changed := cmd.Flags().Changed
			if changed("taskmanagers") {
				options.TaskManagers = &taskManagers
			}
			if changed("slots") {
				options.Slots = &slots
			}
			if changed("s3") {
				options.S3 = &s3
			}
			if changed("define") {
				options.Overrides = settings
			}
			started, err := localcluster.Start(cmd.Context(), options)
			if err != nil {
				return fail(cmd.Context(), err)
			}
			return c.printStarted(started)
		},
	}
	flags := cmd.Flags()
	addDirFlag(cmd, &dir)
	flags.IntVar(&taskManagers, "taskmanagers", 1, "run `N` TaskManagers")
	flags.IntVar(&slots, "slots", 2, "give each TaskManager `N` slots")
	flags.BoolVar(&s3, "s3", false, "start an S3 server (versitygw) as well, and keep checkpoints and savepoints on it")
	flags.StringArrayVarP(&settings, "define", "D", nil, "set a configuration option of the cluster as `key=value`; may be repeated")
	return cmd
}

func (c *cli) printStarted(started *localcluster.Cluster) error {
	if len(started.Started) == 0 {
		c.progress("everything runs already")
	}
	if started.JobManager != c.jobManager {
		c.progress("to use it: export " + addressVariable + "=" + started.JobManager)
	}
	processes := processesOf(started.Processes)
	return c.result(processes, func() error { return c.printProcesses(processes) })
}

// serverVariable names the environment variable with the path of versitygw.
const serverVariable = "WEIR_VERSITYGW"

// findS3Server looks where make and go install put it.
func findS3Server(programs string) (string, error) {
	const name = "versitygw"
	if path := os.Getenv(serverVariable); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			return "", &failure{code: codeUsage, message: fmt.Sprintf("$%s is %s, which cannot be executed", serverVariable, path), err: err}
		}
		return filepath.Abs(path)
	}
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Abs(path)
	}
	places := []string{filepath.Join(programs, name), filepath.Join(programs, "..", ".tools", "bin", name), filepath.Join(".tools", "bin", name)}
	if home, err := os.UserHomeDir(); err == nil {
		places = append(places, filepath.Join(home, "go", "bin", name))
	}
	for _, place := range places {
		if path, err := exec.LookPath(place); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", &failure{code: codeUsage, message: "--s3 needs the S3 server versitygw, which is not installed",
		hint: "CGO_ENABLED=0 go install github.com/versity/versitygw/cmd/versitygw@v1.8.0, or give its path in $" + serverVariable}
}
