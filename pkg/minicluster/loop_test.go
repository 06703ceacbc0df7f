package minicluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
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

// walk is a number on its way to 1 by Collatz's rule. Visits is how many steps
// have been taken from the number it is at, by all walks and before this one.
type walk struct {
	Start  uint64 `json:"start"`
	At     uint64 `json:"at"`
	Steps  int    `json:"steps"`
	Visits uint64 `json:"visits"`
}

var walked = stream.NewTag[walk]("walked")

// collatz takes a step of a walk, and lets those out that have come to 1.
type collatz struct {
	visits state.Value[uint64]
	walked stream.Collector[walk]
}

func newCollatz() *collatz { return &collatz{} }

func (c *collatz) Open(ctx *stream.Context[uint64]) (err error) {
	if c.visits, err = state.NewValue[uint64](ctx, "visits"); err != nil {
		return err
	}
	c.walked, err = walked.Collector(ctx)
	return err
}

func (c *collatz) Process(_ *stream.Context[uint64], w walk, out stream.Collector[walk]) error {
	n, _, err := c.visits.Ref()
	if err != nil {
		return err
	}
	w.Visits = *n
	*n++
	switch {
	case w.At == 1:
		return c.walked.Collect(w)
	case w.At%2 == 0:
		w.At /= 2
	default:
		w.At = 3*w.At + 1
	}
	w.Steps++
	return out.Collect(w)
}

func walking(t *testing.T, numbers uint64, rate int, output string) *operator.Program {
	t.Helper()
	env := stream.NewEnv("walking")
	source := stream.From(env, "numbers", datagen.Sequence(numbers, datagen.WithRate(rate)))
	walks := stream.Map(source, func(v uint64) (walk, error) { return walk{Start: v + 1, At: v + 1}, nil })
	byPlace := stream.KeyBy(walks, func(w walk) uint64 { return w.At })
	done := stream.Iterate(byPlace, "loop", func(loop stream.KeyedStream[uint64, walk]) (feedback, out stream.Stream[walk]) {
		step := stream.Process(loop, "step", newCollatz)
		return step, stream.SideOutput(step, walked)
	})
	stream.To(done, "out", file.ExactlyOnce[walk](output))
	program, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// checkWalks verifies that every walk has come out, with its steps, and that 1
// was visited once by each: once by each exactly, unless duplicates are allowed.
func checkWalks(t *testing.T, output string, numbers uint64, duplicates bool) {
	t.Helper()
	starts, visits := map[uint64]int{}, map[uint64]int{}
	for _, name := range committed(t, output) {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			var w walk
			if err := json.Unmarshal([]byte(line), &w); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if want := collatzSteps(w.Start); w.Steps != want || w.At != 1 {
				t.Fatalf("walk %+v, want %d steps", w, want)
			}
			starts[w.Start]++
			visits[w.Visits]++
		}
	}
	for start := uint64(1); start <= numbers; start++ {
		if n := starts[start]; n == 0 || n > 1 && !duplicates {
			t.Errorf("the walk from %d came out %d times", start, n)
		}
		if n := visits[start-1]; n != 1 && !duplicates {
			t.Errorf("%d walks were visit %d of number 1", n, start-1)
		}
	}
}

func collatzSteps(n uint64) int {
	steps := 0
	for ; n != 1; steps++ {
		if n%2 == 0 {
			n /= 2
		} else {
			n = 3*n + 1
		}
	}
	return steps
}

// TestLoopsCountEveryWalk runs a loop over two TaskManagers and kills one of
// them, in every mode of checkpoint.
func TestLoopsCountEveryWalk(t *testing.T) {
	for name, mode := range map[string]map[string]string{
		"aligned":       nil,
		"two at once":   {"execution.checkpointing.max-concurrent-checkpoints": "2"},
		"at least once": {"execution.checkpointing.mode": "AT_LEAST_ONCE"},
		"unaligned":     {"execution.checkpointing.unaligned.enabled": "true"},
		"with timeout":  {"execution.checkpointing.unaligned.enabled": "true", "execution.checkpointing.aligned-checkpoint-timeout": "5 ms"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			c := start(ctx, t, 3, 1)
			const numbers = 3000
			output := t.TempDir()
			job, err := c.Submit(ctx, walking(t, numbers, 1500, output), minicluster.JobOptions{Parallelism: 2, Config: mode})
			if err != nil {
				t.Fatal(err)
			}
			running := await(ctx, t, c, job, "checkpoint 3", func(s *pb.JobStatusResponse) bool { return s.GetLastCheckpoint() >= 3 })
			var number int
			if _, err := fmt.Sscanf(running.GetVertices()[1].GetSubtasks()[0].GetTaskManagerId(), "tm-%d", &number); err != nil {
				t.Fatal(err)
			}
			if err := c.KillTaskManager(number); err != nil {
				t.Log(err)
			}
			final := finish(ctx, t, c, job)
			if final.GetRestarts() != 1 || final.GetRestoredCheckpoint() < 3 {
				t.Errorf("not restored once: %s", describe(final))
			}
			checkWalks(t, output, numbers, name == "at least once")
		})
	}
}

// TestLoopsAreRescaled stops a loop with a savepoint, which has what goes
// round, and goes on with more subtasks and then with fewer.
func TestLoopsAreRescaled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c := start(ctx, t, 3, 1)
	const numbers = 3000
	output, savepoints := t.TempDir(), t.TempDir()
	path := ""
	for _, parallelism := range []int{2, 3} {
		job, err := c.Submit(ctx, walking(t, numbers, 1500, output), minicluster.JobOptions{Parallelism: parallelism, RestoreFrom: path})
		if err != nil {
			t.Fatal(err)
		}
		await(ctx, t, c, job, "a checkpoint", func(s *pb.JobStatusResponse) bool { return s.GetLastCheckpoint() > s.GetRestoredCheckpoint()+2 })
		if path, err = c.Stop(ctx, job, savepoints); err != nil {
			t.Fatal(err)
		}
		finish(ctx, t, c, job)
	}
	job, err := c.Submit(ctx, walking(t, numbers, 1500, output), minicluster.JobOptions{Parallelism: 1, RestoreFrom: path})
	if err != nil {
		t.Fatal(err)
	}
	finish(ctx, t, c, job)
	checkWalks(t, output, numbers, false)
}

// lap is a heavy record on its way round.
type lap struct {
	Start   uint64 `json:"start"`
	Left    int    `json:"left"`
	Payload string `json:"-"`
}

var lapped = stream.NewTag[lap]("lapped")

// laps counts down.
type laps struct{ done stream.Collector[lap] }

func newLaps() *laps { return &laps{} }

func (l *laps) Open(ctx *stream.Context[uint64]) (err error) {
	l.done, err = lapped.Collector(ctx)
	return err
}

func (l *laps) Process(_ *stream.Context[uint64], v lap, out stream.Collector[lap]) error {
	if v.Left == 0 {
		return l.done.Collect(v)
	}
	v.Left--
	return out.Collect(v)
}

// TestFullLoopsSpillAndGoOn sends more into a loop than it can hold in memory, as
// fast as it takes it, and kills a TaskManager when something is on disk.
func TestFullLoopsSpillAndGoOn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*testTimeout)
	defer cancel()
	c := start(ctx, t, 3, 1)
	const numbers = 12_000
	output := t.TempDir()
	env := stream.NewEnv("laps")
	payload := strings.Repeat("x", 4000)
	source := stream.From(env, "numbers", datagen.Sequence(numbers))
	runs := stream.Map(source, func(v uint64) (lap, error) { return lap{Start: v, Left: 6, Payload: payload}, nil })
	byStart := stream.KeyBy(runs, func(v lap) uint64 { return v.Start + uint64(v.Left) })
	done := stream.Iterate(byStart, "loop", func(loop stream.KeyedStream[uint64, lap]) (feedback, out stream.Stream[lap]) {
		next := stream.Process(loop, "next", newLaps)
		return next, stream.SideOutput(next, lapped)
	})
	stream.To(done, "out", file.ExactlyOnce[lap](output))
	program, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	job, err := c.Submit(ctx, program, minicluster.JobOptions{Parallelism: 2})
	if err != nil {
		t.Fatal(err)
	}
	spilled := func(s *pb.JobStatusResponse) (n int64) {
		for _, v := range s.GetVertices() {
			n += v.GetSpilledBytes()
		}
		return n
	}
	running := await(ctx, t, c, job, "a loop on disk and a checkpoint", func(s *pb.JobStatusResponse) bool {
		return s.GetStatus() != "RUNNING" && s.GetLastCheckpoint() > 0 || spilled(s) > 0 && s.GetLastCheckpoint() > 0
	})
	if spilled(running) == 0 {
		t.Fatalf("nothing was put on disk: %s", describe(running))
	}
	t.Logf("%d bytes were on disk", spilled(running))
	var number int
	if _, err := fmt.Sscanf(running.GetVertices()[1].GetSubtasks()[0].GetTaskManagerId(), "tm-%d", &number); err != nil {
		t.Fatal(err)
	}
	if err := c.KillTaskManager(number); err != nil {
		t.Log(err)
	}
	finish(ctx, t, c, job)
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
	for start := range uint64(numbers) {
		if seen[start] != 1 {
			t.Fatalf("record %d came out %d times", start, seen[start])
		}
	}
}
