package minicluster_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/minicluster"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/statebackend/filetest"
	"github.com/weirstream/weir/pkg/stream"
)

// TestRestartOnTheSameTaskManagerFetchesNothing restarts a job whose state is
// in files, by an error of its code: every file is on the host already, and
// the output is as if nothing had happened.
func TestRestartOnTheSameTaskManagerFetchesNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	core, logs := observer.New(zap.InfoLevel)
	c, err := minicluster.Start(ctx, minicluster.Options{
		Slots: 2, Dir: t.TempDir(), Log: zap.New(core), Backend: &filetest.Backend{GroupsPerFile: 16},
		Config: []string{
			"execution.checkpointing.interval=50 ms", "execution.checkpointing.data-inline-threshold=0 b",
			"restart-strategy.exponential-delay.initial-backoff=1 ms",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	const numbers = 8000
	output := t.TempDir()
	var fail atomic.Bool
	env := stream.NewEnv("counting")
	source := stream.From(env, "numbers", datagen.Sequence(numbers, datagen.WithRate(2000)))
	ones := stream.Map(source, func(v uint64) (count, error) {
		if fail.CompareAndSwap(true, false) {
			return count{}, errors.New("the test wants it so")
		}
		return count{Class: v % classes, N: 1}, nil
	})
	byClass := stream.KeyBy(ones, func(c count) uint64 { return c.Class })
	counts := stream.Reduce(byClass, "counts", func(a, b count) (count, error) { return count{Class: a.Class, N: a.N + b.N}, nil })
	stream.To(counts, "out", file.ExactlyOnce[count](output))
	program, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	job, err := c.Submit(ctx, program, minicluster.JobOptions{Parallelism: 2})
	if err != nil {
		t.Fatal(err)
	}
	await(ctx, t, c, job, "checkpoint 2", func(s *pb.JobStatusResponse) bool { return s.GetLastCheckpoint() >= 2 })
	fail.Store(true)
	if final := finish(ctx, t, c, job); final.GetRestarts() != 1 {
		t.Errorf("%d restarts, want 1: %s", final.GetRestarts(), describe(final))
	}
	checkCounts(t, output, numbers)
	var local int64
	for _, entry := range logs.FilterMessage("state was read to restore").All() {
		fields := entry.ContextMap()
		local += fields["files_local"].(int64)
		if fields["files_fetched"] != int64(0) {
			t.Errorf("fetched: %v", fields)
		}
	}
	if local == 0 {
		t.Error("no file was restored from local disk")
	}
}
