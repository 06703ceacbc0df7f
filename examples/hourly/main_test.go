package main

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/flightstruth"
	"github.com/weirstream/weir/pkg/minicluster"
	"github.com/weirstream/weir/pkg/stream"
)

// Two subtasks and a TaskManager that dies on the way: every window is written
// once, with as many flights as the input has in it.
func TestHoursAreExactAfterAFailure(t *testing.T) {
	*input, *output, *rate = "../flights/flights.jsonl", filepath.Join(t.TempDir(), "out"), 10_000
	env := stream.NewEnv("hourly")
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
		if status.GetLastCheckpoint() >= 6 {
			break
		}
	}
	before := written(t)
	if err := cluster.KillTaskManager(0); err != nil {
		t.Fatal(err)
	}
	final, err := cluster.Wait(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	if final.GetStatus() != "FINISHED" || final.GetRestarts() == 0 || final.GetRestoredCheckpoint() < 6 {
		t.Fatalf("ended as %s after %d restarts from checkpoint %d: %v",
			final.GetStatus(), final.GetRestarts(), final.GetRestoredCheckpoint(), final.GetCause())
	}
	want := wanted(t)
	if n := len(before); n == 0 || n == len(want) {
		t.Errorf("%d of %d windows were written before the failure: it was to be in the middle", n, len(want))
	}
	if got := written(t); !maps.Equal(got, want) {
		t.Errorf("%d windows were written, want %d; or some have other counts", len(got), len(want))
	}
}

// wanted counts the windows of the input.
func wanted(t *testing.T) map[Window]int64 {
	t.Helper()
	f, err := os.Open(*input)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[Window]int64{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var l Line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		d, err := parse(l)
		if err != nil {
			t.Fatal(err)
		}
		out[Window{d.Time - d.Time%hour, d.Origin}]++
	}
	return out
}

// written reads the windows of the output.
func written(t *testing.T) map[Window]int64 {
	t.Helper()
	files, err := flightstruth.Committed(*output)
	if err != nil {
		t.Fatal(err)
	}
	out := map[Window]int64{}
	for name, content := range files {
		for line := range strings.Lines(string(content)) {
			var d Departures
			if err := json.Unmarshal([]byte(line), &d); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			begin, err := time.Parse(time.RFC3339, d.Hour)
			if err != nil {
				t.Fatal(err)
			}
			w := Window{begin.UnixMilli(), d.Origin}
			if _, ok := out[w]; ok {
				t.Fatalf("window %v is written twice", w)
			}
			out[w] = d.Flights
		}
	}
	return out
}
