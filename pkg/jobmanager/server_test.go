package jobmanager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/pkg/checkpointstore"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/objectstore"
	"github.com/weirstream/weir/pkg/objectstore/faulty"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/transport"
)

func launches(commands []*pb.TaskManagerCommand) []*pb.LaunchExecutor {
	var all []*pb.LaunchExecutor
	for _, c := range commands {
		if launch := c.GetLaunchExecutor(); launch != nil {
			all = append(all, launch)
		}
	}
	return all
}

func kills(commands []*pb.TaskManagerCommand) int {
	n := 0
	for _, c := range commands {
		if c.GetStopExecutor().GetKill() {
			n++
		}
	}
	return n
}

func TestOtherWireVersionIsRefusedWithBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		hello := helloOf("tm", 1)
		hello.WireVersion = transport.WireVersion + 7
		w := r.taskManager(hello)
		synctest.Wait()
		commands := w.drain()
		if len(commands) != 1 || !commands[0].GetRefused().GetFinal() {
			t.Fatalf("answer: %v", commands)
		}
		for _, version := range []string{fmt.Sprintf("version %d", hello.GetWireVersion()), fmt.Sprintf("version %d", transport.WireVersion)} {
			if !strings.Contains(commands[0].GetRefused().GetReason(), version) {
				t.Errorf("reason %q does not name %s", commands[0].GetRefused().GetReason(), version)
			}
		}
	})
}

func TestReconnectedTaskManagerIsToldToKillWhatItStillRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		hello := helloOf("tm", 1)
		hello.Running = []*pb.ExecutorRef{{JobId: "old", Attempt: &pb.AttemptID{Token: 1, Number: 1}}}
		w := r.taskManager(hello)
		synctest.Wait()
		commands := w.drain()
		if len(commands) != 2 || commands[0].GetAccepted() == nil || kills(commands) != 1 || commands[1].GetStopExecutor().GetExecutor().GetJobId() != "old" {
			t.Errorf("commands: %v", commands)
		}
	})
}

func TestSilentTaskManagerIsLostAfterTheTimeoutAndABrokenOneAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		count := func() int32 {
			info, err := r.ClusterInfo(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return info.GetTaskManagers()
		}
		silent := r.taskManager(helloOf("silent", 1))
		broken := r.taskManager(helloOf("broken", 1))
		synctest.Wait()
		if n := count(); n != 2 {
			t.Fatalf("%d TaskManagers, want 2", n)
		}
		broken.Close()
		synctest.Wait()
		if n := count(); n != 1 {
			t.Errorf("%d TaskManagers after one broke, want 1", n)
		}
		beat := &pb.TaskManagerReport{Kind: &pb.TaskManagerReport_Heartbeat{Heartbeat: &pb.Heartbeat{Sequence: 1}}}
		silent.beat(beat, time.Second, 20*time.Second)
		synctest.Wait()
		if n := count(); n != 1 {
			t.Errorf("%d TaskManagers while it beats, want 1", n)
		}
		time.Sleep(3 * time.Second) // the last beat was up to a second ago
		if n := count(); n != 1 {
			t.Errorf("%d TaskManagers before the time-out, want 1", n)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n := count(); n != 0 {
			t.Errorf("%d TaskManagers after the time-out, want 0", n)
		}
	})
}

func TestLossIsSaidInWords(t *testing.T) {
	for want, err := range map[string]error{
		"it ended its session":         io.EOF,
		"its connection broke":         fmt.Errorf("receive: %w", context.Canceled),
		"its connection broke: no ack": errors.New("no ack"),
	} {
		if got := lossReason(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

func TestJobWaitsForSlotsAndIsLaunchedAsOneExecutorPerTaskManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		first := r.taskManager(helloOf("tm-1", 2))
		id, err := r.submit(spec("job", 4))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if detail := r.status(id).GetDetail(); detail != "waiting for 4 slots, 2 free" {
			t.Errorf("detail: %q", detail)
		}
		second := r.taskManager(helloOf("tm-2", 2))
		synctest.Wait()
		for _, w := range []*taskManagerWire{first, second} {
			if got := launches(w.drain()); len(got) != 1 || got[0].GetSlots() != 2 || got[0].GetJobName() != "job" {
				t.Errorf("launches: %v", got)
			}
		}
		list, err := r.ListTaskManagers(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tm := range list.GetTaskManagers() {
			if tm.GetSlotsFree() != 0 || len(tm.GetExecutors()) != 1 {
				t.Errorf("TaskManager: %v", tm)
			}
		}
	})
}

func TestI8ExecutorOfAnotherAttemptIsRefusedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		tm := r.taskManager(helloOf("tm", 1))
		if _, err := r.submit(spec("job", 1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ref := launches(tm.drain())[0].GetExecutor()
		stale := &pb.ExecutorRef{JobId: ref.GetJobId(), Attempt: &pb.AttemptID{Token: ref.GetAttempt().GetToken(), Number: ref.GetAttempt().GetNumber() + 1}}
		hello := &pb.ExecutorHello{Executor: stale, TaskManagerId: "tm", DataAddress: "host:1", WireVersion: transport.WireVersion}
		refused := r.executor(hello)
		synctest.Wait()
		if got := refused.drain(); len(got) != 1 || !got[0].GetRefused().GetFinal() || !strings.Contains(got[0].GetRefused().GetReason(), "is over") {
			t.Errorf("answer to an executor of another attempt: %v", got)
		}
		hello.Executor = ref
		admitted := r.executor(hello)
		synctest.Wait()
		got := admitted.drain()
		if len(got) != 2 || got[0].GetAccepted() == nil || len(got[1].GetDeploy().GetTasks()) != 2 {
			t.Fatalf("answer to the right executor: %v", got)
		}
		again := r.executor(hello)
		synctest.Wait()
		if got := again.drain(); len(got) != 1 || !got[0].GetRefused().GetFinal() {
			t.Errorf("answer to a second session of the executor: %v", got)
		}
	})
}

// connect brings a job of one subtask per vertex up to its deployment.
func connect(t *testing.T, r *rig, overrides map[string]string) (id string, tm *taskManagerWire, ref *pb.ExecutorRef, executor *executorWire) {
	t.Helper()
	tm = r.taskManager(helloOf("tm", 1))
	s := spec("job", 1)
	s.Config = overrides
	id, err := r.submit(s)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	ref = launches(tm.drain())[0].GetExecutor()
	executor = r.executor(&pb.ExecutorHello{Executor: ref, TaskManagerId: "tm", DataAddress: "host:1", WireVersion: transport.WireVersion})
	synctest.Wait()
	return id, tm, ref, executor
}

func exited(exit *pb.ExecutorExited) *pb.TaskManagerReport {
	return &pb.TaskManagerReport{Kind: &pb.TaskManagerReport_ExecutorExited{ExecutorExited: exit}}
}

func TestPanicInAGoroutineIsTheUsersThoughTheSessionBrokeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		id, tm, ref, executor := connect(t, r, map[string]string{"restart-strategy.type": "none"})
		executor.Close()
		synctest.Wait()
		if status := r.status(id); status.GetStatus() == "FAILED" {
			t.Fatalf("failed before the exit was reported: %v", status.GetCause())
		}
		tm.in <- exited(&pb.ExecutorExited{Executor: ref, ExitCode: 2,
			StderrTail: "working\npanic: no such flight\n\tdetails\n\ngoroutine 7 [running]:\nmain.fly()\n\t/src/main.go:12\n"})
		synctest.Wait()
		status := r.status(id)
		cause := status.GetCause()
		if status.GetStatus() != "FAILED" || cause.GetKind() != pb.FailureKind_FAILURE_KIND_USER ||
			!strings.HasPrefix(cause.GetMessage(), "panic: no such flight\n\tdetails") || !strings.HasPrefix(cause.GetStack(), "goroutine 7 [running]:") {
			t.Errorf("%s because of %v", status.GetStatus(), cause)
		}
	})
}

func TestKilledExecutorIsALostProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		id, tm, ref, _ := connect(t, r, map[string]string{"restart-strategy.type": "none"})
		tm.in <- exited(&pb.ExecutorExited{Executor: ref, ExitCode: -1, Signal: "killed"})
		synctest.Wait()
		status := r.status(id)
		if status.GetRestarts() != 1 || status.GetCause().GetKind() != pb.FailureKind_FAILURE_KIND_LOST {
			t.Errorf("%d restarts, cause %v", status.GetRestarts(), status.GetCause())
		}
		if got := launches(tm.drain()); len(got) != 1 {
			t.Errorf("launches after the loss: %v", got)
		}
	})
}

func TestExecutorThatNobodySawExitIsLostAfterTheGraceAndKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		id, tm, _, executor := connect(t, r, nil)
		executor.Close()
		time.Sleep(exitReportGrace + time.Millisecond)
		synctest.Wait()
		if n := r.status(id).GetRestarts(); n != 1 {
			t.Errorf("%d restarts, want 1", n)
		}
		if n := kills(tm.drain()); n < 1 {
			t.Error("the executor was not killed")
		}
	})
}

func TestExecutorThatCannotStartHereFailsTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		id, tm, ref, _ := connect(t, r, nil)
		tm.in <- exited(&pb.ExecutorExited{Executor: ref, ExitCode: -1, Error: "the binary is not one for linux/amd64", Kind: pb.FailureKind_FAILURE_KIND_PERMANENT})
		synctest.Wait()
		status := r.status(id)
		if status.GetStatus() != "FAILED" || !strings.Contains(status.GetCause().GetMessage(), "not one for linux/amd64") {
			t.Errorf("%s because of %v", status.GetStatus(), status.GetCause())
		}
	})
}

func TestCommandThatDoesNotFitFailsTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		r.refuse = func(c *pb.TaskManagerCommand) error {
			if c.GetLaunchExecutor() != nil {
				return transport.Errorf(transport.ErrTooLarge, "message of many bytes")
			}
			return nil
		}
		r.taskManager(helloOf("tm", 1))
		id, err := r.submit(spec("job", 1))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if status := r.status(id); status.GetStatus() != "FAILED" || !strings.Contains(status.GetCause().GetMessage(), "message of many bytes") {
			t.Errorf("%s because of %v", status.GetStatus(), status.GetCause())
		}
	})
}

func TestSubmissionsThatAreWrongAreRefusedAndLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		with := func(change func(*pb.JobSpec)) *pb.JobSpec {
			s := spec("job", 1)
			change(s)
			return s
		}
		for name, c := range map[string]struct {
			spec *pb.JobSpec
			kind error
			text string
		}{
			"unknown key":     {with(func(s *pb.JobSpec) { s.Config = map[string]string{"execution.checkpointing.intervall": "1 s"} }), transport.ErrInvalid, "execution.checkpointing.interval"},
			"key of cluster":  {with(func(s *pb.JobSpec) { s.Config = map[string]string{"jobmanager.rpc.port": "1"} }), transport.ErrInvalid, "belongs to the cluster"},
			"bad graph":       {with(func(s *pb.JobSpec) { s.Graph.Operators[1].Uid = "source" }), transport.ErrInvalid, "source"},
			"wire version":    {with(func(s *pb.JobSpec) { s.Graph.WireVersion = 99 }), transport.ErrInvalid, "version 99"},
			"no savepoint":    {with(func(s *pb.JobSpec) { s.RestoreFrom = "/none" }), transport.ErrInvalid, "there is no savepoint"},
			"relative path":   {with(func(s *pb.JobSpec) { s.RestoreFrom = "none" }), transport.ErrInvalid, "absolute path or a URI"},
			"no artifact":     {with(func(s *pb.JobSpec) { s.ArtifactSha256 = strings.Repeat("0", 64) }), transport.ErrInvalid, "upload it first"},
			"too parallel":    {with(func(s *pb.JobSpec) { s.Parallelism = 1000 }), transport.ErrInvalid, "parallelism"},
			"no graph at all": {&pb.JobSpec{}, transport.ErrInvalid, "no job graph"},
		} {
			if _, err := r.submit(c.spec); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", name, err)
			}
		}
		r.fail(func(call faulty.Call) faulty.Fault {
			if call.Op == faulty.Check {
				return faulty.Fault{Before: objectstore.ErrNoBucket}
			}
			return faulty.Fault{}
		})
		if _, err := r.submit(spec("job", 1)); !errors.Is(err, transport.ErrRefused) || !strings.Contains(err.Error(), "bucket does not exist") {
			t.Errorf("no bucket: %v", err)
		}
		r.fail(nil)
		list, err := r.ListJobs(t.Context(), &pb.ListJobsRequest{All: true})
		if err != nil || len(list.GetJobs()) != 0 {
			t.Errorf("jobs: %v, %v", list, err)
		}
		if known, err := r.store.Jobs(t.Context()); err != nil || len(known) != 0 {
			t.Errorf("records: %v, %v", known, err)
		}
	})
}

func TestSecondJobOfANameIsWarnedOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		first, err := r.submit(spec("same", 1))
		if err != nil {
			t.Fatal(err)
		}
		response, err := r.SubmitJob(t.Context(), &pb.SubmitJobRequest{Spec: spec("same", 1)})
		if err != nil {
			t.Fatal(err)
		}
		if len(response.GetWarnings()) != 1 || !strings.Contains(response.GetWarnings()[0], first) {
			t.Errorf("warnings: %q", response.GetWarnings())
		}
	})
}

func TestUnknownAndEndedJobsAreSaidToBeSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		if _, err := r.CancelJob(t.Context(), &pb.CancelJobRequest{JobId: "f00"}); !errors.Is(err, transport.ErrNotFound) || err.Error() != "no job with id f00" {
			t.Errorf("unknown job: %v", err)
		}
		id, err := r.submit(spec("job", 1))
		if err != nil {
			t.Fatal(err)
		}
		if response, err := r.CancelJob(t.Context(), &pb.CancelJobRequest{JobId: id}); err != nil || response.GetStatus() != "CANCELED" {
			t.Fatalf("cancel: %v, %v", response, err)
		}
		for range 2 { // while its driver ends, and after
			if _, err := r.CancelJob(t.Context(), &pb.CancelJobRequest{JobId: id}); !errors.Is(err, transport.ErrRefused) || err.Error() != "already CANCELED" {
				t.Errorf("cancel of a cancelled job: %v", err)
			}
			if _, err := r.Savepoint(t.Context(), &pb.SavepointRequest{JobId: id, Dir: "/tmp"}); !errors.Is(err, transport.ErrRefused) {
				t.Errorf("savepoint of a cancelled job: %v", err)
			}
			synctest.Wait()
		}
	})
}

func TestSavepointToAPlaceThatCannotBeWrittenSaysThatTheJobGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		id, err := r.submit(spec("job", 1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Savepoint(t.Context(), &pb.SavepointRequest{JobId: id}); !errors.Is(err, transport.ErrInvalid) {
			t.Errorf("savepoint to no directory: %v", err)
		}
		r.fail(func(call faulty.Call) faulty.Fault {
			if call.Op == faulty.Check {
				return faulty.Fault{Before: objectstore.ErrDenied}
			}
			return faulty.Fault{}
		})
		_, err = r.Savepoint(t.Context(), &pb.SavepointRequest{JobId: id, Dir: "s3://no-access", Stop: true})
		if !errors.Is(err, transport.ErrRefused) || !strings.Contains(err.Error(), "the job is CREATED") {
			t.Errorf("savepoint to a denied place: %v", err)
		}
	})
}

func TestI9JobsAreRecoveredOnceTheStoreAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		running, err := r.submit(spec("running", 1))
		if err != nil {
			t.Fatal(err)
		}
		cancelled, err := r.submit(spec("cancelled", 1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.CancelJob(t.Context(), &pb.CancelJobRequest{JobId: cancelled}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the running job is claimed, too
		r.close()
		refusals := 0
		r.fail(func(call faulty.Call) faulty.Fault {
			if (call.Op == faulty.List || call.Op == faulty.Read) && refusals < 6 {
				refusals++
				return faulty.Fault{Before: objectstore.ErrDenied}
			}
			return faulty.Fault{}
		})
		r.open()
		defer r.close()
		synctest.Wait()
		tm := r.taskManager(helloOf("tm", 1))
		synctest.Wait()
		if got := launches(tm.drain()); len(got) != 1 || got[0].GetExecutor().GetJobId() != running || got[0].GetExecutor().GetAttempt().GetToken() != 2 {
			t.Errorf("launches: %v", got)
		}
		if status := r.status(cancelled).GetStatus(); status != "CANCELED" {
			t.Errorf("the cancelled job is %s", status)
		}
		list, err := r.ListJobs(t.Context(), &pb.ListJobsRequest{})
		if err != nil || len(list.GetJobs()) != 1 {
			t.Errorf("unfinished jobs: %v, %v", list, err)
		}
	})
}

func TestOldestEndedJobsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "jobstore.max-capacity=2")
		defer r.close()
		var submitted []string
		for range 4 {
			id, err := r.submit(spec("job", 1))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.CancelJob(t.Context(), &pb.CancelJobRequest{JobId: id}); err != nil {
				t.Fatal(err)
			}
			submitted = append(submitted, id)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		list, err := r.ListJobs(t.Context(), &pb.ListJobsRequest{All: true})
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, j := range list.GetJobs() {
			left = append(left, j.GetId())
		}
		slices.Reverse(left)
		if !slices.Equal(left, submitted[2:]) {
			t.Errorf("left: %v, want %v", left, submitted[2:])
		}
	})
}

func TestArtifactIsCheckedAndBounded(t *testing.T) {
	r := newRig(t, "blob.max-size=1 mb")
	defer r.close()
	const sum = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of "hello"
	if err := r.UploadArtifact(t.Context(), sum, 2<<20, strings.NewReader("hello")); !errors.Is(err, transport.ErrInvalid) || !strings.Contains(err.Error(), "blob.max-size") {
		t.Errorf("too large: %v", err)
	}
	if err := r.UploadArtifact(t.Context(), sum, 4, strings.NewReader("hallo")); !errors.Is(err, transport.ErrInvalid) {
		t.Errorf("wrong content: %v", err)
	}
	if _, _, err := r.GetArtifact(t.Context(), sum); !errors.Is(err, transport.ErrNotFound) {
		t.Errorf("get of what was refused: %v", err)
	}
	if err := r.UploadArtifact(t.Context(), sum, 5, strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	if has, err := r.HasArtifact(t.Context(), &pb.HasArtifactRequest{Sha256: sum}); err != nil || !has.GetExists() {
		t.Errorf("has: %v, %v", has, err)
	}
	content, size, err := r.GetArtifact(t.Context(), sum)
	if err != nil || size != 5 {
		t.Fatalf("get: %d, %v", size, err)
	}
	if err := content.Close(); err != nil {
		t.Error(err)
	}
}

// TestTaskManagersAreToldOfTheEndOfAJob, so that they drop what they keep of it.
func TestTaskManagersAreToldOfTheEndOfAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close()
		tm := r.taskManager(helloOf("tm", 1))
		synctest.Wait()
		id, err := r.submit(spec("job", 3)) // waits for slots
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		forgotten := func() (jobs []string) {
			for _, c := range tm.drain() {
				if f := c.GetForgetJob(); f != nil {
					jobs = append(jobs, f.GetJobId())
				}
			}
			return jobs
		}
		if jobs := forgotten(); len(jobs) != 0 {
			t.Errorf("told of the end of %v", jobs)
		}
		if _, err := r.CancelJob(t.Context(), &pb.CancelJobRequest{JobId: id}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if jobs := forgotten(); len(jobs) != 1 || jobs[0] != id {
			t.Errorf("told of the end of %v, want %s", jobs, id)
		}
	})
}

// What is remembered of checkpoints outlives the JobManager, for jobs that run
// and for those that have ended; of others it says what there is.
func TestHistoryOutlivesTheJobManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		running, err := r.submit(spec("running", 1))
		if err != nil {
			t.Fatal(err)
		}
		ended, err := r.submit(spec("ended", 1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.CancelJob(t.Context(), &pb.CancelJobRequest{JobId: ended}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.ShowCheckpoint(t.Context(), &pb.ShowCheckpointRequest{JobId: ended, Id: 7}); !errors.Is(err, transport.ErrNotFound) ||
			!strings.Contains(err.Error(), "has no checkpoint 7: it has none that is remembered") {
			t.Errorf("checkpoint of a job that has none: %v", err)
		}
		for _, job := range []string{running, ended} {
			for id := ids.CheckpointID(5); id <= 7; id++ {
				content, err := checkpointstore.EncodeReport(&snapshot.CheckpointReport{
					ID: id, Kind: snapshot.Checkpoint, Failure: "expired", Detail: "expired: 0 of 1", Parallelism: []int32{1}, Subtasks: make([]snapshot.SubtaskReport, 1),
				})
				if err == nil {
					err = r.store.PutReport(t.Context(), ids.JobID(job), id, content)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		r.close()
		r.open()
		defer r.close()
		synctest.Wait()
		for _, job := range []string{running, ended} {
			list, err := r.ListCheckpoints(t.Context(), &pb.ListCheckpointsRequest{JobId: job})
			if err != nil || len(list.GetCheckpoints()) != 3 || list.GetCheckpoints()[0].GetId() != 7 || list.GetCheckpoints()[0].GetReason() != "expired: 0 of 1" {
				t.Fatalf("remembered are %v, error %v", list, err)
			}
			shown, err := r.ShowCheckpoint(t.Context(), &pb.ShowCheckpointRequest{JobId: job, Id: 6})
			if err != nil || shown.GetInfo().GetId() != 6 || shown.GetReport().GetFailure() != "expired" || len(shown.GetVertices()) == 0 {
				t.Errorf("checkpoint 6 is %v, error %v", shown, err)
			}
			if _, err := r.ShowCheckpoint(t.Context(), &pb.ShowCheckpointRequest{JobId: job, Id: 8}); !errors.Is(err, transport.ErrNotFound) ||
				!strings.Contains(err.Error(), "there are 3, from 5 to 7") {
				t.Errorf("checkpoint that there is not: %v", err)
			}
		}
	})
}
