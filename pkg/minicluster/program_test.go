package minicluster_test

import (
	"context"
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/minicluster"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/pb"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

// counter counts by key. Its first version has more states.
type counter struct {
	first bool
	n     state.Value[uint64]
	last  state.Value[string]
	seen  *state.OperatorList[uint64]
}

// Open implements stream.ProcessFunction.
func (f *counter) Open(ctx *stream.Context[uint64]) (err error) {
	if f.n, err = state.NewValue[uint64](ctx, "n"); err != nil || !f.first {
		return err
	}
	if f.last, err = state.NewValue[string](ctx, "last"); err != nil {
		return err
	}
	f.seen, err = state.NewSplitList[uint64](ctx, "seen")
	return err
}

// Process implements stream.ProcessFunction.
func (f *counter) Process(ctx *stream.Context[uint64], v count, out stream.Collector[count]) error {
	n, _, err := f.n.Ref()
	if err != nil {
		return err
	}
	*n++
	if f.first {
		if err := f.last.Set("a number"); err != nil {
			return err
		}
		f.seen.Set([]uint64{v.Class})
	}
	return out.Collect(count{Class: ctx.Key(), N: *n})
}

func counterProgram(t *testing.T, numbers uint64, rate int, output string, first bool) *operator.Program {
	t.Helper()
	env := stream.NewEnv("counting")
	source := stream.From(env, "numbers", datagen.Sequence(numbers, datagen.WithRate(rate)))
	ones := stream.Map(source, func(v uint64) (count, error) { return count{Class: v % classes}, nil })
	byClass := stream.KeyBy(ones, func(c count) uint64 { return c.Class })
	counts := stream.Process(byClass, "counts", func() *counter { return &counter{first: first} })
	stream.To(counts, "out", file.ExactlyOnce[count](output))
	program, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// TestStatesThatAProgramNoLongerHas: a keyed state and a list are dropped on
// the user's word only, and what else the operator has goes on.
func TestStatesThatAProgramNoLongerHas(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := start(ctx, t, 1, 2)
	const numbers = 6000
	output := t.TempDir()
	job, err := c.Submit(ctx, counterProgram(t, numbers, 3000, output, true), minicluster.JobOptions{Parallelism: 2})
	if err != nil {
		t.Fatal(err)
	}
	await(ctx, t, c, job, "checkpoint 3", func(s *pb.JobStatusResponse) bool { return s.GetLastCheckpoint() >= 3 })
	path, err := c.Stop(ctx, job, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	finish(ctx, t, c, job)
	second := counterProgram(t, numbers, 0, output, false)
	if _, err := c.Submit(ctx, second, minicluster.JobOptions{Parallelism: 2, RestoreFrom: path}); err == nil ||
		!strings.Contains(err.Error(), `state "last" of operator "counts", which the program does not register`) {
		t.Fatalf("the submission without permission: %v", err)
	}
	job, err = c.Submit(ctx, second, minicluster.JobOptions{Parallelism: 1, RestoreFrom: path, AllowNonRestoredState: true})
	if err != nil {
		t.Fatal(err)
	}
	finish(ctx, t, c, job)
	checkCounts(t, output, numbers)
}
