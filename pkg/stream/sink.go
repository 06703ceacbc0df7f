package stream

import (
	"fmt"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/operator"
)

// SinkWriter is what the writers of all sinks of records of type T can do:
// operator.SinkWriter and operator.TwoPhaseWriter.
type SinkWriter[T any] interface {
	Write(v T) error
	Close() error
}

// Sink is what all sinks can do, whether they commit or not. W is
// operator.SinkWriter[T] for an operator.Sink[T], and
// operator.TwoPhaseWriter[T] for an operator.TwoPhase[T].
type Sink[W any] interface {
	OpenWriter(ctx *operator.Context) (W, error)
	Describe() operator.Description
}

// To writes a stream to a sink: an operator.Sink, at least once, or an
// operator.TwoPhase, exactly once. The UID stays the same between versions of
// the program: what the sink has prepared and not yet committed is found by it.
//
// The type parameters are found by the compiler: T from the stream, W from
// the sink, which must be one for records of type T.
func To[T any, W SinkWriter[T]](in Stream[T], uid string, sink Sink[W], options ...Option) {
	if in.env == nil {
		return
	}
	n, s := in.env.add(graph.SinkOperator, uid, true, options)
	if s.codec != nil {
		in.env.fail(fmt.Errorf("%s: WithCodec is for an operator's output, and a sink has none: give it to the operator in front", n.describe()))
	}
	connect(in, n, 0)
	switch sink := any(sink).(type) {
	case nil:
		in.env.fail(fmt.Errorf("%s: the sink is nil", n.describe()))
	case operator.TwoPhase[T]:
		n.TwoPhase = true
		if revocable, ok := sink.(operator.Revocable); ok {
			n.CommitsRevocable = revocable.CommitsAreRevocable()
		}
		in.env.takeConnector(n, sink)
		n.make = func(func(string) any) (operator.Instance, error) { return operator.NewTwoPhase(sink), nil }
	case operator.Sink[T]:
		in.env.takeConnector(n, sink)
		n.make = func(func(string) any) (operator.Instance, error) { return operator.NewSink(sink), nil }
	default:
		in.env.fail(fmt.Errorf("%s: %T is neither an operator.Sink nor an operator.TwoPhase: declare the result of its OpenWriter as operator.SinkWriter or operator.TwoPhaseWriter",
			n.describe(), sink))
	}
}
