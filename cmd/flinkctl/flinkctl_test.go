package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/transport"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestOutput holds the printed results, in JSON and as text, to golden files:
// scripts depend on them.
func TestOutput(t *testing.T) {
	local := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = local })
	_, address := serve(t)
	for name, args := range map[string]string{
		"list": "list", "list_all": "list --all", "status": "status 4f2a", "cancel": "cancel 4f2a", "savepoint": "savepoint 4f2a",
		"stop": "stop " + runningJob, "checkpoint": "checkpoint 4f2a", "checkpoints": "checkpoints 4f2a",
		"checkpoint_completed": "checkpoints 4f2a --id 17", "checkpoint_declined": "checkpoints 4f2a --id 16", "checkpoint_in_progress": "checkpoints 4f2a --id 18",
		"taskmanagers": "taskmanagers", "logs": "logs 4f2a",
	} {
		for _, format := range []string{"json", "text"} {
			t.Run(name+"/"+format, func(t *testing.T) {
				stdout, stderr, code := flinkctl(t, append(strings.Fields(args), "--jobmanager", address, "-o", format)...)
				if code != codeOK {
					t.Fatalf("exit code %d: %s", code, stderr)
				}
				golden(t, name+"."+format, stdout)
			})
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal([]byte(got), want) {
		t.Errorf("%s differs; run with -update if that is meant:\n%s", name, got)
	}
}

func TestErrors(t *testing.T) {
	_, address := serve(t)
	for _, test := range []struct {
		name, args string
		code       exitCode
		want       string
	}{
		{"unknown verb", "flisst", codeUsage, "unknown command"},
		{"unknown verb of cluster", "cluster begin", codeUsage, "unknown command"},
		{"unknown flag", "list --every", codeUsage, "unknown flag"},
		{"wrong output", "list -o yaml", codeUsage, "text or json"},
		{"job without ID", "status", codeUsage, "needs a job ID"},
		{"two jobs", "cancel 1 2", codeUsage, "takes one job ID"},
		{"no job ID", "status flights", codeUsage, "is not a job ID"},
		{"ambiguous prefix", "status 4f2", codeUsage, "2 jobs"},
		{"unknown job by prefix", "status 77", codeNotFound, "there is no job 77"},
		{"unknown job", "status 77777777777777777777777777777777", codeNotFound, "there is no job 7777"},
		{"unknown checkpoint", "checkpoints 4f2a --id 99", codeNotFound, "has no checkpoint 99 that is remembered: there are 3, from 16 to 18"},
		{"no checkpoint", "checkpoints 4f2a --id x", codeUsage, "invalid argument"},
		{"cancel of a finished job", "cancel 4f2b", codeStatus, "already FINISHED"},
		{"nobody listens", "list --jobmanager 127.0.0.1:1", codeUnreachable, "127.0.0.1:1"},
		{"address without port", "list --jobmanager weir", codeUsage, "host:port"},
		{"submit of nothing", "submit", codeUsage, "needs a program"},
		{"submit of two programs", "submit a b", codeUsage, "go behind --"},
		{"flag of the program", "submit ./a --rate 1", codeUsage, "go behind --"},
		{"unknown key", "submit -D slot.request.timeut=1s ./a", codeUsage, "nearest is slot.request.timeout"},
		{"key of the cluster", "submit -D jobmanager.rpc.port=1 ./a", codeUsage, "belongs to the cluster"},
		{"wrong value", "submit -D execution.checkpointing.interval=fast ./a", codeUsage, "execution.checkpointing.interval"},
		{"no such program", "submit ./no/such/program", codeProgram, "there is no program"},
		{"no cluster", "cluster status --dir " + t.TempDir(), codeNotFound, "there is no cluster"},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := strings.Fields(test.args)
			if !strings.Contains(test.args, "--jobmanager") {
				args = append([]string{"--jobmanager", address}, args...)
			}
			stdout, stderr, code := flinkctl(t, args...)
			if code != test.code || !strings.Contains(stderr, test.want) {
				t.Errorf("exit code %d, want %d; stderr has to contain %q:\n%s", code, test.code, test.want, stderr)
			}
			if stdout != "" {
				t.Errorf("an error printed a result: %s", stdout)
			}
			if !strings.HasPrefix(stderr, "error: ") || strings.Count(stderr, "\n") > 2 {
				t.Errorf("an error is one line and a hint, not:\n%s", stderr)
			}
		})
	}
}

func TestErrorsOfSeveralLinesAreOneLine(t *testing.T) {
	if got, want := oneLine("the program builds another graph:\nA is built\nB is not\n"), "the program builds another graph: A is built; B is not"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTraceOnlyWhenVerbose(t *testing.T) {
	_, stderr, _ := flinkctl(t, "list", "--jobmanager", "127.0.0.1:1")
	if strings.Contains(stderr, "trace:") {
		t.Errorf("a trace without --verbose:\n%s", stderr)
	}
	if strings.Count(stderr, "--jobmanager") != 1 {
		t.Errorf("how to name another JobManager has to be said once:\n%s", stderr)
	}
	if _, stderr, _ = flinkctl(t, "list", "--jobmanager", "127.0.0.1:1", "--verbose"); !strings.Contains(stderr, "trace: *transport.Error") {
		t.Errorf("no trace with --verbose:\n%s", stderr)
	}
}

// jobSource is a program that writes a graph with one source, without Weir.
const jobSource = `package main

import (
	"fmt"
	"os"
)

func main() { fmt.Fprint(os.NewFile(3, "graph"), "\n\x03job\x1a\x0b\n\x01a\x12\x06source") }
`

func jobProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module example.com/job\n\ngo 1.26\n", "main.go": jobSource} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSubmitDetached(t *testing.T) {
	jobManager, address := serve(t)
	program := jobProgram(t)
	stdout, stderr, code := flinkctl(t, "submit", "--jobmanager", address, "--detached", "--name", "mine", "--parallelism", "3",
		"-D", "execution.checkpointing.interval=2 s", "--env", "TZ=UTC", "--from-savepoint", "savepoints/s-1", program, "--", "-x", "--detached")
	if code != codeOK || stdout != "job-id: "+runningJob+"\n" {
		t.Fatalf("exit code %d, printed %q\n%s", code, stdout, stderr)
	}
	if !strings.Contains(stderr, "warning: another job has this name") || !strings.Contains(stderr, "uploading") {
		t.Errorf("progress is:\n%s", stderr)
	}
	from, err := filepath.Abs("savepoints/s-1")
	if err != nil {
		t.Fatal(err)
	}
	spec := jobManager.submitted
	if spec.GetName() != "mine" || spec.GetParallelism() != 3 || spec.GetRestoreFrom() != from || strings.Join(spec.GetArgs(), " ") != "-x --detached" ||
		spec.GetConfig()["execution.checkpointing.interval"] != "2 s" || spec.GetEnvironment()["TZ"] != "UTC" || len(spec.GetGraph().GetOperators()) != 1 {
		t.Errorf("submitted %v", spec)
	}
	// The same program is uploaded once.
	if _, stderr, code = flinkctl(t, "submit", "--jobmanager", address, "--detached", program); code != codeOK || strings.Contains(stderr, "uploading") {
		t.Errorf("exit code %d:\n%s", code, stderr)
	}
	if jobManager.artifacts[spec.GetArtifactSha256()] != 1 {
		t.Errorf("artifacts are %v", jobManager.artifacts)
	}
	if jobManager.submitted.GetName() != "job" {
		t.Errorf("without --name the job is called %q", jobManager.submitted.GetName())
	}
}

func TestSubmitWaitsForTheEnd(t *testing.T) {
	jobManager, address := serve(t)
	program := jobProgram(t)
	waiting := &pb.JobStatusResponse{Id: runningJob, Status: "CREATED", Detail: "waiting for 6 slots, 4 free"}
	end := func(status string) *pb.JobStatusResponse {
		s := runningStatus()
		s.Status = status
		return s
	}
	for _, test := range []struct {
		status string
		code   exitCode
		want   string
	}{
		{"FINISHED", codeOK, "job is FINISHED"},
		{"FAILED", codeFailed, "failed: delays: panic: boom"},
		{"CANCELED", codeCanceled, "was cancelled"},
	} {
		jobManager.mu.Lock()
		jobManager.statuses = []*pb.JobStatusResponse{waiting, runningStatus(), end(test.status)}
		jobManager.mu.Unlock()
		stdout, stderr, code := flinkctl(t, "submit", "--jobmanager", address, program)
		if code != test.code || stdout != "job-id: "+runningJob+"\n" {
			t.Errorf("%s: exit code %d, printed %q", test.status, code, stdout)
		}
		for _, want := range []string{"CREATED: waiting for 6 slots, 4 free", "taskmanager-3 was lost", "job is RUNNING", test.want} {
			if strings.Count(stderr, want) != 1 {
				t.Errorf("%s: want %q once in:\n%s", test.status, want, stderr)
			}
		}
		if strings.Contains(stderr, "goroutine 7") {
			t.Errorf("%s: a stack without --verbose:\n%s", test.status, stderr)
		}
	}
}

func TestSubmitRefusedByTheCluster(t *testing.T) {
	jobManager, address := serve(t)
	jobManager.refusal = transport.Errorf(transport.ErrInvalid, "bucket weir at http://127.0.0.1:9 does not exist")
	_, stderr, code := flinkctl(t, "submit", "--jobmanager", address, jobProgram(t))
	if code != codeRefused || !strings.Contains(stderr, "error: bucket weir at http://127.0.0.1:9 does not exist") {
		t.Errorf("exit code %d:\n%s", code, stderr)
	}
}

func TestCompileErrorsAreTheCompilers(t *testing.T) {
	_, address := serve(t)
	program := jobProgram(t)
	if err := os.WriteFile(filepath.Join(program, "main.go"), []byte("package main\n\nfunc main() { return 1 }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := flinkctl(t, "submit", "--jobmanager", address, program)
	if code != codeProgram || !strings.Contains(stderr, "./main.go:3:22: too many return values\n") || !strings.Contains(stderr, "\nerror: "+program+" does not compile\n") {
		t.Errorf("exit code %d:\n%s", code, stderr)
	}
}

func TestSavepointDirectoriesAreAbsolute(t *testing.T) {
	jobManager, address := serve(t)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{"": "", "sp": filepath.Join(here, "sp"), "/sp": "/sp", "s3://weir/sp": "s3://weir/sp"} {
		if _, stderr, code := flinkctl(t, "stop", runningJob, "--savepoint-dir", given, "--jobmanager", address); code != codeOK {
			t.Fatal(stderr)
		}
		if got := jobManager.savepoint; got.GetDir() != want || !got.GetStop() {
			t.Errorf("%q became %v, want %q", given, got, want)
		}
	}
}

func TestEveryVerbHasHelpAndAnExample(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.Long == "" || !strings.Contains(cmd.Example, "flinkctl") {
			t.Errorf("%s lacks help or an example", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit((&cli{}).command())
}

func TestStopAsksForDrain(t *testing.T) {
	jobManager, address := serve(t)
	for _, drain := range []bool{false, true} {
		args := []string{"stop", "4f2a", "--jobmanager", address, "--savepoint-dir", "s3://weir/sp"}
		if drain {
			args = append(args, "--drain")
		}
		if _, stderr, code := flinkctl(t, args...); code != codeOK {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		if r := jobManager.savepoint; !r.GetStop() || r.GetDrain() != drain || r.GetDir() != "s3://weir/sp" || r.GetJobId() != runningJob {
			t.Errorf("stop with drain=%t asked for %v", drain, r)
		}
	}
}

// What a task said, and that the job goes on, is what the user reads; the exit
// code is not 0.
func TestWhatIsRefusedIsAFailureWithItsReason(t *testing.T) {
	jobManager, address := serve(t)
	const reason = "stop-savepoint 18 failed: declined: count (2/2): disk full"
	jobManager.refusal = transport.Errorf(transport.ErrRefused, "%s", reason)
	for _, verb := range []string{"stop", "savepoint", "checkpoint"} {
		stdout, stderr, code := flinkctl(t, verb, "4f2a", "--jobmanager", address)
		if code != codeStatus || stdout != "" || stderr != "error: job "+runningJob+": "+reason+"\n" {
			t.Errorf("%s: exit code %d, printed %q and\n%s", verb, code, stdout, stderr)
		}
	}
}
