package minicluster_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/connector/file"
	"github.com/weirstream/weir/pkg/minicluster"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

// rest holds a record until the end of event time, and sends it round again then.
type rest struct {
	held state.Value[lap]
	done stream.Collector[lap]
}

func newRest() *rest { return &rest{} }

func (r *rest) Open(ctx *stream.Context[uint64]) (err error) {
	if r.held, err = state.NewValue[lap](ctx, "held"); err != nil {
		return err
	}
	r.done, err = lapped.Collector(ctx)
	return err
}

func (r *rest) Process(ctx *stream.Context[uint64], v lap, _ stream.Collector[lap]) error {
	if err := r.held.Set(v); err != nil {
		return err
	}
	return ctx.Timers().RegisterEventTime(1 << 50)
}

func (r *rest) OnTimer(_ *stream.Context[uint64], _ stream.Timer, out stream.Collector[lap]) error {
	v, _, err := r.held.Get()
	if err != nil {
		return err
	}
	if v.Left == 0 {
		return r.done.Collect(v)
	}
	v.Left--
	return out.Collect(v)
}

// pass hands records on: the other half of a body of two vertices.
type pass struct{}

func newPass() *pass { return &pass{} }

func (*pass) Open(*stream.Context[uint64]) error { return nil }

func (*pass) Process(_ *stream.Context[uint64], v lap, out stream.Collector[lap]) error {
	return out.Collect(v)
}

func lapKey(v lap) uint64 { return v.Start }

// TestLoopsGoRoundAfterTheEndOfEventTime has records wait in the second vertex of
// a loop's body for the end of event time, which comes before the end of the loop.
func TestLoopsGoRoundAfterTheEndOfEventTime(t *testing.T) {
	for name, mode := range map[string]map[string]string{
		"aligned":       nil,
		"at least once": {"execution.checkpointing.mode": "AT_LEAST_ONCE"},
		"unaligned":     {"execution.checkpointing.unaligned.enabled": "true"},
	} {
		t.Run(name, func(t *testing.T) {
			output := t.TempDir()
			env := stream.NewEnv("rests")
			source := stream.From(env, "numbers", datagen.Sequence(100))
			in := stream.Map(source, func(v uint64) (lap, error) { return lap{Start: v, Left: 3}, nil })
			done := stream.Iterate(stream.KeyBy(in, lapKey), "loop", func(loop stream.KeyedStream[uint64, lap]) (feedback, out stream.Stream[lap]) {
				passed := stream.Process(loop, "pass", newPass)
				next := stream.Process(stream.KeyBy(passed, lapKey), "rest", newRest)
				return next, stream.SideOutput(next, lapped)
			})
			stream.To(done, "out", file.ExactlyOnce[lap](output))
			runLaps(t, env, mode, output, 100)
		})
	}
}

// late sends what comes from outside round, besides what is in the loop.
type late struct{ done stream.Collector[lap] }

func newLate() *late { return &late{} }

func (l *late) Open(ctx *stream.Context[uint64]) (err error) {
	l.done, err = lapped.Collector(ctx)
	return err
}

func (l *late) Process1(_ *stream.Context[uint64], v lap, out stream.Collector[lap]) error {
	if v.Left == 0 {
		return l.done.Collect(v)
	}
	v.Left--
	return out.Collect(v)
}

func (*late) Process2(_ *stream.Context[uint64], v lap, out stream.Collector[lap]) error {
	return out.Collect(v)
}

// TestLoopsWaitForAllThatComesIntoThem has an input of the body that ends long
// after that of the head.
func TestLoopsWaitForAllThatComesIntoThem(t *testing.T) {
	output := t.TempDir()
	env := stream.NewEnv("late")
	early := stream.Map(stream.From(env, "early", datagen.Sequence(50)), func(v uint64) (lap, error) { return lap{Start: v, Left: 3}, nil })
	slow := stream.Map(stream.From(env, "slow", datagen.Sequence(50, datagen.WithRate(25))), func(v uint64) (lap, error) {
		return lap{Start: 50 + v, Left: 3}, nil
	})
	done := stream.Iterate(stream.KeyBy(early, lapKey), "loop", func(loop stream.KeyedStream[uint64, lap]) (feedback, out stream.Stream[lap]) {
		next := stream.Connect(loop, stream.KeyBy(slow, lapKey), "late", newLate)
		return next, stream.SideOutput(next, lapped)
	})
	stream.To(done, "out", file.ExactlyOnce[lap](output))
	runLaps(t, env, nil, output, 100)
}

// runLaps runs the job to its end, and verifies that each of its records came out once.
func runLaps(t *testing.T, env *stream.Env, mode map[string]string, output string, records uint64) {
	t.Helper()
	program, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := start(ctx, t, 2, 1)
	job, err := c.Submit(ctx, program, minicluster.JobOptions{Parallelism: 2, Config: mode})
	if err != nil {
		t.Fatal(err)
	}
	if final := finish(ctx, t, c, job); final.GetRestarts() != 0 {
		t.Errorf("it was restarted: %s", describe(final))
	}
	seen := map[uint64]int{}
	for _, name := range committed(t, output) {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			var v lap
			if err := json.Unmarshal([]byte(line), &v); err != nil || v.Left != 0 {
				t.Fatalf("%s: %+v, %v", name, v, err)
			}
			seen[v.Start]++
		}
	}
	for start := range records {
		if seen[start] != 1 {
			t.Fatalf("record %d came out %d times", start, seen[start])
		}
	}
}
