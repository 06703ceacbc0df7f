package minicluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/minicluster"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/stream"
)

// testTimeout bounds every test of this file.
const testTimeout = 20 * time.Second

// count is a record of the output: how many numbers of a class there were.
type count struct {
	Class uint64 `json:"class"`
	N     uint64 `json:"n"`
}

const classes = 7

// counting is a job that counts numbers by class, and writes every count.
func counting(t *testing.T, numbers uint64, rate int, output string) *operator.Program {
	t.Helper()
	env := stream.NewEnv("counting")
	source := stream.From(env, "numbers", datagen.Sequence(numbers, datagen.WithRate(rate)))
	ones := stream.Map(source, func(v uint64) (count, error) { return count{Class: v % classes, N: 1}, nil })
	byClass := stream.KeyBy(ones, func(c count) uint64 { return c.Class })
	counts := stream.Reduce(byClass, "counts", func(a, b count) (count, error) { return count{Class: a.Class, N: a.N + b.N}, nil })
	stream.To(counts, "out", file.ExactlyOnce[count](output))
	program, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// checkCounts verifies that each class was counted from 1 without a gap and
// without anything twice.
func checkCounts(t *testing.T, output string, numbers uint64) {
	t.Helper()
	seen := map[uint64][]uint64{}
	for _, name := range committed(t, output) {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			var c count
			if err := json.Unmarshal([]byte(line), &c); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			seen[c.Class] = append(seen[c.Class], c.N)
		}
	}
	for class := range uint64(classes) {
		want := numbers / classes
		if class < numbers%classes {
			want++
		}
		slices.Sort(seen[class])
		if got := uint64(len(seen[class])); got != want {
			t.Errorf("class %d has %d counts, want %d", class, got, want)
		}
		for i, n := range seen[class] {
			if n != uint64(i+1) {
				t.Fatalf("class %d: count %d at place %d", class, n, i+1)
			}
		}
	}
}

// committed lists the visible files of the output.
func committed(t *testing.T, output string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(output, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && !strings.HasPrefix(entry.Name(), ".") {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func start(ctx context.Context, t *testing.T, taskManagers, slots int) *minicluster.Cluster {
	t.Helper()
	c, err := minicluster.Start(ctx, minicluster.Options{
		TaskManagers: taskManagers, Slots: slots, Dir: t.TempDir(), Log: zaptest.NewLogger(t),
		Config: []string{
			"execution.checkpointing.interval=50 ms",
			"execution.checkpointing.data-inline-threshold=0 b",
			"heartbeat.interval=200 ms", "heartbeat.timeout=2 s",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// await asks for the job's status until ok. The status changes by events of
// the cluster that nobody can wait for from outside, so it is asked again.
func await(ctx context.Context, t *testing.T, c *minicluster.Cluster, job ids.JobID, what string, ok func(*pb.JobStatusResponse) bool) *pb.JobStatusResponse {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		status, err := c.Status(ctx, job)
		if err != nil {
			t.Fatal(err)
		}
		if ok(status) {
			return status
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("job %s did not get to %s; it is %s", job, what, describe(status))
		}
	}
}

func describe(s *pb.JobStatusResponse) string {
	text := fmt.Sprintf("%s (%s), cause %v", s.GetStatus(), s.GetDetail(), s.GetCause())
	for _, e := range s.GetEvents() {
		text += "\n  " + e.GetText()
	}
	return text
}

func finish(ctx context.Context, t *testing.T, c *minicluster.Cluster, job ids.JobID) *pb.JobStatusResponse {
	t.Helper()
	final, err := c.Wait(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	if final.GetStatus() != "FINISHED" {
		t.Fatalf("the job ended as %s", describe(final))
	}
	return final
}

func TestI1KilledTaskManagerLosesAndDoublesNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := start(ctx, t, 3, 1)
	const numbers = 6000
	output := t.TempDir()
	job, err := c.Submit(ctx, counting(t, numbers, 3000, output), minicluster.JobOptions{Parallelism: 2})
	if err != nil {
		t.Fatal(err)
	}
	running := await(ctx, t, c, job, "checkpoint 2", func(s *pb.JobStatusResponse) bool { return s.GetLastCheckpoint() >= 2 })
	victim := running.GetVertices()[1].GetSubtasks()[0].GetTaskManagerId()
	var number int
	if _, err := fmt.Sscanf(victim, "tm-%d", &number); err != nil {
		t.Fatal(err)
	}
	if err := c.KillTaskManager(number); err != nil {
		t.Log(err)
	}
	final := finish(ctx, t, c, job)
	if final.GetRestarts() != 1 {
		t.Errorf("%d restarts, want 1: %s", final.GetRestarts(), describe(final))
	}
	if final.GetRestoredCheckpoint() < 2 {
		t.Errorf("restored checkpoint %d, want 2 or later", final.GetRestoredCheckpoint())
	}
	checkCounts(t, output, numbers)
}

func TestJobManagerThatRestartsResumesTheJob(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := start(ctx, t, 2, 1)
	const numbers = 6000
	output := t.TempDir()
	job, err := c.Submit(ctx, counting(t, numbers, 3000, output), minicluster.JobOptions{Parallelism: 2})
	if err != nil {
		t.Fatal(err)
	}
	await(ctx, t, c, job, "checkpoint 2", func(s *pb.JobStatusResponse) bool { return s.GetLastCheckpoint() >= 2 })
	if err := c.StopJobManager(); err != nil {
		t.Fatal(err)
	}
	if err := c.StartJobManager(ctx); err != nil {
		t.Fatal(err)
	}
	final := finish(ctx, t, c, job)
	if final.GetRestoredCheckpoint() < 2 {
		t.Errorf("restored checkpoint %d, want 2 or later", final.GetRestoredCheckpoint())
	}
	checkCounts(t, output, numbers)

	// A finished job is listed by the next JobManager and not run again.
	if err := c.StopJobManager(); err != nil {
		t.Fatal(err)
	}
	if err := c.StartJobManager(ctx); err != nil {
		t.Fatal(err)
	}
	status, err := c.Status(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	if status.GetStatus() != "FINISHED" {
		t.Errorf("the finished job is %s after a restart", status.GetStatus())
	}
	if err := c.Cancel(ctx, job); err == nil || !strings.Contains(err.Error(), "already FINISHED") {
		t.Errorf("cancel of a finished job: %v", err)
	}
}

func TestStopWithSavepointAndResumeAtAnotherParallelism(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := start(ctx, t, 2, 2)
	const numbers = 6000
	output, savepoints := t.TempDir(), t.TempDir()
	job, err := c.Submit(ctx, counting(t, numbers, 3000, output), minicluster.JobOptions{Parallelism: 2})
	if err != nil {
		t.Fatal(err)
	}
	await(ctx, t, c, job, "checkpoint 1", func(s *pb.JobStatusResponse) bool { return s.GetLastCheckpoint() >= 1 })
	if path, err := c.Savepoint(ctx, job, savepoints); err != nil {
		t.Fatal(err)
	} else if _, err := os.Stat(filepath.Join(strings.TrimPrefix(path, "file://"), "_metadata")); err != nil {
		t.Error(err)
	}
	path, err := c.Stop(ctx, job, savepoints)
	if err != nil {
		t.Fatal(err)
	}
	stopped := finish(ctx, t, c, job)
	if stopped.GetLastCheckpointPath() == "" {
		t.Errorf("stopped job has no restore point: %s", describe(stopped))
	}
	job, err = c.Submit(ctx, counting(t, numbers, 0, output), minicluster.JobOptions{Parallelism: 3, RestoreFrom: path})
	if err != nil {
		t.Fatal(err)
	}
	finish(ctx, t, c, job)
	checkCounts(t, output, numbers)
}

// TestMaxParallelismOfTheConfiguration: a program that leaves the number of key
// groups open gets that of its submission, for good.
func TestMaxParallelismOfTheConfiguration(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := start(ctx, t, 1, 2)
	const numbers = 1000
	output, savepoints := t.TempDir(), t.TempDir()
	job, err := c.Submit(ctx, counting(t, numbers, 1000, output), minicluster.JobOptions{
		Parallelism: 2, Config: map[string]string{"pipeline.max-parallelism": "64"},
	})
	if err != nil {
		t.Fatal(err)
	}
	await(ctx, t, c, job, "RUNNING", func(s *pb.JobStatusResponse) bool { return s.GetStatus() == "RUNNING" })
	path, err := c.Stop(ctx, job, savepoints)
	if err != nil {
		t.Fatal(err)
	}
	finish(ctx, t, c, job)
	if _, err = c.Submit(ctx, counting(t, numbers, 0, output), minicluster.JobOptions{RestoreFrom: path}); err == nil || !strings.Contains(err.Error(), "64") {
		t.Errorf("state of 64 key groups, restored with 128: %v", err)
	}
	job, err = c.Submit(ctx, counting(t, numbers, 0, output), minicluster.JobOptions{
		RestoreFrom: path, Config: map[string]string{"pipeline.max-parallelism": "64"},
	})
	if err != nil {
		t.Fatal(err)
	}
	finish(ctx, t, c, job)
	checkCounts(t, output, numbers)
}

// awaitFailedCheckpoints waits until three have failed.
func awaitFailedCheckpoints(ctx context.Context, t *testing.T, c *minicluster.Cluster, job ids.JobID) *pb.JobStatusResponse {
	t.Helper()
	return await(ctx, t, c, job, "failed checkpoints", func(*pb.JobStatusResponse) bool {
		history, err := c.Checkpoints(ctx, job)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, checkpoint := range history.GetCheckpoints() {
			if checkpoint.GetStatus() == "FAILED" {
				n++
			}
		}
		return n >= 3
	})
}

// TestCancelLeavesNoHiddenOutput: what a sink prepared for checkpoints that
// failed is in no checkpoint, and goes with the job.
func TestCancelLeavesNoHiddenOutput(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := start(ctx, t, 1, 1)
	storage, output := filepath.Join(t.TempDir(), "checkpoints"), t.TempDir()
	job, err := c.Submit(ctx, counting(t, datagen.Unbounded, 1000, output), minicluster.JobOptions{
		Config: map[string]string{"execution.checkpointing.dir": storage},
	})
	if err != nil {
		t.Fatal(err)
	}
	await(ctx, t, c, job, "checkpoint 1", func(s *pb.JobStatusResponse) bool { return s.GetLastCheckpoint() >= 1 })
	if err := errors.Join(os.Rename(storage, storage+".away"), os.WriteFile(storage, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	awaitFailedCheckpoints(ctx, t, c, job)
	hidden := func() []string {
		names, err := filepath.Glob(filepath.Join(output, ".part-*"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if len(hidden()) < 3 {
		t.Errorf("before the cancel there is only %v", hidden())
	}
	if err := c.Cancel(ctx, job); err != nil {
		t.Fatal(err)
	}
	if names := hidden(); len(names) > 0 {
		t.Errorf("after the cancel there is still %v", names)
	}
}

// TestCheckpointsThatCannotBeWrittenLeaveTheJobRunning: they are FAILED in its
// history, and when the storage is back the next one completes.
func TestCheckpointsThatCannotBeWrittenLeaveTheJobRunning(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := start(ctx, t, 1, 1)
	storage := filepath.Join(t.TempDir(), "checkpoints")
	job, err := c.Submit(ctx, counting(t, datagen.Unbounded, 1000, t.TempDir()), minicluster.JobOptions{
		Config: map[string]string{"execution.checkpointing.dir": storage},
	})
	if err != nil {
		t.Fatal(err)
	}
	await(ctx, t, c, job, "checkpoint 1", func(s *pb.JobStatusResponse) bool { return s.GetLastCheckpoint() >= 1 })
	// A file in the directory's place: nothing can be written, whoever we are.
	if err := errors.Join(os.Rename(storage, storage+".away"), os.WriteFile(storage, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	last := awaitFailedCheckpoints(ctx, t, c, job).GetLastCheckpoint()
	if err := errors.Join(os.Remove(storage), os.Rename(storage+".away", storage)); err != nil {
		t.Fatal(err)
	}
	status := await(ctx, t, c, job, "the next checkpoint", func(s *pb.JobStatusResponse) bool { return s.GetLastCheckpoint() > last })
	if status.GetStatus() != "RUNNING" || status.GetRestarts() != 0 {
		t.Errorf("after %d restarts the job is %s", status.GetRestarts(), describe(status))
	}
	if err := c.Cancel(ctx, job); err != nil {
		t.Fatal(err)
	}
}

func TestCancelEndsTheJob(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := start(ctx, t, 1, 1)
	job, err := c.Submit(ctx, counting(t, datagen.Unbounded, 1000, t.TempDir()), minicluster.JobOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(ctx, t, c, job, "RUNNING", func(s *pb.JobStatusResponse) bool { return s.GetStatus() == "RUNNING" })
	if err := c.Cancel(ctx, job); err != nil {
		t.Fatal(err)
	}
	final, err := c.Wait(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	if final.GetStatus() != "CANCELED" {
		t.Errorf("the job ended as %s", describe(final))
	}
}

func TestJobThatNeedsMoreSlotsSaysSoAndGetsThem(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := start(ctx, t, 1, 2)
	output := t.TempDir()
	job, err := c.Submit(ctx, counting(t, 100, 0, output), minicluster.JobOptions{Parallelism: 4})
	if err != nil {
		t.Fatal(err)
	}
	await(ctx, t, c, job, "waiting", func(s *pb.JobStatusResponse) bool { return s.GetDetail() == "waiting for 4 slots, 2 free" })
	if _, err := c.StartTaskManager(); err != nil {
		t.Fatal(err)
	}
	finish(ctx, t, c, job)
	checkCounts(t, output, 100)
}

func TestPanicOfUserCodeIsTheCauseWithItsStack(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := start(ctx, t, 1, 1)
	env := stream.NewEnv("panics")
	numbers := stream.From(env, "numbers", datagen.Sequence(10))
	bad := stream.Map(numbers, func(v uint64) (count, error) {
		if v == 5 {
			panic("five is not to my taste")
		}
		return count{Class: v, N: 1}, nil
	})
	stream.To(bad, "out", file.ExactlyOnce[count](t.TempDir()))
	program, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	job, err := c.Submit(ctx, program, minicluster.JobOptions{Config: map[string]string{"restart-strategy.type": "none"}})
	if err != nil {
		t.Fatal(err)
	}
	final, err := c.Wait(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	cause := final.GetCause()
	if final.GetStatus() != "FAILED" || cause.GetKind() != pb.FailureKind_FAILURE_KIND_USER ||
		!strings.Contains(cause.GetMessage(), "five is not to my taste") || !strings.Contains(cause.GetStack(), "cluster_test.go") {
		t.Errorf("the job ended as %s\n%s", describe(final), cause.GetStack())
	}
}
