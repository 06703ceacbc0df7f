package simjob

import (
	"context"
	"encoding/binary"
	"io"
	"time"

	"github.com/weirstream/weir/pkg/graph"
	"github.com/weirstream/weir/pkg/operator"
	"github.com/weirstream/weir/pkg/state"
	"github.com/weirstream/weir/pkg/stream"
)

// flowProgram builds the job of a flow, with package stream.
func flowProgram(o Options, world *World) (*operator.Program, error) {
	f := o.Flow
	env := stream.NewEnv("simulated flow")
	env.SetMaxParallelism(o.MaxParallelism)
	outs := make([]stream.Stream[Token], len(f.Nodes))
	// made is the function that was made last for each node: the one that
	// the operator under construction has.
	made := make([]audited, len(f.Nodes))
	union := func(links []Link) stream.Stream[Token] {
		var all []stream.Stream[Token]
		for _, l := range links {
			s := outs[l.From]
			switch l.How {
			case graph.Forward:
				s = s.Forward()
			case graph.Rebalance:
				s = s.Rebalance()
			case graph.Broadcast:
				s = s.Broadcast()
			case graph.Hash: // by KeyBy
			}
			all = append(all, s)
		}
		return stream.Union(all[0], all[1:]...)
	}
	for i, v := range f.Nodes {
		options := []stream.Option{stream.WithParallelism(v.Parallelism)}
		if v.Unchained {
			options = append(options, stream.DisableChaining())
		}
		uid := string(f.uid(i))
		keyed := func(gate int) stream.KeyedStream[uint64, Token] {
			return stream.KeyBy(union(v.Inputs[gate]), func(t Token) uint64 { return o.keyOf(t, i) })
		}
		node := flowNode{o: o, world: world, node: i, timers: v.HasTimers}
		switch v.Kind {
		case SourceNode:
			s := stream.From(env, uid, tokenSource{o: o, world: world, node: v}, options...)
			stamps := []stream.Option{stream.WithOutOfOrderness(outOfOrderness * time.Millisecond), stream.WithParallelism(v.Parallelism)}
			if o.Idleness > 0 {
				stamps = append(stamps, stream.WithIdleness(o.Idleness))
			}
			outs[i] = stream.AssignTimestamps(s, string(f.stampsOf(i)), func(t Token) int64 { return o.Time(int(t.Split), t.N) }, stamps...)
		case FlatNode:
			options = append(options, stream.WithUID(uid))
			outs[i] = stream.FlatMap(union(v.Inputs[0]), func(t Token, out stream.Collector[Token]) error {
				world.Observer.record()
				return emit(out, childrenOf(t, i, 0))
			}, options...)
		case KeyedNode:
			if v.HasTimers {
				outs[i] = stream.Process(keyed(0), uid, func() *timedNode {
					n := &timedNode{flowNode: node}
					made[i] = &n.flowNode
					return n
				}, options...)
				continue
			}
			outs[i] = stream.Process(keyed(0), uid, func() *plainNode {
				n := &plainNode{flowNode: node}
				made[i] = &n.flowNode
				return n
			}, options...)
		case LoopNode:
			outs[i] = flowLoop(o, world, i, union(v.Inputs[0]), options, func(n *flowNode) { made[i] = n })
		case RingNode:
			outs[i] = flowRing(o, world, i, union(v.Inputs[0]))
		case ConnectNode:
			outs[i] = stream.Connect(keyed(0), keyed(1), uid, func() *connectNode {
				n := &connectNode{flowNode: node}
				made[i] = &n.flowNode
				return n
			}, options...)
		case RuledNode:
			outs[i] = stream.ConnectKeyedBroadcast(keyed(0), union(v.Inputs[1]), uid, func() *ruledNode {
				n := &ruledNode{flowNode: node}
				n.flowNode.isRuled = true
				made[i] = &n.flowNode
				return n
			}, options...)
		case SinkNode:
			options = append(options, stream.WithUID(string(f.countsOf(i))))
			counts := stream.Map(union(v.Inputs[0]), func(t Token) (Count, error) { return o.Flow.atSink(t, i), nil }, options...)
			stream.To(counts, uid, sink{world: world, revocable: o.Revocable}, stream.WithParallelism(v.Parallelism))
		}
	}
	p, err := env.Build()
	if err != nil {
		return nil, err
	}
	for i, v := range f.Nodes {
		if v.Kind.isKeyed() {
			watch(p, o, world, f.uid(i), func() audited { return made[i] })
		}
	}
	return p, nil
}

// atSink is the output record of a token at a sink.
func (f *Flow) atSink(t Token, sink int) Count {
	return Count{Key: uint64(sink)<<kindShift | t.Origin(), N: t.ID}
}

func emit(out stream.Collector[Token], all []Token) error {
	for _, t := range all {
		if err := out.Collect(t); err != nil {
			return err
		}
	}
	return nil
}

// Fold is what was counted: how many tokens, and the sum of their IDs.
type Fold struct{ N, Sum uint64 }

func (f Fold) add(t Token) Fold { return Fold{N: f.N + 1, Sum: f.Sum + t.ID} }

// flowStates are the states of a keyed node.
type flowStates struct {
	n     state.Value[uint64]
	by    state.Map[uint64, Fold]        // by split
	due   state.Map[int64, []Token]      // by the time of their timer
	rules *state.Broadcast[uint64, Fold] // by split
}

func (s *flowStates) open(ctx contexts, ruled bool) (err error) {
	if s.n, err = state.NewValue[uint64](ctx, "n"); err != nil {
		return err
	}
	if s.by, err = state.NewMap[uint64, Fold](ctx, "by"); err != nil {
		return err
	}
	if s.due, err = state.NewMap[int64, []Token](ctx, "due"); err != nil {
		return err
	}
	if ruled {
		s.rules, err = state.NewBroadcast[uint64, Fold](ctx, "rules")
	}
	return err
}

// flowNode is what the functions of all keyed nodes have.
type flowNode struct {
	flowStates
	o       Options
	world   *World
	node    int
	timers  bool
	isRuled bool
	ctx     *stream.Context[uint64]
}

// Open registers the states.
func (n *flowNode) Open(ctx *stream.Context[uint64]) error {
	n.ctx = ctx
	return n.open(ctx, n.isRuled)
}

// take counts a token and passes on what becomes of it.
func (n *flowNode) take(ctx *stream.Context[uint64], t Token, gate int, out stream.Collector[Token]) error {
	if err := n.count(ctx, t); err != nil {
		return err
	}
	if kept, wait, ok := waits(t, n.node, gate); n.timers && ok {
		at := ctx.Timestamp() + wait
		all, _, err := n.due.Get(at)
		if err != nil {
			return err
		}
		if err := n.due.Set(at, append(all, kept)); err != nil {
			return err
		}
		if err := ctx.Timers().RegisterEventTime(at); err != nil {
			return err
		}
	}
	return emit(out, childrenOf(t, n.node, gate))
}

// count counts a token.
func (n *flowNode) count(ctx *stream.Context[uint64], t Token) error {
	n.world.Observer.record()
	if key := n.o.keyOf(t, n.node); ctx.Key() != key {
		n.world.Observer.broken("I7", "token %v comes under key %d, its key is %d", t, ctx.Key(), key)
	}
	count, _, err := n.n.Ref()
	if err != nil {
		return err
	}
	*count++
	fold, _, err := n.by.Get(t.Split)
	if err != nil {
		return err
	}
	return n.by.Set(t.Split, fold.add(t))
}

// fire passes on what was kept back for a timer.
func (n *flowNode) fire(ctx *stream.Context[uint64], t stream.Timer, out stream.Collector[Token]) error {
	observer := n.world.Observer
	observer.record()
	all, found, err := n.due.Get(t.Time)
	switch {
	case err != nil:
		return err
	case !found:
		observer.broken("I12", "timer %d of key %d fires, for which nothing waits", t.Time, ctx.Key())
	case ctx.Watermark() < t.Time:
		observer.broken("I12", "timer %d of key %d fires at watermark %d", t.Time, ctx.Key(), ctx.Watermark())
	}
	observer.fired(true)
	if err := n.due.Remove(t.Time); err != nil {
		return err
	}
	for _, token := range all {
		if err := emit(out, childrenOf(token, n.node, timerGate)); err != nil {
			return err
		}
	}
	return nil
}

type plainNode struct{ flowNode }

// Process implements stream.ProcessFunction.
func (n *plainNode) Process(ctx *stream.Context[uint64], t Token, out stream.Collector[Token]) error {
	return n.take(ctx, t, 0, out)
}

type timedNode struct{ flowNode }

// Process implements stream.ProcessFunction.
func (n *timedNode) Process(ctx *stream.Context[uint64], t Token, out stream.Collector[Token]) error {
	return n.take(ctx, t, 0, out)
}

// OnTimer implements stream.TimerFunction.
func (n *timedNode) OnTimer(ctx *stream.Context[uint64], t stream.Timer, out stream.Collector[Token]) error {
	return n.fire(ctx, t, out)
}

// loopNode counts what goes round, and lets out what has gone round often enough.
type loopNode struct {
	flowNode
	again stream.Tag[Token]
	back  stream.Collector[Token]
}

// Open implements stream.ProcessFunction.
func (n *loopNode) Open(ctx *stream.Context[uint64]) (err error) {
	if err := n.flowNode.Open(ctx); err != nil {
		return err
	}
	n.back, err = n.again.Collector(ctx)
	return err
}

// Process implements stream.ProcessFunction.
func (n *loopNode) Process(ctx *stream.Context[uint64], t Token, out stream.Collector[Token]) error {
	if t.Left == 0 {
		return n.take(ctx, t, 0, out)
	}
	if err := n.count(ctx, t); err != nil {
		return err
	}
	return n.back.Collect(round(t, n.node))
}

// flowEnter is what stands in front of a loop: entering tokens are told how often
// they go round.
func flowEnter(o Options, i int, in stream.Stream[Token]) stream.KeyedStream[uint64, Token] {
	v := &o.Flow.Nodes[i]
	enter := stream.Map(in.Rebalance(), func(t Token) (Token, error) { return v.entering(t, i), nil },
		stream.WithUID(string(o.Flow.enterOf(i))), stream.WithParallelism(v.Parallelism))
	return stream.KeyBy(enter, func(t Token) uint64 { return o.keyOf(t, i) })
}

// flowRing builds a loop whose body is chained to its head, or one to one behind it.
func flowRing(o Options, world *World, i int, in stream.Stream[Token]) stream.Stream[Token] {
	v := &o.Flow.Nodes[i]
	options := func(uid ids) []stream.Option {
		return []stream.Option{stream.WithUID(string(uid)), stream.WithParallelism(v.Parallelism)}
	}
	return stream.Iterate(flowEnter(o, i, in), string(o.Flow.headOf(i)), func(loop stream.KeyedStream[uint64, Token]) (stream.Stream[Token], stream.Stream[Token]) {
		first := options(o.Flow.bodyOf(i))
		if v.Unchained {
			first = append(first, stream.DisableChaining())
		}
		body := stream.Map(loop.Stream().Forward(), func(t Token) (Token, error) {
			world.Observer.record()
			return t, nil
		}, first...)
		again := stream.FlatMap(body.Forward(), func(t Token, out stream.Collector[Token]) error {
			if t.Left == 0 {
				return nil
			}
			return out.Collect(round(t, i))
		}, options(o.Flow.againOf(i))...)
		leaves := stream.FlatMap(body.Forward(), func(t Token, out stream.Collector[Token]) error {
			if t.Left > 0 {
				return nil
			}
			return emit(out, childrenOf(t, i, 0))
		}, options(o.Flow.uid(i))...)
		return again, leaves
	}, stream.WithParallelism(v.Parallelism))
}

// flowLoop builds a loop: its head spreads what enters by key, and its body counts.
func flowLoop(o Options, world *World, i int, in stream.Stream[Token], options []stream.Option, made func(*flowNode)) stream.Stream[Token] {
	v := &o.Flow.Nodes[i]
	again := stream.NewTag[Token]("again")
	return stream.Iterate(flowEnter(o, i, in), string(o.Flow.headOf(i)), func(loop stream.KeyedStream[uint64, Token]) (stream.Stream[Token], stream.Stream[Token]) {
		body := stream.Process(loop, string(o.Flow.uid(i)), func() *loopNode {
			n := &loopNode{flowNode: flowNode{o: o, world: world, node: i}, again: again}
			made(&n.flowNode)
			return n
		}, options...)
		return stream.SideOutput(body, again), body
	}, stream.WithParallelism(v.Parallelism))
}

type connectNode struct{ flowNode }

// Process1 implements stream.ConnectFunction.
func (n *connectNode) Process1(ctx *stream.Context[uint64], t Token, out stream.Collector[Token]) error {
	return n.take(ctx, t, 0, out)
}

// Process2 implements stream.ConnectFunction.
func (n *connectNode) Process2(ctx *stream.Context[uint64], t Token, out stream.Collector[Token]) error {
	return n.take(ctx, t, 1, out)
}

// OnTimer implements stream.TimerFunction.
func (n *connectNode) OnTimer(ctx *stream.Context[uint64], t stream.Timer, out stream.Collector[Token]) error {
	return n.fire(ctx, t, out)
}

type ruledNode struct{ flowNode }

// Process implements stream.KeyedBroadcastFunction.
func (n *ruledNode) Process(ctx *stream.Context[uint64], t Token, out stream.Collector[Token]) error {
	return n.take(ctx, t, 0, out)
}

// ProcessBroadcast implements stream.KeyedBroadcastFunction. All subtasks
// count, one passes on: which does not matter for what comes out.
func (n *ruledNode) ProcessBroadcast(side *state.BroadcastSide, t Token, out stream.Collector[Token]) error {
	n.world.Observer.record()
	fold, _, err := n.rules.Get(t.Split)
	if err != nil {
		return err
	}
	if err := n.rules.Set(side, t.Split, fold.add(t)); err != nil {
		return err
	}
	if t.ID%uint64(n.ctx.Parallelism()) != uint64(n.ctx.Subtask()) {
		return nil
	}
	return emit(out, childrenOf(t, n.node, 1))
}

// tokenSource emits the tokens of one source's splits.
type tokenSource struct {
	o     Options
	world *World
	node  Node
}

// ListSplits implements operator.Source.
func (s tokenSource) ListSplits(context.Context, operator.SourceContext) ([][]byte, bool, error) {
	out := make([][]byte, s.node.Splits)
	for i := range out {
		out[i] = binary.LittleEndian.AppendUint64(nil, uint64(s.node.First+i))
	}
	return out, true, nil
}

// OpenReader implements operator.Source.
func (s tokenSource) OpenReader(_ context.Context, sc operator.SourceContext, split, position []byte) (operator.Reader[Token], error) {
	r := &tokenReader{source: s, split: binary.LittleEndian.Uint64(split)}
	if position != nil {
		r.next = positionOf(position)
	}
	s.world.Observer.opened(sc.Context, int(r.split), r.next)
	if position != nil && s.world.SkipsRecords != nil && s.world.SkipsRecords() {
		r.next++
	}
	return r, nil
}

// Describe implements operator.Source.
func (s tokenSource) Describe() operator.Description {
	return operator.Description{Bounded: !s.node.Unbounded}
}

type tokenReader struct {
	source tokenSource
	split  uint64
	next   uint64
}

// Fetch implements operator.Reader.
func (r *tokenReader) Fetch(context.Context) (operator.Batch[Token], error) {
	if err := r.source.world.Observer.fails(Fetching); err != nil {
		return nil, err
	}
	if r.next >= r.source.node.Records && !r.source.node.Unbounded {
		return nil, io.EOF
	}
	end := max(r.next, min(r.next+r.source.o.BatchMax, r.source.node.Records))
	b := &tokenBatch{world: r.source.world, split: r.split, next: r.next, end: end}
	r.next = b.end
	return b, nil
}

// Close implements operator.Reader.
func (r *tokenReader) Close() error { return nil }

type tokenBatch struct {
	world     *World
	split     uint64
	next, end uint64
}

// Next implements operator.Batch.
func (b *tokenBatch) Next(t *Token) (bool, error) {
	if b.next == b.end {
		return false, nil
	}
	b.world.Observer.record()
	*t = first(b.split, b.next)
	b.next++
	return true, nil
}

// Position implements operator.Batch.
func (b *tokenBatch) Position() []byte { return binary.LittleEndian.AppendUint64(nil, b.next) }
