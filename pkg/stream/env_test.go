package stream_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

// numbers is a source of its splits' bytes.
type numbers struct{}

func (numbers) ListSplits(context.Context, operator.SourceContext) ([][]byte, bool, error) {
	return nil, true, nil
}

func (numbers) OpenReader(context.Context, operator.SourceContext, []byte, []byte) (operator.Reader[uint64], error) {
	return nil, io.EOF
}

func (numbers) Describe() operator.Description {
	return operator.Description{Bounded: true, Options: map[string]string{"b": "2", "a": "1"}}
}

// list is a sink that keeps what it is given.
type list[T any] struct{ got *[]T }

func (l list[T]) OpenWriter(*operator.Context) (operator.SinkWriter[T], error) { return l, nil }
func (list[T]) Describe() operator.Description                                 { return operator.Description{} }
func (l list[T]) Write(v T) error                                              { *l.got = append(*l.got, v); return nil }
func (list[T]) Flush() error                                                   { return nil }
func (list[T]) Close() error                                                   { return nil }

func sinkOf[T any]() list[T] { return list[T]{got: new([]T)} }

// sum is a function on two streams with shared state.
type sum struct{ total state.Value[uint64] }

func newSum() *sum { return &sum{} }

func (s *sum) Open(ctx *stream.Context[string]) (err error) {
	s.total, err = state.NewValue[uint64](ctx, "total")
	return err
}

func (s *sum) Process(ctx *stream.Context[string], v uint64, out stream.Collector[string]) error {
	return out.Collect(ctx.Key())
}

func (s *sum) Process1(ctx *stream.Context[string], v uint64, out stream.Collector[string]) error {
	return s.Process(ctx, v, out)
}

func (s *sum) Process2(ctx *stream.Context[string], v string, out stream.Collector[string]) error {
	return out.Collect(v)
}

func parity(v uint64) string { return [...]string{"even", "odd"}[v%2] }

func TestInference(t *testing.T) {
	env := stream.NewEnv("inference")
	src := stream.From(env, "numbers", numbers{})
	keyed := stream.KeyBy(src, parity)
	sums := stream.Process(keyed, "sums", newSum)
	texts := stream.KeyBy(sums, func(s string) string { return s })
	both := stream.Connect(keyed, texts, "both", newSum)
	stream.To(both, "out", sinkOf[string]())
	p, err := env.Build()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range p.Graph.Edges {
		lines = append(lines, e.String())
	}
	want := `numbers -hash-> sums (weir/1:uint64)
numbers -hash-> both (weir/1:uint64)
sums -hash-> both[input 1] (weir/1:string)
both -forward-> out (weir/1:string)`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("edges:\n%s\nwant:\n%s", got, want)
	}
}
