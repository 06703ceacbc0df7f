package main

import (
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/pb"
)

// renamedPlan is of a program that has renamed an operator.
func renamedPlan(problem string) *pb.PlanRestoreResponse {
	return &pb.PlanRestoreResponse{Kind: "savepoint", Checkpoint: 17, JobId: runningJob, Problem: problem, States: []*pb.RestoredState{
		{Operator: "flights", State: "splits", Kind: "splits", Match: "matches", OldParallelism: 2, NewParallelism: 3},
		{Operator: "delays", Match: "new", NewParallelism: 3},
		{Operator: "sums", State: "stats", Kind: "value", Match: "dropped", OldParallelism: 2},
	}}
}

const (
	planFrom    = "/sp/savepoint-17"
	planProblem = "cannot restore from /sp/savepoint-17: checkpoint 17 has state of operator \"sums\""
)

func TestDryRunPrintsWhatWouldBeRestored(t *testing.T) {
	jobManager, address := serve(t)
	program := jobProgram(t)
	for name, test := range map[string]struct {
		plan *pb.PlanRestoreResponse
		args []string
		code exitCode
	}{
		"refused": {renamedPlan(planProblem), []string{"--from-savepoint", planFrom}, codeRefused},
		"allowed": {renamedPlan(""), []string{"--from-savepoint", planFrom, "--allow-non-restored-state"}, codeOK},
		"empty":   {&pb.PlanRestoreResponse{States: []*pb.RestoredState{{Operator: "a", Match: "new", NewParallelism: 1}}}, nil, codeOK},
	} {
		for _, format := range []string{"json", "text"} {
			t.Run(name+"/"+format, func(t *testing.T) {
				jobManager.plan = test.plan
				args := append([]string{"submit", "--jobmanager", address, "--dry-run", "-o", format}, test.args...)
				stdout, stderr, code := flinkctl(t, append(args, program)...)
				if code != test.code {
					t.Fatalf("exit code %d: %s", code, stderr)
				}
				golden(t, "dry_run_"+name+"."+format, stdout)
				if refused := strings.Contains(stderr, "error: "+planProblem) && strings.Contains(stderr, "hint: --allow-non-restored-state"); refused != (code == codeRefused) {
					t.Errorf("exit code %d, printed\n%s", code, stderr)
				}
				if jobManager.planned.GetRestoreFrom() != "" && jobManager.planned.GetRestoreFrom() != planFrom {
					t.Errorf("asked for %s", jobManager.planned.GetRestoreFrom())
				}
				if jobManager.submitted != nil || len(jobManager.artifacts) > 0 {
					t.Error("a dry run uploaded or submitted something")
				}
			})
		}
	}
}

func TestSubmitPrintsWhatItRestoresBeforeAnythingStarts(t *testing.T) {
	jobManager, address := serve(t)
	program := jobProgram(t)
	jobManager.plan = renamedPlan(planProblem)
	stdout, stderr, code := flinkctl(t, "submit", "--jobmanager", address, "--detached", "--from-savepoint", planFrom, program)
	if code != codeRefused || stdout != "" || !strings.Contains(stderr, "sums      stats   value   dropped") || jobManager.submitted != nil || len(jobManager.artifacts) > 0 {
		t.Errorf("exit code %d, printed %q\n%s", code, stdout, stderr)
	}
	jobManager.plan = renamedPlan("")
	stdout, stderr, code = flinkctl(t, "submit", "--jobmanager", address, "--detached", "--from-savepoint", planFrom, "--allow-non-restored-state", program)
	if code != codeOK || stdout != "job-id: "+runningJob+"\n" || !strings.Contains(stderr, "sums      stats   value   dropped") {
		t.Errorf("exit code %d, printed %q\n%s", code, stdout, stderr)
	}
	if !jobManager.submitted.GetAllowNonRestoredState() || jobManager.submitted.GetRestoreFrom() != planFrom {
		t.Errorf("submitted %v", jobManager.submitted)
	}
	if jobManager.submitted.GetClaimRestored() {
		t.Error("the job claims its savepoint without being told to")
	}
	if _, stderr, code = flinkctl(t, "submit", "--jobmanager", address, "--detached", "--from-savepoint", planFrom, "--claim-mode", "claim", program); code != codeOK || !jobManager.submitted.GetClaimRestored() {
		t.Errorf("exit code %d, submitted %v\n%s", code, jobManager.submitted, stderr)
	}
	for _, flags := range [][]string{
		{"--allow-non-restored-state"}, {"--claim-mode", "claim"}, {"--claim-mode", "legacy", "--from-savepoint", planFrom},
	} {
		if _, stderr, code = flinkctl(t, append([]string{"submit", "--jobmanager", address, program}, flags...)...); code != codeUsage {
			t.Errorf("%v: exit code %d\n%s", flags, code, stderr)
		}
	}
}
