package stream_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/statebackend"
	"github.com/weirstream/weir/pkg/stream"
)

// sorted collects what a job with one sink writes, at a parallelism.
func sorted[T any](t *testing.T, parallelism int, build func(*stream.Env) stream.Stream[T]) []string {
	t.Helper()
	out := &collected[T]{}
	err := runJob(t, parallelism, func(env *stream.Env) { stream.To(build(env), "out", out) })
	if err != nil {
		t.Fatal(err)
	}
	lines := make([]string, len(out.got))
	for i, v := range out.got {
		lines[i] = fmt.Sprint(v)
	}
	slices.Sort(lines)
	return lines
}

// forEach runs a test at several parallelisms: results must not depend on it.
func forEach(t *testing.T, want string, run func(t *testing.T, parallelism int) []string) {
	for _, parallelism := range []int{1, 2, 5} {
		t.Run(fmt.Sprintf("parallelism %d", parallelism), func(t *testing.T) {
			if got := strings.Join(run(t, parallelism), " "); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestTransformations(t *testing.T) {
	forEach(t, "10 10 20 20", func(t *testing.T, parallelism int) []string {
		return sorted(t, parallelism, func(env *stream.Env) stream.Stream[string] {
			s := stream.From(env, "numbers", valuesOf[uint64](1, 2, 3))
			s = stream.Map(s, func(v uint64) (uint64, error) { return 10 * v, nil })
			s = stream.Filter(s, func(v uint64) (bool, error) { return v < 30, nil })
			return stream.FlatMap(s.Rebalance(), func(v uint64, out stream.Collector[string]) error {
				return errors.Join(out.Collect(fmt.Sprint(v)), out.Collect(fmt.Sprint(v)))
			})
		})
	})
}

// A stream may be used several times, and unions may overlap.
func TestUnionAndFanOut(t *testing.T) {
	forEach(t, "1 1 2 2 7", func(t *testing.T, parallelism int) []string {
		return sorted(t, parallelism, func(env *stream.Env) stream.Stream[uint64] {
			s := stream.From(env, "numbers", valuesOf[uint64](1, 2))
			same := stream.Map(s, identity)
			return stream.Union(s, same, stream.From(env, "seven", valuesOf[uint64](7)))
		})
	})
}

func TestBroadcast(t *testing.T) {
	if got := sorted(t, 3, func(env *stream.Env) stream.Stream[uint64] {
		return stream.Map(stream.From(env, "numbers", valuesOf[uint64](1, 2)).Broadcast(), identity)
	}); strings.Join(got, " ") != "1 1 1 2 2 2" {
		t.Errorf("three subtasks got %v", got)
	}
}

func TestReduce(t *testing.T) {
	forEach(t, "1 2 4 6 9", func(t *testing.T, parallelism int) []string {
		return sorted(t, parallelism, func(env *stream.Env) stream.Stream[uint64] {
			// One subtask reads, so that the order within a key is known.
			s := stream.From(env, "numbers", valuesOf[uint64](1, 2, 3, 4, 5), stream.WithParallelism(1))
			return stream.Reduce(stream.KeyBy(s, parity), "sum", func(sofar, v uint64) (uint64, error) { return sofar + v, nil })
		})
	})
}

// What Reduce emits and what it keeps share nothing: a consumer that keeps a
// record does not see the state change under it.
func TestReduceSharesNothing(t *testing.T) {
	type list struct{ Numbers []uint64 }
	kept := &collected[list]{}
	err := runJob(t, 1, func(env *stream.Env) {
		s := stream.Map(stream.From(env, "numbers", valuesOf[uint64](1, 3, 5)), func(v uint64) (list, error) {
			return list{Numbers: append(make([]uint64, 0, 8), v)}, nil
		})
		keyed := stream.KeyBy(s, func(list) string { return "all" })
		lists := stream.Reduce(keyed, "lists", func(sofar, v list) (list, error) {
			sofar.Numbers[0] += 100 // in place
			sofar.Numbers = append(sofar.Numbers, v.Numbers...)
			return sofar, nil
		})
		stream.To(lists, "out", kept)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(kept.got), "[{[1]} {[101 3]} {[201 3 5]}]"; got != want {
		t.Errorf("kept %s, want %s", got, want)
	}
}

// counter counts the records of a key, reports big ones to a side output, and
// says goodbye.
type counter struct {
	count  state.Value[int]
	big    stream.Collector[uint64]
	closed *int
	seen   int
}

var bigTag = stream.NewTag[uint64]("big")

func (c *counter) Open(ctx *stream.Context[string]) (err error) {
	if c.count, err = state.NewValue[int](ctx, "count"); err != nil {
		return err
	}
	c.big, err = bigTag.Collector(ctx)
	return err
}

func (c *counter) Process(ctx *stream.Context[string], v uint64, out stream.Collector[string]) error {
	n, _, err := c.count.Get()
	if err != nil {
		return err
	}
	n++
	c.seen++
	if err := c.count.Set(n); err != nil {
		return err
	}
	if v > 100 {
		if err := c.big.Collect(v); err != nil {
			return err
		}
	}
	return out.Collect(fmt.Sprintf("%s%d", ctx.Key(), n))
}

// Finish implements stream.Finisher.
func (c *counter) Finish(out stream.Collector[string]) error {
	if c.seen == 0 {
		return nil
	}
	return out.Collect("bye")
}

// Close implements stream.Closer.
func (c *counter) Close() error {
	*c.closed++
	return nil
}

func TestProcess(t *testing.T) {
	for _, consumed := range []bool{true, false} {
		t.Run(fmt.Sprintf("side output consumed %t", consumed), func(t *testing.T) {
			closed := 0
			big := &collected[uint64]{}
			got := sorted(t, 2, func(env *stream.Env) stream.Stream[string] {
				s := stream.From(env, "numbers", valuesOf[uint64](2, 4, 201, 3, 202))
				counts := stream.Process(stream.KeyBy(s, parity), "counts", func() *counter { return &counter{closed: &closed} }, stream.WithParallelism(1))
				if consumed {
					stream.To(stream.SideOutput(counts, bigTag), "big", big)
				}
				return counts
			})
			if want := "bye even1 even2 even3 odd1 odd2"; strings.Join(got, " ") != want {
				t.Errorf("got %v, want %s", got, want)
			}
			slices.Sort(big.got)
			if consumed && !slices.Equal(big.got, []uint64{201, 202}) || !consumed && len(big.got) > 0 {
				t.Errorf("side output got %v", big.got)
			}
			if closed != 1 {
				t.Errorf("closed %d times, want once", closed)
			}
		})
	}
}

// The function and the program must mean the same record type by a tag.
func TestSideOutputOfAnotherType(t *testing.T) {
	closed := 0
	env := stream.NewEnv("job")
	s := stream.From(env, "numbers", valuesOf[uint64](2))
	counts := stream.Process(stream.KeyBy(s, parity), "counts", func() *counter { return &counter{closed: &closed} })
	stream.To(stream.SideOutput(counts, stream.NewTag[string]("big")), "big", &collected[string]{})
	stream.To(counts, "out", &collected[string]{})
	_, err := env.Build()
	if err == nil || !strings.Contains(err.Error(), `operator counts: side output "big" is consumed with another record type than uint64`) {
		t.Errorf("error: %v", err)
	}
	if closed != 0 {
		t.Error("closed a function that was never open")
	}
}

// both keeps one list per key of what came on either side.
type both struct{ sofar state.Value[string] }

func newBoth() *both { return &both{} }

func (b *both) Open(ctx *stream.Context[uint64]) (err error) {
	b.sofar, err = state.NewValue[string](ctx, "sofar")
	return err
}

func (b *both) add(s string, out stream.Collector[string]) error {
	all, _, err := b.sofar.Ref()
	if err != nil {
		return err
	}
	*all += s
	return out.Collect(*all)
}

func (b *both) Process1(_ *stream.Context[uint64], _ uint64, out stream.Collector[string]) error {
	return b.add("L", out)
}

func (b *both) Process2(_ *stream.Context[uint64], v string, out stream.Collector[string]) error {
	return b.add(v, out)
}

// Both inputs of a Connect work on the same state, whatever the parallelism in front.
func TestConnect(t *testing.T) {
	forEach(t, "L L LR", func(t *testing.T, parallelism int) []string {
		return sorted(t, parallelism, func(env *stream.Env) stream.Stream[string] {
			left := stream.From(env, "left", valuesOf[uint64](1, 2), stream.WithParallelism(2))
			right := stream.From(env, "right", valuesOf("R"), stream.WithParallelism(1))
			return stream.Connect(
				stream.KeyBy(left, func(v uint64) uint64 { return v }),
				stream.KeyBy(right, func(string) uint64 { return 2 }), "both", newBoth)
		})
	})
}

// Keyed state comes back with a snapshot, also at another parallelism.
func TestStateIsRestored(t *testing.T) {
	var parts map[ids.OperatorUID][]statebackend.RestoredPart
	run := func(parallelism int) []string {
		out := &collected[uint64]{}
		d, err := newDriver(t, func(env *stream.Env) {
			s := stream.From(env, "numbers", datagen.Sequence(20))
			sums := stream.Reduce(stream.KeyBy(s, func(v uint64) uint64 { return v % 5 }), "sum", func(sofar, v uint64) (uint64, error) {
				return sofar + 1, nil
			})
			stream.To(sums, "out", out)
		}, parallelism, func(uid ids.OperatorUID, _ ids.SubtaskID) *operator.Restored {
			return &operator.Restored{Keyed: parts[uid]}
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.run(); err != nil {
			t.Fatal(err)
		}
		parts = d.freeze()
		if err := d.close(); err != nil {
			t.Fatal(err)
		}
		slices.Sort(out.got)
		return strings.Fields(strings.Trim(fmt.Sprint(out.got), "[]"))
	}
	run(1)
	for i, parallelism := range []int{3, 1, 2} {
		got := run(parallelism)
		if last, want := got[len(got)-1], fmt.Sprint(7+4*(i+1)); last != want {
			t.Errorf("restored at parallelism %d: largest is %s, want %s", parallelism, last, want)
		}
	}
}

// pair is a record of fixed size.
type pair struct{ Key, Value uint64 }

// Records of fixed size cost no allocation from the source to the encoded
// frame, and none from the frame through keyed state to the sink.
func TestNoAllocationPerRecord(t *testing.T) {
	const records = 100_000
	build := func(env *stream.Env) {
		s := stream.From(env, "numbers", datagen.Generate(records, func(i uint64) pair { return pair{i % 1024, i} }))
		s = stream.Map(s, func(p pair) (pair, error) { p.Value++; return p, nil })
		s = stream.Filter(s, func(p pair) (bool, error) { return p.Key > 0, nil })
		s = stream.FlatMap(s, func(p pair, out stream.Collector[pair]) error { return out.Collect(p) })
		keyed := stream.KeyBy(s, func(p pair) uint64 { return p.Key })
		sums := stream.Reduce(keyed, "sum", func(sofar, p pair) (pair, error) { sofar.Value += p.Value; return sofar, nil })
		last := stream.Process(stream.KeyBy(sums, func(p pair) uint64 { return p.Key }), "last", func() *lastPair { return &lastPair{} })
		stream.To(last, "out", discardPairs{})
	}
	d, err := newDriver(t, build, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The first pass fills the state, and says which frames each vertex gets.
	var frames []delivery
	d.record = func(x delivery) { frames = append(frames, x) }
	if err := d.run(); err != nil {
		t.Fatal(err)
	}
	for vertex := ids.VertexID(1); vertex <= 2; vertex++ {
		t.Run(d.graph.Vertices[vertex].Name, func(t *testing.T) {
			d.record, d.drop = nil, true
			passed := 0
			checkAllocations(t, records*9/10, func() int {
				for _, x := range frames {
					if x.to.Vertex != vertex {
						continue
					}
					_, n, err := d.chains[x.to].Inputs[x.input].Process(x.frame.Data, &d.pace)
					if err != nil {
						t.Fatal(err)
					}
					passed += n
				}
				return passed
			})
		})
	}
	if d, err = newDriver(t, build, 1, nil); err != nil {
		t.Fatal(err)
	}
	d.drop = true
	source := d.chains[ids.SubtaskID{}]
	t.Run(d.graph.Vertices[0].Name, func(t *testing.T) {
		checkAllocations(t, records*9/10, func() int {
			if err := d.read(source, 0, 1); err != nil {
				t.Fatal(err)
			}
			return int(source.Writers[0].Records())
		})
	})
}

// checkAllocations runs something once that passes at least so many records.
// What it may allocate are buffers of frames, which hold thousands of records.
func checkAllocations(t *testing.T, least int, run func() int) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	passed := run()
	runtime.ReadMemStats(&after)
	if passed < least {
		t.Fatalf("%d records passed, want at least %d", passed, least)
	}
	if perRecord := float64(after.Mallocs-before.Mallocs) / float64(passed); perRecord > 0.01 {
		t.Errorf("%.3f allocations per record", perRecord)
	}
}

type lastPair struct{ last state.Value[pair] }

func (l *lastPair) Open(ctx *stream.Context[uint64]) (err error) {
	l.last, err = state.NewValue[pair](ctx, "last")
	return err
}

func (l *lastPair) Process(_ *stream.Context[uint64], p pair, out stream.Collector[pair]) error {
	if err := l.last.Set(p); err != nil {
		return err
	}
	return out.Collect(p)
}

type discardPairs struct{}

func (discardPairs) OpenWriter(*operator.Context) (operator.SinkWriter[pair], error) {
	return discardPairs{}, nil
}
func (discardPairs) Describe() operator.Description { return operator.Description{} }
func (discardPairs) Write(pair) error               { return nil }
func (discardPairs) Flush() error                   { return nil }
func (discardPairs) Close() error                   { return nil }
