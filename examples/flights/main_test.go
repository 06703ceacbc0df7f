package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/flightstruth"
	"github.com/weirstream/weir/pkg/minicluster"
	"github.com/weirstream/weir/pkg/stream"
)

// Two subtasks and a TaskManager that dies on the way: every origin has each
// count once, and the last one has the whole sums.
func TestExactlyOnce(t *testing.T) {
	*input, *output, *rate = "flights.jsonl", filepath.Join(t.TempDir(), "out"), 10_000
	env := stream.NewEnv("flights")
	if err := build(env); err != nil {
		t.Fatal(err)
	}
	program, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cluster, err := minicluster.Start(ctx, minicluster.Options{
		TaskManagers: 2, Slots: 2, Dir: t.TempDir(), Config: []string{"execution.checkpointing.interval=100ms"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	job, err := cluster.Submit(ctx, program, minicluster.JobOptions{Parallelism: 2})
	if err != nil {
		t.Fatal(err)
	}
	for ticker := time.NewTicker(10 * time.Millisecond); ; <-ticker.C {
		status, err := cluster.Status(ctx, job)
		if err != nil {
			t.Fatal(err)
		}
		if status.GetLastCheckpoint() >= 3 {
			break
		}
	}
	if err := cluster.KillTaskManager(0); err != nil {
		t.Fatal(err)
	}
	final, err := cluster.Wait(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	if final.GetStatus() != "FINISHED" || final.GetRestarts() == 0 || final.GetRestoredCheckpoint() < 3 {
		t.Fatalf("ended as %s after %d restarts from checkpoint %d: %v",
			final.GetStatus(), final.GetRestarts(), final.GetRestoredCheckpoint(), final.GetCause())
	}

	truth, err := flightstruth.Read(*input)
	if err != nil {
		t.Fatal(err)
	}
	files, err := flightstruth.Committed(*output)
	if err != nil {
		t.Fatal(err)
	}
	result, err := truth.Check(files)
	if err != nil {
		t.Fatal(err)
	}
	if err := result.Error(); err != nil || result.Records != 20_000 {
		t.Errorf("%d records: %v", result.Records, err)
	}
	hidden, err := filepath.Glob(filepath.Join(*output, ".*"))
	if err != nil || len(hidden) > 0 {
		t.Errorf("left behind: %v, error %v", hidden, err)
	}
}
