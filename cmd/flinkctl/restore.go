package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weirstream/weir/internal/cliresult"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/transport"
)

// planRestore shows what the submission would restore, before anything starts:
// on stdout as the result of a dry run, else on stderr. The error says why the
// submission would be refused.
func (c *cli) planRestore(ctx context.Context, jobManager *transport.JobManager, spec *pb.JobSpec, dryRun bool) error {
	response, err := jobManager.PlanRestore(ctx, &pb.PlanRestoreRequest{Spec: spec})
	if err != nil {
		return err
	}
	plan := cliresult.RestorePlan{
		From: spec.GetRestoreFrom(), Kind: response.GetKind(), Checkpoint: response.GetCheckpoint(), Job: response.GetJobId(),
		Problem: response.GetProblem(), States: []cliresult.RestoredState{},
	}
	dropped := false
	for _, s := range response.GetStates() {
		plan.States = append(plan.States, cliresult.RestoredState{
			Operator: s.GetOperator(), State: s.GetState(), Kind: s.GetKind(), Match: s.GetMatch(),
			OldParallelism: s.GetOldParallelism(), NewParallelism: s.GetNewParallelism(),
			Changes: s.GetChanges(),
		})
		dropped = dropped || s.GetMatch() == snapshot.Dropped.String()
	}
	if dryRun {
		err = c.result(plan, func() error { return printPlan(c.stdout, plan) })
	} else {
		err = printPlan(c.stderr, plan)
	}
	if err != nil || plan.Problem == "" {
		return err
	}
	f := &failure{code: codeRefused, message: plan.Problem}
	if dropped && !spec.GetAllowNonRestoredState() {
		f.hint = "--allow-non-restored-state starts the job without the state that is dropped"
	}
	return f
}

func printPlan(w io.Writer, plan cliresult.RestorePlan) error {
	title := "starts from nothing"
	if plan.From != "" {
		title = fmt.Sprintf("restores %s %d of job %s from %s", plan.Kind, plan.Checkpoint, plan.Job, plan.From)
	}
	if _, err := fmt.Fprintln(w, title); err != nil {
		return fmt.Errorf("print what is restored: %w", err)
	}
	rows := make([][]string, len(plan.States))
	columns := []string{"OPERATOR", "STATE", "KIND", "RESTORE", "OLD PARALLELISM", "NEW PARALLELISM"}
	changed := slices.ContainsFunc(plan.States, func(s cliresult.RestoredState) bool { return len(s.Changes) > 0 })
	if changed {
		columns = append(columns, "CHANGES")
	}
	for i, s := range plan.States {
		rows[i] = []string{s.Operator, showText(s.State), showText(s.Kind), s.Match,
			showNumber(uint64(s.OldParallelism)), showNumber(uint64(s.NewParallelism))}
		if changed {
			rows[i] = append(rows[i], showText(strings.Join(s.Changes, "; ")))
		}
	}
	return tableTo(w, columns, rows)
}
