package executor_test

import (
	"context"
	"encoding/binary"
	"io"
	"sync"
	"testing"

	"github.com/weirstream/weir/pkg/codec"
	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/ids"
	"github.com/weirstream/weir/pkg/keygroup"
	"github.com/weirstream/weir/pkg/operator"
)

// numbers is a bounded source: split i has the numbers from i*each on.
type numbers struct {
	splits, each int
	// hold, if not nil, is waited for before each batch.
	hold <-chan struct{}
}

// ListSplits implements operator.Source.
func (n numbers) ListSplits(context.Context, operator.SourceContext) ([][]byte, bool, error) {
	splits := make([][]byte, n.splits)
	for i := range splits {
		splits[i] = binary.LittleEndian.AppendUint64(nil, uint64(i*n.each))
	}
	return splits, true, nil
}

// OpenReader implements operator.Source.
func (n numbers) OpenReader(_ context.Context, _ operator.SourceContext, split, position []byte) (operator.Reader[uint64], error) {
	first := binary.LittleEndian.Uint64(split)
	next := first
	if position != nil {
		next = binary.LittleEndian.Uint64(position)
	}
	return &numberReader{next: next, end: first + uint64(n.each), hold: n.hold}, nil
}

// Describe implements operator.Source.
func (n numbers) Describe() operator.Description { return operator.Description{Bounded: true} }

type numberReader struct {
	next, end uint64
	hold      <-chan struct{}
}

// Fetch implements operator.Reader.
func (r *numberReader) Fetch(ctx context.Context) (operator.Batch[uint64], error) {
	if r.next == r.end {
		return nil, io.EOF
	}
	if r.hold != nil {
		select {
		case <-r.hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return r, nil
}

// Next implements operator.Batch.
func (r *numberReader) Next(v *uint64) (bool, error) {
	if r.next == r.end {
		return false, nil
	}
	*v = r.next
	r.next++
	return true, nil
}

// Position implements operator.Batch.
func (r *numberReader) Position() []byte { return binary.LittleEndian.AppendUint64(nil, r.next) }

// Close implements operator.Reader.
func (r *numberReader) Close() error { return nil }

// total is a sink that adds up what all its subtasks get.
type total struct {
	mu    sync.Mutex
	count int
	sum   uint64
	// on is called for every record.
	on func(v uint64)
}

// OpenWriter implements operator.Sink.
func (s *total) OpenWriter(*operator.Context) (operator.SinkWriter[uint64], error) { return s, nil }

// Describe implements operator.Sink.
func (s *total) Describe() operator.Description { return operator.Description{} }

// Write implements operator.SinkWriter.
func (s *total) Write(v uint64) error {
	if s.on != nil {
		s.on(v)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	s.sum += v
	return nil
}

// Flush implements operator.SinkWriter.
func (s *total) Flush() error { return nil }

// Close implements operator.SinkWriter.
func (s *total) Close() error { return nil }

func (s *total) have() (count int, sum uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count, s.sum
}

// program sends numbers over a hash exchange to the sink.
func program(t testing.TB, src numbers, sink *total) *operator.Program {
	t.Helper()
	p, err := build(src, sink)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func build(src numbers, sink *total) (*operator.Program, error) {
	number, err := codec.For[uint64]()
	if err != nil {
		return nil, err
	}
	keys, err := keygroup.NewEncoding[uint64]()
	if err != nil {
		return nil, err
	}
	return &operator.Program{
		Graph: graph.JobGraph{
			Name: "numbers",
			Operators: []graph.Operator{
				{UID: "numbers", Kind: graph.SourceOperator, OutputType: number.Schema(), Bounded: true},
				{UID: "total", Kind: graph.SinkOperator, KeyType: "uint64"},
			},
			Edges: []graph.Edge{{From: "numbers", To: "total", Partitioner: graph.Hash, Type: number.Schema()}},
		},
		Nodes: map[ids.OperatorUID]*operator.Node{
			"numbers": {UID: "numbers", New: func(out func(string) any) (operator.Instance, error) {
				return operator.NewSource(operator.Source[uint64](src), out("").(operator.Collector[uint64])), nil
			}},
			"total": {UID: "total", New: func(func(string) any) (operator.Instance, error) {
				return operator.NewSink(operator.Sink[uint64](sink)), nil
			}},
		},
		Edges: []*operator.EdgeCode{{
			NewInput: func(c any) operator.Input { return operator.NewInput(number, c.(operator.Collector[uint64])) },
			NewOutput: func(w *operator.Writer) any {
				return operator.NewHashOutput(number, func(v uint64) uint64 { return v }, keys, w)
			},
		}},
	}, nil
}
