package stream

import (
	"fmt"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/operator"
)

// Iterate runs records round a loop until its body lets them out.
//
// body is called once, while the job is built. It gets the records that are in
// the loop and returns two streams: what goes round once more, by key back to the
// head of the loop, and what leaves. Either may come from any operator of the
// body; a side output is the usual way to have both.
//
// Records that go round are counted exactly once, like all others: a checkpoint
// has those that were on their way. They may be at any subtask in any order; only
// those of one key stay in order on each stretch. The watermark of the loop is that
// of its input: what comes round does not hold it back, and may be late.
// When the input has ended, with all that the body gets from elsewhere, and a
// checkpoint finds the loop empty, it ends too. The body's operators may not emit anything in Finish that would go round.
//
// The head never refuses what comes round: what it cannot pass on waits, in
// memory and then on local disk. Loops cannot be nested.
func Iterate[K comparable, T, O any](in KeyedStream[K, T], uid string,
	body func(loop KeyedStream[K, T]) (feedback Stream[T], out Stream[O]), options ...Option) Stream[O] {
	env := in.stream.env
	if env == nil {
		return Stream[O]{}
	}
	n, s := env.add(graph.IterateOperator, uid, true, options)
	if body == nil {
		env.fail(fmt.Errorf("%s: %w", n.describe(), errNoFunction))
		return Stream[O]{env: env}
	}
	connectKeyed(in, n, 0)
	n.make = func(out func(tag string) any) (operator.Instance, error) {
		h := &loopHead[T]{out: mainOutput[T](out)}
		return operator.Instance{Operator: h, Inputs: []any{Collector[T](h)}}, nil
	}
	stamped := n.stamped
	loop := KeyedStream[K, T]{
		stream: output(env, n, "", outputCodec(env, n, s, in.stream.inherited())).partitioned(graph.Hash),
		key:    in.key, encoding: in.encoding,
	}
	feedback, out := body(loop)
	if feedback.env != env || out.env != env {
		env.fail(fmt.Errorf("%s: its body has to return two streams that it makes of its input: what goes round, and what leaves", n.describe()))
		return Stream[O]{env: env}
	}
	first := len(env.edges)
	connectKeyed(KeyedStream[K, T]{stream: feedback.partitioned(graph.Hash), key: in.key, encoding: in.encoding}, n, 0)
	for _, x := range env.edges[first:] {
		x.feedback = true
	}
	// What the body stamps has its timestamp until it comes round, and not beyond.
	n.stamped = stamped
	return out
}

// loopHead passes on what comes from outside and what comes round.
type loopHead[T any] struct {
	operator.Stateless
	out Collector[T]
}

// Open implements operator.Operator.
func (h *loopHead[T]) Open(*operator.Context) error { return nil }

// Collect implements operator.Collector.
func (h *loopHead[T]) Collect(v T) error { return h.out.Collect(v) }
