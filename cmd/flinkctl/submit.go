package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/internal/jobbuild"
	"github.com/weirstream/weir/pkg/config"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

// submission is what the flags of submit say.
type submission struct {
	program, name, from string
	claimMode           string
	args                []string
	parallelism         int32
	detached, dryRun    bool
	allowNonRestored    bool
	settings            []string
	environment         []string
}

// The values of --claim-mode.
const (
	noClaim = "no-claim"
	claim   = "claim"
)

func (c *cli) submitCommand() *cobra.Command {
	var s submission
	cmd := &cobra.Command{
		Use:   "submit PROGRAM [-- ARGS...]",
		Short: "Build a job program and run it on the cluster",
		Long: "Build PROGRAM, a Go package, for the cluster's platform, upload it and run it with ARGS.\n" +
			"PROGRAM may also be a binary, static and built for that platform. The job's ID is\n" +
			"printed as \"job-id: \" on stdout.\n\n" +
			"Paths in ARGS are opened where the job runs, not here: give absolute ones. A relative\n" +
			"one starts at the TaskManager's directory, for a local cluster the one it was started in.\n\n" +
			"Without --detached the command then shows the job's progress until it ends, and exits\n" +
			"0 when it finished. Ctrl-C ends the command, not the job: cancel does that.\n\n" +
			"With --from-savepoint the job starts from a savepoint or retained checkpoint, such as the older\n" +
			"one that the status of a job names that failed because its newest is corrupt. State is\n" +
			"matched by the UID of its operator, and before anything starts a table on stderr says\n" +
			"what matches, what is new and what would be dropped. Dropped state is an error unless\n" +
			"--allow-non-restored-state is given. --dry-run prints the table and starts nothing.\n\n" +
			"--claim-mode says whose the savepoint is. With no-claim it stays yours: the job never\n" +
			"deletes it, and needs it until its first own checkpoint. With claim it becomes the job's\n" +
			"with the first own checkpoint: then it counts as a retained checkpoint, and is deleted\n" +
			"like one, by execution.checkpointing.num-retained or when the job ends.",
		Example: "  flinkctl submit ./examples/flights -- --input $PWD/examples/flights/flights.jsonl --output /tmp/flights\n" +
			"  flinkctl submit --detached --parallelism 4 -D execution.checkpointing.interval=500ms ./myjob\n" +
			"  flinkctl submit --from-savepoint savepoints/savepoint-4f2a5100000000000000000000000001-17 ./myjob\n" +
			"  flinkctl submit --dry-run --from-savepoint savepoints/savepoint-4f2a5100000000000000000000000001-17 ./myjob",
		Args: func(cmd *cobra.Command, args []string) error {
			programs := args
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				programs = args[:dash]
			}
			switch len(programs) {
			case 0:
				return errors.New("submit needs a program: a Go package path or a binary")
			case 1:
				return nil
			}
			return fmt.Errorf("submit takes one program, not also %q: the program's own arguments go behind --", programs[1])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s.program, s.args = args[0], args[1:]
			return c.withJobManager(cmd.Context(), func(ctx context.Context, jobManager *transport.JobManager) error {
				return c.submit(ctx, jobManager, s)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&s.detached, "detached", false, "return when the job is accepted")
	flags.StringVar(&s.name, "name", "", "`NAME` of the job instead of the program's own")
	flags.Int32Var(&s.parallelism, "parallelism", 0, "run each operator that sets no number itself in `N` subtasks; 0 takes parallelism.default")
	flags.StringVar(&s.from, "from-savepoint", "", "start from the savepoint or checkpoint at `PATH`")
	flags.BoolVar(&s.allowNonRestored, "allow-non-restored-state", false, "drop the state of operators that the program does not have")
	flags.StringVar(&s.claimMode, "claim-mode", noClaim, "whose the savepoint is from then on: `no-claim|claim`")
	flags.BoolVar(&s.dryRun, "dry-run", false, "print what would be restored, and start nothing")
	flags.StringArrayVarP(&s.settings, "define", "D", nil, "set a configuration option of the job as `key=value`; may be repeated")
	flags.StringArrayVar(&s.environment, "env", nil, "set an environment variable of the program as `KEY=VALUE`; may be repeated")
	return cmd
}

func (c *cli) submit(ctx context.Context, jobManager *transport.JobManager, s submission) error {
	spec, err := c.describe(s)
	if err != nil {
		return err
	}
	info, err := read(ctx, &pb.ClusterInfoRequest{}, jobManager.ClusterInfo)
	if err != nil {
		return err
	}
	job, remove, err := c.build(ctx, s, info)
	if err != nil {
		return err
	}
	defer remove()
	spec.Graph, spec.ArtifactSha256 = job.Graph, job.SHA256
	if spec.Name == "" {
		spec.Name = job.Graph.GetName()
	}
	if s.dryRun || s.from != "" {
		if err := c.planRestore(ctx, jobManager, spec, s.dryRun); err != nil || s.dryRun {
			return err
		}
	}
	if err := c.upload(ctx, jobManager, job); err != nil {
		return err
	}
	accepted, err := jobManager.SubmitJob(ctx, &pb.SubmitJobRequest{Spec: spec})
	if errors.Is(err, transport.ErrRefused) {
		// There is no job yet whose status could be the wrong one.
		return &failure{code: codeRefused, message: err.Error(), err: err}
	}
	if err != nil {
		return err
	}
	for _, warning := range accepted.GetWarnings() {
		c.progress("warning: " + warning)
	}
	printed := cliresult.Submitted{ID: accepted.GetJobId(), Name: spec.GetName(), Warnings: append([]string{}, accepted.GetWarnings()...)}
	if err := c.result(printed, func() error { return c.say("job-id: %s\n", printed.ID) }); err != nil || s.detached {
		return err
	}
	return c.watch(ctx, jobManager, printed.ID)
}

// describe checks the flags and makes of them what does not depend on the program.
func (c *cli) describe(s submission) (*pb.JobSpec, error) {
	var none *config.Config
	settings, err := none.WithJob(s.settings)
	if err != nil {
		return nil, err
	}
	if s.parallelism < 0 {
		return nil, &failure{code: codeUsage, message: fmt.Sprintf("--parallelism is %d: give 1 or more", s.parallelism)}
	}
	if s.allowNonRestored && s.from == "" {
		return nil, &failure{code: codeUsage, message: "--allow-non-restored-state says what to do with a savepoint: give --from-savepoint too"}
	}
	switch {
	case s.claimMode != noClaim && s.claimMode != claim:
		return nil, &failure{code: codeUsage, message: fmt.Sprintf("--claim-mode is %q: give no-claim or claim", s.claimMode)}
	case s.claimMode == claim && s.from == "":
		return nil, &failure{code: codeUsage, message: "--claim-mode claim is about a savepoint: give --from-savepoint too"}
	}
	from, err := absoluteLocation(s.from)
	if err != nil {
		return nil, err
	}
	spec := &pb.JobSpec{Name: s.name, Args: s.args, Config: settings.Map(), Parallelism: s.parallelism, RestoreFrom: from,
		AllowNonRestoredState: s.allowNonRestored, ClaimRestored: s.claimMode == claim, Environment: map[string]string{}}
	for _, variable := range s.environment {
		key, value, ok := strings.Cut(variable, "=")
		if !ok || key == "" {
			return nil, &failure{code: codeUsage, message: "--env: give it as KEY=VALUE"}
		}
		spec.Environment[key] = value
	}
	return spec, nil
}

// build makes the binary and the graph. remove removes what was built.
func (c *cli) build(ctx context.Context, s submission, info *pb.ClusterInfoResponse) (job *jobbuild.Job, remove func(), err error) {
	platform, err := platformOf(info)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "flinkctl-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a directory to build in: %w", err)
	}
	// What cannot be removed lies in the system's directory for that.
	remove = func() { _ = os.RemoveAll(dir) }
	job, err = jobbuild.Make(ctx, jobbuild.Request{
		Program: s.program, Args: s.args, Environment: s.environment, Platform: platform, Dir: dir, Progress: c.progress,
	})
	if err == nil {
		err = checkWireVersion(s.program, job.Graph.GetWireVersion(), info)
	}
	if err != nil {
		remove()
		return nil, nil, err
	}
	return job, remove, nil
}

// checkWireVersion refuses a program that could not talk to the cluster.
// Version 0 is of programs that do not say theirs: their executors are checked.
func checkWireVersion(program string, version uint32, info *pb.ClusterInfoResponse) error {
	if version == 0 || version == info.GetWireVersion() {
		return nil
	}
	return &failure{code: codeProgram,
		message: fmt.Sprintf("%s speaks wire version %d, the cluster (%s) wire version %d", program, version, info.GetVersion(), info.GetWireVersion()),
		hint:    "build the program with the version of Weir that the cluster has"}
}

// platformOf is the one that all TaskManagers have, the JobManager's while there are none.
func platformOf(info *pb.ClusterInfoResponse) (jobbuild.Platform, error) {
	platforms := slices.Compact(slices.Sorted(slices.Values(info.GetPlatforms())))
	switch len(platforms) {
	case 0:
		return jobbuild.ParsePlatform(info.GetDefaultPlatform())
	case 1:
		return jobbuild.ParsePlatform(platforms[0])
	}
	return jobbuild.Platform{}, &failure{code: codeRefused,
		message: "the TaskManagers run on different platforms: " + strings.Join(platforms, ", "),
		hint:    "a job is one binary: run TaskManagers of one platform"}
}
