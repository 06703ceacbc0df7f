package stream_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/snapshot"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

// starting notes what is called, and when.
type starting struct {
	calls  *[]string
	refuse error
	open   func(*stream.Context[string]) error
}

// Open implements stream.ProcessFunction.
func (s *starting) Open(ctx *stream.Context[string]) error {
	*s.calls = append(*s.calls, fmt.Sprint("open ", ctx.Subtask(), ctx.Parallelism()))
	if s.open != nil {
		return s.open(ctx)
	}
	return nil
}

// Start implements stream.Starter.
func (s *starting) Start(ctx *stream.Context[string]) error {
	// State is attached by now: no other can be registered.
	_, err := state.NewSplitList[int](ctx, "late")
	*s.calls = append(*s.calls, fmt.Sprint("start ", ctx.Subtask(), err != nil))
	return s.refuse
}

// Process implements stream.ProcessFunction.
func (s *starting) Process(ctx *stream.Context[string], v string, out stream.Collector[string]) error {
	*s.calls = append(*s.calls, fmt.Sprint("process ", ctx.Subtask()))
	return out.Collect(v)
}

func buildStarting(s starting) func(*stream.Env) {
	return func(env *stream.Env) {
		words := stream.From(env, "words", valuesOf("a"), stream.WithParallelism(1))
		byWord := stream.KeyBy(words, func(v string) string { return v })
		out := stream.Process(byWord, "starts", func() *starting { return new(s) })
		stream.To(out, "out", &collected[string]{})
	}
}

func TestStarterIsStartedOnceInEachSubtaskBeforeItsFirstRecord(t *testing.T) {
	var calls []string
	if err := runJob(t, 2, buildStarting(starting{calls: &calls})); err != nil {
		t.Fatal(err)
	}
	// The first Open is where the graph is built, and nothing is started there.
	want := []string{"open 0 1", "open 0 2", "start 0 true", "open 1 2", "start 1 true"}
	if len(calls) != 6 || !slices.Equal(calls[:5], want) || !strings.HasPrefix(calls[5], "process ") {
		t.Errorf("called %q", calls)
	}
}

func TestErrorOfStartFailsTheSubtask(t *testing.T) {
	var calls []string
	refused := errors.New("the database does not answer")
	err := runJob(t, 1, buildStarting(starting{calls: &calls, refuse: refused}))
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), "starts") || slices.Contains(calls, "process 0") {
		t.Errorf("%v after %q", err, calls)
	}
}

// What Open refuses is refused where the graph is built, with the operator's UID.
func TestErrorAndPanicOfOpenRefuseTheJob(t *testing.T) {
	for want, open := range map[string]func(*stream.Context[string]) error{
		"the name is taken": func(*stream.Context[string]) error { return errors.New("the name is taken") },
		"it panicked: boom": func(*stream.Context[string]) error { panic("boom") },
	} {
		env := stream.NewEnv("test")
		buildStarting(starting{calls: new([]string), open: open})(env)
		if _, err := env.Build(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"starts"`) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// The graph has the states of every operator that can have some, and says of
// the others that they have none.
func TestGraphDescribesStates(t *testing.T) {
	env := stream.NewEnv("test")
	words := stream.From(env, "words", valuesOf("a"))
	upper := stream.Map(words, func(v string) (string, error) { return strings.ToUpper(v), nil })
	byWord := stream.KeyBy(upper, func(v string) string { return v })
	counted := stream.Process(byWord, "counted", func() *starting {
		return &starting{calls: new([]string), open: func(ctx *stream.Context[string]) error {
			_, err := state.NewValue[int64](ctx, "n")
			if err == nil {
				_, err = state.NewUnionList[string](ctx, "all")
			}
			return err
		}}
	})
	longest := stream.Reduce(stream.KeyBy(counted, func(v string) string { return v }), "longest", func(a, _ string) (string, error) { return a, nil })
	stream.To(longest, "out", &collected[string]{})
	p, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, op := range p.Graph.Operators {
		var names []string
		for _, s := range op.States {
			names = append(names, s.Kind+" "+s.Name)
		}
		got[string(op.UID)] = fmt.Sprint(op.DescribesStates, names)
	}
	for uid, want := range map[string]string{
		"map-1": "true []", "counted": "true [value n " + snapshot.ListKind + " list/all]",
	} {
		if got[uid] != want {
			t.Errorf("%s is %s, want %s", uid, got[uid], want)
		}
	}
	if !strings.HasPrefix(got["longest"], "true [value reduce") {
		t.Errorf("longest is %s", got["longest"])
	}
}
