package stream_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/connector/datagen"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

func identity(v uint64) (uint64, error) { return v, nil }
func parity(v uint64) string            { return [...]string{"even", "odd"}[v%2] }

// keyOf is a process function that emits its key.
type keyOf struct{ seen state.Value[uint64] }

func newKeyOf() *keyOf { return &keyOf{} }

func (k *keyOf) Open(ctx *stream.Context[string]) (err error) {
	k.seen, err = state.NewValue[uint64](ctx, "seen")
	return err
}

func (k *keyOf) Process(ctx *stream.Context[string], _ uint64, out stream.Collector[string]) error {
	return out.Collect(ctx.Key())
}

func (k *keyOf) Process1(ctx *stream.Context[string], v uint64, out stream.Collector[string]) error {
	return k.Process(ctx, v, out)
}

func (k *keyOf) Process2(_ *stream.Context[string], v string, out stream.Collector[string]) error {
	return out.Collect(v)
}

// The graph of a program with everything in it, as it is submitted.
func TestGraph(t *testing.T) {
	env := stream.NewEnv("everything")
	env.SetMaxParallelism(64)
	src := stream.From(env, "numbers", valuesOf[uint64](1, 2), stream.WithParallelism(2))
	doubled := stream.Map(src, identity, stream.WithParallelism(2))
	few := stream.Filter(doubled, func(uint64) (bool, error) { return true, nil }, stream.WithUID("few"))
	keyed := stream.KeyBy(stream.Union(few, src), parity)
	keys := stream.Process(keyed, "keys", newKeyOf)
	side := stream.SideOutput(keys, stream.NewTag[uint64]("late"))
	texts := stream.KeyBy(keys, func(s string) string { return s })
	both := stream.Connect(stream.KeyBy(src, parity), texts, "both", newKeyOf, stream.WithParallelism(3))
	stream.To(both.Broadcast(), "out", &collected[string]{}, stream.DisableChaining())
	stream.To(side, "late", &collected[uint64]{})
	p, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	var edges []string
	for _, e := range p.Graph.Edges {
		edges = append(edges, e.String())
	}
	want := `numbers -forward-> map-1 (weir/1:uint64)
map-1 -rebalance-> few (weir/1:uint64)
few -hash-> keys (weir/1:uint64)
numbers -hash-> keys (weir/1:uint64)
numbers -hash-> both (weir/1:uint64)
keys -hash-> both[input 1] (weir/1:string)
both -broadcast-> out (weir/1:string)
keys[late] -forward-> late (weir/1:uint64)`
	if got := strings.Join(edges, "\n"); got != want {
		t.Errorf("edges:\n%s\nwant:\n%s", got, want)
	}
	op, _ := p.Graph.Operator("numbers")
	if len(op.Options) != 2 || op.Options[0] != (graph.Option{Key: "a", Value: "1"}) || !op.Bounded || op.Parallelism != 2 {
		t.Errorf("source: %+v", op)
	}
	if op, _ = p.Graph.Operator("both"); op.Kind != graph.ConnectOperator || op.KeyType != "key/1:string" || op.OutputType != "weir/1:string" {
		t.Errorf("connect: %+v", op)
	}
	if op, _ = p.Graph.Operator("out"); !op.ChainingDisabled {
		t.Errorf("sink: %+v", op)
	}
	if p.Graph.MaxParallelism != 64 || p.Graph.Name != "everything" {
		t.Errorf("job %q with max parallelism %d", p.Graph.Name, p.Graph.MaxParallelism)
	}
}

// badSink opens writers of its own type.
type badSink struct{}

func (badSink) OpenWriter(*operator.Context) (*badSink, error) { return nil, nil }
func (badSink) Describe() operator.Description                 { return operator.Description{} }
func (*badSink) Write(uint64) error                            { return nil }
func (*badSink) Close() error                                  { return nil }

// almostFinisher has a Finish that nobody would call.
type almostFinisher struct{ keyOf }

func (*almostFinisher) Finish() error { return nil }

// Building never panics: the first mistake is returned by Build, with what to do.
func TestMistakes(t *testing.T) {
	out := func(s stream.Stream[uint64]) { stream.To(s, "out", &collected[uint64]{}) }
	src := func(env *stream.Env) stream.Stream[uint64] { return stream.From(env, "numbers", valuesOf[uint64](1)) }
	tests := []struct {
		name  string
		build func(env *stream.Env)
		want  []string
	}{
		{"source without UID", func(env *stream.Env) { out(stream.From(env, "", valuesOf[uint64](1))) },
			[]string{"source at env_test.go:", "no UID", "give it a name"}},
		{"sink without UID", func(env *stream.Env) { stream.To(src(env), "", &collected[uint64]{}) },
			[]string{"sink at env_test.go:", "no UID"}},
		{"bad UID", func(env *stream.Env) { out(stream.From(env, "a/b", valuesOf[uint64](1))) },
			[]string{`"a/b"`, "use letters"}},
		{"UID twice", func(env *stream.Env) { stream.To(src(env), "numbers", &collected[uint64]{}) },
			[]string{`two operators have the UID "numbers"`, "the source at env_test.go:", "the sink at env_test.go:", "give each its own"}},
		{"WithUID beside the argument", func(env *stream.Env) { out(stream.From(env, "a", valuesOf[uint64](1), stream.WithUID("b"))) },
			[]string{"leave WithUID out"}},
		{"empty WithUID", func(env *stream.Env) { out(stream.Map(src(env), identity, stream.WithUID(""))) },
			[]string{"UID is empty"}},
		{"float key", func(env *stream.Env) {
			keyed := stream.KeyBy(src(env), func(v uint64) float64 { return float64(v) })
			out(stream.Reduce(keyed, "r", func(a, _ uint64) (uint64, error) { return a, nil }))
		}, []string{"keyBy at env_test.go:", "float64", "keys are made of"}},
		{"key behind a rebalance", func(env *stream.Env) {
			keyed := stream.KeyBy(src(env).Rebalance(), parity)
			out(stream.Reduce(keyed, "r", func(a, _ uint64) (uint64, error) { return a, nil }))
		}, []string{"keyBy at env_test.go:", "told to rebalance its records, but a key decides"}},
		{"type without codec", func(env *stream.Env) {
			m := stream.Map(src(env), func(uint64) (chan int, error) { return nil, nil })
			stream.To(m, "out", &collected[chan int]{})
		}, []string{"map at env_test.go:", "chan", "stream.WithCodec"}},
		{"codec of another type", func(env *stream.Env) {
			c, _ := codec.For[string]()
			out(stream.Map(src(env), identity, stream.WithCodec(c)))
		}, []string{"WithCodec is for string", "output is uint64"}},
		{"codec on a sink", func(env *stream.Env) {
			c, _ := codec.For[uint64]()
			stream.To(src(env), "out", &collected[uint64]{}, stream.WithCodec(c))
		}, []string{"a sink has none"}},
		{"nil function", func(env *stream.Env) { out(stream.Map[uint64, uint64](src(env), nil)) },
			[]string{"map at env_test.go:", "the function is nil"}},
		{"nil key function", func(env *stream.Env) {
			out(stream.Reduce(stream.KeyBy[string](src(env), nil), "r", func(a, _ uint64) (uint64, error) { return a, nil }))
		}, []string{"keyBy at env_test.go:", "nil"}},
		{"nil constructor", func(env *stream.Env) {
			stream.To(stream.Process[string, uint64, string, *keyOf](stream.KeyBy(src(env), parity), "p", nil), "out", &collected[string]{})
		}, []string{`process "p"`, "the function is nil"}},
		{"nil source", func(env *stream.Env) { out(stream.From[uint64](env, "numbers", nil)) },
			[]string{"the source is nil"}},
		{"parallelism 0", func(env *stream.Env) { out(stream.Map(src(env), identity, stream.WithParallelism(0))) },
			[]string{"parallelism 0", "set 1 or more"}},
		{"parallelism above the largest", func(env *stream.Env) { out(stream.Map(src(env), identity, stream.WithParallelism(1000))) },
			[]string{"parallelism 1000", "max parallelism 128"}},
		{"forward between different parallelism", func(env *stream.Env) {
			wide := stream.Map(src(env), identity, stream.WithParallelism(2))
			stream.To(wide.Forward(), "out", &collected[uint64]{}, stream.WithParallelism(3))
		}, []string{"forward edge", "rebalance between them"}},
		{"no source", func(*stream.Env) {}, []string{"no source", "stream.From"}},
		{"no sink", func(env *stream.Env) { src(env) }, []string{"no sink", "stream.To"}},
		{"streams of two jobs", func(env *stream.Env) { out(stream.Union(src(env), src(stream.NewEnv("other")))) },
			[]string{"union at env_test.go:", "another job"}},
		{"zero stream", func(env *stream.Env) { out(stream.Union(src(env), stream.Stream[uint64]{})) },
			[]string{"union at env_test.go:", "not made by this package"}},
		{"custom writer type", func(env *stream.Env) { stream.To(src(env), "out", badSink{}) },
			[]string{`sink "out"`, "badSink", "operator.SinkWriter"}},
		{"side output of a map", func(env *stream.Env) {
			out(stream.SideOutput(stream.Map(src(env), identity), stream.NewTag[uint64]("late")))
		}, []string{`side output "late"`, "only the result of stream.Process"}},
		{"side output of two types", func(env *stream.Env) {
			p := stream.Process(stream.KeyBy(src(env), parity), "p", newKeyOf)
			out(stream.SideOutput(p, stream.NewTag[uint64]("late")))
			stream.SideOutput(p, stream.NewTag[string]("late"))
		}, []string{`side output "late"`, "another record type"}},
		{"tag without a name", func(env *stream.Env) {
			out(stream.SideOutput(stream.Process(stream.KeyBy(src(env), parity), "p", newKeyOf), stream.Tag[uint64]{}))
		}, []string{"stream.NewTag"}},
		{"method of nearly the right name", func(env *stream.Env) {
			keyed := stream.KeyBy(src(env), parity)
			stream.To(stream.Process(keyed, "p", func() *almostFinisher { return nil }), "out", &collected[string]{})
		}, []string{"method Finish", "would never be called", "Finish(operator.Collector[string]) error"}},
		{"bad option of a connector", func(env *stream.Env) {
			out(stream.From(env, "numbers", datagen.Sequence(1, datagen.WithRate(-1))))
		}, []string{`source "numbers"`, "rate is -1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env := stream.NewEnv("bad")
			tt.build(env)
			p, err := env.Build()
			if err == nil {
				t.Fatalf("built %+v, want an error", p.Graph)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
		})
	}
	if _, err := stream.NewEnv("").Build(); err == nil || !strings.Contains(err.Error(), "no name") {
		t.Errorf("job without a name: %v", err)
	}
}

// Functions on a stream that this package did not make do nothing rather than panic.
func TestZeroStream(t *testing.T) {
	var zero stream.Stream[uint64]
	keyed := stream.KeyBy(zero.Rebalance(), parity)
	stream.To(stream.Map(zero, identity), "out", &collected[uint64]{})
	stream.Filter(zero, nil)
	stream.FlatMap[uint64, uint64](zero, nil)
	stream.Reduce(keyed, "r", nil)
	p := stream.Process(keyed, "p", newKeyOf)
	stream.SideOutput(p, stream.NewTag[uint64]("late"))
	stream.Connect(keyed, stream.KeyBy(p, func(s string) string { return s }), "c", newKeyOf)
	stream.Union(zero, zero)
}

// Generated names stay out of the way of the user's, wherever these stand.
func TestGeneratedUIDs(t *testing.T) {
	env := stream.NewEnv("names")
	s := stream.From(env, "numbers", valuesOf[uint64](1))
	s = stream.Map(s, identity)
	s = stream.Map(s, identity, stream.WithUID("map-1"))
	s = stream.Map(s, identity)
	stream.To(s, "out", &collected[uint64]{})
	p, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, op := range p.Graph.Operators {
		names = append(names, string(op.UID))
	}
	if got := strings.Join(names, " "); got != "numbers map-2 map-1 map-3 out" {
		t.Errorf("UIDs: %s", got)
	}
}

// The same program builds the same graph each time: executors rely on it.
func TestSameGraphEachTime(t *testing.T) {
	build := func() graph.JobGraph {
		env := stream.NewEnv("same")
		src := stream.From(env, "numbers", valuesOf[uint64](1))
		stream.To(stream.Process(stream.KeyBy(src, parity), "keys", newKeyOf), "out", &collected[string]{})
		p, err := env.Build()
		if err != nil {
			t.Fatal(err)
		}
		return p.Graph
	}
	first, second := build(), build()
	if d := graph.Diff(first, second); d != "" || graph.Fingerprint(first) != graph.Fingerprint(second) {
		t.Errorf("two builds differ: %s", d)
	}
}

func TestErrorsCarryTheOperator(t *testing.T) {
	broken := errors.New("broken")
	tests := []struct {
		name, want string
		build      func(s stream.Stream[uint64]) stream.Stream[uint64]
	}{
		{"map", "operator m: broken", func(s stream.Stream[uint64]) stream.Stream[uint64] {
			return stream.Map(s, func(uint64) (uint64, error) { return 0, broken }, stream.WithUID("m"))
		}},
		{"behind a flat map", "operator f: broken", func(s stream.Stream[uint64]) stream.Stream[uint64] {
			s = stream.FlatMap(s, func(v uint64, out stream.Collector[uint64]) error { return out.Collect(v) }, stream.WithUID("flat"))
			return stream.Filter(s, func(uint64) (bool, error) { return false, broken }, stream.WithUID("f"))
		}},
		{"reduce", "operator r: broken", func(s stream.Stream[uint64]) stream.Stream[uint64] {
			return stream.Reduce(stream.KeyBy(s, parity), "r", func(uint64, uint64) (uint64, error) { return 0, operator.Permanent(broken) })
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := runJob(t, 1, func(env *stream.Env) {
				s := tt.build(stream.From(env, "numbers", valuesOf[uint64](2, 4)))
				stream.To(s, "out", &collected[uint64]{})
			})
			if !errors.Is(err, broken) || err.Error() != tt.want {
				t.Errorf("error %q, want %q", err, tt.want)
			}
		})
	}
	if err := operator.Failed("x", operator.Permanent(context.Canceled)); !operator.IsPermanent(err) {
		t.Errorf("%v lost its mark of being permanent", err)
	}
}
